-- Which migrations were applied, and when (ms since the epoch).
CREATE TABLE session_aware_schema (
  major      INTEGER NOT NULL,
  minor      INTEGER NOT NULL,
  applied_at INTEGER NOT NULL,
  PRIMARY KEY (major, minor)
) STRICT, WITHOUT ROWID;

-- The signal log. AUTOINCREMENT: a sequence is never used twice, whatever was
-- pruned or deleted. payload_json is what the host gave; public_json what of it
-- may come out.
CREATE TABLE session_state_events (
  sequence     INTEGER PRIMARY KEY AUTOINCREMENT,
  session_key  TEXT NOT NULL,
  agent_id     TEXT NOT NULL,
  session_id   TEXT,
  kind         TEXT NOT NULL,
  actor_type   TEXT NOT NULL,
  actor_id     TEXT,
  run_id       TEXT,
  occurred_at  INTEGER NOT NULL,
  recorded_at  INTEGER NOT NULL,
  summary      TEXT NOT NULL,
  payload_json TEXT,
  public_json  TEXT,
  dedupe_key   TEXT
) STRICT;
CREATE INDEX session_state_events_session
  ON session_state_events(session_key, agent_id, sequence);
CREATE UNIQUE INDEX session_state_events_dedupe
  ON session_state_events(dedupe_key) WHERE dedupe_key IS NOT NULL;

-- A session's version; outlives its events. pruned_sequence is the highest
-- sequence of the session that was pruned.
CREATE TABLE session_state_heads (
  agent_id        TEXT NOT NULL,
  session_key     TEXT NOT NULL,
  last_sequence   INTEGER NOT NULL,
  pruned_sequence INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (agent_id, session_key)
) STRICT, WITHOUT ROWID;

-- What a watcher has seen of a target: last_seen <= notified <= material. A
-- notice is open while notified > last_seen; opened_at is when it opened, wake
-- the number of the wake it raised (0: none).
CREATE TABLE session_watch_cursors (
  id                  INTEGER PRIMARY KEY,
  watcher_session_key TEXT NOT NULL,
  target_agent_id     TEXT NOT NULL,
  target_session_key  TEXT NOT NULL,
  last_seen           INTEGER NOT NULL,
  notified            INTEGER NOT NULL,
  material            INTEGER NOT NULL,
  provenance          TEXT NOT NULL CHECK (provenance IN ('explicit', 'ambient-group')),
  notify_kinds        INTEGER NOT NULL,
  opened_at           INTEGER NOT NULL DEFAULT 0,
  wake                INTEGER NOT NULL DEFAULT 0,
  touched_at          INTEGER NOT NULL,
  CHECK (last_seen <= notified AND notified <= material)
) STRICT;
CREATE UNIQUE INDEX session_watch_cursors_pair
  ON session_watch_cursors(watcher_session_key, target_agent_id, target_session_key);
CREATE INDEX session_watch_cursors_target
  ON session_watch_cursors(target_session_key, target_agent_id);
CREATE INDEX session_watch_cursors_pending
  ON session_watch_cursors(watcher_session_key, notified) WHERE notified > last_seen;
CREATE INDEX session_watch_cursors_wake
  ON session_watch_cursors(wake) WHERE wake > 0;

-- Numbers that only grow: last_wake.
CREATE TABLE session_aware_counters (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO session_aware_counters(name, value) VALUES ('last_wake', 0);

-- Open handles. One is alive while its file beside the database is locked. It
-- was offered every wake above first_wake for watchers of its agents (a JSON
-- list; NULL: all), and those in session_aware_offers.
CREATE TABLE session_aware_handles (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  first_wake INTEGER NOT NULL,
  agents     TEXT
) STRICT;
CREATE TABLE session_aware_offers (
  handle INTEGER NOT NULL,
  wake   INTEGER NOT NULL,
  PRIMARY KEY (handle, wake)
) STRICT, WITHOUT ROWID;
