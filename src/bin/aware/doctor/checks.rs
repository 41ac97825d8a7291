//! The checks: each looks at one thing, and passes over what it cannot see.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::ProgressBar;
use session_awareness::{Awareness, Catalog, Error, Inspection, Link, Stats, Tally, Watches};

use super::proc::{Files, Holder, Holders, Proc, identity};
use super::{NOTICE_AGE_MS, Problem, Report};
use crate::database;
use crate::text::{self, counted, shell};
use crate::views::named;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
const WAL_BYTES: u64 = 64 << 20;
/// The library has one instance for its own file and one for each agent.
const INSTANCES: u64 = 1 + Catalog::ALL.len() as u64;
/// Longer than a program takes to start another one.
const BLINK: Duration = Duration::from_millis(100);
/// Of one kind of problem so many are listed; the rest is counted.
const LISTED: usize = 10;

/// What the checks look at.
pub struct Facts {
    path: PathBuf,
    opened: Result<Awareness, Error>,
    proc: Proc,
    now: i64,
}

impl Facts {
    pub fn new(path: &str, opened: Result<Awareness, Error>, proc: Proc) -> Facts {
        let path = PathBuf::from(path);
        Facts {
            // As the library does it: the files beside it are beside the file itself.
            path: path.canonicalize().unwrap_or(path),
            opened,
            proc,
            now: text::now_ms(),
        }
    }

    fn beside(&self, what: &str) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push("-");
        path.push(what);
        path.into()
    }

    fn word(&self) -> String {
        shell(&self.path.to_string_lossy())
    }

    /// The files of the handles, with their numbers.
    fn handle_files(&self) -> Vec<(u64, PathBuf)> {
        let Some(folder) = self.path.parent() else {
            return Vec::new();
        };
        let prefix = self.beside("handle-");
        let Some(prefix) = prefix.file_name().and_then(|name| name.to_str()) else {
            return Vec::new();
        };
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let name = entry.file_name();
                Some((
                    name.to_str()?.strip_prefix(prefix)?.parse().ok()?,
                    entry.path(),
                ))
            })
            .collect()
    }

    /// Who has the database open. A stranger is looked at twice: a host that is just
    /// starting a program, or closing its handle, looks like one for a moment.
    fn holders(&self) -> Result<Holders, String> {
        let mut holders = self.holders_now()?;
        if holders.processes.iter().any(Holder::is_strange) {
            std::thread::sleep(BLINK);
            let again = self.holders_now()?;
            holders.processes.retain(|holder| {
                let same = |other: &&Holder| other.pid == holder.pid;
                let still = again.processes.iter().find(same);
                !holder.is_strange() || still.is_some_and(Holder::is_strange)
            });
        }
        Ok(holders)
    }

    fn holders_now(&self) -> Result<Holders, String> {
        let database = identity(&self.path).ok_or("the file is gone")?;
        let shm = self.beside("shm");
        let files = Files {
            database,
            shared_memory: identity(&shm).map(|(_, inode)| (shm, inode)),
            handles: self
                .handle_files()
                .iter()
                .filter_map(|(id, path)| Some((*id, identity(path)?)))
                .collect(),
        };
        self.proc
            .holders(&files)
            .map_err(|problem| format!("{} cannot be read: {problem}", self.proc.0.display()))
    }
}

/// What is known of the database when it can be read.
struct Read<'a> {
    aware: &'a Awareness,
    stats: Stats,
    found: Inspection,
    links: Vec<Link>,
}

impl Read<'_> {
    fn of(aware: &Awareness) -> Result<Read<'_>, Error> {
        let stats = aware.stats()?;
        if let Some(why) = stats.unreadable {
            return Err(Error::storage(why));
        }
        Ok(Read {
            aware,
            stats,
            found: aware.inspect()?,
            links: database::links(aware)?,
        })
    }
}

