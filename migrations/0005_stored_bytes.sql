-- What a user has stored, so that a limit on it costs no search. An item counts as its content and what its row takes beside it.
ALTER TABLE users ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE users SET stored_bytes = (
    SELECT coalesce(sum(octet_length(v.content) + 512), 0)
    FROM sessions s JOIN item_versions v ON v.session = s.key WHERE s.user = users.id
);

CREATE TRIGGER stored_bytes_added AFTER INSERT ON item_versions
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.content) + 512
    WHERE id = (SELECT user FROM sessions WHERE key = new.session);
END;
CREATE TRIGGER stored_bytes_removed AFTER DELETE ON item_versions
BEGIN
    UPDATE users SET stored_bytes = stored_bytes - octet_length(old.content) - 512
    WHERE id = (SELECT user FROM sessions WHERE key = old.session);
END;
