-- A conversation that is remembered for the household alone: no rule names the person or the room. Once an unknown speaker is named in
-- it, it is remembered no more.
ALTER TABLE sessions ADD COLUMN household INTEGER NOT NULL DEFAULT 0 CHECK (household IN (0, 1));

-- 1: a secret, which its own conversation finds and no other does. 0: replaced or forgotten, which none finds.
ALTER TABLE unsaid_items ADD COLUMN secret INTEGER NOT NULL DEFAULT 0 CHECK (secret IN (0, 1));
