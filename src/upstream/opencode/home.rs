//! Where OpenCode keeps its stores.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Error, Found, Result, Store, is_name};
use crate::upstream::agent::Env;

/// A data folder of OpenCode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    folder: PathBuf,
    /// The database used instead of `opencode.db`.
    database: Option<PathBuf>,
}

impl Home {
    /// The folder at `root`; without one, what the environment says:
    /// `XDG_DATA_HOME`, else `HOME`, and `OPENCODE_DB`. `None` when it does not say.
    pub fn new(root: Option<&Path>, env: Env<'_>) -> Option<Home> {
        if let Some(root) = root {
            return Some(Home {
                folder: root.to_owned(),
                database: None,
            });
        }
        let path = |name: &str| {
            env(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let data = path("XDG_DATA_HOME").or_else(|| Some(path("HOME")?.join(".local/share")))?;
        let folder = data.join("opencode");
        let database = env("OPENCODE_DB")
            .filter(|name| !name.is_empty() && name != ":memory:")
            .map(|name| folder.join(name));
        Some(Home { folder, database })
    }

    /// The stores that are there, the one that OpenCode uses now first: the same
    /// session may stand in several, left there by an older version.
    pub fn stores(&self) -> Vec<PathBuf> {
        let mut stores: Vec<PathBuf> = self.database.iter().cloned().collect();
        stores.push(self.folder.join("opencode.db"));
        stores.extend(self.channels());
        stores.retain(|store| store.is_file());
        if self.folder.join("storage").is_dir() {
            stores.push(self.folder.clone());
        }
        let mut seen = HashSet::new();
        stores.retain(|store| seen.insert(store.clone()));
        stores
    }

    /// `opencode-<channel>.db` of versions that are no releases.
    fn channels(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_channel = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            name.to_str()
                .is_some_and(|name| name.starts_with("opencode-") && name.ends_with(".db"))
        };
        let mut channels: Vec<PathBuf> = entries
            .filter(is_channel)
            .map(|entry| entry.path())
            .collect();
        channels.sort();
        channels
    }
}

/// The newest `limit` sessions of all stores, each with its store, and why other
/// stores could not be read.
pub fn discover(home: &Home, limit: usize) -> (Vec<(PathBuf, Found)>, Vec<Error>) {
    let mut found = Vec::new();
    let mut failed = Vec::new();
    let mut seen = HashSet::new();
    for source in home.stores() {
        match Store::new(&source).discover(limit) {
            Ok(sessions) => {
                let sessions = sessions
                    .into_iter()
                    .filter(|session| seen.insert(session.thread.clone()));
                found.extend(sessions.map(|session| (source.clone(), session)));
            }
            Err(Error::Missing) => {}
            Err(error) => failed.push(error),
        }
    }
    found.sort_by(|(_, one), (_, other)| one.newest_first(other));
    found.truncate(limit);
    (found, failed)
}

/// The store that holds a session; `None` when none does.
pub fn find(home: &Home, thread: &str) -> Result<Option<PathBuf>> {
    if !is_name(thread) {
        return Ok(None);
    }
    let mut failed = None;
    for source in home.stores() {
        match Store::new(&source).holds(thread) {
            Ok(true) => return Ok(Some(source)),
            Ok(false) | Err(Error::Missing) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(None), Err)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn home(root: Option<&str>, variables: &[(&str, &str)]) -> Option<Home> {
        let env = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Home::new(root.map(Path::new), &env)
    }

    fn at(folder: &str, database: Option<&str>) -> Option<Home> {
        Some(Home {
            folder: folder.into(),
            database: database.map(PathBuf::from),
        })
    }

    #[test]
    fn the_environment_says_where_the_stores_are() {
        let user = ("HOME", "/home/dev");
        let usual = "/home/dev/.local/share/opencode";
        assert_eq!(home(None, &[user]), at(usual, None));
        assert_eq!(
            home(None, &[user, ("XDG_DATA_HOME", "/data")]),
            at("/data/opencode", None)
        );
        assert_eq!(
            home(None, &[user, ("XDG_DATA_HOME", "data")]),
            at(usual, None)
        );
        assert_eq!(home(None, &[user, ("XDG_DATA_HOME", "")]), at(usual, None));
        assert_eq!(home(None, &[]), None);
        for (value, database) in [
            ("/else/x.db", Some("/else/x.db")),
            ("x.db", Some("/home/dev/.local/share/opencode/x.db")),
            (":memory:", None),
            ("", None),
        ] {
            assert_eq!(
                home(None, &[user, ("OPENCODE_DB", value)]),
                at(usual, database)
            );
        }
        let all = [user, ("XDG_DATA_HOME", "/data"), ("OPENCODE_DB", "/x.db")];
        assert_eq!(home(Some("/agents"), &all), at("/agents", None));
    }

    #[test]
    fn stores_come_in_the_order_of_their_use() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        let home = Home {
            folder: folder.path().to_owned(),
            database: Some(path("mine.db")),
        };
        assert_eq!(home.stores(), <[PathBuf; 0]>::default());
        fs::create_dir(path("storage")).unwrap();
        for name in [
            "opencode-dev.db",
            "opencode-beta.db",
            "opencode.db",
            "opencode.db-wal",
            "mine.db",
            "other.db",
        ] {
            fs::write(path(name), "").unwrap();
        }
        let names = [
            "mine.db",
            "opencode.db",
            "opencode-beta.db",
            "opencode-dev.db",
            "",
        ];
        assert_eq!(home.stores(), names.map(path));
        let (found, failed) = discover(&home, 10);
        assert_eq!(
            (found.len(), failed.len()),
            (0, 4),
            "empty files are no stores"
        );
        assert!(find(&home, "ses_1").is_err());
    }
}
