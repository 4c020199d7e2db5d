-- Token ids are no longer kept; no release wrote any. `item_versions.tokens` stays, because the checksum of a row that has
-- some covers them, and with it stay `item_versions.tokenizer` and `tokenizers`, which its CHECK names. New rows leave both NULL.
ALTER TABLE reply_pieces DROP COLUMN tokens;
