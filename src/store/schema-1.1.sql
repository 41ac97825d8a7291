-- Ties of sessions to upstream sources. A row stays for a while after its
-- release, for what its turns are known by. position and state say how far the
-- source was judged; device to tail what it looked like then; baseline_end
-- that turns before it are remembered and not told (a place in a file; for
-- other sources only whether); adopted_source is the path the host named, and
-- source where that session is now; followed is 1 when the source is not the
-- adopted file but one its thread went on in. revision rises with every change.
-- missed_at is the machine's uptime in ms at the last of the misses.
CREATE TABLE session_upstream_links (
  id            INTEGER PRIMARY KEY AUTOINCREMENT,
  session_key   TEXT NOT NULL,
  agent_id      TEXT NOT NULL,
  catalog       TEXT NOT NULL,
  thread_id     TEXT NOT NULL,
  source        TEXT,
  adopted_source TEXT,
  host_id       TEXT NOT NULL,
  adopted_at    INTEGER NOT NULL,
  adopted_event INTEGER NOT NULL,
  baseline_now  INTEGER NOT NULL,
  baseline_end  INTEGER,
  followed      INTEGER NOT NULL DEFAULT 0,
  position      INTEGER NOT NULL DEFAULT 0,
  state         TEXT,
  device        INTEGER,
  inode         INTEGER,
  size          INTEGER,
  modified_ns   INTEGER,
  head          BLOB,
  tail          BLOB,
  misses        INTEGER NOT NULL DEFAULT 0,
  missed_at     INTEGER NOT NULL DEFAULT 0,
  released_at   INTEGER,
  revision      INTEGER NOT NULL DEFAULT 0,
  UNIQUE (session_key, agent_id)
) STRICT;

-- What the turns met by a link are known by: keyed hashes. copy is 1 where the
-- turn was another source's, which this link has not told.
CREATE TABLE session_aware_turns (
  key    BLOB NOT NULL,
  link   INTEGER NOT NULL,
  source BLOB NOT NULL,
  copy   INTEGER NOT NULL,
  PRIMARY KEY (key, link)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_aware_turns_link ON session_aware_turns(link);

-- Keyed hashes of what the host sent itself, the newest ten a session.
CREATE TABLE session_aware_own_messages (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  session_key TEXT NOT NULL,
  agent_id    TEXT NOT NULL,
  print       BLOB NOT NULL
) STRICT;
CREATE INDEX session_aware_own_messages_session
  ON session_aware_own_messages(session_key, agent_id, id);

-- Sessions the host runs itself, by the handle that said so.
CREATE TABLE session_aware_runs (
  session_key TEXT NOT NULL,
  agent_id    TEXT NOT NULL,
  handle      INTEGER NOT NULL,
  PRIMARY KEY (session_key, agent_id, handle)
) STRICT, WITHOUT ROWID;

-- The key of all hashes of this database.
CREATE TABLE session_aware_secret (
  value BLOB NOT NULL
) STRICT;
INSERT INTO session_aware_secret(value) VALUES (randomblob(32));
