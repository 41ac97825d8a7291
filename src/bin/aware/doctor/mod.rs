//! `aware doctor`: what is wrong with a database and around it, why, and what to run.

mod checks;
mod proc;

use std::process::ExitCode;

use serde::Serialize;
use session_awareness::Code;

use crate::args::DoctorOptions;
use crate::failure::Failure;
use crate::output::{Column, Look, Output};
use crate::{database, progress, text};
use checks::Facts;
use proc::Proc;

/// A notice that nobody has drained for longer than this is told of.
pub const NOTICE_AGE_MS: i64 = 60 * 60 * 1_000;

/// Something that is wrong.
#[derive(Serialize)]
pub struct Problem {
    check: &'static str,
    found: String,
    cause: String,
    /// A command that repairs it, or shows more.
    run: String,
}

/// What a check came to.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Problem,
    Skipped,
}

#[derive(Serialize)]
struct Check {
    check: &'static str,
    state: State,
    detail: String,
}

/// What all checks came to.
#[derive(Default, Serialize)]
pub struct Report {
    checks: Vec<Check>,
    problems: Vec<Problem>,
}

impl Report {
    /// Notes what a check found: nothing, with `detail` on what was looked at, or what is wrong.
    fn note(&mut self, check: &'static str, detail: impl Into<String>, problems: Vec<Problem>) {
        let (state, detail) = match problems.len() {
            0 => (State::Ok, detail.into()),
            n => (State::Problem, text::counted(n as u64, "problem")),
        };
        self.checks.push(Check {
            check,
            state,
            detail,
        });
        self.problems.extend(problems);
    }

    /// Notes that a check could not be made.
    fn skip(&mut self, check: &'static str, why: impl Into<String>) {
        self.checks.push(Check {
            check,
            state: State::Skipped,
            detail: why.into(),
        });
    }
}

#[derive(Serialize)]
struct Document<'a> {
    database: &'a str,
    ok: bool,
    #[serde(flatten)]
    report: &'a Report,
}

pub fn run(path: &str, options: &DoctorOptions, out: &mut Output) -> Result<ExitCode, Failure> {
    let working = progress::spinner("looking");
    let opened = match database::open(path, None) {
        // Nothing can be looked at: there is none, or others hold it.
        Err(error) if matches!(error.code, Code::NotFound | Code::Busy) => {
            return Err(error.into());
        }
        opened => opened,
    };
    let report = checks::all(
        &Facts::new(path, opened, Proc(options.proc.clone())),
        &working,
    );
    working.finish_and_clear();
    let ok = report.problems.is_empty();
    if out.json {
        out.document(&Document {
            database: path,
            ok,
            report: &report,
        })?;
    } else {
        show(&report, out)?;
    }
    Ok(if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn show(report: &Report, out: &mut Output) -> Result<(), Failure> {
    let columns = [
        Column::Left("CHECK"),
        Column::Left("STATE"),
        Column::Long("DETAIL"),
    ];
    let rows = report
        .checks
        .iter()
        .map(|check| {
            vec![
                Look::Strong.of(check.check),
                match check.state {
                    State::Ok => Look::Good.of("ok"),
                    State::Problem => Look::Bad.of("PROBLEM"),
                    State::Skipped => Look::Warning.of("skipped"),
                },
                Look::Faint.of(&check.detail),
            ]
        })
        .collect();
    out.table(&columns, rows, "")?;
    for problem in &report.problems {
        out.line(&[])?;
        out.line(&[
            Look::Bad.of(format!("{}: ", problem.check)),
            Look::Strong.of(&problem.found),
        ])?;
        out.line(&[Look::Faint.of("  why  "), (&problem.cause).into()])?;
        out.line(&[Look::Faint.of("  run  "), Look::Name.of(&problem.run)])?;
    }
    Ok(())
}
