//! A disk that is full, read-only, gone or failing: `storage` with the cause,
//! reads where they can, and recording again when the fault has passed.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use session_awareness::*;

use crate::native::{Language, leave_out, root};
use crate::own_child::{Test, heed, say};
use crate::{CHILD, MANAGER, Player, Role};

pub const ROLES: &[Role] = &[
    ("fail", fail),
    ("fail_then_meet", fail_then_meet),
    ("limit", limit),
    ("deny", deny),
    ("serve", serve),
];

pub const TESTS: &[Test] = &[
    (
        "each_refusal_of_the_system_is_told_and_passes",
        each_refusal,
    ),
    (
        "a_failing_read_stops_no_writing_and_hides_no_later_damage",
        a_failing_read_hides_nothing,
    ),
    (
        "a_limit_on_the_files_size_is_storage_until_it_is_raised",
        a_limit,
    ),
    (
        "a_full_file_system_is_storage_until_it_has_room",
        a_full_file_system,
    ),
    (
        "a_folder_that_cannot_be_written_is_storage_until_it_can",
        a_denied_folder,
    ),
    (
        "a_removed_log_loses_nothing_and_divides_nobody",
        a_removed_log,
    ),
    (
        "another_process_comes_while_the_log_is_removed",
        another_process_comes,
    ),
    (
        "a_replaced_file_does_not_get_the_log_of_the_one_before",
        a_replaced_file,
    ),
    (
        "a_replaced_file_tells_its_own_wakes_whatever_waited_of_the_one_before",
        wakes_of_a_replaced_file,
    ),
    (
        "a_file_moved_away_and_back_is_gone_and_there_again",
        moved_away_and_back,
    ),
    (
        "a_file_moved_away_has_all_it_was_given_when_its_handle_is_closed",
        moved_away_and_closed,
    ),
    (
        "a_new_file_is_not_given_what_was_left_by_a_removed_one",
        a_new_file,
    ),
    (
        "a_living_handle_stays_known_whatever_is_removed_beside_the_database",
        a_living_handle_stays_known,
    ),
    (
        "a_handle_that_hears_of_wakes_all_the_time_stays_known_too",
        a_busy_handle_stays_known,
    ),
];

fn config(database: &Path) -> Config {
    Config {
        monitor: Some(MonitorConfig {
            enabled: Some(false),
            ..Default::default()
        }),
        ..Config::new(database.to_str().unwrap())
    }
}

fn open(database: &Path) -> Awareness {
    Awareness::open(config(database)).unwrap()
}

fn human() -> NewEvent {
    NewEvent::new(CHILD, Kind::HumanDirectMessage, ActorType::Human)
}

fn record(aware: &Awareness) -> u64 {
    aware.record(human()).unwrap().event().unwrap().sequence
}

fn record_many(aware: &Awareness, count: usize) {
    for _ in 0..count {
        record(aware);
    }
}

fn version(aware: &Awareness) -> u64 {
    aware
        .changes_since(ChangesSince::new(CHILD, 0))
        .unwrap()
        .state_version
}

fn beside(database: &Path, what: &str) -> PathBuf {
    PathBuf::from(format!("{}-{what}", database.display()))
}

/// Events queued now fail to be stored and are counted.
fn queued_ones_are_counted(aware: &Awareness) {
    let before = aware.stats().unwrap().failed_appends;
    assert!(aware.record_queued(vec![human(), human()]).unwrap().queued);
    until(|| aware.stats().unwrap().failed_appends == before + 2);
}

