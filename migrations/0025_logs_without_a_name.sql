-- 1: a client began the session with its whole log and no name for it. Only such a session takes what follows by its words alone: one
-- that a client has made or talks to is changed by requests that name it.
ALTER TABLE sessions ADD COLUMN is_log INTEGER NOT NULL DEFAULT 0 CHECK (is_log IN (0, 1));
CREATE INDEX logs_by_age ON sessions (user, updated_at_ms) WHERE is_log = 1 AND deleted_at_ms IS NULL;
