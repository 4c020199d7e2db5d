-- Vectors of what users stated, by which it is found by meaning: bytes, as in `fact_vectors`. A message that changed, or that is
-- forgotten, secret or deleted, has none.
CREATE TABLE message_vectors (
    version INTEGER PRIMARY KEY REFERENCES item_versions (key),
    encoder TEXT NOT NULL,
    vector  BLOB NOT NULL
) STRICT;

CREATE TRIGGER message_vectors_removed BEFORE DELETE ON item_versions
BEGIN
    DELETE FROM message_vectors WHERE version = old.key;
END;
CREATE TRIGGER message_vectors_outdated AFTER UPDATE OF current, deleted ON items
WHEN new.current <> old.current OR new.deleted = 1
BEGIN
    DELETE FROM message_vectors WHERE version = old.current;
END;
CREATE TRIGGER message_vectors_withdrawn AFTER INSERT ON unsaid_items
BEGIN
    DELETE FROM message_vectors
    WHERE version IN (SELECT key FROM item_versions WHERE session = new.session AND item_id = new.item_id);
END;
