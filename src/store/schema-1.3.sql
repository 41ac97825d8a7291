-- What keeps a link's source from being read, for as long as it does: for people
-- who look into the database. since is in ms since the epoch. An older version
-- neither writes a row nor takes one away.
CREATE TABLE session_upstream_faults (
  link    INTEGER PRIMARY KEY,
  since   INTEGER NOT NULL,
  message TEXT NOT NULL
) STRICT;
