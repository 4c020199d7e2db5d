-- Vectors of facts that hold, by which they are found by meaning: bytes, whose angles say how near two are. `encoder` names the
-- weights that made a vector; vectors of others say nothing beside it. A fact that is replaced, forgotten or deleted has none.
ALTER TABLE sessions ADD COLUMN meant_seq INTEGER NOT NULL DEFAULT 0; -- through which what was said was looked through by meaning
UPDATE sessions SET meant_seq = heard_seq;

CREATE TABLE fact_vectors (
    fact    INTEGER PRIMARY KEY REFERENCES facts (key),
    encoder TEXT NOT NULL,
    vector  BLOB NOT NULL
) STRICT;

CREATE TRIGGER fact_vectors_withdrawn AFTER UPDATE OF replaced_by, forgotten_at_ms ON facts
WHEN new.replaced_by IS NOT NULL OR new.forgotten_at_ms IS NOT NULL
BEGIN
    DELETE FROM fact_vectors WHERE fact = new.key;
END;
CREATE TRIGGER fact_vectors_removed BEFORE DELETE ON facts
BEGIN
    DELETE FROM fact_vectors WHERE fact = old.key;
END;
