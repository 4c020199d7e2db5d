-- The facts that the prompts of a session tell: a JSON list of their ids, in the order of the prompt. Their words stay with the facts,
-- so that none outlives its fact. NULL: nothing is told yet, or an older release kept the words here; then the facts are chosen at
-- the next load.
ALTER TABLE sessions ADD COLUMN told_facts TEXT;
UPDATE sessions SET settings = json_remove(settings, '$.remembered') WHERE settings ->> '$.remembered' IS NOT NULL;

-- Rises with each change after which words that conversations of the user have copied may be gone: a running service follows what
-- a command beside it forgets.
ALTER TABLE users ADD COLUMN memory_changes INTEGER NOT NULL DEFAULT 0;

-- A note of the past, and the answer to a search of the past, copy words of other items and of facts. Where one of them goes, so does
-- the copy. `source_session` is the key of the other item's session, 0 for a fact, and -1 where an older release kept no
-- source: such a copy goes with the first thing of its user that is deleted or forgotten.
CREATE TABLE note_sources (
    session        INTEGER NOT NULL REFERENCES sessions (key),
    item_id        TEXT NOT NULL,
    source_session INTEGER NOT NULL,
    source_id      TEXT NOT NULL,
    PRIMARY KEY (session, item_id, source_session, source_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX note_sources_by_source ON note_sources (source_session, source_id);
INSERT INTO note_sources (session, item_id, source_session, source_id)
    SELECT session, item_id, -1, '' FROM items WHERE deleted = 0 AND item_id GLOB 'recall_*';
