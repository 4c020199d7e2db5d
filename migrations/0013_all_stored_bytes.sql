-- What a user has stored is more than items: settings of sessions, secrets of clients with what they begin with, metadata of
-- responses, summaries, pins and facts count as they are, each with what its row takes beside it.
UPDATE users SET stored_bytes = stored_bytes
    + (SELECT coalesce(sum(octet_length(instructions) + octet_length(tools) + octet_length(settings)
            + coalesce(octet_length(metadata), 0) + 512), 0) FROM sessions WHERE user = users.id)
    + (SELECT coalesce(sum(octet_length(session) + 512), 0) FROM client_secrets WHERE user = users.id)
    + (SELECT coalesce(sum(octet_length(r.metadata) + 512), 0)
        FROM sessions s JOIN responses r ON r.session = s.key WHERE s.user = users.id)
    + (SELECT coalesce(sum(octet_length(m.text) + 512), 0)
        FROM sessions s JOIN summaries m ON m.session = s.key WHERE s.user = users.id)
    + (SELECT coalesce(sum(octet_length(p.text) + 512), 0)
        FROM sessions s JOIN pins p ON p.session = s.key WHERE s.user = users.id)
    + (SELECT coalesce(sum(octet_length(text) + octet_length(words) + 512), 0) FROM facts WHERE user = users.id);

CREATE TRIGGER stored_session_added AFTER INSERT ON sessions
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.instructions) + octet_length(new.tools)
        + octet_length(new.settings) + coalesce(octet_length(new.metadata), 0) + 512
    WHERE id = new.user;
END;
CREATE TRIGGER stored_session_changed AFTER UPDATE OF instructions, tools, settings, metadata ON sessions
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.instructions) - octet_length(old.instructions)
        + octet_length(new.tools) - octet_length(old.tools) + octet_length(new.settings) - octet_length(old.settings)
        + coalesce(octet_length(new.metadata), 0) - coalesce(octet_length(old.metadata), 0)
    WHERE id = new.user;
END;
CREATE TRIGGER stored_session_removed AFTER DELETE ON sessions
BEGIN
    UPDATE users SET stored_bytes = stored_bytes - octet_length(old.instructions) - octet_length(old.tools)
        - octet_length(old.settings) - coalesce(octet_length(old.metadata), 0) - 512
    WHERE id = old.user;
END;

CREATE TRIGGER stored_secret_added AFTER INSERT ON client_secrets
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.session) + 512 WHERE id = new.user;
END;
CREATE TRIGGER stored_secret_removed AFTER DELETE ON client_secrets
BEGIN
    UPDATE users SET stored_bytes = stored_bytes - octet_length(old.session) - 512 WHERE id = old.user;
END;

CREATE TRIGGER stored_response_added AFTER INSERT ON responses
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.metadata) + 512
    WHERE id = (SELECT user FROM sessions WHERE key = new.session);
END;
CREATE TRIGGER stored_response_removed AFTER DELETE ON responses
BEGIN
    UPDATE users SET stored_bytes = stored_bytes - octet_length(old.metadata) - 512
    WHERE id = (SELECT user FROM sessions WHERE key = old.session);
END;

CREATE TRIGGER stored_summary_added AFTER INSERT ON summaries
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.text) + 512
    WHERE id = (SELECT user FROM sessions WHERE key = new.session);
END;
CREATE TRIGGER stored_summary_removed AFTER DELETE ON summaries
BEGIN
    UPDATE users SET stored_bytes = stored_bytes - octet_length(old.text) - 512
    WHERE id = (SELECT user FROM sessions WHERE key = old.session);
END;

CREATE TRIGGER stored_pin_added AFTER INSERT ON pins
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.text) + 512
    WHERE id = (SELECT user FROM sessions WHERE key = new.session);
END;
CREATE TRIGGER stored_pin_removed AFTER DELETE ON pins
BEGIN
    UPDATE users SET stored_bytes = stored_bytes - octet_length(old.text) - 512
    WHERE id = (SELECT user FROM sessions WHERE key = old.session);
END;

CREATE TRIGGER stored_fact_added AFTER INSERT ON facts
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.text) + octet_length(new.words) + 512
    WHERE id = new.user;
END;
CREATE TRIGGER stored_fact_changed AFTER UPDATE OF text, words ON facts
BEGIN
    UPDATE users SET stored_bytes = stored_bytes + octet_length(new.text) - octet_length(old.text)
        + octet_length(new.words) - octet_length(old.words)
    WHERE id = new.user;
END;
CREATE TRIGGER stored_fact_removed AFTER DELETE ON facts
BEGIN
    UPDATE users SET stored_bytes = stored_bytes - octet_length(old.text) - octet_length(old.words) - 512
    WHERE id = old.user;
END;
