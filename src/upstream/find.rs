//! Finds the sessions of an agent in its store.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::agent::{self, Agent, Folder, Head, Named};
use super::source::Stamp;

/// A session found in an agent's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The thread.
    pub thread: String,
    /// Its live file.
    pub source: PathBuf,
    /// The working directory, if the file says it.
    pub cwd: Option<String>,
    /// When the file was modified, in milliseconds since the Unix epoch.
    pub modified_ms: i64,
}

/// The sessions in these folders, newest first, then by thread. Files of
/// sub-agents are left out, and those with no whole row, which do not say yet what
/// they are; of several files of one thread all but the live one. A
/// file's head is read only when its turn comes.
pub fn sessions(agent: &dyn Agent, folders: &[Folder]) -> impl Iterator<Item = Found> {
    let mut files = files(agent, folders, |_| true);
    if !agent.head_names_thread() {
        files = live_files(files);
    }
    files.sort_by_cached_key(|file| (Reverse(file.stamp.modified_ms()), file.named.thread.clone()));
    let mut seen = HashSet::new();
    files.into_iter().filter_map(move |file| {
        let head = agent::head(agent, &file.path).ok()?;
        let thread = head.thread.unwrap_or(file.named.thread);
        let listed = head.begun && !head.sub_agent;
        (listed && seen.insert(thread.clone())).then(|| Found {
            thread,
            modified_ms: file.stamp.modified_ms(),
            cwd: head.cwd,
            source: file.path,
        })
    })
}

/// The live file of a thread.
pub fn live(agent: &dyn Agent, folders: &[Folder], thread: &str) -> Option<PathBuf> {
    let newest = |files: Vec<File>| {
        let newest = files.into_iter().max_by(|a, b| newness(a).cmp(&newness(b)));
        newest.map(|file| file.path)
    };
    let named = files(agent, folders, |named| named.thread == thread);
    if !named.is_empty() || !agent.head_names_thread() {
        return newest(named);
    }
    let mut told = files(agent, folders, |_| true);
    let says = |head: Head| head.thread.as_deref() == Some(thread);
    told.retain(|file| agent::head(agent, &file.path).is_ok_and(says));
    newest(told)
}

/// The live file of each thread in these folders.
pub fn live_files_of(agent: &dyn Agent, folders: &[Folder]) -> HashMap<String, PathBuf> {
    let live = live_files(files(agent, folders, |_| true)).into_iter();
    live.map(|file| (file.named.thread, file.path)).collect()
}

struct File {
    path: PathBuf,
    named: Named,
    stamp: Stamp,
}

/// The session files in the folders whose names will do, each once, however many
/// links lead to it.
fn files(agent: &dyn Agent, folders: &[Folder], will_do: impl Fn(&Named) -> bool) -> Vec<File> {
    let mut seen = HashSet::new();
    let mut files = Vec::new();
    // The folders walked, each with how many levels below it: one that is met again by
    // another name is walked again only for what was too deep before.
    let mut walked: HashMap<(u64, u64), usize> = HashMap::new();
    for folder in folders {
        let walk = WalkDir::new(&folder.path)
            .follow_links(true)
            .max_depth(folder.depth)
            .sort_by_file_name();
        let is_new = |entry: &walkdir::DirEntry| {
            let Some(meta) = entry.metadata().ok().filter(|meta| meta.is_dir()) else {
                return true;
            };
            let left = folder.depth.saturating_sub(entry.depth());
            let met = walked.entry((meta.dev(), meta.ino()));
            match met {
                Entry::Occupied(met) if *met.get() >= left => false,
                met => {
                    met.insert_entry(left);
                    true
                }
            }
        };
        // What cannot be read, and links that lead in a circle, are passed over.
        for entry in walk.into_iter().filter_entry(is_new).flatten() {
            if !entry.file_type().is_file() {
                continue;
            }
            let Some(named) = agent.named(entry.path()).filter(&will_do) else {
                continue;
            };
            let Ok(stamp) = Stamp::of(entry.path()) else {
                continue;
            };
            if seen.insert((stamp.device, stamp.inode)) && !is_packed_twin(entry.path()) {
                files.push(File {
                    path: entry.into_path(),
                    named,
                    stamp,
                });
            }
        }
    }
    files
}

/// Whether the file is the compressed form of one that is there too.
fn is_packed_twin(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "zst")
        && path.with_extension("").is_file()
}

/// Of each thread the last file.
fn live_files(files: Vec<File>) -> Vec<File> {
    let mut last: HashMap<String, File> = HashMap::new();
    for file in files {
        match last.get(&file.named.thread) {
            Some(other) if newness(other) >= newness(&file) => {}
            _ => drop(last.insert(file.named.thread.clone(), file)),
        }
    }
    last.into_values().collect()
}

fn newness(file: &File) -> (&str, i128) {
    (&file.named.order, file.stamp.modified_ns)
}

