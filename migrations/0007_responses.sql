-- Clients name a response and not its session, and ask for what it said.
CREATE INDEX responses_by_id ON responses (id);
CREATE INDEX item_versions_of_response ON item_versions (session, response) WHERE response IS NOT NULL;
-- JSON that a client keeps with a session that it made as a conversation.
ALTER TABLE sessions ADD COLUMN metadata TEXT;
