//! The process's watchers of file-system events, shared by all handles: one for
//! each group of paths, so that a path that hangs holds up no other group.
//!
//! Events are hints: one may be missing or come twice. Who listens looks for
//! itself, and has an interval behind the hints.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::contract::Catalog;
use crate::sync::{Arc, Mutex, lock};
use crate::sys::{self, PerProcess};

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint<'a> {
    /// This file changed, came or went.
    Changed(&'a Path),
    /// Events were lost: anything may have changed.
    Lost,
}

type Tell = Arc<dyn Fn(Hint<'_>) + Send + Sync>;

/// By where the watched path really is: two names of one place are watched as
/// one, and the system tells them apart no more than that.
type Listeners = Arc<Mutex<HashMap<PathBuf, Vec<Listener>>>>;

/// Who is told of changes at a place, under the name he knows it by.
#[derive(Clone)]
struct Listener {
    id: u64,
    name: Arc<Path>,
    tell: Tell,
}

static SHARED: PerProcess<[Mutex<Shared>; Catalog::ALL.len() + 1]> = PerProcess::new();

/// What paths are watched together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// The library's own.
    Wakes,
    /// The folders of one agent.
    Agent(Catalog),
}

impl Group {
    fn shared(self) -> &'static Mutex<Shared> {
        let groups = SHARED.get();
        match self {
            Group::Wakes => &groups[Catalog::ALL.len()],
            Group::Agent(catalog) => &groups[catalog as usize],
        }
    }
}

#[derive(Default)]
struct Shared {
    watcher: Option<RecommendedWatcher>,
    listeners: Listeners,
    last_id: u64,
}

/// Listening to a path; dropping it ends that.
pub(crate) struct Subscription {
    group: Group,
    place: PathBuf,
    id: u64,
}

/// A file or folder whatever its name: device and inode.
pub(crate) type Identity = (u64, u64);

/// What is at the path; `None` when there is nothing to be seen.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    Some(identity_in(&std::fs::metadata(path).ok()?))
}

/// What was found to be at a path, or is open.
pub(crate) fn identity_in(found: &std::fs::Metadata) -> Identity {
    (found.dev(), found.ino())
}

/// Has `tell` told of changes to the file `path`, or to what lies directly
/// in the folder `path`, by paths that begin with `path` as it is given here.
/// It is called on the watcher's thread and must not wait.
pub(crate) fn listen(
    group: Group,
    path: &Path,
    tell: impl Fn(Hint<'_>) + Send + Sync + 'static,
) -> notify::Result<Subscription> {
    let place = path.canonicalize()?;
    let mut shared = lock(group.shared());
    let shared = &mut *shared;
    let watcher = match &mut shared.watcher {
        Some(watcher) => watcher,
        none => none.insert(start(Arc::clone(&shared.listeners))?),
    };
    shared.last_id += 1;
    let id = shared.last_id;
    // Also when somebody listens to the path already: another file or folder may
    // be there now. Watching the same one twice is watching it once.
    watcher.watch(&place, RecursiveMode::NonRecursive)?;
    let mut listeners = lock(&shared.listeners);
    listeners.entry(place.clone()).or_default().push(Listener {
        id,
        name: path.into(),
        tell: Arc::new(tell),
    });
    Ok(Subscription { group, place, id })
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut shared = lock(self.group.shared());
        let (unused, empty) = {
            let mut listeners = lock(&shared.listeners);
            let unused = listeners.get_mut(&self.place).is_some_and(|of_place| {
                of_place.retain(|listener| listener.id != self.id);
                of_place.is_empty()
            });
            if unused {
                listeners.remove(&self.place);
            }
            (unused, listeners.is_empty())
        };
        if empty {
            shared.watcher = None;
        } else if unused && let Some(watcher) = &mut shared.watcher {
            // A path that is gone is no longer watched anyway.
            let _ = watcher.unwatch(&self.place);
        }
    }
}

fn start(listeners: Listeners) -> notify::Result<RecommendedWatcher> {
    sys::with_signals_blocked(|| {
        notify::recommended_watcher(move |event: notify::Result<notify::Event>| match event {
            // Our own reads are accesses: listening to them would never end.
            Ok(event) if matches!(event.kind, EventKind::Access(_)) => {}
            Ok(event) if !event.need_rescan() => {
                for path in &event.paths {
                    tell(&listeners, path);
                }
            }
            _ => tell_all(&listeners),
        })
    })
}

fn tell(listeners: &Listeners, path: &Path) {
    let at = |place: Option<&Path>| place.and_then(|place| lock(listeners).get(place).cloned());
    for listener in at(Some(path)).iter().flatten() {
        (listener.tell)(Hint::Changed(&listener.name));
    }
    let name = path.file_name().unwrap_or_default();
    for listener in at(path.parent()).iter().flatten() {
        (listener.tell)(Hint::Changed(&listener.name.join(name)));
    }
}

fn tell_all(listeners: &Listeners) {
    let all: Vec<Listener> = lock(listeners).values().flatten().cloned().collect();
    for listener in all {
        (listener.tell)(Hint::Lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_change_reaches_who_listens_to_the_file_or_its_folder_and_nobody_after_that() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "1").unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let by_folder = {
            let send = send.clone();
            listen(Group::Wakes, folder.path(), move |hint| {
                drop(send.send(("folder", format!("{hint:?}"))))
            })
            .unwrap()
        };
        let by_file = listen(Group::Wakes, &file, move |hint| {
            drop(send.send(("file", format!("{hint:?}"))))
        })
        .unwrap();
        std::fs::write(&file, "2").unwrap();
        let wanted = format!("{:?}", Hint::Changed(&file));
        let mut missing = vec!["folder", "file"];
        while !missing.is_empty() {
            let (who, hint) = receive.recv_timeout(Duration::from_secs(10)).unwrap();
            if hint == wanted {
                missing.retain(|name| *name != who);
            }
        }
        drop((by_file, by_folder));
        assert!(
            receive.into_iter().all(|(_, hint)| hint == wanted),
            "both senders are dropped: nobody is told any more"
        );
    }
    #[test]
    fn two_names_of_a_folder_are_each_told_by_their_own_and_one_outlives_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        let link = folder.path().join("link");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let listen_at = |path: &Path| {
            let send = send.clone();
            listen(Group::Wakes, path, move |hint| {
                drop(send.send(format!("{hint:?}")))
            })
            .unwrap()
        };
        for (leaves, stays) in [(&link, &real), (&real, &link)] {
            let both = [listen_at(stays), listen_at(leaves)];
            std::fs::write(real.join("a"), "1").unwrap();
            let mut missing = vec![&real, &link];
            while !missing.is_empty() {
                let hint = receive.recv_timeout(Duration::from_secs(10)).unwrap();
                missing.retain(|path| hint != format!("{:?}", Hint::Changed(&path.join("a"))));
            }
            let [stayed, left] = both;
            drop(left);
            std::fs::write(real.join("b"), "1").unwrap();
            let wanted = format!("{:?}", Hint::Changed(&stays.join("b")));
            while receive.recv_timeout(Duration::from_secs(10)).unwrap() != wanted {}
            drop(stayed);
        }
    }
}
