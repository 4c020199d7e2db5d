-- What the service computes for clients that send their whole conversation belongs to no session. It is known by a number of the
-- person and the room whose words it holds, so that it can go with them, and when it was not used for long.
CREATE TABLE past_owners (
    owner       INTEGER PRIMARY KEY,
    user        TEXT NOT NULL,
    person      TEXT NOT NULL,
    room        TEXT NOT NULL,
    used_at_ms  INTEGER NOT NULL
) STRICT;
CREATE INDEX past_owners_of_person ON past_owners (user, person, room);
