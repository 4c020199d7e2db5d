-- In some conversations several persons speak, whom a client names in each message: then a person's words, and the replies to them,
-- are those of their speaker, and not of the session's person.
ALTER TABLE sessions ADD COLUMN speakers INTEGER NOT NULL DEFAULT 0 CHECK (speakers IN (0, 1));