pub fn all(facts: &Facts, working: &ProgressBar) -> Report {
    let mut report = Report::default();
    let holders = facts.holders();
    let read = match &facts.opened {
        Ok(aware) => Read::of(aware),
        Err(error) => Err(error.clone()),
    };
    schema(facts, &read, &mut report);
    working.set_message("checking the file");
    integrity(facts, &read, &mut report);
    working.set_message("looking");
    modes(facts, &mut report);
    foreign(facts, &holders, &mut report);
    wal(facts, &mut report);
    match &read {
        Ok(read) => {
            file_watches(facts, read, &mut report);
            links(facts, read, &mut report);
            runs(facts, read, &holders, &mut report);
            notices(facts, read, &mut report);
            failed(facts, read.found.failed_appends, &mut report);
            shed(facts, read.found.shed_events, &mut report);
        }
        Err(_) => {
            for check in ["file-watches", "links", "runs", "notices", "failed", "shed"] {
                report.skip(check, "the database cannot be read");
            }
        }
    }
    report
}

fn schema(facts: &Facts, read: &Result<Read<'_>, Error>, report: &mut Report) {
    const UPDATE: &str =
        "pip install --upgrade session-awareness  # or: npm install session-awareness@latest";
    let own = env!("CARGO_PKG_VERSION");
    let problem = |found: String, cause: &str, run: String| Problem {
        check: "schema",
        found,
        cause: cause.to_owned(),
        run,
    };
    let read = match read {
        Ok(read) => read,
        // What is broken rather than strange is told by the next check.
        Err(error) if error.code == session_awareness::Code::Storage => {
            return report.skip("schema", "the database cannot be read");
        }
        Err(error) => {
            let newer = error.message.contains("newer");
            let (cause, run) = if newer {
                (
                    "the gateway's library is newer than this command",
                    "cargo install session-awareness --features command".to_owned(),
                )
            } else if error.code == session_awareness::Code::Unsupported {
                (
                    "the gateway's library is older than this command, or has never opened the file",
                    UPDATE.to_owned(),
                )
            } else {
                (
                    "this is not the gateway's database",
                    format!("file {}", facts.word()),
                )
            };
            return report.note(
                "schema",
                "",
                vec![problem(error.message.clone(), cause, run)],
            );
        }
    };
    let mut problems = Vec::new();
    let versions: Vec<&str> = read
        .found
        .handles
        .iter()
        .filter_map(|handle| handle.version.as_deref())
        .collect();
    let mut others: Vec<&str> = versions
        .iter()
        .copied()
        .filter(|version| *version != own)
        .collect();
    others.sort_unstable();
    others.dedup();
    if !others.is_empty() {
        problems.push(problem(
            format!(
                "the database is open by version {} of the library, this command is {own}",
                others.join(" and ")
            ),
            "gateway and command were updated at different times",
            UPDATE.to_owned(),
        ));
    }
    let detail = format!(
        "schema {}, library {own}, {}",
        read.stats.schema_version,
        counted(read.found.handles.len() as u64, "open handle")
    );
    report.note("schema", detail, problems);
}

fn integrity(facts: &Facts, read: &Result<Read<'_>, Error>, report: &mut Report) {
    let lines = match read {
        Ok(read) => read
            .aware
            .check()
            .unwrap_or_else(|error| vec![error.message]),
        Err(error) if error.code == session_awareness::Code::Storage => vec![error.message.clone()],
        Err(_) => return report.skip("integrity", "the database cannot be read"),
    };
    let problems = match lines.as_slice() {
        [] => Vec::new(),
        [first, more @ ..] => {
            let first = first.replace('\n', "; ");
            let more = if more.is_empty() {
                String::new()
            } else {
                format!(" (and {} more)", more.len())
            };
            vec![Problem {
                check: "integrity",
                found: format!("SQLite finds the file damaged: {first}{more}"),
                cause: "a failing disk, or a program that wrote into the file or removed its write-ahead log".into(),
                run: format!(
                    "sqlite3 {0} .recover | sqlite3 {0}.recovered  # with the gateway stopped; or restore a backup",
                    facts.word()
                ),
            }]
        }
    };
    report.note("integrity", "quick_check finds nothing", problems);
}

