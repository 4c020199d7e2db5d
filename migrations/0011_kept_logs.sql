-- Which session has the conversation that a client sends whole with each request. A hash stands for the messages of the client's
-- log up to one of the assistant, or for the last few of them where the client cuts its log at the front.
CREATE TABLE kept_logs (
    user          TEXT NOT NULL REFERENCES users (id),
    person        TEXT NOT NULL,
    room          TEXT NOT NULL,
    hash          TEXT NOT NULL,
    session       INTEGER NOT NULL REFERENCES sessions (key),
    last_item     TEXT NOT NULL, -- that ends what the hash stands for
    begins_behind TEXT,          -- where the log goes on in an older conversation: that one's last item
    of_last_few   INTEGER NOT NULL CHECK (of_last_few IN (0, 1)),
    at_ms         INTEGER NOT NULL,
    PRIMARY KEY (user, person, room, hash, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX kept_logs_of_session ON kept_logs (session);
