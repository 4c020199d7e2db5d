-- What users said, as it sounded, where `speech.keep_audio` wants that. It goes with its item.
CREATE TABLE item_audio (
    key     INTEGER PRIMARY KEY AUTOINCREMENT, -- the oldest of a user goes first
    user    TEXT NOT NULL REFERENCES users (id),
    session INTEGER NOT NULL REFERENCES sessions (key),
    item_id TEXT NOT NULL,
    rate    INTEGER NOT NULL CHECK (rate > 0), -- samples a second
    samples BLOB NOT NULL,                     -- 16 bits each, little end first
    UNIQUE (session, item_id)
) STRICT;
CREATE INDEX item_audio_of_user ON item_audio (user, key);

CREATE TRIGGER item_audio_deleted AFTER UPDATE OF deleted ON items WHEN new.deleted = 1
BEGIN
    DELETE FROM item_audio WHERE session = new.session AND item_id = new.item_id;
END;
CREATE TRIGGER item_audio_removed AFTER DELETE ON items
BEGIN
    DELETE FROM item_audio WHERE session = old.session AND item_id = old.item_id;
END;
