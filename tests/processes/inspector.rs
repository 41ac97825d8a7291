//! A handle with `readOnly` changes nothing.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use super::*;

/// Reads all there is to read, and says how many events there are.
pub fn inspect() {
    let config = Config {
        read_only: Some(true),
        ..Config::new(own_database().to_str().unwrap())
    };
    let aware = Awareness::open(config).unwrap();
    aware.sessions(SessionsRequest::default()).unwrap();
    aware.watches(Watches::default()).unwrap();
    aware.links(LinksRequest::default()).unwrap();
    aware.changes_since(ChangesSince::new(CHILD, 0)).unwrap();
    let mut peek = DrainNotices::new(MANAGER);
    peek.ack = Some(false);
    assert_eq!(aware.drain_notices(peek).unwrap().notices.len(), 1);
    assert_eq!(
        aware.record(human(CHILD)).unwrap_err().code,
        Code::Unsupported
    );
    let events = everything(&aware).len();
    assert_eq!(aware.stats().unwrap().events, events as u64);
    // A copy, elsewhere.
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("copy.db");
    let path = copy.to_str().unwrap().to_owned();
    aware.backup(Backup { path }).unwrap();
    assert_eq!(open(&copy).stats().unwrap().events, events as u64);
    say(&format!("events {events}"));
    aware.close().unwrap();
}

/// Records and dies, as by a kill.
pub fn record_and_die() {
    let aware = open(&own_database());
    aware.record(human(CHILD)).unwrap();
    say("recorded");
    // Nothing is closed, so the write-ahead log stays.
    std::process::abort();
}

/// Every file of the folder, and what is in it. Of a `-shm` only that it is there:
/// who reads leaves its marks in it.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let is_shm = path.to_str().unwrap().ends_with("-shm");
            let held = if is_shm {
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            (path, held)
        })
        .collect()
}

/// A folder that only a user without rights of its own works in.
struct Cabinet {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Cabinet {
    fn new() -> Cabinet {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        // Where this program lies that user may not come.
        let program = folder.path().join("program");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        fs::create_dir(folder.path().join("database")).unwrap();
        Cabinet { folder, program }
    }

    fn database(&self) -> PathBuf {
        self.folder.path().join("database/a.db")
    }

    /// Whether files may be made in the database's folder, and written to.
    fn let_write(&self, may: bool) {
        let (folder, file) = if may { (0o777, 0o666) } else { (0o555, 0o444) };
        let inside = self.folder.path().join("database");
        for entry in fs::read_dir(&inside).unwrap() {
            fs::set_permissions(entry.unwrap().path(), Permissions::from_mode(file)).unwrap();
        }
        fs::set_permissions(inside, Permissions::from_mode(folder)).unwrap();
    }

    /// What the inspector says, who must leave everything as it was.
    fn inspect(&self, what: &str) -> String {
        let inside = self.folder.path().join("database");
        let before = snapshot(&inside);
        let mut command = Command::new(&self.program);
        own_child::give(&mut command, "inspect", &self.database());
        // SAFETY: answers a number.
        if unsafe { libc::geteuid() } == 0 {
            // Nobody: who is root may write anywhere.
            command.uid(65_534).gid(65_534);
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{what}: {said}");
        let after = snapshot(&inside);
        let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&before), names(&after), "{what}");
        assert!(before == after, "{what}: a file was changed");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Cabinet {
    fn drop(&mut self) {
        self.let_write(true);
    }
}

pub fn an_inspector_changes_nothing() {
    let cabinet = Cabinet::new();
    let database = cabinet.database();
    let gateway = open(&database);
    watch(&gateway);
    gateway.record(human(CHILD)).unwrap();
    for may in [true, false] {
        cabinet.let_write(may);
        assert_eq!(
            cabinet.inspect(&format!("beside a gateway, writable: {may}")),
            "events 1"
        );
    }
    gateway.record(human(CHILD)).unwrap();
    gateway.close().unwrap();
    let shm = database.with_file_name("a.db-shm");
    assert!(!shm.exists(), "the last to close takes it away");
    for may in [true, false] {
        cabinet.let_write(may);
        assert_eq!(
            cabinet.inspect(&format!("closed well, writable: {may}")),
            "events 2"
        );
    }
    cabinet.let_write(true);
    let (mut child, mut lines) = play("record_and_die", &database);
    lines.read_line(&mut String::new()).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(shm.exists());
    for may in [true, false] {
        cabinet.let_write(may);
        assert_eq!(
            cabinet.inspect(&format!("left by a kill, writable: {may}")),
            "events 3"
        );
    }
    fs::remove_file(&shm).unwrap();
    for may in [true, false] {
        cabinet.let_write(may);
        assert_eq!(
            cabinet.inspect(&format!("a log without its index, writable: {may}")),
            "events 3"
        );
    }
}

/// An inspector that read what nobody had open sees what comes, and is in nobody's way.
pub fn an_inspector_sees_who_comes_later() {
    for with_log in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a b%.db");
        open(&database).close().unwrap();
        if with_log {
            let (mut child, mut lines) = play("record_and_die", &database);
            lines.read_line(&mut String::new()).unwrap();
            child.wait().unwrap();
            fs::remove_file(folder.path().join("a b%.db-shm")).unwrap();
        }
        let first = u64::from(with_log);
        let config = Config {
            read_only: Some(true),
            ..Config::new(database.to_str().unwrap())
        };
        let inspector = Awareness::open(config).unwrap();
        let events = || inspector.stats().unwrap().events;
        assert_eq!(events(), first);
        // In this process, where closing a file can drop another handle's locks.
        let gateway = open(&database);
        gateway.record(human(CHILD)).unwrap();
        assert_eq!(events(), first + 1);
        gateway.record(human(CHILD)).unwrap();
        assert_eq!(events(), first + 2);
        assert!(has_shared_lock(&database), "with a log: {with_log}");
        inspector.close().unwrap();
        assert!(has_shared_lock(&database), "with a log: {with_log}");
        gateway.close().unwrap();
    }
}

/// Whether this process holds the lock of a live connection on the database.
fn has_shared_lock(database: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = format!(":{} 1073741826 ", fs::metadata(database).unwrap().ino());
    let process = format!(" {} ", std::process::id());
    fs::read_to_string("/proc/locks")
        .unwrap()
        .lines()
        .any(|line| line.contains(&process) && line.contains(&inode))
}
