-- What was computed of a session (in memory and on disk) is known by a number that belongs to that session alone, so
-- nothing has to be claimed. The number of a session that was deleted stands here until what was computed of it is gone.
DROP TABLE snapshots;
DROP TABLE snapshots_to_delete;

CREATE TABLE pasts_to_forget (
    owner       INTEGER PRIMARY KEY,
    since_ms    INTEGER NOT NULL
) STRICT;