fn until(done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the database is whole; asked in another process, which may open it as it likes.
fn is_whole(database: &Path) -> bool {
    let script = "import sqlite3, sys\nprint(sqlite3.connect(sys.argv[1]).execute('PRAGMA integrity_check').fetchall())";
    let asked = Command::new("python3")
        .args(["-c", script])
        .arg(database)
        .output()
        .unwrap();
    String::from_utf8_lossy(&asked.stdout).trim() == "[('ok',)]"
}

// ---- calls that the system refuses ---------------------------------------------

const READS: u32 = 1;
const WRITES: u32 = 2;
const OPENS: u32 = 4;
const SYNCS: u32 = 8;

/// Starts a child whose disk fails on demand, on `a.db` of the folder.
fn on_a_failing_disk(role: &str, folder: &Path) -> (Player, PathBuf) {
    let shim = folder.join("failing_disk.so");
    let source = root().join("tests/native/failing_disk.c");
    crate::native::build(Language::C11, &[source], &["-shared", "-fPIC"], &shim).unwrap();
    let database = folder.join("a.db");
    let control = folder.join("control");
    fs::write(&control, [0; 8]).unwrap();
    let env = [
        ("LD_PRELOAD", shim.to_str().unwrap()),
        ("FAILING_DISK", control.to_str().unwrap()),
        ("FAILING_DISK_AT", database.to_str().unwrap()),
    ];
    (Player::start_with(role, &database, env), database)
}

fn each_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let (player, database) = on_a_failing_disk("fail", folder.path());
    player.end();
    assert!(is_whole(&database));
}

/// Lets calls of these kinds on the database fail with `errno`, until another is set.
fn refuse(what: u32, errno: i32) {
    let control = OpenOptions::new()
        .write(true)
        .open(std::env::var_os("FAILING_DISK").unwrap())
        .unwrap();
    let mut both = [0; 8];
    both[..4].copy_from_slice(&what.to_ne_bytes());
    both[4..].copy_from_slice(&errno.to_ne_bytes());
    control.write_all_at(&both, 0).unwrap();
}

fn fail(database: &Path) {
    let aware = Awareness::open(Config {
        durability: Some(Durability::Power),
        ..config(database)
    })
    .unwrap();
    record(&aware);
    assert_eq!(version(&aware), 1);
    let mut stored = 1;
    for (what, errno, words) in [
        (WRITES, libc::ENOSPC, ["no room", "full"]),
        (WRITES, libc::EDQUOT, ["cannot be written", "quota"]),
        (
            WRITES,
            libc::EIO,
            ["cannot be written", "Input/output error"],
        ),
        (
            WRITES,
            libc::EROFS,
            ["cannot be written", "Read-only file system"],
        ),
        (
            WRITES,
            libc::EACCES,
            ["cannot be written", "Permission denied"],
        ),
        (
            SYNCS,
            libc::EIO,
            ["cannot be made safe", "Input/output error"],
        ),
    ] {
        let before = aware.stats().unwrap();
        refuse(what, errno);
        for _ in 0..3 {
            let error = aware.record(human()).unwrap_err();
            assert_eq!(error.code, Code::Storage);
            assert!(
                words.iter().all(|word| error.message.contains(word)),
                "{errno}: {error}"
            );
            // Reads go on.
            assert_eq!(version(&aware), stored);
        }
        queued_ones_are_counted(&aware);
        let stats = aware.stats().unwrap();
        assert_eq!(stats.failed_appends, before.failed_appends + 5);
        assert!(stats.storage_faults >= before.storage_faults + 4);
        assert!(stats.last_fault.unwrap().contains(words[0]));
        assert!(!stats.damaged && stats.unreadable.is_none());
        refuse(0, 0);
        stored = record(&aware);
        assert_eq!(version(&aware), stored);
    }
    // What cannot be read: the pages are in nobody's cache yet in a handle opened anew.
    aware.close().unwrap();
    let aware = open(database);
    refuse(READS, libc::EIO);
    let error = aware
        .changes_since(ChangesSince::new(CHILD, 0))
        .unwrap_err();
    assert!(
        error.code == Code::Storage && error.message.contains("cannot be read"),
        "{error}"
    );
    let stats = aware.stats().unwrap();
    assert!(stats.unreadable.is_some() && !stats.damaged, "{stats:?}");
    refuse(0, 0);
    assert_eq!(version(&aware), stored);
    assert!(aware.stats().unwrap().unreadable.is_none());
    aware.close().unwrap();
    // What cannot be opened.
    refuse(OPENS, libc::EACCES);
    let error = Awareness::open(config(database)).unwrap_err();
    assert!(
        error.code == Code::Storage && error.message.contains("Permission denied"),
        "{error}"
    );
    refuse(OPENS, libc::EMFILE);
    let error = Awareness::open(config(database)).unwrap_err();
    assert!(
        error.code == Code::Storage && error.message.contains("Too many open files"),
        "{error}"
    );
    refuse(0, 0);
    let aware = open(database);
    // A handle that is open needs no opening to write.
    refuse(OPENS, libc::EACCES);
    stored = record(&aware);
    refuse(0, 0);
    assert_eq!(version(&aware), stored);
    aware.close().unwrap();
}

