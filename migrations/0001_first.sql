-- The store of Reprise. One rule above all: what was said is only ever added to. An edit, a truncation or a deletion is a
-- new row in `item_versions`; `items` says which row counts today. Times are milliseconds since 1970.
-- This file is applied once and its checksum is kept in the database: never edit it, add the next number.

PRAGMA application_id = 1380995667; -- 'RPRS' as a number, so that a foreign database is recognised

CREATE TABLE users (
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL
) STRICT;

-- A key is `rk_<id>_<secret>`; the secret itself is nowhere.
CREATE TABLE api_keys (
    id              TEXT PRIMARY KEY,
    user            TEXT NOT NULL REFERENCES users (id),
    name            TEXT NOT NULL,
    salt            BLOB NOT NULL,
    hash            BLOB NOT NULL,
    scopes          TEXT NOT NULL, -- words with a space between
    created_at_ms   INTEGER NOT NULL,
    revoked_at_ms   INTEGER,
    last_used_at_ms INTEGER
) STRICT;
CREATE INDEX api_keys_of_user ON api_keys (user);

-- Short-lived secrets for browsers, `ek_<id>_<secret>`, made by the holder of a key and dead with it.
CREATE TABLE client_secrets (
    id            TEXT PRIMARY KEY,
    user          TEXT NOT NULL REFERENCES users (id),
    api_key       TEXT REFERENCES api_keys (id),
    salt          BLOB NOT NULL,
    hash          BLOB NOT NULL,
    session       TEXT NOT NULL, -- JSON: the session settings the secret was made with
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX client_secrets_by_expiry ON client_secrets (expires_at_ms);

CREATE TABLE sessions (
    key           INTEGER PRIMARY KEY AUTOINCREMENT, -- never given twice: a late writer cannot hit another session
    id            TEXT NOT NULL,
    user          TEXT NOT NULL REFERENCES users (id),
    preset        TEXT NOT NULL,
    ctx_size      INTEGER NOT NULL CHECK (ctx_size > 0),
    experiment    TEXT,
    arm           TEXT,
    title         TEXT NOT NULL,
    instructions  TEXT NOT NULL,
    tools         TEXT NOT NULL, -- JSON
    settings      TEXT NOT NULL, -- JSON
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    deleted_at_ms INTEGER        -- set: gone for everybody, its rows are being removed
) STRICT;
-- An id belongs to its user: nobody learns from a refused id that another user has it.
CREATE UNIQUE INDEX sessions_by_id ON sessions (user, id) WHERE deleted_at_ms IS NULL;
CREATE INDEX sessions_by_age ON sessions (user, updated_at_ms) WHERE deleted_at_ms IS NULL;
CREATE INDEX sessions_to_remove ON sessions (deleted_at_ms) WHERE deleted_at_ms IS NOT NULL;

CREATE TABLE tokenizers (
    key         INTEGER PRIMARY KEY,
    fingerprint BLOB NOT NULL UNIQUE CHECK (length(fingerprint) = 32)
) STRICT;

CREATE TABLE item_versions (
    key           INTEGER PRIMARY KEY AUTOINCREMENT,
    session       INTEGER NOT NULL REFERENCES sessions (key),
    seq           INTEGER NOT NULL CHECK (seq > 0), -- 1, 2, 3 within the session: the order in which things happened
    item_id       TEXT NOT NULL,
    version       INTEGER NOT NULL CHECK (version > 0), -- 1, 2, 3 within the item
    change        TEXT NOT NULL CHECK (change IN ('created', 'begun', 'finished', 'edited', 'truncated', 'deleted')),
    place         BLOB NOT NULL CHECK (length(place) > 0), -- the order in which things are read, see store/place.rs
    kind          TEXT NOT NULL CHECK (kind IN ('message', 'function_call', 'function_call_output', 'reasoning')),
    role          TEXT CHECK (role IN ('system', 'user', 'assistant')),
    content       TEXT NOT NULL,    -- JSON
    text          TEXT NOT NULL,    -- what search sees
    spaced        TEXT,             -- the same with a space between the letters of scripts that write none
    tokenizer     INTEGER REFERENCES tokenizers (key),
    tokens        BLOB CHECK ((tokens IS NULL) = (tokenizer IS NULL)), -- u32, little end first
    status        TEXT NOT NULL CHECK (status IN ('in_progress', 'completed', 'interrupted', 'cancelled')),
    sent_chars    INTEGER CHECK (sent_chars >= 0),
    heard_chars   INTEGER CHECK (heard_chars >= 0),
    response      TEXT,
    created_at_ms INTEGER NOT NULL,
    crc           INTEGER NOT NULL,
    UNIQUE (session, seq),
    UNIQUE (session, item_id, version)
) STRICT;

CREATE TRIGGER item_versions_are_append_only BEFORE UPDATE ON item_versions
BEGIN
    SELECT RAISE(ABORT, 'item_versions is append-only: write a new version');
END;

CREATE TABLE items (
    session    INTEGER NOT NULL REFERENCES sessions (key),
    item_id    TEXT NOT NULL,
    current    INTEGER NOT NULL REFERENCES item_versions (key),
    place      BLOB NOT NULL,
    deleted    INTEGER NOT NULL CHECK (deleted IN (0, 1)),
    being_said INTEGER NOT NULL CHECK (being_said IN (0, 1)), -- a reply in progress: what a start after a crash looks for
    PRIMARY KEY (session, item_id)
) STRICT, WITHOUT ROWID;
-- Deleted items keep their place: nothing new may slip under a summary that covers it.
CREATE UNIQUE INDEX items_in_order ON items (session, place);
CREATE INDEX items_by_version ON items (current);
CREATE INDEX items_being_said ON items (session) WHERE being_said = 1;

-- What a reply in progress has sent so far. The finished reply is one version with all of it, and its pieces go.
CREATE TABLE reply_pieces (
    version    INTEGER NOT NULL REFERENCES item_versions (key),
    n          INTEGER NOT NULL,
    text       TEXT NOT NULL,
    tokens     BLOB,
    sent_at_ms INTEGER NOT NULL,
    PRIMARY KEY (version, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE responses (
    key            INTEGER PRIMARY KEY,
    session        INTEGER NOT NULL REFERENCES sessions (key),
    id             TEXT NOT NULL,
    conversation   TEXT NOT NULL CHECK (conversation IN ('auto', 'none')),
    status         TEXT NOT NULL CHECK (status IN ('in_progress', 'completed', 'cancelled', 'failed', 'incomplete')),
    status_details TEXT NOT NULL, -- JSON
    metadata       TEXT NOT NULL, -- JSON
    usage          TEXT NOT NULL, -- JSON
    report         TEXT NOT NULL, -- JSON
    started_at_ms  INTEGER NOT NULL,
    finished_at_ms INTEGER,
    UNIQUE (session, id)
) STRICT;
CREATE INDEX responses_in_progress ON responses (session) WHERE status = 'in_progress';

-- A summary covers all that is placed up to `to_place`. What changed there after `through_seq` it does not know.
CREATE TABLE summaries (
    key           INTEGER PRIMARY KEY,
    session       INTEGER NOT NULL REFERENCES sessions (key),
    version       INTEGER NOT NULL CHECK (version > 0),
    kind          TEXT NOT NULL CHECK (kind IN ('summary', 'drop')), -- drop: oldest turns left out, nothing in their place
    made_by       TEXT NOT NULL CHECK (made_by IN ('model', 'user', 'fallback')),
    based_on      INTEGER,          -- the version it continues or edits
    from_item     TEXT NOT NULL,
    to_item       TEXT NOT NULL,
    from_place    BLOB NOT NULL,
    to_place      BLOB NOT NULL,
    through_seq   INTEGER NOT NULL CHECK (through_seq >= 0),
    text          TEXT NOT NULL,
    pins          TEXT NOT NULL,    -- JSON: ids of the pins that stood beside it
    checks        TEXT NOT NULL,    -- JSON
    tokens_before INTEGER NOT NULL CHECK (tokens_before >= 0),
    tokens_after  INTEGER NOT NULL CHECK (tokens_after >= 0),
    arm           TEXT,
    created_at_ms INTEGER NOT NULL,
    applied_at_ms INTEGER,
    undone_at_ms  INTEGER,
    crc           INTEGER NOT NULL,
    UNIQUE (session, version)
) STRICT;

CREATE TABLE pins (
    key           INTEGER PRIMARY KEY,
    session       INTEGER NOT NULL REFERENCES sessions (key),
    id            TEXT NOT NULL,
    text          TEXT NOT NULL,
    source_item   TEXT,
    made_by       TEXT NOT NULL CHECK (made_by IN ('model', 'user')),
    created_at_ms INTEGER NOT NULL,
    removed_at_ms INTEGER,
    UNIQUE (session, id)
) STRICT;

-- One row a turn. No words in it: what experiments compare.
CREATE TABLE measurements (
    key               INTEGER PRIMARY KEY,
    session           INTEGER NOT NULL REFERENCES sessions (key),
    turn              INTEGER NOT NULL CHECK (turn >= 0),
    response          TEXT,
    experiment        TEXT,
    arm               TEXT,
    preset            TEXT NOT NULL,
    ctx_size          INTEGER NOT NULL CHECK (ctx_size >= 0),
    tokens_in         INTEGER NOT NULL CHECK (tokens_in >= 0),
    tokens_out        INTEGER NOT NULL CHECK (tokens_out >= 0),
    fill_tokens       INTEGER NOT NULL CHECK (fill_tokens >= 0),
    reused_tokens     INTEGER NOT NULL CHECK (reused_tokens >= 0),
    computed_tokens   INTEGER NOT NULL CHECK (computed_tokens >= 0),
    computed_reason   TEXT,
    queue_ms          REAL NOT NULL,
    prefill_ms        REAL NOT NULL,
    first_token_ms    REAL,
    first_sentence_ms REAL,
    total_ms          REAL NOT NULL,
    decode_ms         REAL NOT NULL,
    compactions       INTEGER NOT NULL CHECK (compactions >= 0),
    drops             INTEGER NOT NULL CHECK (drops >= 0),
    barged_in         INTEGER NOT NULL CHECK (barged_in IN (0, 1)),
    regenerated       INTEGER NOT NULL CHECK (regenerated IN (0, 1)),
    feedback          INTEGER CHECK (feedback BETWEEN -1 AND 1),
    memory            TEXT NOT NULL, -- JSON: bytes by kind
    created_at_ms     INTEGER NOT NULL
) STRICT;
CREATE INDEX measurements_of_session ON measurements (session, turn);
CREATE INDEX measurements_of_experiment ON measurements (experiment, arm, created_at_ms);

-- Which snapshots on disk hold a session's words. Snapshots may be shared; a name nobody claims is to be deleted.
CREATE TABLE snapshots (
    session       INTEGER NOT NULL REFERENCES sessions (key),
    name          TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX snapshots_by_name ON snapshots (name);

CREATE TABLE snapshots_to_delete (
    name        TEXT PRIMARY KEY,
    since_ms    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Search over every version of every item. The index keeps no copy of the words, and a deletion takes them out of it for
-- good ('secure-delete') instead of only hiding them.
CREATE VIEW searchable AS SELECT key, coalesce(spaced, text) AS text FROM item_versions WHERE text <> '';
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = 'searchable', content_rowid = 'key', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);

CREATE TRIGGER words_added AFTER INSERT ON item_versions WHEN new.text <> ''
BEGIN
    INSERT INTO words (rowid, text) VALUES (new.key, coalesce(new.spaced, new.text));
END;
CREATE TRIGGER words_removed AFTER DELETE ON item_versions WHEN old.text <> ''
BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.key, coalesce(old.spaced, old.text));
END;
