//! What is killed: threads that use one database through the C ABI as fast as
//! they can, and say before each call what they are about to do and after it
//! what was answered.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::abi::{Handle, Library, during, say, strike, struck};
use crate::board::Phase;
use crate::{ACKER, DRAINER, Plan, Rng, TARGETS, TOGGLER};

/// The most events one sitting records: fewer than a kill's retention keeps, so
/// that none is pruned before it was looked at.
const MOST_EVENTS: i64 = 2_500;

struct Storm<'a> {
    plan: &'a Plan,
    library: Library,
    handle: Handle,
    sitting: u64,
    /// How many events may still be recorded.
    left: AtomicI64,
    over: AtomicBool,
}

/// Opens and closes the database, over and over.
pub fn openings(plan: &Plan) {
    let library = Library::load(&plan.library);
    loop {
        let handle = during(Phase::Open, || library.open(&plan.config)).unwrap();
        during(Phase::Close, || handle.close());
    }
}

/// Records once, where a fault allows it, and ends without closing anything.
pub fn record_and_end(plan: &Plan) {
    let library = Library::load(&plan.library);
    if let Some(fault) = plan.faults.first() {
        strike(*fault, plan.rounds as i32, 1);
    }
    let recorded = library.open(&plan.config).and_then(|handle| {
        let storm = Storm::new(plan, library, handle, 0);
        let name = storm.name("record", 0);
        let event = storm.event(&mut Rng(plan.seed), &name);
        say(&json!(["record?", name, [event]]));
        let reply = handle.call("record", event)?;
        say(&json!(["record!", name, [reply["event"]["sequence"]]]));
        Ok(())
    });
    match recorded {
        Ok(()) => {}
        // What is refused may be there, or not.
        Err(refused) => assert_eq!(refused["error"]["code"], "storage", "{refused}"),
    }
    say(&json!(["faults", struck()]));
    // SAFETY: ends the process, whatever its threads are at.
    unsafe { libc::_exit(0) };
}

