-- Whose words a conversation holds: a person of the home, by the name that rules of the configuration give, and the room in which
-- they are said. Without a person they are the home's. Only of a conversation that is remembered facts are kept, and only it is
-- found by other conversations.
ALTER TABLE sessions ADD COLUMN person TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN room TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN remembered INTEGER NOT NULL DEFAULT 0 CHECK (remembered IN (0, 1));
-- How far what was said has been looked at for facts: by its words, and by a model.
ALTER TABLE sessions ADD COLUMN heard_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN learned_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN learned_at_ms INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_of_person ON sessions (user, person, updated_at_ms) WHERE deleted_at_ms IS NULL;
CREATE INDEX sessions_to_learn_from ON sessions (updated_at_ms)
    WHERE deleted_at_ms IS NULL AND remembered = 1 AND learned_at_ms < updated_at_ms;

-- What is remembered beyond a conversation, in the words that were said. A fact that was forgotten keeps only where it was said,
-- so that nothing finds it there again.
CREATE TABLE facts (
    key             INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT NOT NULL UNIQUE,
    user            TEXT NOT NULL REFERENCES users (id),
    person          TEXT NOT NULL, -- whose it is. Empty: the home's, which all its persons share
    about           TEXT NOT NULL, -- a newer fact about the same takes its place
    text            TEXT NOT NULL,
    asked           INTEGER NOT NULL CHECK (asked IN (0, 1)), -- a person asked for it ('remember that ...')
    made_by         TEXT NOT NULL CHECK (made_by IN ('words', 'model', 'user')),
    confidence      REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    session         INTEGER REFERENCES sessions (key),
    item_id         TEXT,
    words           TEXT NOT NULL, -- what was said, of which the fact is made
    said_by         TEXT NOT NULL, -- the person whose words they are
    said_at_ms      INTEGER NOT NULL,
    uses            INTEGER NOT NULL DEFAULT 0,
    used_at_ms      INTEGER,
    created_at_ms   INTEGER NOT NULL,
    replaced_by     TEXT, -- the id of the newer one
    replaced_at_ms  INTEGER,
    forgotten_at_ms INTEGER
) STRICT;
CREATE INDEX facts_of_person ON facts (user, person);
CREATE INDEX facts_of_session ON facts (session) WHERE session IS NOT NULL;

-- Items in which a fact stands that was replaced or forgotten: no conversation is told of them.
CREATE TABLE unsaid_items (
    session INTEGER NOT NULL REFERENCES sessions (key),
    item_id TEXT NOT NULL,
    PRIMARY KEY (session, item_id)
) STRICT, WITHOUT ROWID;
