//! The process's watchers of file-system events, shared by all handles: one for
//! each group of paths, so that a path that hangs holds up no other group.
//!
//! Events are hints: one may be missing or come twice. Who listens looks for
//! itself, and has an interval behind the hints.

use std::collections::HashMap;
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

type Listener = Arc<dyn Fn(Hint<'_>) + Send + Sync>;
type Listeners = Arc<Mutex<HashMap<PathBuf, Vec<(u64, Listener)>>>>;

static SHARED: PerProcess<[Mutex<Shared>; 5]> = PerProcess::new();

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
        let [wakes, claude, codex, opencode, pi] = SHARED.get();
        match self {
            Group::Wakes => wakes,
            Group::Agent(Catalog::Claude) => claude,
            Group::Agent(Catalog::Codex) => codex,
            Group::Agent(Catalog::Opencode) => opencode,
            Group::Agent(Catalog::Pi) => pi,
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
    path: PathBuf,
    id: u64,
}

/// Has `listener` told of changes to the file `path`, or to what lies directly
/// in the folder `path`. It is called on the watcher's thread and must not wait.
pub(crate) fn listen(
    group: Group,
    path: &Path,
    listener: impl Fn(Hint<'_>) + Send + Sync + 'static,
) -> notify::Result<Subscription> {
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
    watcher.watch(path, RecursiveMode::NonRecursive)?;
    let mut listeners = lock(&shared.listeners);
    let of_path = listeners.entry(path.to_owned()).or_default();
    of_path.push((id, Arc::new(listener)));
    Ok(Subscription {
        group,
        path: path.to_owned(),
        id,
    })
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut shared = lock(self.group.shared());
        let (unused, empty) = {
            let mut listeners = lock(&shared.listeners);
            let unused = listeners.get_mut(&self.path).is_some_and(|of_path| {
                of_path.retain(|(id, _)| *id != self.id);
                of_path.is_empty()
            });
            if unused {
                listeners.remove(&self.path);
            }
            (unused, listeners.is_empty())
        };
        if empty {
            shared.watcher = None;
        } else if unused && let Some(watcher) = &mut shared.watcher {
            // A path that is gone is no longer watched anyway.
            let _ = watcher.unwatch(&self.path);
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
    let told: Vec<Listener> = {
        let listeners = lock(listeners);
        [Some(path), path.parent()]
            .into_iter()
            .flatten()
            .filter_map(|watched| listeners.get(watched))
            .flatten()
            .map(|(_, listener)| Arc::clone(listener))
            .collect()
    };
    for listener in told {
        listener(Hint::Changed(path));
    }
}

fn tell_all(listeners: &Listeners) {
    let all: Vec<Listener> = lock(listeners)
        .values()
        .flatten()
        .map(|(_, listener)| Arc::clone(listener))
        .collect();
    for listener in all {
        listener(Hint::Lost);
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
}