#[cfg(test)]
mod tests {
    use super::super::{AGENTS, agent};
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};

    /// Writes a file that was modified so many seconds ago.
    fn write(path: &Path, text: &str, age: u64) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        let time = SystemTime::now() - Duration::from_secs(age);
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }

    fn store(agent: &dyn Agent, root: &Path) -> Vec<Folder> {
        agent.store(Some(root), &|_| None)
    }

    fn found(agent: &dyn Agent, root: &Path) -> Vec<(String, Option<String>)> {
        sessions(agent, &store(agent, root))
            .map(|found| (found.thread, found.cwd))
            .collect()
    }

    #[test]
    fn a_store_that_is_not_there_is_empty() {
        for agent in AGENTS {
            assert_eq!(found(agent, Path::new("/nowhere/at/all")), []);
            assert_eq!(
                live(agent, &store(agent, Path::new("/nowhere/at/all")), "x"),
                None
            );
        }
    }

    #[test]
    fn sessions_come_newest_first_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let claude = agent("claude").unwrap();
        let projects = dir.path().join("projects");
        let row = |cwd: &str| format!("{{\"type\":\"mode\"}}\n{{\"cwd\":\"{cwd}\"}}\n");
        write(&projects.join("-p1/t1.jsonl"), &row("/p1"), 30);
        write(&projects.join("-p1/t2.jsonl"), &row("/p2"), 10);
        write(&projects.join("-p1/agent-1.jsonl"), &row("/p1"), 5);
        write(
            &projects.join("-p1/t1/subagents/agent-2.jsonl"),
            &row("/p1"),
            5,
        );
        write(&projects.join("-p1/notes.txt"), "x", 5);
        // A folder that lives elsewhere, a second way to it, and a circle.
        write(
            &dir.path().join("elsewhere/t3.jsonl"),
            "{\"type\":\"mode\"}\n",
            20,
        );
        symlink(dir.path().join("elsewhere"), projects.join("-p3")).unwrap();
        symlink(dir.path().join("elsewhere"), projects.join("-p4")).unwrap();
        symlink(&projects, projects.join("-circle")).unwrap();
        symlink(dir.path().join("gone"), projects.join("-gone")).unwrap();
        let some = |cwd: &str| Some(cwd.to_owned());
        let expected = [
            ("t2".into(), some("/p2")),
            ("t3".into(), None),
            ("t1".into(), some("/p1")),
        ];
        assert_eq!(found(claude, dir.path()), expected);
        let t3 = live(claude, &store(claude, dir.path()), "t3");
        assert_eq!(t3, Some(projects.join("-p3/t3.jsonl")));
        assert_eq!(live(claude, &store(claude, dir.path()), "agent-1"), None);
    }

    #[test]
    fn a_codex_thread_is_its_last_segment() {
        let dir = tempfile::tempdir().unwrap();
        let codex = agent("codex").unwrap();
        let id = |n: u8| format!("01a22c79-48ed-7480-a102-{n:012}");
        let day = dir.path().join("sessions/2026/11/30");
        let meta = |n, more: &str| {
            format!(
                "{{\"type\":\"session_meta\",\"payload\":{{\"id\":\"{}\",\"cwd\":\"/{n}\"{more}}}}}\n",
                id(n)
            )
        };
        let file = |n, at: &str, tail: &str| {
            day.join(format!("rollout-2026-11-30T12-{at}-{}{tail}", id(n)))
        };
        let later = format!("_{}.jsonl", id(9));
        write(&file(1, "00-00", ".jsonl"), &meta(1, ""), 1);
        write(&file(1, "30-00", &later), &meta(1, ""), 20);
        write(
            &file(2, "00-01", ".jsonl"),
            &meta(2, ",\"thread_source\":\"subagent\""),
            2,
        );
        write(&file(3, "00-02", ".jsonl"), &meta(3, ""), 10);
        write(&file(3, "00-02", ".jsonl.zst"), "x", 3);
        write(
            &dir.path().join(format!(
                "archived_sessions/rollout-2026-11-30T11-00-00-{}.jsonl",
                id(4)
            )),
            &meta(4, ""),
            30,
        );
        let threads: Vec<_> = found(codex, dir.path())
            .into_iter()
            .map(|(thread, _)| thread)
            .collect();
        assert_eq!(threads, [id(3), id(1), id(4)]);
        let live = |n| live(codex, &store(codex, dir.path()), &id(n)).unwrap();
        assert_eq!(live(1), file(1, "30-00", &later));
        assert_eq!(live(3), file(3, "00-02", ".jsonl"));
    }

    #[test]
    fn a_pi_thread_is_what_its_header_says() {
        let dir = tempfile::tempdir().unwrap();
        let pi = agent("pi").unwrap();
        let folder = dir.path().join("sessions/--w--");
        let header = |id: &str| {
            format!("{{\"type\":\"session\",\"version\":3,\"id\":\"{id}\",\"cwd\":\"/w\"}}\n")
        };
        write(
            &folder.join("2026-09-22T07-00-00-000Z_one.jsonl"),
            &header("one"),
            20,
        );
        write(&folder.join("session.jsonl"), &header("two"), 10);
        write(
            &folder.join("parent/hash/run-1/session.jsonl"),
            &header("sub"),
            1,
        );
        let threads: Vec<_> = found(pi, dir.path())
            .into_iter()
            .map(|(thread, _)| thread)
            .collect();
        assert_eq!(threads, ["two", "one"]);
        assert_eq!(
            live(pi, &store(pi, dir.path()), "two"),
            Some(folder.join("session.jsonl"))
        );
        assert_eq!(live(pi, &store(pi, dir.path()), "sub"), None);
    }
}
