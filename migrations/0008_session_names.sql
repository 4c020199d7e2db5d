-- What a client calls a session that knows no ids of sessions: a satellite, a device, a conversation of its own. `door` says by which
-- door it came, and to which assistant there.
CREATE TABLE session_names (
    user    TEXT NOT NULL REFERENCES users (id),
    door    TEXT NOT NULL,
    name    TEXT NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions (key),
    PRIMARY KEY (user, door, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_names_of_session ON session_names (session);
