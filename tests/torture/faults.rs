//! A disk that fails under the library: syncs and writes that do not succeed,
//! writes that are short, a disk that is full.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::abi::{Fault, Handle, Library, say, strike, struck};
use crate::board::{Entry, entries};
use crate::model::Model;
use crate::power::{assert_complete, images};
use crate::{DRAINER, Place, Plan, Rng, TARGETS, number, seed};

/// One thread's use of the database, and what it knows of it.
struct User {
    plan: Plan,
    library: Library,
    handle: Handle,
    rng: Rng,
    count: u64,
    /// The last event that is known to be there, and what was answered since.
    known: u64,
    stored: Vec<String>,
    /// How many events this handle refused.
    refused: u64,
    answers: BTreeSet<String>,
}

/// The child: calls while the disk fails, and checks after each that it goes on.
pub fn failing(plan: &Plan) {
    let library = Library::load(&plan.library);
    let mut user = User {
        plan: plan.clone(),
        library,
        handle: library.open(&plan.config).unwrap(),
        rng: Rng(plan.seed),
        count: 0,
        known: 0,
        stored: Vec::new(),
        refused: 0,
        answers: BTreeSet::new(),
    };
    for target in TARGETS {
        say(&json!(["watch?", DRAINER, target]));
        let request = json!({"watcherSessionKey": DRAINER, "targetSessionKey": target});
        let reply = user.handle.call("watch", request).unwrap();
        say(&json!(["watch!", DRAINER, target, reply["created"], 0]));
    }
    let mut met = 0;
    let over = AtomicBool::new(false);
    // One that reads an older state keeps the log from being moved as a whole.
    let reader = Library::load(&plan.library);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let Ok(handle) =
                    reader.open(&json!({"database": plan.config["database"], "readOnly": true}))
                else {
                    continue;
                };
                for _ in 0..20 {
                    let _ = handle.call("events", json!({"limit": 1_000}));
                }
                handle.close();
            }
        });
        for _ in 0..plan.rounds {
            met += i32::from(user.round() > 0);
        }
        over.store(true, Ordering::Relaxed);
    });
    user.handle.close();
    say(&json!(["faults", met, user.answers]));
}

impl User {
    /// Some calls with a fault in them; how often it struck.
    fn round(&mut self) -> i32 {
        let fault = self.rng.of(&self.plan.faults);
        let ahead = match fault {
            Fault::SyncFails => 6,
            Fault::OpenFails | Fault::TruncateFails | Fault::DatabaseSyncFails => 2,
            _ => 600,
        };
        let skip = self.rng.below(ahead) as i32;
        let count = self.rng.of(&[1, 2, 1_000_000]);
        strike(fault, skip, count);
        for _ in 0..1 + self.rng.below(4) {
            match self.rng.below(8) {
                0..3 => drop(self.record(1, 10)),
                3..5 => drop(self.record(3, 10)),
                // Longer than the log is before it is moved to the database.
                5 => drop(self.record(300, 3_500)),
                6 => self.drain(),
                _ if fault == Fault::OpenFails || self.rng.below(3) == 0 => self.reopen(),
                _ => drop(self.call("maintain", json!({}))),
            }
        }
        if fault != Fault::OpenFails {
            let page = self.handle.call("events", json!({"limit": 1}));
            assert!(page.is_ok(), "reads go on: {page:?}");
        }
        let met = struck();
        strike(Fault::None, 0, 0);
        self.drain();
        assert!(
            self.record(1, 10),
            "recording goes on when the fault has ended"
        );
        self.look();
        met
    }

    /// Nothing but `storage` may come of a fault, and it says of what.
    fn call(&mut self, verb: &str, request: Value) -> Option<Value> {
        let reply = self.handle.call(verb, request);
        self.judge(reply)
    }

    fn judge<T>(&mut self, reply: Result<T, Value>) -> Option<T> {
        match reply {
            Ok(value) => Some(value),
            Err(reply) => {
                let error = &reply["error"];
                assert_eq!(error["code"], "storage", "{reply}");
                self.answers
                    .insert(error["message"].as_str().unwrap().to_owned());
                say(&json!(["refused"]));
                None
            }
        }
    }