fn modes(facts: &Facts, report: &mut Report) {
    let mut files = vec![facts.path.clone()];
    files.extend(["wal", "shm", "wake"].map(|what| facts.beside(what)));
    files.extend(facts.handle_files().into_iter().map(|(_, path)| path));
    let mode = |path: &Path| {
        fs::metadata(path)
            .ok()
            .map(|found| found.permissions().mode() & 0o7777)
    };
    let open: Vec<&PathBuf> = files
        .iter()
        .filter(|path| mode(path).is_some_and(|mode| mode & 0o077 != 0))
        .collect();
    let mut problems = Vec::new();
    if !open.is_empty() {
        let name = |path: &&PathBuf| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        let names: Vec<String> = open.iter().map(name).collect();
        let words: Vec<String> = open
            .iter()
            .map(|path| shell(&path.to_string_lossy()))
            .collect();
        problems.push(Problem {
            check: "modes",
            found: format!("others may read or write {}", names.join(", ")),
            cause: "the file was copied or restored, or its mode changed; the library makes its files 0600".into(),
            run: format!("chmod 600 {}", words.join(" ")),
        });
    }
    // With the sticky bit nobody can take away what is another's.
    if let Some(folder) = facts.path.parent()
        && mode(folder).is_some_and(|mode| mode & 0o002 != 0 && mode & 0o1000 == 0)
    {
        problems.push(Problem {
            check: "modes",
            found: format!(
                "anybody may remove or replace files in {}",
                folder.display()
            ),
            cause: "the folder may be written by all".into(),
            run: format!("chmod o-w {}", shell(&folder.to_string_lossy())),
        });
    }
    report.note("modes", "the owner's alone", problems);
}

fn foreign(facts: &Facts, holders: &Result<Holders, String>, report: &mut Report) {
    let holders = match holders {
        Ok(holders) => holders,
        Err(why) => return report.skip("foreign", why),
    };
    let mut problems = Vec::new();
    for holder in &holders.processes {
        let process = format!("process {} ({})", holder.pid, holder.name);
        if !holder.knows_us {
            problems.push(Problem {
                check: "foreign",
                found: format!("{process} has the database open and is not the library"),
                cause: "a database browser, a script or a backup tool opened the file; `aware` and the library's \
                        verbs read it safely. (A host that is linked with the static library and opened it readOnly \
                        looks the same.)"
                    .into(),
                run: format!("ps -fp {}", holder.pid),
            });
        } else if holder.copies > 1 {
            problems.push(Problem {
                check: "foreign",
                found: format!("{process} has the database open by {} copies of SQLite", holder.copies),
                cause: "the host opened the file itself (sqlite3, node:sqlite, better-sqlite3), or loaded the library \
                        twice: closing either copy drops the other's locks"
                    .into(),
                run: format!("lsof -p {} | grep {}", holder.pid, shell(&facts.path.file_name().unwrap_or_default().to_string_lossy())),
            });
        }
    }
    let mut detail = format!(
        "open in {}",
        counted(holders.processes.len() as u64, "other process")
    );
    if holders.hidden > 0 {
        detail += &format!(
            "; {} of other users were not seen: run as root",
            holders.hidden
        );
    }
    report.note("foreign", detail, problems);
}

fn wal(facts: &Facts, report: &mut Report) {
    let path = facts.beside("wal");
    let size = fs::metadata(&path).map_or(0, |found| found.len());
    let problems = (size > WAL_BYTES).then(|| Problem {
        check: "wal",
        found: format!("the write-ahead log is {} long", text::bytes(size)),
        cause: "somebody reads from the database for a long time, or a gateway was killed in a long write: until that \
                ends the log cannot be moved into the database"
            .into(),
        run: format!("lsof {}  # end or restart who holds it", shell(&path.to_string_lossy())),
    });
    report.note("wal", text::bytes(size), problems.into_iter().collect());
}

fn file_watches(facts: &Facts, read: &Read<'_>, report: &mut Report) {
    let folders: HashSet<&Path> = read
        .links
        .iter()
        .filter_map(|link| Path::new(link.source.as_deref()?).parent())
        .collect();
    let needed = folders.len() as u64;
    let owner = fs::metadata(&facts.path).map(|found| std::os::unix::fs::MetadataExt::uid(&found));
    let limit = |what| facts.proc.inotify_limit(what);
    let (Some(watches), Some(instances), Ok(owner)) = (
        limit("max_user_watches"),
        limit("max_user_instances"),
        owner,
    ) else {
        return report.skip("file-watches", "this system does not tell its limits");
    };
    let (instances_used, watches_used) = facts.proc.inotify_use(owner).unwrap_or_default();
    let mut problems = Vec::new();
    let mut limited = |found: String, setting: &str, to: u64| {
        problems.push(Problem {
            check: "file-watches",
            found,
            cause: "the system's limit for each user is low: what a person types in a terminal is noticed by the \
                    interval alone, not within 50 ms"
                .into(),
            run: format!("sysctl -w fs.inotify.{setting}={to}  # as root; keep it in /etc/sysctl.d"),
        });
    };
    if needed > 0 && (needed > watches || watches_used >= watches) {
        limited(
            format!(
                "{} are to be watched; the limit is {watches}, {watches_used} are in use",
                counted(needed, "folder")
            ),
            "max_user_watches",
            (needed.max(watches_used) * 2).max(524_288),
        );
    }
    if needed > 0 && (instances < INSTANCES || instances_used >= instances) {
        limited(
            format!("the limit of inotify instances is {instances}, {instances_used} are in use"),
            "max_user_instances",
            (instances_used * 2).max(512),
        );
    }
    let detail = format!(
        "{} to watch, {watches_used} of {watches} watches in use",
        counted(needed, "folder")
    );
    report.note("file-watches", detail, problems);
}

