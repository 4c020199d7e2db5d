-- How long a session has not been used, as the service saw it pass: a clock that is set right makes no session old.
ALTER TABLE sessions ADD COLUMN unused_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN swept_at_ms INTEGER;
