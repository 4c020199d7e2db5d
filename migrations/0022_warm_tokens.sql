-- Tokens of `reused_tokens` that were read ahead, while no user waited.
ALTER TABLE measurements ADD COLUMN warm_tokens INTEGER NOT NULL DEFAULT 0 CHECK (warm_tokens >= 0);