/// In the middle of a statement SQLite tells a read that the disk refused as damage.
fn a_failing_read_hides_nothing() {
    let damages: [fn(&Path); 2] = [wrong_values, wrong_pages];
    for damage in damages {
        for fault in ["reading", "writing", "a checkpoint"] {
            let folder = tempfile::tempdir().unwrap();
            let (mut player, database) = on_a_failing_disk("fail_then_meet", folder.path());
            player.tell(fault);
            player.expect("passed");
            damage(&database);
            player.tell("damaged");
            player.expect("met");
            player.end();
        }
    }
}

/// Values that the library never writes, in what both verbs of the child read.
fn wrong_values(database: &Path) {
    let conn = rusqlite::Connection::open(database).unwrap();
    conn.execute_batch(
        "PRAGMA ignore_check_constraints = ON;
         UPDATE session_state_heads SET last_sequence = 9007199254740991;
         UPDATE session_state_events SET kind = 'unknown';",
    )
    .unwrap();
}

/// Pages of them that hold anything.
fn wrong_pages(database: &Path) {
    let conn = rusqlite::Connection::open(database).unwrap();
    let pages: Vec<i64> = conn
        .prepare(
            "SELECT rootpage FROM sqlite_schema WHERE rootpage > 0
             AND tbl_name IN ('session_state_heads', 'session_state_events')",
        )
        .and_then(|mut pages| pages.query_map([], |row| row.get(0))?.collect())
        .unwrap();
    // Others read them anew after that.
    let (busy, size): (bool, i64) = conn
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .and_then(|busy| {
            let size = conn.query_row("PRAGMA page_size", [], |row| row.get(0));
            Ok((busy, size?))
        })
        .unwrap();
    assert!(!busy && pages.len() > 1);
    let file = OpenOptions::new().write(true).open(database).unwrap();
    for page in pages {
        let noise = vec![0xa5; usize::try_from(size).unwrap()];
        file.write_all_at(&noise, u64::try_from((page - 1) * size).unwrap())
            .unwrap();
    }
}

fn fail_then_meet(database: &Path) {
    let fault = heed();
    let aware = open(database);
    record_many(&aware, 3);
    aware.close().unwrap();
    // No page is in a cache.
    let aware = open(database);
    let read = || aware.changes_since(ChangesSince::new(CHILD, 0)).map(drop);
    let write = || aware.record(human()).map(drop);
    let meet: &dyn Fn() -> Result<()> = if fault == "reading" { &read } else { &write };
    if fault == "a checkpoint" {
        record_many(&aware, 3);
        let moved = || fs::metadata(database).unwrap().modified().unwrap();
        let before = moved();
        refuse(READS, libc::EIO);
        // What is written is in the cache, and the log grows to where a commit moves it.
        while fs::metadata(beside(database, "wal")).unwrap().len() < 4_100 * 4_120 {
            record(&aware);
        }
        assert_eq!(moved(), before, "the log was not moved");
    } else {
        refuse(READS, libc::EIO);
        for _ in 0..2 {
            let error = meet().unwrap_err();
            assert!(error.message.contains("cannot be read"), "{error}");
        }
    }
    refuse(0, 0);
    assert!(!aware.stats().unwrap().damaged);
    read().unwrap();
    write().unwrap();
    say("passed");
    heed();
    let error = meet().unwrap_err();
    assert_eq!(error.code, Code::Storage);
    assert!(aware.stats().unwrap().damaged, "after {fault}: {error}");
    let other = NewEvent::new(MANAGER, Kind::GoalChanged, ActorType::Agent);
    let error = aware.record(other).unwrap_err();
    assert!(error.message.contains("nothing is written"), "{error}");
    let _ = aware.close();
    say("met");
}

