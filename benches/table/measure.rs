//! Samples, rows, and the table they are printed as.

use std::fmt::Write;
use std::time::Instant;

/// The durations of calls, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<u64>);

impl Samples {
    pub fn add(&mut self, ns: u64) {
        self.0.push(ns);
    }

    /// One of this many nanoseconds.
    pub fn of(ns: f64) -> Samples {
        Samples(vec![ns as u64])
    }

    /// The sample that `share` of all are not above.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(at).map_or(f64::NAN, |ns| *ns as f64)
    }

    pub fn p50(&self) -> f64 {
        self.quantile(0.5)
    }

    pub fn max(&self) -> f64 {
        self.quantile(1.0)
    }
}

/// How long `call` takes, in nanoseconds.
pub fn timed<T>(call: impl FnOnce() -> T) -> u64 {
    let begin = Instant::now();
    let value = call();
    let took = begin.elapsed();
    std::hint::black_box(value);
    took.as_nanos() as u64
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One side of a row: the median of the rounds' medians, and the rest over all rounds.
#[derive(Clone, Debug, Default)]
pub struct Side {
    rounds: Vec<f64>,
    all: Samples,
}

impl Side {
    pub fn round(&mut self, samples: Samples) {
        self.rounds.push(samples.p50());
        self.all.0.extend(samples.0);
    }

    pub fn p50(&self) -> f64 {
        median(self.rounds.clone())
    }

    pub fn p99(&self) -> f64 {
        self.all.quantile(0.99)
    }

    pub fn max(&self) -> f64 {
        self.all.max()
    }
}

/// The library and the floor, measured in alternating rounds, so that what else
/// the machine does hits both.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    pub library: Side,
    pub floor: Side,
}

impl Pair {
    /// `rounds` rounds of `calls` calls each; a call answers how long it took.
    pub fn measure(
        rounds: usize,
        calls: usize,
        mut library: impl FnMut() -> u64,
        mut floor: impl FnMut() -> u64,
    ) -> Pair {
        let mut pair = Pair::default();
        // One round for the caches.
        for round in 0..=rounds {
            let (mut ours, mut theirs) = (Samples::default(), Samples::default());
            (0..calls).for_each(|_| ours.add(library()));
            (0..calls).for_each(|_| theirs.add(floor()));
            if round > 0 {
                pair.library.round(ours);
                pair.floor.round(theirs);
            }
        }
        pair
    }

    /// The median of the rounds' ratios.
    pub fn ratio(&self) -> f64 {
        let ratios = self.library.rounds.iter().zip(&self.floor.rounds);
        median(ratios.map(|(ours, floor)| ours / floor).collect())
    }
}

/// What a row should come to.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Nothing is promised.
    None,
    /// Not more than so many times the floor.
    Times(f64),
    /// Not more than so many microseconds.
    Micros(f64),
    /// So many times the floor at most, or so many microseconds.
    Either(f64, f64),
    /// So many times the floor at most, and another target.
    Both(f64, &'static Target),
    /// Not more than so many microseconds at the 99th percentile.
    P99Micros(f64),
}

impl Target {
    /// Not more than so many microseconds where the floor takes `floor` of them,
    /// and elsewhere not more than so many times the floor. There is the machine of
    /// docs/performance.md at its best.
    pub const fn there(micros: f64, floor: f64) -> Target {
        Target::Either(micros / floor, micros)
    }

    /// As it is printed, and whether it is reached.
    fn judge(self, pair: &Pair) -> (String, Option<bool>) {
        let (p50, ratio) = (pair.library.p50(), pair.ratio());
        match self {
            Target::None => (String::new(), None),
            Target::Times(most) => (format!("{most} ×"), Some(ratio <= most)),
            Target::Micros(most) => (time(most * 1e3), Some(p50 <= most * 1e3)),
            Target::Either(times, micros) => (
                format!("{} or {times:.2} ×", time(micros * 1e3)),
                Some(ratio <= times || p50 <= micros * 1e3),
            ),
            Target::Both(times, other) => {
                let (aim, reached) = other.judge(pair);
                let both = reached.map(|reached| reached && ratio <= times);
                (format!("{times} ×, and {aim}"), both)
            }
            Target::P99Micros(most) => (
                format!("p99 {}", time(most * 1e3)),
                Some(pair.library.p99() <= most * 1e3),
            ),
        }
    }
}

