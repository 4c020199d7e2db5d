-- Facts are found by their words, by their subject, by their age, and in the order in which a conversation tells them, so that no
-- question reads all of them. `fact_words` has the words of the facts that hold, as the service compares them. `indexed` is 0
-- until a fact has them.
ALTER TABLE facts ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0 CHECK (indexed IN (0, 1));
CREATE INDEX facts_to_index ON facts (key) WHERE indexed = 0;
CREATE INDEX facts_to_tell ON facts (user, person, asked DESC, uses DESC, said_at_ms DESC)
    WHERE replaced_by IS NULL AND forgotten_at_ms IS NULL;
CREATE INDEX facts_by_about ON facts (user, person, about) WHERE replaced_by IS NULL AND forgotten_at_ms IS NULL;
CREATE INDEX facts_by_age ON facts (user, said_at_ms) WHERE forgotten_at_ms IS NULL;
CREATE INDEX replaced_facts ON facts (user, replaced_at_ms) WHERE replaced_by IS NOT NULL AND forgotten_at_ms IS NULL;
CREATE INDEX facts_replaced_by ON facts (replaced_by) WHERE replaced_by IS NOT NULL;

CREATE TABLE fact_words (
    user   TEXT NOT NULL,
    person TEXT NOT NULL,
    word   TEXT NOT NULL,
    fact   INTEGER NOT NULL REFERENCES facts (key),
    PRIMARY KEY (user, person, word, fact)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_words_of_fact ON fact_words (fact);

CREATE TRIGGER fact_words_withdrawn AFTER UPDATE OF replaced_by, forgotten_at_ms ON facts
WHEN new.replaced_by IS NOT NULL OR new.forgotten_at_ms IS NOT NULL
BEGIN
    DELETE FROM fact_words WHERE fact = new.key;
END;
CREATE TRIGGER fact_words_removed BEFORE DELETE ON facts
BEGIN
    DELETE FROM fact_words WHERE fact = old.key;
END;