// ---- no room ---------------------------------------------------------------------

fn a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    Player::start("limit", &database).end();
    assert!(is_whole(&database));
}

fn limit(database: &Path) {
    let set = |most: libc::rlim_t| {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the struct is whole; a limit that is met raises a signal, ignored here, and an error.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
        }
    };
    let aware = open(database);
    record(&aware);
    set(aware.stats().unwrap().wal_bytes + 40_000);
    let error = std::iter::repeat_with(|| aware.record(human()))
        .find_map(Result::err)
        .unwrap();
    assert!(
        error.code == Code::Storage && error.message.contains("File too large"),
        "{error}"
    );
    let stored = version(&aware);
    queued_ones_are_counted(&aware);
    assert_eq!(version(&aware), stored);
    set(libc::RLIM_INFINITY);
    assert_eq!(record(&aware), stored + 1);
    aware.close().unwrap();
}

/// A file system of one MiB, as long as it is kept.
struct Small(tempfile::TempDir);

impl Small {
    fn new() -> Option<Small> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(folder.path())
            .output();
        mounted
            .is_ok_and(|made| made.status.success())
            .then(|| Small(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn a_full_file_system() {
    let Some(small) = Small::new() else {
        leave_out("a full file system", "a tmpfs cannot be mounted here");
        return;
    };
    let database = small.0.path().join("a.db");
    let ballast = small.0.path().join("ballast");
    let aware = open(&database);
    aware.watch(Watch::new(MANAGER, CHILD)).unwrap();
    fs::write(&ballast, vec![0; 600_000]).unwrap();
    let error = std::iter::repeat_with(|| aware.record(human()))
        .find_map(Result::err)
        .unwrap();
    assert!(
        error.code == Code::Storage && error.message.contains("no room"),
        "{error}"
    );
    let stored = version(&aware);
    queued_ones_are_counted(&aware);
    assert_eq!(aware.stats().unwrap().events, stored);
    let notices = aware.drain_notices(DrainNotices {
        ack: Some(false),
        ..DrainNotices::new(MANAGER)
    });
    assert_eq!(notices.unwrap().notices.len(), 1);
    // A batch is stored whole or not at all, and the handle is opened where nothing more fits.
    let other = Awareness::open(Config {
        read_only: Some(true),
        ..config(&database)
    })
    .unwrap();
    assert_eq!(version(&other), stored);
    other.close().unwrap();
    fs::remove_file(&ballast).unwrap();
    assert_eq!(record(&aware), stored + 1);
    assert_eq!(
        aware
            .drain_notices(DrainNotices::new(MANAGER))
            .unwrap()
            .notices
            .len(),
        1
    );
    aware.close().unwrap();
    assert!(is_whole(&database));
}

// ---- no permission ------------------------------------------------------------------

fn a_denied_folder() {
    let folder = tempfile::tempdir().unwrap();
    Player::start("deny", &folder.path().join("a.db")).end();
}

/// Gives up root for a while, which no permission stops.
fn as_nobody<T>(work: impl FnOnce() -> T) -> T {
    let become_user = |user: libc::uid_t| {
        // SAFETY: sets the effective user of every thread of this process, nothing else.
        assert_eq!(unsafe { libc::seteuid(user) }, 0);
    };
    // SAFETY: only asks.
    let own = unsafe { libc::geteuid() };
    if own == 0 {
        become_user(65_534);
    }
    let done = work();
    if own == 0 {
        become_user(own);
    }
    done
}

fn deny(database: &Path) {
    let folder = database.parent().unwrap();
    let allow = |mode: u32| fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    let denied = |error: Error| {
        assert_eq!(error.code, Code::Storage, "{error}");
        assert!(error.message.contains("Permission denied"), "{error}");
    };
    // Nothing can be made in it.
    allow(0o555);
    denied(as_nobody(|| Awareness::open(config(database)).unwrap_err()));
    assert!(!database.exists());
    allow(0o755);
    let aware = open(database);
    record(&aware);
    assert_eq!(version(&aware), 1);
    // What is open goes on; what is opened anew says why it cannot be.
    allow(0o555);
    as_nobody(|| {
        record(&aware);
        assert_eq!(version(&aware), 2);
        denied(Awareness::open(config(database)).unwrap_err());
    });
    // Not even looked at: told as what it is, and not as a file that is gone.
    allow(0o700);
    as_nobody(|| {
        // The owner needs no other right where this test is not run by root.
        if fs::metadata(database).is_err() {
            denied(aware.record(human()).unwrap_err());
            denied(
                aware
                    .changes_since(ChangesSince::new(CHILD, 0))
                    .unwrap_err(),
            );
            assert_eq!(aware.stats().unwrap().failed_appends, 1);
        }
    });
    allow(0o755);
    assert_eq!(record(&aware), 3);
    aware.close().unwrap();
    // A file that may be read and not written, in a folder where nothing can be made beside it.
    fs::set_permissions(database, fs::Permissions::from_mode(0o444)).unwrap();
    allow(0o555);
    as_nobody(|| {
        let error = Awareness::open(config(database)).unwrap_err();
        assert_eq!(error.code, Code::Storage, "{error}");
        assert!(
            error.message.contains("denied") || error.message.contains("read-only"),
            "{error}"
        );
        let only_read = Config {
            read_only: Some(true),
            ..config(database)
        };
        // Who only reads needs to make nothing.
        assert_eq!(version(&Awareness::open(only_read).unwrap()), 3);
    });
    allow(0o755);
    fs::set_permissions(database, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(record(&open(database)), 4);
}

// ---- files that go away ----------------------------------------------------------------

/// Opens, and does what it is told, a line at a time.
fn serve(database: &Path) {
    let aware = open(database);
    say("open");
    loop {
        match heed().as_str() {
            "record" => match aware.record(human()) {
                Ok(done) => say(&done.event().unwrap().sequence.to_string()),
                Err(error) => say(&error.to_string()),
            },
            "version" => match aware.changes_since(ChangesSince::new(CHILD, 0)) {
                Ok(changes) => say(&changes.state_version.to_string()),
                Err(error) => say(&error.to_string()),
            },
            _ => break,
        }
    }
    aware.close().unwrap();
}

fn ask(player: &mut Player, what: &str) -> String {
    player.tell(what);
    player.hear().unwrap()
}

/// Each set of files beside a database that can be taken from under it.
const TAKEN: [&[&str]; 3] = [&["wal", "shm"], &["wal"], &["shm"]];

fn a_removed_log() {
    for taken in TAKEN {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let (one, two) = (open(&database), open(&database));
        let only_reads = Awareness::open(Config {
            read_only: Some(true),
            ..config(&database)
        })
        .unwrap();
        let mut other = Player::start("serve", &database);
        other.expect("open");
        for _ in 0..5 {
            record(&one);
            record(&two);
        }
        assert_eq!(ask(&mut other, "record"), "11");
        for aware in [&one, &two, &only_reads] {
            assert_eq!(version(aware), 11);
        }
        for file in taken {
            fs::remove_file(beside(&database, file)).unwrap();
        }
        // Each handle lets go of the log when it looks next, which it does once a second.
        let mut stored = 11;
        let mut again = |aware: &Awareness| {
            until(|| aware.record(human()).is_ok());
            stored += 1;
            assert_eq!(version(aware), stored, "{taken:?}");
        };
        again(&one);
        again(&two);
        again(&one);
        let stored = stored + 1;
        until(|| {
            only_reads
                .changes_since(ChangesSince::new(CHILD, 0))
                .is_ok()
        });
        assert_eq!(version(&only_reads), stored - 1);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let said = ask(&mut other, "record");
            if said == stored.to_string() {
                break;
            }
            assert!(
                said.contains("storage") && Instant::now() < deadline,
                "{taken:?}: {said}"
            );
        }
        for aware in [&one, &two, &only_reads] {
            assert_eq!(version(aware), stored, "{taken:?}");
        }
        other.end();
        for aware in [one, two, only_reads] {
            assert!(!aware.stats().unwrap().damaged);
            aware.close().unwrap();
        }
        assert!(is_whole(&database), "{taken:?}");
        assert_eq!(version(&open(&database)), stored, "{taken:?}");
    }
}

fn another_process_comes() {
    for taken in TAKEN {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let aware = open(&database);
        record_many(&aware, 10);
        for file in taken {
            fs::remove_file(beside(&database, file)).unwrap();
        }
        assert_eq!(record(&aware), 11, "{taken:?}");
        let mut other = Player::start("serve", &database);
        other.expect("open");
        for round in 0..20 {
            assert_eq!(ask(&mut other, "record"), (12 + 2 * round).to_string());
            assert_eq!(record(&aware), 13 + 2 * round, "{taken:?}");
        }
        other.end();
        aware.close().unwrap();
        assert!(is_whole(&database), "{taken:?}");
    }
}

fn a_replaced_file() {
    // At times the log is being moved by the upkeep thread just then.
    (0..8).for_each(|_| replace_it());
}

fn replace_it() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let aware = open(&database);
    let mut other = Player::start("serve", &database);
    other.expect("open");
    record_many(&aware, 30);
    let copy = folder.path().join("copy");
    aware
        .backup(Backup {
            path: copy.to_str().unwrap().to_owned(),
        })
        .unwrap();
    // A log full of pages that the copy must not get.
    for n in 0..300 {
        aware
            .record(NewEvent::new(
                format!("agent:main:s-{n}"),
                Kind::GoalChanged,
                ActorType::Human,
            ))
            .unwrap();
    }
    let moved = folder.path().join("moved.db");
    fs::rename(&database, &moved).unwrap();
    fs::rename(&copy, &database).unwrap();
    assert_eq!(version(&aware), 30);
    assert_eq!(
        aware
            .sessions(SessionsRequest::default())
            .unwrap()
            .sessions
            .len(),
        1
    );
    assert_eq!(record(&aware), 31);
    assert_eq!(ask(&mut other, "version"), "31");
    assert_eq!(ask(&mut other, "record"), "32");
    assert_eq!(record(&aware), 33);
    other.end();
    assert!(!aware.stats().unwrap().damaged);
    aware.close().unwrap();
    assert!(is_whole(&database));
    // And the one that was moved away has all that it was given.
    assert!(is_whole(&moved));
    assert_eq!(
        open(&moved)
            .sessions(SessionsRequest {
                limit: Some(1000),
                ..Default::default()
            })
            .unwrap()
            .sessions
            .len(),
        301
    );
}

fn wakes_of_a_replaced_file() {
    let wakes = |aware: &Awareness| {
        let waited = WaitWakes {
            timeout_ms: 10_000,
            max: None,
        };
        aware.wait_wakes(waited).unwrap().wakes.len()
    };
    // Its first wake has a number below those before, or the same.
    for (before, told) in [(4, false), (1, true), (1, false)] {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let (aware, other) = (open(&database), open(&database));
        aware.watch(Watch::new(MANAGER, CHILD)).unwrap();
        let copy = folder.path().join("copy");
        aware
            .backup(Backup {
                path: copy.to_str().unwrap().to_owned(),
            })
            .unwrap();
        for n in 1..=before {
            record(&aware);
            if n < before {
                aware.drain_notices(DrainNotices::new(MANAGER)).unwrap();
            }
        }
        if told {
            assert_eq!((wakes(&aware), wakes(&other)), (1, 1));
        }
        fs::rename(&database, folder.path().join("moved.db")).unwrap();
        fs::rename(&copy, &database).unwrap();
        record(&aware);
        assert_eq!(wakes(&aware), 1, "{before} {told}");
        assert_eq!(wakes(&other), 1, "{before} {told}");
        let drained = aware.drain_notices(DrainNotices::new(MANAGER)).unwrap();
        assert_eq!(drained.notices.len(), 1);
        for aware in [aware, other] {
            aware.close().unwrap();
        }
    }
}

fn moved_away_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let aware = open(&database);
    record(&aware);
    let away = folder.path().join("away");
    assert_eq!(aware.stats().unwrap().events, 1);
    for _ in 0..2 {
        fs::rename(&database, &away).unwrap();
        let error = aware.record(human()).unwrap_err();
        assert!(
            error.code == Code::Storage && error.message.contains("gone"),
            "{error}"
        );
        let error = aware
            .changes_since(ChangesSince::new(CHILD, 0))
            .unwrap_err();
        assert!(
            error.code == Code::Storage && error.message.contains("gone"),
            "{error}"
        );
        queued_ones_are_counted(&aware);
        let stats = aware.stats().unwrap();
        assert!(stats.unreadable.unwrap().contains("gone") && stats.events >= 1);
        fs::rename(&away, &database).unwrap();
        let stored = version(&aware);
        assert_eq!(record(&aware), stored + 1);
        assert!(aware.stats().unwrap().unreadable.is_none());
    }
    assert_eq!(aware.stats().unwrap().failed_appends, 6);
    aware.close().unwrap();
    assert!(is_whole(&database));
}

fn moved_away_and_closed() {
    for durability in [Durability::Process, Durability::Power] {
        for replaced in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let database = folder.path().join("a.db");
            let copy = folder.path().join("copy");
            let aware = Awareness::open(Config {
                durability: Some(durability),
                ..config(&database)
            })
            .unwrap();
            aware
                .backup(Backup {
                    path: copy.to_str().unwrap().to_owned(),
                })
                .unwrap();
            record_many(&aware, 20);
            let away = folder.path().join("away.db");
            fs::rename(&database, &away).unwrap();
            if replaced {
                fs::rename(&copy, &database).unwrap();
            }
            aware.close().unwrap();
            assert!(is_whole(&away), "{durability:?}");
            assert_eq!(version(&open(&away)), 20, "{durability:?}");
            // And who comes to the path is given nothing of it.
            assert_eq!(version(&open(&database)), 0, "{durability:?}");
            assert!(is_whole(&database), "{durability:?}");
        }
    }
}