fn links(facts: &Facts, read: &Read<'_>, report: &mut Report) {
    let mut problems = Vec::new();
    for link in &read.links {
        let session = named(&link.session_key, &link.agent_id);
        let source = link.source.as_deref();
        let state = source.map(|source| readable(Path::new(source)));
        let problem = |found: String, cause: &str, run: String| Problem {
            check: "links",
            found,
            cause: cause.to_owned(),
            run,
        };
        match (link.missing, state) {
            (0, None | Some(Readable::Yes)) => {
                if let Some(fault) = &link.fault {
                    problems.push(problem(
                        format!(
                            "a gateway has not been able to read the source of {session} for {}: {}: {}",
                            text::age(facts.now - fault.since),
                            fault.message,
                            source.unwrap_or_default()
                        ),
                        "it is not in the program's format, or damaged, or the gateway runs as another user; nothing \
                         that people type there is told until it can be read",
                        format!("ls -l {0} && file {0}", shell(source.unwrap_or_default())),
                    ));
                }
            }
            (misses, None) => problems.push(problem(
                format!("the source of {session} was missing on {} {misses} times of 3", link.host_id),
                "the session was deleted there, or its host cannot find it",
                format!("aware log {} --last 5", shell(&link.session_key)),
            )),
            (misses, Some(Readable::Yes)) => problems.push(problem(
                format!("the source of {session} was missing {misses} times of 3, and is there now"),
                "it was moved away for a while, or the gateway cannot see it; a pass that finds it forgets the misses",
                format!("ls -l {}", shell(source.unwrap_or_default())),
            )),
            (misses, Some(Readable::Gone)) => problems.push(problem(
                format!("the source of {session} is gone ({misses} of 3 misses): {}", source.unwrap_or_default()),
                "the session was deleted or moved; after the third miss the link ends",
                format!("aware discover --catalog {}", link.catalog.as_str()),
            )),
            (_, Some(Readable::No(why))) => problems.push(problem(
                format!("the source of {session} cannot be read: {why}: {}", source.unwrap_or_default()),
                "its owner or mode changed, or something else is at its path",
                format!("ls -ld {}", shell(source.unwrap_or_default())),
            )),
        }
    }
    let detail = counted(read.links.len() as u64, "link");
    report.note("links", detail, listed(problems));
}

enum Readable {
    Yes,
    Gone,
    No(String),
}

/// Whether a source can be read now. An OpenCode folder is looked at, not opened.
fn readable(source: &Path) -> Readable {
    let looked = fs::metadata(source).and_then(|found| {
        if found.is_dir() {
            let store = source.join("storage").is_dir() || source.join("opencode.db").is_file();
            return Ok(store.then_some(()).ok_or("a folder is at its path"));
        }
        if !found.is_file() {
            return Ok(Err("it is no regular file"));
        }
        fs::File::open(source).map(|_| Ok(()))
    });
    match looked {
        Ok(Ok(())) => Readable::Yes,
        Ok(Err(why)) => Readable::No(why.to_owned()),
        Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => Readable::Gone,
        Err(problem) => Readable::No(problem.to_string()),
    }
}