    fn record(&mut self, events: u64, bytes: usize) -> bool {
        let events: Vec<Value> = (0..events)
            .map(|_| {
                self.count += 1;
                let name = format!("{}-{}", self.plan.life, self.count);
                json!({"sessionKey": self.rng.of(&TARGETS), "kind": "goal_changed", "actorType": "human",
                       "actorId": "u-1", "summary": name, "payload": {"filling": "x".repeat(bytes)}})
            })
            .collect();
        let named: Vec<Value> = events
            .iter()
            .map(|event| {
                let mut event = event.clone();
                event.as_object_mut().unwrap().remove("payload");
                event
            })
            .collect();
        say(&json!(["record?", "batch", named]));
        let Some(reply) = self.call("record", json!({"events": events})) else {
            self.refused += events.len() as u64;
            return false;
        };
        let results = reply["results"].as_array().unwrap();
        let sequences: Vec<&Value> = results
            .iter()
            .map(|result| &result["event"]["sequence"])
            .collect();
        say(&json!(["record!", "batch", sequences]));
        let names = events
            .iter()
            .map(|event| event["summary"].as_str().unwrap().to_owned());
        self.stored.extend(names);
        true
    }

    fn drain(&mut self) {
        say(&json!(["drain?"]));
        let request = json!({"watcherSessionKey": DRAINER});
        if let Some(reply) = self.call("drain_notices", request) {
            say(&json!(["drain!", crate::storm::notices(&reply)]));
        }
    }

    /// Closes, and opens until that succeeds; the fault may end meanwhile.
    fn reopen(&mut self) {
        self.count_refused();
        self.handle.close();
        for attempt in 0.. {
            let opened = self.library.open(&self.plan.config);
            if let Some(handle) = self.judge(opened) {
                self.handle = handle;
                self.refused = 0;
                return;
            }
            assert!(struck() > 0, "opening fails without a fault");
            if attempt == 2 {
                strike(Fault::None, 0, 0);
            }
        }
    }

    fn count_refused(&self) {
        let stats = self.handle.call("stats", json!({}));
        // Opening a reader may be what fails now.
        if let Ok(stats) = stats {
            assert_eq!(stats["failedAppends"], self.refused);
        }
    }

    /// What was answered is there in its order, and what was refused is not.
    fn look(&mut self) {
        self.count_refused();
        let mut there = Vec::new();
        loop {
            let request = json!({"after": self.known, "limit": 1_000});
            let page = self.handle.call("events", request).unwrap();
            for event in page["events"].as_array().unwrap() {
                self.known = event["sequence"].as_u64().unwrap();
                there.push(event["summary"].as_str().unwrap().to_owned());
            }
            if page["more"] == false {
                break;
            }
        }
        assert_eq!(there, self.stored);
        self.stored.clear();
    }
}

fn run(place: &Place, faults: &[Fault], rounds: u64, rng: &mut Rng) -> (Vec<Entry>, Vec<Value>) {
    let mut config = place.config();
    config["durability"] = "power".into();
    let plan = Plan {
        faults: faults.to_vec(),
        rounds,
        ..Plan::new("failing", config, 1, rng)
    };
    let (mut child, _board) = place.start_traced(&plan, Some(0));
    let ended = child.wait().unwrap();
    assert!(
        ended.success(),
        "the child of seed {} ended: {ended}",
        plan.seed
    );
    let mut said = place.said();
    let faults = said.pop().unwrap();
    assert_eq!(faults[0], "faults");
    println!(
        "a fault in {} of {rounds} rounds; answers: {}",
        faults[1], faults[2]
    );
    (entries(&place.file("journal")), said)
}

/// Of every kind of fault: it is told, nothing is recorded by halves or told as
/// recorded, and when it has ended everything goes on.
pub fn a_failing_disk_is_told_and_survived() {
    let mut rng = Rng(seed());
    let place = Place::new();
    let faults = [
        Fault::SyncFails,
        Fault::WriteFails,
        Fault::WriteShort,
        Fault::DiskFull,
        Fault::TruncateFails,
        Fault::OpenFails,
    ];
    let (entries, said) = run(&place, &faults, number("TORTURE_FAULTS", 60), &mut rng);
    assert_complete(&place, &entries);
    let mut model = Model::new(&place);
    model.check(&said);
    println!("{} events are there", model.finish());
}

/// After a sync that failed the system may have thrown away what was to be
/// written, and say of the next sync that all is well.
pub fn a_failed_sync_is_not_taken_for_a_later_one() {
    let mut rng = Rng(seed());
    let place = Place::new();
    let rounds = number("TORTURE_FAULTS", 60);
    let (entries, _) = run(
        &place,
        &[Fault::SyncFails, Fault::DatabaseSyncFails],
        rounds,
        &mut rng,
    );
    let points = number("TORTURE_POINTS", 200) / 8;
    let (images, events) = images(&entries, points, &mut rng);
    println!("{images} images, {events} events found in them");
}