fn a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let aware = open(&database);
    record_many(&aware, 200);
    fs::remove_file(&database).unwrap();
    // Another process makes it anew; the log and the index of the old one still lie there.
    let mut other = Player::start("serve", &database);
    other.expect("open");
    assert_eq!(ask(&mut other, "version"), "0");
    assert_eq!(ask(&mut other, "record"), "1");
    assert_eq!(version(&aware), 1);
    assert_eq!(record(&aware), 2);
    assert_eq!(ask(&mut other, "record"), "3");
    assert_eq!(version(&aware), 3);
    other.end();
    aware.close().unwrap();
    assert!(is_whole(&database));
}

/// A session that the host runs, linked to a file.
const RUN: &str = "agent:main:run";

fn run(aware: &Awareness, active: bool) -> bool {
    let request = SetRunActive {
        session_key: RUN.to_owned(),
        agent_id: None,
        active,
    };
    aware.set_run_active(request).unwrap().active
}

fn is_deferred(aware: &Awareness) -> bool {
    let scanned = aware.scan(Scan::default()).unwrap();
    scanned.outcomes[0].outcome == OutcomeKind::Deferred
}

fn replace_by_a_copy(aware: &Awareness, database: &Path) {
    let copy = beside(database, "copy");
    aware
        .backup(Backup {
            path: copy.to_str().unwrap().to_owned(),
        })
        .unwrap();
    fs::rename(copy, database).unwrap();
}

