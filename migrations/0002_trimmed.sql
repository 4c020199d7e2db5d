-- Results of tools whose words left the prompt because they are stale. What was said stays in `item_versions`; only the view
-- leaves it out, until a summary is undone.
ALTER TABLE items ADD COLUMN trimmed INTEGER NOT NULL DEFAULT 0 CHECK (trimmed IN (0, 1));