/// A line of the table, ready to be printed.
pub struct Row {
    what: String,
    cells: [String; 6],
    reached: Option<bool>,
}

impl Row {
    /// A row of times.
    pub fn times(what: impl Into<String>, pair: &Pair, target: Target) -> Row {
        let (aim, reached) = target.judge(pair);
        Row {
            what: what.into(),
            cells: [
                time(pair.library.p50()),
                time(pair.library.p99()),
                time(pair.floor.p50()),
                time(pair.floor.p99()),
                format!("{:.2}", pair.ratio()),
                aim,
            ],
            reached,
        }
    }

    /// A row of rates, higher being better: `pair` holds the nanoseconds that `amount` took.
    pub fn rates(
        what: impl Into<String>,
        pair: &Pair,
        amount: f64,
        unit: &str,
        least: Option<f64>,
    ) -> Row {
        let rate = |ns: f64| format!("{} {unit}", short(amount / (ns / 1e9)));
        let ratio = 1.0 / pair.ratio();
        Row {
            what: what.into(),
            cells: [
                rate(pair.library.p50()),
                rate(pair.library.p99()),
                rate(pair.floor.p50()),
                rate(pair.floor.p99()),
                format!("{ratio:.2}"),
                least.map_or_else(String::new, |least| format!("≥ {least} ×")),
            ],
            reached: least.map(|least| ratio >= least),
        }
    }

    /// A figure that stands alone, with what it is held against.
    pub fn figure(
        what: impl Into<String>,
        figure: String,
        floor: String,
        aim: &str,
        reached: Option<bool>,
    ) -> Row {
        Row {
            what: what.into(),
            cells: [
                figure,
                String::new(),
                floor,
                String::new(),
                String::new(),
                aim.to_owned(),
            ],
            reached,
        }
    }

    /// With how many times the floor it is, where that is no floor of the same work.
    pub fn at_ratio(mut self, ratio: f64) -> Row {
        self.cells[4] = format!("{ratio:.2}");
        self
    }
}

/// Prints rows as they come, and keeps the text.
pub struct Table {
    text: String,
    only: Vec<String>,
}

impl Table {
    /// With words in `only`, groups whose name holds none of them are left out.
    pub fn new(only: Vec<String>) -> Table {
        Table {
            text: String::new(),
            only,
        }
    }

    pub fn wants(&self, group: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|word| group.contains(word.as_str()))
    }

    pub fn say(&mut self, line: &str) {
        println!("{line}");
        self.text.push_str(line);
        self.text.push('\n');
    }

    pub fn head(&mut self, title: &str) {
        self.say(&format!("\n### {title}\n"));
        self.say("| what | library p50 | p99 | floor p50 | p99 | ratio | target | |");
        self.say("|---|---:|---:|---:|---:|---:|---|---|");
    }

    pub fn row(&mut self, row: Row) {
        let mut line = format!("| {} |", row.what);
        for cell in &row.cells {
            let _ = write!(line, " {cell} |");
        }
        line += match row.reached {
            Some(true) => " ✓ |",
            Some(false) => " ✗ |",
            None => " |",
        };
        self.say(&line);
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Nanoseconds as a person reads them.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns.is_nan() => "–".to_owned(),
        ns if ns.abs() < 1e3 => format!("{ns:.0} ns"),
        ns if ns.abs() < 1e4 => format!("{:.2} µs", ns / 1e3),
        ns if ns.abs() < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns.abs() < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

fn short(n: f64) -> String {
    match n {
        n if n >= 1e4 => format!("{:.0} k", n / 1e3),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.2}"),
    }
}

pub fn mib(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}