fn runs(facts: &Facts, read: &Read<'_>, holders: &Result<Holders, String>, report: &mut Report) {
    let mut problems = Vec::new();
    for mark in &read.found.run_marks {
        let age = facts.now - mark.set_at;
        if mark.set_at == 0 || age <= DAY_MS {
            continue;
        }
        let holder = holders.as_ref().ok().and_then(|holders| {
            holders
                .processes
                .iter()
                .find(|holder| holder.handles.contains(&mark.handle))
        });
        problems.push(Problem {
            check: "runs",
            found: format!(
                "{} is marked as run by the host for {}",
                named(&mark.session_key, &mark.agent_id),
                text::age(age)
            ),
            cause: "the host set set_run_active and never took it back: until then nothing that people type there is told"
                .into(),
            run: match holder {
                Some(holder) => format!("ps -fp {}  # restart it, or have it call set_run_active with active false", holder.pid),
                None => "aware status  # restart the gateway that holds this handle".to_owned(),
            },
        });
    }
    report.note(
        "runs",
        format!(
            "{} run by the host",
            counted(read.found.run_marks.len() as u64, "session")
        ),
        listed(problems),
    );
}

fn notices(facts: &Facts, read: &Read<'_>, report: &mut Report) {
    let watches = match database::watches(read.aware, &Watches::default()) {
        Ok(watches) => watches,
        Err(error) => return report.skip("notices", error.message),
    };
    let mut old: Vec<_> = watches
        .iter()
        .filter_map(|watch| Some((facts.now - watch.pending_since?, watch)))
        .filter(|(age, _)| *age > NOTICE_AGE_MS)
        .collect();
    old.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
    let problems = old
        .into_iter()
        .map(|(age, watch)| {
            let agent = if watch.target_session_key.starts_with("agent:") {
                String::new()
            } else {
                format!(" --agent {}", shell(&watch.target_agent_id))
            };
            Problem {
                check: "notices",
                found: format!(
                    "{} has not drained its notice of {} for {}",
                    watch.watcher_session_key,
                    named(&watch.target_session_key, &watch.target_agent_id),
                    text::age(age)
                ),
                cause: "the watcher had no turn since, or its host does not drain notices or take wakes; session_reset \
                        ends the watches of a session that is over"
                    .into(),
                run: format!("aware log {}{agent} --since {}", shell(&watch.target_session_key), watch.last_seen),
            }
        })
        .collect();
    report.note(
        "notices",
        format!("{} pending", counted(read.stats.pending, "notice")),
        listed(problems),
    );
}

fn failed(facts: &Facts, tally: Tally, report: &mut Report) {
    let folder = facts
        .path
        .parent()
        .unwrap_or(&facts.path)
        .to_string_lossy()
        .into_owned();
    lost(
        facts,
        "failed",
        "failed to be stored",
        tally,
        report,
        &|| {
            (
            "the disk was full or failed, or another process held the database for longer than busyTimeoutMs; the \
             gateway's log has each one"
                .into(),
            format!("df -h {}", shell(&folder)),
        )
        },
    );
}

fn shed(facts: &Facts, tally: Tally, report: &mut Report) {
    lost(facts, "shed", "were shed", tally, report, &|| {
        (
            "more than 8,192 events of `wait: false` were queued: the disk was slow, or the host records in bursts; \
             record with `wait`, or in batches"
                .into(),
            "iostat -x 1 3".into(),
        )
    });
}

fn lost(
    facts: &Facts,
    check: &'static str,
    what: &str,
    tally: Tally,
    report: &mut Report,
    advice: &dyn Fn() -> (String, String),
) {
    let recent = tally.total > 0 && facts.now - tally.last_at <= DAY_MS;
    let problems = recent.then(|| {
        let (cause, run) = advice();
        let age = text::age(facts.now - tally.last_at);
        Problem {
            check,
            found: format!(
                "{} {what}, the last {age} ago",
                counted(tally.total, "event")
            ),
            cause,
            run,
        }
    });
    let detail = match tally.total {
        0 => "none ever".to_owned(),
        n => format!("none in the last day, {} ever", text::count(n)),
    };
    report.note(check, detail, problems.into_iter().collect());
}

/// The first of the problems, the last of them counting the rest.
fn listed(mut problems: Vec<Problem>) -> Vec<Problem> {
    let rest = problems.len().saturating_sub(LISTED);
    problems.truncate(LISTED);
    if let (Some(last), 1..) = (problems.last_mut(), rest) {
        last.found += &format!(" (and {rest} more)");
    }
    problems
}
