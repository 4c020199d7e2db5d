-- What an import brings beside words: numbers of turns, ids, titles, in any size. It counts among what its user has stored, as its file
-- has it, until the session goes.
ALTER TABLE sessions ADD COLUMN imported_bytes INTEGER NOT NULL DEFAULT 0;
CREATE TRIGGER imported_bytes_added AFTER UPDATE OF imported_bytes ON sessions
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + new.imported_bytes - old.imported_bytes WHERE id = new.user;
END;
CREATE TRIGGER imported_bytes_removed AFTER DELETE ON sessions
BEGIN
    UPDATE users SET stored_bytes = stored_bytes - old.imported_bytes WHERE id = old.user;
END;
