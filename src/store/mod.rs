//! The database: opening, one writer, a few readers, and every SQL statement
//! of the library behind functions named after what they do.

pub(crate) mod alive;
mod checkpoints;
mod clock;
mod company;
pub(crate) mod cursors;
pub(crate) mod events;
mod faults;
pub(crate) mod inspect;
pub(crate) mod links;
pub(crate) mod offers;
mod open;
pub(crate) mod owed;
mod power;
mod readers;
pub(crate) mod schema;
mod steps;
mod values;
mod writer;

use std::path::{Path, PathBuf};

use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use rusqlite::Connection;

use crate::contract::{Durability, Error, Result};
use crate::sharing::{self, Danger};
pub(crate) use crate::sync::lock;
use crate::sync::{Arc, Mutex};
pub(crate) use clock::Clock;
use faults::{Health, explain};
pub(crate) use faults::{Report, fault};
pub(crate) use open::Stillness;
use open::{InUse, Place};
use readers::Readers;
#[cfg(test)]
pub(crate) use steps::Step;
pub(crate) use steps::Steps;
use writer::Writer;
pub(crate) use writer::{QUEUE_EVENTS, Standing, Tx};

/// How a database is opened.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub path: PathBuf,
    pub create: bool,
    pub read_only: bool,
    pub durability: Durability,
    pub busy_timeout: Duration,
    pub clock: Clock,
    pub steps: Steps,
}

#[cfg(test)]
impl Options {
    /// Those of a test's database in this folder.
    pub(crate) fn of_test(folder: &Path) -> Options {
        Options {
            path: folder.join("a.db"),
            create: true,
            read_only: false,
            durability: Durability::Process,
            busy_timeout: Duration::from_secs(5),
            clock: Clock::default(),
            steps: Steps::default(),
        }
    }
}

