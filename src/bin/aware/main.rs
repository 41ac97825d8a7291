//! `aware`: looks into the database of a running gateway, and disturbs nothing.
//!
//! Everything is read through the library's own API on a `readOnly` handle: no
//! migration, no wakes, no monitor, no lock that a writer waits for.

mod args;
mod database;
mod doctor;
mod failure;
mod follow;
mod output;
mod progress;
mod status;
mod text;
mod timeline;
mod upstream;
mod views;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use failure::Failure;
use output::Output;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(told) => return refuse(&told),
    };
    let mut out = Output::new(args.json, args.color);
    let done = run(&args, &mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    match done {
        Ok(code) => code,
        // Whoever read us has what they wanted.
        Err(Failure::Closed) => ExitCode::SUCCESS,
        Err(Failure::Told(message)) => {
            // What was found until then comes before what went wrong.
            let _ = out.flush();
            eprintln!("aware: {message}");
            ExitCode::from(2)
        }
    }
}

/// Prints the help or the version that was asked for, or what is wrong with the
/// command line, in one line as every error is.
fn refuse(told: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let help = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !told.use_stderr() || told.kind() == help {
        // Whoever does not read the help has it no less.
        let _ = told.print();
        return ExitCode::from(if told.kind() == help { 2 } else { 0 });
    }
    let message = told.to_string();
    let lines: Vec<&str> = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    let message = lines.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    eprintln!("aware: {}; see `aware --help`", text::safe(message));
    ExitCode::from(2)
}

fn run(args: &Args, out: &mut Output) -> Result<ExitCode, Failure> {
    let path = args.database()?;
    if let Command::Doctor(options) = &args.command {
        return doctor::run(&path, options, out);
    }
    let roots = match &args.command {
        Command::Discover(options) => options.roots()?,
        _ => None,
    };
    let aware = database::open(&path, roots)?;
    match &args.command {
        Command::Status => status::run(&aware, out),
        Command::Log(options) => views::log(&aware, options, out),
        Command::Watches(options) => views::watches(&aware, options, out),
        Command::Pending(options) => views::pending(&aware, options, out),
        Command::Links => upstream::links(&aware, out),
        Command::Discover(options) => upstream::discover(&aware, options, out),
        Command::Follow(options) => follow::run(&aware, &path, options, out),
        Command::Timeline(options) => timeline::run(&aware, options, out),
        Command::Doctor(_) => unreachable!("handled above"),
    }?;
    Ok(ExitCode::SUCCESS)
}
