-- A client that got no answer sends its request again. The digest of a request is stored with the items that the request added, in
-- their transaction: so the retry is recognised after a crash, too. The digest holds no words.
CREATE TABLE request_items (
    user    TEXT NOT NULL,
    digest  BLOB NOT NULL CHECK (length(digest) = 16),
    session INTEGER NOT NULL REFERENCES sessions (key),
    item_id TEXT NOT NULL,
    is_last INTEGER NOT NULL CHECK (is_last IN (0, 1)), -- without it, the rest of the request is missing
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (user, digest, session, item_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_items_by_age ON request_items (user, at_ms);
CREATE INDEX request_items_of_session ON request_items (session);
ALTER TABLE responses ADD COLUMN request BLOB;
CREATE INDEX responses_of_request ON responses (session, request) WHERE request IS NOT NULL;

-- A fork is a copy of the begin of another conversation. `family` is the key of the first of them: an item that is deleted in one
-- conversation of a family is deleted in all.
ALTER TABLE sessions ADD COLUMN family INTEGER;
CREATE INDEX sessions_of_family ON sessions (family) WHERE family IS NOT NULL;

-- 0: all that was computed for the owner goes, and replies to it end. 1: replies go on. 2: only files go, because in memory the
-- conversation goes on without what was deleted.
ALTER TABLE pasts_to_forget ADD COLUMN stays INTEGER NOT NULL DEFAULT 0 CHECK (stays IN (0, 1, 2));
ALTER TABLE pasts_to_forget ADD COLUMN user TEXT; -- NULL: an older release listed the owner

CREATE TRIGGER stored_summary_changed AFTER UPDATE OF text ON summaries
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.text) - octet_length(old.text)
    WHERE id = (SELECT user FROM sessions WHERE key = new.session);
END;
CREATE TRIGGER stored_pin_changed AFTER UPDATE OF text ON pins
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.text) - octet_length(old.text)
    WHERE id = (SELECT user FROM sessions WHERE key = new.session);
END;
