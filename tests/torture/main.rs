//! Death at any instant, the loss of power, and a disk that fails.
//!
//! A child process uses the library through its C ABI, with `shim.c` preloaded
//! between it and the system. This program is its own child: with a plan in the
//! environment it carries it out.
//!
//! `TORTURE_KILLS`, `TORTURE_POINTS` and `TORTURE_SEED` make a run longer, or
//! another one.
#![allow(unsafe_code)]

mod abi;
mod board;
mod faults;
mod model;
#[path = "../native/mod.rs"]
#[allow(dead_code)]
mod native;
#[path = "../opencode_store/mod.rs"]
mod opencode_store;
#[path = "../own_child/mod.rs"]
#[allow(dead_code)]
mod own_child;
mod power;
mod storm;
mod upstream;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use board::{Board, Phase, SPREAD};
use model::Model;
use own_child::Rng;

const PLAN: &str = "TORTURE_PLAN";

/// Takes notices with their acknowledgement.
const DRAINER: &str = "agent:main:drainer";
/// Takes them first and acknowledges some of them then.
const ACKER: &str = "agent:main:acker";
/// Begins to watch, and ends it.
const TOGGLER: &str = "agent:main:toggler";
const TARGETS: [&str; 4] = [
    "agent:main:subagent:t0",
    "agent:main:subagent:t1",
    "agent:main:t2",
    "bare",
];

/// What a child is to do.
#[derive(Clone, Serialize, Deserialize)]
struct Plan {
    role: String,
    library: PathBuf,
    /// The config of `aware_open`.
    config: Value,
    /// Tells what this child records from what others record.
    life: u64,
    seed: u64,
    /// What fails under it, and how many rounds there are.
    faults: Vec<abi::Fault>,
    rounds: u64,
}

impl Plan {
    fn new(role: &str, config: Value, life: u64, rng: &mut Rng) -> Plan {
        Plan {
            role: role.to_owned(),
            library: native::shared_library(),
            config,
            life,
            seed: rng.next() % (1 << 50),
            faults: Vec::new(),
            rounds: 0,
        }
    }
}

fn main() {
    if let Ok(plan) = std::env::var(PLAN) {
        let plan: Plan = serde_json::from_str(&plan).unwrap();
        // A panic of any thread is the end of the child, and seen by who waits for it.
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            tell(panic);
            // SAFETY: ends the process, whatever its threads are at.
            unsafe { libc::_exit(101) };
        }));
        return match plan.role.as_str() {
            "storm" => storm::storm(&plan),
            "sittings" => storm::sittings(&plan),
            "openings" => storm::openings(&plan),
            "record" => storm::record_and_end(&plan),
            "failing" => faults::failing(&plan),
            role => panic!("no role {role}"),
        };
    }
    let tests: [(&str, fn()); 6] = [
        ("killed_at_any_instant", killed_at_any_instant),
        (
            "what_was_acknowledged_outlives_the_loss_of_power",
            power::what_was_acknowledged_outlives_the_loss_of_power,
        ),
        (
            "who_died_while_opening_leaves_nothing_that_is_not_on_the_disk",
            power::who_died_while_opening_leaves_nothing_that_is_not_on_the_disk,
        ),
        (
            "a_sync_that_failed_at_the_beginning_takes_nothing_with_it",
            power::a_sync_that_failed_at_the_beginning_takes_nothing_with_it,
        ),
        (
            "a_failing_disk_is_told_and_survived",
            faults::a_failing_disk_is_told_and_survived,
        ),
        (
            "a_failed_sync_is_not_taken_for_a_later_one",
            faults::a_failed_sync_is_not_taken_for_a_later_one,
        ),
    ];
    own_child::run(&tests);
}

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |given| given.parse().unwrap())
}

/// Where a run's random choices begin; told, so that it can be repeated.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = number("TORTURE_SEED", now.unwrap().as_nanos() as u64 % 1_000_000);
    println!("seed {seed}");
    seed
}

/// A folder for a database, and one for what is around it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        // In memory where that is at hand: nothing here waits for a disk.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        Place { folder }
    }

    /// The folder of the database alone.
    fn data(&self) -> PathBuf {
        // As the library sees it, without symbolic links.
        self.folder.path().canonicalize().unwrap().join("data")
    }

    fn database(&self) -> PathBuf {
        self.data().join("a.db")
    }

    /// A file beside that folder.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A config with which the background does nothing of its own.
    fn config(&self) -> Value {
        let nowhere = self.file("nowhere");
        json!({"database": self.database(), "monitor": {"enabled": false, "roots": {
            "claude": nowhere, "codex": nowhere, "opencode": nowhere, "pi": nowhere}}})
    }

    /// Starts a child with the shim in it; its journal begins anew.
    fn start(&self, plan: &Plan) -> (Child, Board) {
        let _ = std::fs::remove_file(self.file("journal"));
        self.start_traced(plan, None)
    }

    /// Starts one that writes down what it does to the files too, behind those
    /// before it, and ends after so many changes; 0 for never.
    fn start_traced(&self, plan: &Plan, changes: Option<u64>) -> (Child, Board) {
        let board = Board::make(&self.file("board"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .env(PLAN, serde_json::to_string(plan).unwrap())
            .env("LD_PRELOAD", shim())
            .env("TORTURE_FOLDER", self.data())
            .env("TORTURE_BOARD", self.file("board"))
            .env("TORTURE_JOURNAL", self.file("journal"));
        if let Some(changes) = changes {
            command.env("TORTURE_TRACE", changes.to_string());
        }
        (command.spawn().unwrap(), board)
    }

    /// What the child said.
    fn said(&self) -> Vec<Value> {
        let entries = board::entries(&self.file("journal"));
        entries
            .iter()
            .filter_map(|entry| match entry {
                board::Entry::Said(text) => Some(serde_json::from_str(text).unwrap()),
                _ => None,
            })
            .collect()
    }
}

/// The shim, compiled once a run.
fn shim() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("torture");
        let (shim, made) = (
            folder.join("shim.so"),
            folder.join(format!("shim-{}.so", std::process::id())),
        );
        let source = native::root().join("tests/torture/shim.c");
        let flags = ["-std=gnu11", "-Wno-pedantic", "-shared", "-fPIC", "-O1"];
        native::build(native::Language::C11, &[source], &flags, &made)
            .unwrap_or_else(|said| panic!("the shim does not compile:\n{said}"));
        // Whole at once: another run may be using it.
        std::fs::rename(&made, &shim).unwrap();
        shim
    })
}