/// What is done in the first transaction on a database, whenever it is opened anew.
pub(crate) type OnOpen = Box<dyn Fn(&Tx<'_>) -> Result<()> + Send + Sync>;

/// Told of the wakes that a transaction raised, after its commit; of none when
/// they were lost on the way and are to be read. The flag says whether there
/// are other handles to hear of them.
pub(crate) type OnCommit = Box<dyn Fn(Vec<offers::Raised>, bool) + Send + Sync>;

/// An open database.
pub(crate) struct Store {
    options: Options,
    place: Place,
    writer: Option<Writer>,
    readers: Arc<Readers>,
    health: Arc<Health>,
    /// Given back when the connections are closed.
    in_use: Mutex<Option<InUse>>,
}

impl Store {
    /// Opens the database. With `read_only` neither hook is ever called.
    pub(crate) fn open(options: Options, on_open: OnOpen, on_commit: OnCommit) -> Result<Store> {
        let in_use = Mutex::new(Some(InUse::begin()?));
        let readers = Readers::new(options.clone());
        let health = Arc::new(Health::default());
        let writer = if options.read_only {
            readers.check()?;
            None
        } else {
            Some(Writer::open(
                options.clone(),
                Arc::clone(&readers),
                Arc::clone(&health),
                on_open,
                on_commit,
            )?)
        };
        Ok(Store {
            place: Place::new(&options.path),
            options,
            writer,
            readers,
            health,
            in_use,
        })
    }

    /// The database file, absolute.
    pub(crate) fn path(&self) -> &Path {
        &self.options.path
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.writer.is_none()
    }

    /// Runs `work` in a write transaction, together with whoever else waits to
    /// write. An error of `work` undoes what it did, and nothing else.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer()?.write(work)
    }

    /// As [`Store::write`], for work that can be undone and done again, which
    /// costs less among others.
    pub(crate) fn write_repeatable<T: Send + 'static>(
        &self,
        work: impl Fn(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer()?.write_repeatable(work)
    }

    /// Queues `work`, which stores `events` events, for the background writer;
    /// `false` when the queue is full. `done` is told how it went.
    pub(crate) fn queue(
        &self,
        events: usize,
        work: impl Fn(&Tx<'_>) -> Result<()> + Send + 'static,
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<bool> {
        self.writer()?.queue(events, work, done)
    }

    /// Writes what is queued until [`Store::close`]; the body of the background writer's thread.
    pub(crate) fn write_queued(&self) {
        if let Some(writer) = &self.writer {
            writer.write_queued();
        }
    }

    /// How many events are queued.
    pub(crate) fn queued_events(&self) -> usize {
        self.writer.as_ref().map_or(0, Writer::queued_events)
    }

    /// The time by the store's clock, ms since the epoch.
    pub(crate) fn now_ms(&self) -> i64 {
        self.options.clock.now_ms()
    }

    /// Runs `work` on one snapshot of the database.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let at_path = self.files_to_read()?;
        let read = self.readers.read(at_path, work);
        self.health.note(Some(at_path), read)
    }

    /// How the database fares in this handle.
    pub(crate) fn report(&self) -> Report {
        self.health.report(self.place.files().ok())
    }

    /// As [`Store::read`], for work of one statement, which is a snapshot of its own.
    pub(crate) fn look<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let at_path = self.files_to_read()?;
        let read = self.readers.alone(at_path, work);
        self.health.note(Some(at_path), read)
    }

    /// The files at the path, which are those that are open.
    fn files_to_read(&self) -> Result<open::Files> {
        let at_path = self.health.note(None, self.place.files())?;
        match &self.writer {
            Some(writer) => writer.follow(at_path),
            None => Ok(at_path),
        }
    }

    /// A number that changes when another connection has written; `None` while
    /// this one is writing, or waits to.
    pub(crate) fn data_version(&self) -> Result<Option<i64>> {
        self.writer()?.data_version()
    }

    /// How the database lies there, to see at little cost that nothing happened.
    pub(crate) fn stillness(&self) -> Option<Stillness> {
        self.writer().ok()?.stillness()
    }

    /// How the database stands; `None` while this handle is writing.
    pub(crate) fn standing(&self) -> Result<Option<Standing>> {
        self.writer()?.standing()
    }

    /// What else in this process endangers the database that is open for writing.
    pub(crate) fn danger(&self) -> Danger {
        let at_path = self.place.files().ok();
        match &self.writer {
            Some(writer) if at_path.is_some() && writer.current() == at_path => {
                sharing::look(&self.options.path)
            }
            _ => Danger::default(),
        }
    }

    /// Ready when the write-ahead log has become long; see [`Store::checkpoint`].
    pub(crate) fn log_is_due(&self) -> Result<Receiver<()>> {
        Ok(self.writer()?.log_is_due())
    }

    /// Moves what the write-ahead log holds into the database as far as readers allow.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let at_path = self.files_to_read()?;
        self.health.check(at_path)?;
        let moves = self.writer()?.moves();
        if moves.as_ref().is_some_and(|moves| moves.failed()) {
            return Ok(());
        }
        self.health.beside_writer(at_path, || {
            let file = open::reader(&self.options, true)?;
            file.check_is_of(at_path)?;
            let moved = file
                .conn
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            if let Some(moves) = &moves {
                moves.note(&moved);
            }
            moved.map_err(|error| explain(fault(error), Some(&file.conn), &self.options.path))
        })
    }

    /// A consistent copy in the file `into`, which must be empty or absent.
    pub(crate) fn copy_to(&self, into: &str) -> Result<()> {
        let at_path = self.files_to_read()?;
        let copied = self.readers.alone(at_path, |conn| {
            conn.execute("VACUUM INTO ?1", [into]).map_err(fault)?;
            Ok(())
        });
        let copied = copied.map_err(|error| Error {
            message: format!("the copy cannot be made: {}", error.message),
            ..error
        });
        self.health.note(Some(at_path), copied)
    }

    /// Lets no more write; the background writer ends when its queue is empty.
    pub(crate) fn stop(&self) {
        if let Some(writer) = &self.writer {
            writer.stop();
        }
    }

    /// Closes every connection. Call after [`Store::stop`] and the end of the background writer.
    pub(crate) fn close(&self) {
        self.readers.close();
        if let Some(writer) = &self.writer {
            writer.close();
        }
        lock(&self.in_use).take();
    }

    fn writer(&self) -> Result<&Writer> {
        self.writer
            .as_ref()
            .ok_or_else(|| Error::unsupported("the handle was opened with readOnly"))
    }
}

