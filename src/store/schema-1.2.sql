-- When a handle was opened, and by which version of the library: for people who
-- look into the database. 0 and NULL where an older version opened it.
ALTER TABLE session_aware_handles ADD COLUMN opened_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session_aware_handles ADD COLUMN version TEXT;

-- Since when the handle says that the host runs the session; 0 where an older version set the mark.
ALTER TABLE session_aware_runs ADD COLUMN set_at INTEGER NOT NULL DEFAULT 0;

-- What was not stored, over all handles there ever were, and when last.
INSERT INTO session_aware_counters(name, value) VALUES
  ('failed_appends', 0), ('failed_appends_at', 0), ('shed_events', 0), ('shed_events_at', 0);