/// Removes the files beside the database whose names hold one of the words.
fn remove_beside(database: &Path, words: &[&str]) {
    let name = database.file_name().unwrap().to_str().unwrap();
    for file in fs::read_dir(database.parent().unwrap()).unwrap() {
        let file = file.unwrap();
        let its = file.file_name().into_string().unwrap();
        let what = its.strip_prefix(name).unwrap_or_default();
        if words.iter().any(|word| what.starts_with(word)) {
            fs::remove_file(file.path()).unwrap();
        }
    }
}

/// How long the first's next wake took to the other, of a few the shortest.
fn shortest_wake(from: &Awareness, to: &Awareness, what: &str) -> Duration {
    let wake = || {
        from.drain_notices(DrainNotices::new(MANAGER)).unwrap();
        let begun = Instant::now();
        record(from);
        let wakes = to.wait_wakes(WaitWakes {
            timeout_ms: 20_000,
            max: None,
        });
        assert_eq!(wakes.unwrap().wakes.len(), 1, "{what}: {to:?}");
        begun.elapsed()
    };
    (0..4).map(|_| wake()).min().unwrap()
}

fn a_living_handle_stays_known() {
    type Change = fn(&Awareness, &Path);
    let changes: [(&str, Change); 6] = [
        ("handle", |_, database| {
            remove_beside(database, &["-handle-"])
        }),
        ("taken for dead", |_, database| {
            remove_beside(database, &["-handle-"]);
            // Who opens now forgets those whose files it does not find, and their marks.
            open(database).close().unwrap();
        }),
        ("wake", |_, database| remove_beside(database, &["-wake"])),
        ("both", |_, database| {
            remove_beside(database, &["-handle-", "-wake"]);
        }),
        ("all", |_, database| remove_beside(database, &["-"])),
        ("database", replace_by_a_copy),
    ];
    for (what, change) in changes {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let source = folder.path().join("run.jsonl");
        fs::write(&source, "").unwrap();
        let one = open(&database);
        let mut other = Player::start("serve", &database);
        other.expect("open");
        one.watch(Watch::new(MANAGER, CHILD)).unwrap();
        one.adopt(Adopt::new(RUN, Catalog::Claude, source.to_str().unwrap()))
            .unwrap();
        record(&one);
        let taken = |aware: &Awareness| {
            let all = WaitWakes {
                timeout_ms: 0,
                max: None,
            };
            aware.wait_wakes(all).unwrap().wakes.len()
        };
        assert_eq!(taken(&one), 1);
        assert!(run(&one, true) && is_deferred(&one));
        change(&one, &database);
        // Within a second each handle sees it; what it marks is marked anew.
        let is_here = |words: &[&str]| {
            let names = fs::read_dir(folder.path()).unwrap();
            let names: Vec<_> = names.map(|file| file.unwrap().file_name()).collect();
            words.iter().all(|word| {
                names
                    .iter()
                    .any(|name| name.to_str().unwrap().contains(word))
            })
        };
        until(|| is_here(&["a.db-handle-", "a.db-wake"]) && is_deferred(&one));
        let two = open(&database);
        assert!(
            is_deferred(&two),
            "{what}: the mark ended before its handle"
        );
        if !matches!(what, "all" | "database") {
            assert_eq!(taken(&two), 0, "{what}: it was offered to one that lives");
        }
        // A record of another process reaches both at once, and what they raise each other.
        let here: [&Awareness; 2] = [&one, &two];
        for aware in here {
            let other_way = here.into_iter().find(|it| !std::ptr::eq(*it, aware));
            until(|| {
                taken(&one);
                taken(&two);
                shortest_wake(aware, other_way.unwrap(), what) < Duration::from_millis(500)
            });
        }
        other.end();
        assert!(!run(&one, false) && !is_deferred(&two), "{what}");
        for aware in [one, two] {
            aware.close().unwrap();
        }
        assert!(is_whole(&database), "{what}");
        assert!(!is_here(&["a.db-handle-"]), "{what}: nobody is left");
    }
}

fn a_busy_handle_stays_known() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let handles = [open(&database), open(&database)];
    handles[0].watch(Watch::new(MANAGER, CHILD)).unwrap();
    let known = || {
        let names = fs::read_dir(folder.path()).unwrap();
        let names = names.map(|file| file.unwrap().file_name());
        let of_handles = names.filter(|name| name.to_str().unwrap().contains("-handle-"));
        of_handles.count()
    };
    assert_eq!(known(), handles.len());
    remove_beside(&database, &["-handle-"]);
    until(|| {
        // A wake, which each tells the others of.
        record(&handles[0]);
        handles[0]
            .drain_notices(DrainNotices::new(MANAGER))
            .unwrap();
        known() == handles.len()
    });
}