/// Repeats what SQLite refuses at once, without its own waiting, while another
/// process opens the same file.
fn retry_busy<T>(
    conn: &Connection,
    patience: Duration,
    mut attempt: impl FnMut(&Connection) -> rusqlite::Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match attempt(conn) {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            outcome => return outcome.map_err(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::events::NewRow;
    use super::values::scans;
    use super::*;
    use crate::contract::{ActorType, Kind, KindSet, Provenance};
    use crate::key::Session;
    use crate::store::alive::beside_path;

    fn open(options: &Options) -> Store {
        Store::open(options.clone(), Box::new(|_| Ok(())), Box::new(|_, _| ())).unwrap()
    }

    /// Puts a copy without rows at the path, beside the log of the one before.
    fn replace(store: &Store, folder: &Path) {
        let copy = folder.join("copy");
        store.copy_to(copy.to_str().unwrap()).unwrap();
        write_rows(store);
        let database = &store.options.path;
        fs::rename(database, folder.join("moved")).unwrap();
        fs::rename(copy, database).unwrap();
        assert!(fs::metadata(beside_path(database, "wal")).unwrap().len() > 100_000);
    }

    fn write_rows(store: &Store) {
        let rows = "CREATE TABLE t(n);
            WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 20000)
            INSERT INTO t SELECT n FROM c";
        store
            .write(|tx| tx.conn()?.execute_batch(rows).map_err(fault))
            .unwrap();
    }

    fn has_rows(conn: &Connection) -> Result<bool> {
        // SQLite itself would answer by what it knows of the schema, and look at nothing.
        let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 't')";
        conn.query_row(sql, [], |row| row.get(0)).map_err(fault)
    }

    #[test]
    fn whatever_comes_first_after_a_replacement_the_new_file_gets_nothing_of_the_old_log() {
        type First = fn(&Store, &Path) -> Result<()>;
        let firsts: [(&str, First); 7] = [
            ("checkpoint", |store, _| store.checkpoint()),
            ("read", |store, _| store.read(|_| Ok(()))),
            ("look", |store, _| store.look(|_| Ok(()))),
            ("write", |store, _| store.write(|_| Ok(()))),
            ("data version", |store, _| store.data_version().map(|_| ())),
            ("standing", |store, _| store.standing().map(|_| ())),
            ("copy", |store, folder| {
                let second = folder.join("second");
                store.copy_to(second.to_str().unwrap())?;
                let second = Connection::open(second).map_err(fault)?;
                assert!(!has_rows(&second)?, "copied");
                Ok(())
            }),
        ];
        for (name, first) in firsts {
            let folder = tempfile::tempdir().unwrap();
            let store = open(&Options::of_test(folder.path()));
            replace(&store, folder.path());
            first(&store, folder.path()).unwrap();
            assert!(!store.read(has_rows).unwrap(), "{name}");
            store.checkpoint().unwrap();
            store.close();
            let moved = Connection::open(folder.path().join("moved")).unwrap();
            assert!(has_rows(&moved).unwrap(), "{name}: the log was lost");
        }
    }

    #[test]
    fn a_standing_is_another_after_every_write_and_the_same_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::of_test(folder.path());
        let (store, other) = (open(&options), open(&options));
        let add = |to: &Store| {
            to.write(|tx| {
                let row = "CREATE TABLE IF NOT EXISTS u(n); INSERT INTO u VALUES (1)";
                tx.conn()?.execute_batch(row).map_err(fault)
            })
        };
        let standing = || store.standing().unwrap().expect("nobody writes");
        type Step<'a> = (&'a str, bool, Box<dyn Fn() + 'a>);
        let steps: [Step<'_>; 6] = [
            ("its own write", true, Box::new(|| add(&store).unwrap())),
            ("another's write", true, Box::new(|| add(&other).unwrap())),
            ("nothing", false, Box::new(|| {})),
            (
                "a read",
                false,
                Box::new(|| assert!(store.read(has_rows).is_ok())),
            ),
            (
                "another's read",
                false,
                Box::new(|| assert!(other.read(has_rows).is_ok())),
            ),
            (
                "another file",
                true,
                Box::new(|| replace(&store, folder.path())),
            ),
        ];
        for (what, changes, step) in steps {
            let before = standing();
            step();
            assert_eq!(standing() != before, changes, "{what}");
            assert_eq!(standing(), standing(), "{what}");
        }
        // Nobody is kept waiting for one while a transaction is under way.
        let (entered, leave) = (
            Arc::new(std::sync::Barrier::new(2)),
            Arc::new(std::sync::Barrier::new(2)),
        );
        let ends = (Arc::clone(&entered), Arc::clone(&leave));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let stay = move |_: &Tx<'_>| {
                    ends.0.wait();
                    ends.1.wait();
                    Ok(())
                };
                store.write(stay).unwrap();
            });
            entered.wait();
            assert_eq!(store.standing().unwrap(), None);
            leave.wait();
        });
    }

    #[test]
    fn what_is_asked_at_each_event_drain_or_wake_reads_no_whole_table() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&Options::of_test(folder.path()));
        let session = |n: u64| Session {
            key: format!("agent:main:s-{n}"),
            agent: "main".to_owned(),
        };
        let fill = move |tx: &Tx<'_>| {
            for n in 1..=200 {
                let target = session(n);
                let row = NewRow {
                    session: &target,
                    session_id: None,
                    kind: Kind::GoalChanged,
                    actor_type: ActorType::Human,
                    actor_id: None,
                    run_id: None,
                    occurred_at: 1,
                    summary: "",
                    payload_json: None,
                    public_json: None,
                    dedupe_key: Some(&target.key),
                };
                let sequence = events::append(tx, &row)?;
                let cursor = cursors::Cursor {
                    last_seen: 0,
                    notified: sequence,
                    material: sequence,
                    provenance: Provenance::Explicit,
                    kinds: KindSet::NOTIFYING,
                };
                for watcher in [format!("agent:main:w-{n}"), "agent:main:all".to_owned()] {
                    let wake = offers::raise(tx, &watcher, &target)?;
                    cursors::insert(tx, &watcher, &target, &cursor, 1, wake)?;
                }
            }
            Ok(())
        };
        store.write(fill).unwrap();
        let asked = store.write(move |tx| {
            let (target, conn) = (&session(100), tx.conn()?);
            let told = cursors::Told {
                target,
                kind: Kind::GoalChanged,
                but: None,
            };
            let told_but = cursors::Told {
                but: Some("agent:main:all"),
                ..told
            };
            scans::take();
            let rows = [
                cursors::of_target(conn, target)?.len(),
                cursors::pending_of(conn, "agent:main:all", 9)?.len(),
                cursors::woken_after(conn, 0)?.len(),
                cursors::woken_after(conn, 398)?.len(),
                cursors::some_told(conn, &told, 9)?.len(),
                cursors::without_notice(conn, &told)?.len(),
                cursors::advance_known(tx, &told, 100).map(|()| 0)?,
                cursors::advance_known(tx, &told_but, 100).map(|()| 0)?,
                usize::from(cursors::of_pair(conn, "agent:main:all", target)?.is_some()),
                usize::from(cursors::any_of_target(conn, target)?),
                usize::from(cursors::is_open(conn, 100)?),
                usize::from(events::of_dedupe_key(tx, &target.key)?.is_some()),
                usize::from(events::of_sequence(conn, 100)?.is_some()),
                events::head(conn, target)?.last as usize,
                offers::last_wake(conn)? as usize,
                usize::from(offers::was_offered(conn, 1, 1)?),
                links::own_messages(conn, target)?.len(),
                links::runs(conn, target)?.len(),
            ];
            Ok((rows, scans::take()))
        });
        let (rows, scans) = asked.unwrap();
        assert_eq!(
            rows,
            [2, 9, 400, 2, 2, 0, 0, 0, 1, 1, 1, 1, 1, 100, 400, 0, 0, 0]
        );
        assert!(scans.is_empty(), "{scans:#?}");
    }

    #[test]
    fn what_is_written_while_it_is_read_is_no_part_of_a_reading() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&Options::of_test(folder.path()));
        let tables = |conn: &Connection| -> Result<i64> {
            let count = "SELECT count(*) FROM sqlite_schema";
            conn.query_row(count, [], |row| row.get(0)).map_err(fault)
        };
        let (before, after) = store
            .read(|conn| {
                let before = tables(conn)?;
                write_rows(&store);
                Ok((before, tables(conn)?))
            })
            .unwrap();
        assert_eq!(before, after);
        assert_eq!(store.read(tables).unwrap(), after + 1);
    }

    #[test]
    fn who_only_reads_takes_no_log_for_that_of_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::of_test(folder.path());
        let writes = open(&options);
        let reads = open(&Options {
            read_only: true,
            ..options
        });
        replace(&writes, folder.path());
        for _ in 0..2 {
            let error = reads.read(has_rows).unwrap_err();
            assert!(error.message.contains("log"), "{error}");
        }
        writes.write(|_| Ok(())).unwrap();
        assert!(!reads.read(has_rows).unwrap());
    }
}