/// Everything at once, until the kill.
pub fn storm(plan: &Plan) {
    let library = Library::load(&plan.library);
    let handle = during(Phase::Open, || library.open(&plan.config)).unwrap();
    let storm = Storm::new(plan, library, handle, 0);
    let bodies: [fn(&Storm<'_>, Rng); 8] = [
        record,
        batch,
        queue,
        drain,
        acknowledge,
        toggle,
        scan,
        prune,
    ];
    storm.rage(&bodies, Duration::MAX);
}

/// A few sittings, each from the opening of the database to its closing.
pub fn sittings(plan: &Plan) {
    let library = Library::load(&plan.library);
    for sitting in 0..5 {
        let handle = during(Phase::Open, || library.open(&plan.config)).unwrap();
        let storm = Storm::new(plan, library, handle, sitting);
        for watcher in [DRAINER, ACKER] {
            for target in TARGETS {
                storm.watch(watcher, target);
            }
        }
        let bodies: [fn(&Storm<'_>, Rng); 6] = [record, batch, drain, acknowledge, toggle, prune];
        storm.rage(&bodies, Duration::from_millis(40));
        during(Phase::Close, || handle.close());
    }
}

impl<'a> Storm<'a> {
    fn new(plan: &'a Plan, library: Library, handle: Handle, sitting: u64) -> Storm<'a> {
        Storm {
            plan,
            library,
            handle,
            sitting,
            left: AtomicI64::new(MOST_EVENTS),
            over: AtomicBool::new(false),
        }
    }

    fn rage(&self, bodies: &[fn(&Storm<'_>, Rng)], length: Duration) {
        let begun = Instant::now();
        std::thread::scope(|threads| {
            for (number, body) in bodies.iter().enumerate() {
                let rng = Rng(self.plan.seed + 100 * self.sitting + number as u64);
                threads.spawn(move || body(self, rng));
            }
            // Beside them handles come and go, as those of other parts of a host do.
            while begun.elapsed() < length {
                let other = during(Phase::Open, || self.library.open(&self.plan.config)).unwrap();
                during(Phase::Close, || other.close());
            }
            self.over.store(true, Ordering::Relaxed);
        });
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Whether `events` more may be recorded.
    fn may(&self, events: i64) -> bool {
        !self.is_over() && self.left.fetch_sub(events, Ordering::Relaxed) >= events
    }

    fn call(&self, phase: Phase, verb: &str, request: Value) -> Value {
        let reply = during(phase, || self.handle.call(verb, request));
        reply.unwrap_or_else(|error| {
            say(&json!(["error", verb, error]));
            panic!("{verb}: {error}");
        })
    }

    /// An event that its summary tells from every other.
    fn event(&self, rng: &mut Rng, name: &str) -> Value {
        const KINDS: [&str; 4] = [
            "human_direct_message",
            "goal_changed",
            "run_completed",
            "compacted",
        ];
        const ACTORS: [&str; 4] = ["u-1", DRAINER, ACKER, TOGGLER];
        let mut event = json!({
            "sessionKey": rng.of(&TARGETS), "kind": rng.of(&KINDS), "summary": name,
            "actorType": "agent", "actorId": rng.of(&ACTORS),
        });
        if rng.below(3) == 0 {
            event["dedupeKey"] = name.into();
        }
        event
    }

    fn name(&self, thread: &str, count: u64) -> String {
        format!("{}.{}-{thread}-{count}", self.plan.life, self.sitting)
    }

    fn watch(&self, watcher: &str, target: &str) {
        say(&json!(["watch?", watcher, target]));
        let request = json!({"watcherSessionKey": watcher, "targetSessionKey": target});
        let reply = self.call(Phase::Watch, "watch", request);
        say(&json!([
            "watch!",
            watcher,
            target,
            reply["created"],
            reply["stateVersion"]
        ]));
    }

    fn record_one(&self, rng: &mut Rng, name: &str, lane: &str) {
        let event = self.event(rng, name);
        say(&json!(["record?", lane, [event]]));
        let reply = self.call(Phase::Record, "record", event);
        say(&json!(["record!", lane, [reply["event"]["sequence"]]]));
    }
}

fn record(storm: &Storm<'_>, mut rng: Rng) {
    for count in 0.. {
        if !storm.may(1) {
            return;
        }
        storm.record_one(&mut rng, &storm.name("record", count), "record");
    }
}

fn batch(storm: &Storm<'_>, mut rng: Rng) {
    for count in 0.. {
        let size = 2 + rng.below(12);
        if !storm.may(size as i64) {
            return;
        }
        let events: Vec<Value> = (0..size)
            .map(|at| storm.event(&mut rng, &format!("{}.{at}", storm.name("batch", count))))
            .collect();
        say(&json!(["record?", "batch", events]));
        let reply = storm.call(Phase::Batch, "record", json!({"events": events}));
        let results = reply["results"].as_array().unwrap();
        let sequences: Vec<&Value> = results
            .iter()
            .map(|result| &result["event"]["sequence"])
            .collect();
        say(&json!(["record!", "batch", sequences]));
    }
}

/// Leaves events to the background writer, now and then one that it waits for.
fn queue(storm: &Storm<'_>, mut rng: Rng) {
    for count in 0.. {
        if !storm.may(1) {
            return;
        }
        let name = storm.name("queue", count);
        if rng.below(8) == 0 {
            storm.record_one(&mut rng, &name, "queue");
            continue;
        }
        let mut event = storm.event(&mut rng, &name);
        say(&json!(["queue?", "queue", [event]]));
        event["wait"] = false.into();
        let reply = storm.call(Phase::Queue, "record", event);
        assert_eq!(reply["queued"], true, "the queue is longer than the storm");
    }
}

/// Each notice as its target, where it begins and where it stands.
pub fn notices(reply: &Value) -> Vec<Value> {
    let notices = reply["notices"].as_array().unwrap();
    notices
        .iter()
        .map(|notice| {
            json!([
                notice["targetSessionKey"],
                notice["changesSince"],
                notice["notified"]
            ])
        })
        .collect()
}

fn drain(storm: &Storm<'_>, mut rng: Rng) {
    while !storm.is_over() {
        say(&json!(["drain?"]));
        let limit = 1 + rng.below(7);
        let request = json!({"watcherSessionKey": DRAINER, "limit": limit});
        let reply = storm.call(Phase::Drain, "drain_notices", request);
        say(&json!(["drain!", notices(&reply)]));
    }
}

fn acknowledge(storm: &Storm<'_>, mut rng: Rng) {
    while !storm.is_over() {
        let request = json!({"watcherSessionKey": ACKER, "ack": false});
        let reply = storm.call(Phase::Peek, "drain_notices", request);
        let mut taken = notices(&reply);
        say(&json!(["peek!", taken]));
        taken.retain(|_| rng.below(4) > 0);
        if taken.is_empty() {
            continue;
        }
        say(&json!(["ack?", taken]));
        let notices: Vec<Value> = taken
            .iter()
            .map(|notice| json!({"targetSessionKey": notice[0], "notified": notice[2]}))
            .collect();
        let request = json!({"watcherSessionKey": ACKER, "notices": notices});
        let reply = storm.call(Phase::Ack, "ack_notices", request);
        assert_eq!(reply["acknowledged"], taken.len(), "each was open");
        say(&json!(["ack!", taken]));
    }
}

fn toggle(storm: &Storm<'_>, mut rng: Rng) {
    while !storm.is_over() {
        let target = rng.of(&TARGETS);
        if rng.below(2) == 0 {
            storm.watch(TOGGLER, target);
            continue;
        }
        say(&json!(["unwatch?", TOGGLER, target]));
        let request = json!({"watcherSessionKey": TOGGLER, "targetSessionKey": target});
        let reply = storm.call(Phase::Watch, "unwatch", request);
        say(&json!(["unwatch!", TOGGLER, target, reply["unwatched"]]));
    }
}

fn scan(storm: &Storm<'_>, _: Rng) {
    while !storm.is_over() {
        let reply = storm.call(Phase::Scan, "scan", json!({}));
        for outcome in reply["outcomes"].as_array().unwrap() {
            let found = outcome["outcome"].as_str().unwrap();
            if !["unchanged", "activity", "replaced"].contains(&found) {
                say(&json!(["error", "scan", outcome]));
            }
        }
    }
}

fn prune(storm: &Storm<'_>, _: Rng) {
    while !storm.is_over() {
        storm.call(Phase::Prune, "maintain", json!({}));
    }
}