/// Busy for this long: a kill's instant is finer than a sleep.
fn spin(pause: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < pause {
        std::hint::spin_loop();
    }
}

/// How often a kill fell into each phase.
#[derive(Default)]
struct Spread {
    kills: u64,
    /// A thread had called and was not answered.
    inside: BTreeMap<Phase, u64>,
    /// That call led the write transaction that was open (moved pages, for a checkpoint).
    at_work: BTreeMap<Phase, u64>,
    recovering: u64,
}

impl Spread {
    fn count(&mut self, board: &Board) {
        self.kills += 1;
        for phase in SPREAD {
            *self.inside.entry(phase).or_default() += u64::from(board.is_inside(phase));
            *self.at_work.entry(phase).or_default() += u64::from(board.is_at_work(phase));
        }
        self.recovering += u64::from(board.is_recovering());
    }

    fn rarest(&self) -> Phase {
        let at_work = |phase: &Phase| self.at_work.get(phase).copied().unwrap_or(0);
        SPREAD.into_iter().min_by_key(at_work).unwrap()
    }

    fn least(&self) -> u64 {
        self.at_work.values().copied().min().unwrap_or(0)
    }

    fn print(&self) {
        println!(
            "{} kills, of them {} in recovery",
            self.kills, self.recovering
        );
        println!("{:12} {:>8} {:>8}", "phase", "inside", "at work");
        for phase in SPREAD {
            let (inside, at_work) = (self.inside[&phase], self.at_work[&phase]);
            println!("{:12} {inside:>8} {at_work:>8}", format!("{phase:?}"));
        }
    }
}

/// Kills the child at a random instant of what is wanted, or of anything else
/// when that does not come up.
fn kill(child: &mut Child, board: &Board, rng: &mut Rng, wanted: impl Fn(&Board) -> bool) {
    let patience = Instant::now() + Duration::from_secs(1);
    while !wanted(board) && Instant::now() < patience {
        std::hint::spin_loop();
    }
    spin(Duration::from_micros(rng.below(50)));
    let running = child.try_wait().unwrap();
    assert_eq!(running, None, "the child ended by itself");
    child.kill().unwrap();
    use std::os::unix::process::ExitStatusExt;
    let ended: ExitStatus = child.wait().unwrap();
    assert_eq!(ended.signal(), Some(libc::SIGKILL), "{ended}");
}

fn killed_at_any_instant() {
    const LIVES_OF_A_DATABASE: u64 = 25;
    let kills = number("TORTURE_KILLS", 40);
    // A long run is to show that its kills are spread.
    let least = if kills >= 500 { 40 } else { 0 };
    let mut rng = Rng(seed());
    let mut spread = Spread::default();
    let mut life = 0;
    let mut events = 0;
    while spread.kills < kills || spread.least() < least {
        let place = Place::new();
        let openings = |retention: u64, spread: &mut Spread, rng: &mut Rng| {
            let plan = plan(&place, "openings", 0, retention, rng);
            let (mut child, board) = place.start(&plan);
            let deep = rng.below(3);
            kill(&mut child, &board, rng, |board| match deep {
                0 => board.is_inside(Phase::Open),
                1 => board.is_at_work(Phase::Open),
                _ => board.is_recovering(),
            });
            spread.count(&board);
        };
        // The first of them are killed while the tables are made.
        openings(3_000, &mut spread, &mut rng);
        let mut model = Model::begin(&place);
        for _ in 0..LIVES_OF_A_DATABASE {
            life += 1;
            let retention = rng.of(&[3_000, 3_000, 8_000]);
            let plan = plan(&place, "storm", life, retention, &mut rng);
            let (mut child, board) = place.start(&plan);
            let wanted = spread.rarest();
            model.feed_while(&mut rng.next(), || {
                spin(Duration::from_micros(rng.below(60_000)));
                kill(&mut child, &board, &mut rng, |board| {
                    board.is_at_work(wanted)
                });
            });
            spread.count(&board);
            let said = place.said();
            // What it left is opened by those that die of it, before it is looked at.
            for _ in 0..rng.below(2) {
                openings(retention, &mut spread, &mut rng);
            }
            model.check(&said);
            model.undo(&mut rng);
            if spread.kills >= kills && spread.least() >= least {
                break;
            }
        }
        events += model.finish();
    }
    spread.print();
    println!("{events} events and turns accounted for");
}

fn plan(place: &Place, role: &str, life: u64, retention: u64, rng: &mut Rng) -> Plan {
    let mut config = place.config();
    config["retention"] = json!({"maxEvents": retention});
    config["durability"] = json!(rng.of(&["process", "power"]));
    if rng.below(3) == 0 {
        config["monitor"]["enabled"] = true.into();
        config["monitor"]["initialDelayMs"] = 0.into();
        config["monitor"]["intervalMs"] = 20.into();
    }
    Plan::new(role, config, life, rng)
}
