//! The command line.

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use session_awareness::{Catalog, Kind, Roots};

use crate::failure::Failure;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Look into the awareness database of a running gateway.
///
/// Opens the database read-only, beside the gateway, and disturbs nothing: no
/// migration, no wakes, no lock that anybody waits for.
#[derive(Parser)]
#[command(name = "aware", version, styles = STYLES, max_term_width = 100, arg_required_else_help = true,
    subcommand_required = true, after_long_help = "\
Examples:
  export SESSION_AWARENESS_DATABASE=/var/lib/gateway/awareness.db
  aware status                                       what is in it, and who has it open
  aware pending                                      who has not yet looked at what changed
  aware log agent:main:main --since 120              one session's log above a version
  aware follow --json | jq .summary                  what happens, as it happens
  aware doctor                                       what is wrong, and what to run
  aware timeline --out page.html                     a picture of it all

Exit codes:
  0  fine (also when whoever read the output closed it)
  1  doctor found something
  2  a wrong command line, or an error, told in one line on stderr

JSON: with --json every command writes one JSON document (follow: one a line). Fields that are \
named in a command's --help keep their meaning; new ones may come. Times are milliseconds since the \
Unix epoch. Control, bidirectional and zero-width characters are escaped, in tables as \\u{202e}.")]
pub struct Args {
    /// The database file
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "SESSION_AWARENESS_DATABASE",
        hide_env_values = true
    )]
    database: Option<PathBuf>,
    /// Write JSON rather than a table
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colour; `auto`: on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: When,
    #[command(subcommand)]
    pub command: Command,
}

impl Args {
    /// The database, which has no default: a gateway keeps it where it likes.
    pub fn database(&self) -> Result<String, Failure> {
        let Some(path) = &self.database else {
            return Err(Failure::new(
                "no database: name the gateway's by --database PATH or SESSION_AWARENESS_DATABASE",
            ));
        };
        path.to_str().map(str::to_owned).ok_or_else(|| {
            Failure::new("the database's path is not UTF-8; name it by a link that is")
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}

#[derive(Subcommand)]
pub enum Command {
    /// What is in the database, and which gateways have it open
    #[command(after_long_help = "\
JSON: {\"database\", \"databaseBytes\", \"walBytes\", \"schemaVersion\", \"version\" (this command's), \"sessions\", \
\"events\", \"watches\", \"pending\", \"links\", \"handles\": [{\"id\", \"openedAt\", \"version\"?}], \
\"runs\": [{\"sessionKey\", \"agentId\", \"handle\", \"setAt\"}], \"failedAppends\": {\"total\", \"lastAt\"}, \
\"shedEvents\": {\"total\", \"lastAt\"}}")]
    Status,
    /// What happened to a session, or to all of them
    #[command(after_long_help = "\
Examples:
  aware log agent:main:main
  aware log agent:main:subagent:child --since 120
  aware log global --agent ops --json
  aware log --kind run_failed --last 20

JSON: {\"events\": [{\"sequence\", \"sessionKey\", \"agentId\", \"kind\", \"actorType\", \"actorId\"?, \"runId\"?, \
\"occurredAt\", \"summary\", \"payload\"?}]}; for one session also \"stateVersion\", \"historyGap\" (what lay above \
--since was pruned in part), and \"futureCursor\" (--since lies above the version: the database was replaced).")]
    Log(LogOptions),
    /// Who watches whom
    #[command(after_long_help = "\
JSON: {\"watches\": [{\"watcherSessionKey\", \"targetSessionKey\", \"targetAgentId\", \"provenance\", \
\"notifyKinds\", \"lastSeen\", \"notified\", \"material\", \"pending\", \"pendingSince\"?}]}")]
    Watches(WatchOptions),
    /// Notices that nobody has drained yet, the oldest first
    #[command(after_long_help = "\
JSON: {\"pending\": [as in `watches`, and \"ageMs\"]}")]
    Pending(WatchOptions),
    /// Sessions tied to a session of Claude Code, Codex, OpenCode or Pi
    #[command(after_long_help = "\
JSON: {\"links\": [{\"sessionKey\", \"agentId\", \"catalog\", \"threadId\", \"source\"?, \"hostId\", \"adoptedAt\", \
\"missing\"}]}")]
    Links,
    /// Sessions in the agents' own stores on this machine, the newest first
    #[command(after_long_help = "\
The stores are those that --root names, else those of the agents' own variables of the environment, else the \
usual ones. Run it as the user whose agents they are.

Examples:
  aware discover --catalog codex --limit 20
  aware discover --root claude=/home/ann/.claude

JSON: {\"sessions\": [{\"catalog\", \"threadId\", \"source\", \"cwd\"?, \"updatedAt\", \"adopted\"}], \"more\"}")]
    Discover(DiscoverOptions),
    /// What happens, as it happens; ends with Ctrl-C
    #[command(after_long_help = "\
An event is shown within 250 ms of its commit: four small reads a second look for it, which cost the gateway nothing.

JSON: one event a line, as in `log`.")]
    Follow(FollowOptions),
    /// What is wrong, why, and what to run; exits with 1 when something is
    #[command(after_long_help = "\
Checks: schema, integrity, modes, foreign, wal, file-watches, links, runs, notices, failed, shed.
Run it as the gateway's user, or as root: what belongs to others cannot be looked at.

JSON: {\"database\", \"ok\", \"checks\": [{\"check\", \"state\": \"ok\"|\"problem\"|\"skipped\", \"detail\"}], \
\"problems\": [{\"check\", \"found\", \"cause\", \"run\"}]}")]
    Doctor(DoctorOptions),
    /// Write one page, for any browser and without a network, that shows it all
    #[command(after_long_help = "\
Sessions are lanes, events marks, watches links between lanes; what is pending stands out. The file is \
mode 0600: it holds session keys and summaries.

JSON: {\"out\", \"bytes\", \"sessions\", \"events\", \"watches\", \"pending\"}")]
    Timeline(TimelineOptions),
}

#[derive(Group)]
pub struct LogOptions {
    /// The session's key; all sessions when absent
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
    /// The session's agent, for a key that does not name it; without KEY, only its sessions
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// Only events above this sequence
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub since: u64,
    /// Only events of this kind; may be repeated
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub kind: Vec<Kind>,
    /// Only the newest so many of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub last: Option<u64>,
}

#[derive(Group)]
pub struct WatchOptions {
    /// Only of this watcher
    #[arg(long, value_name = "KEY")]
    pub watcher: Option<String>,
    /// Only of this target
    #[arg(long, value_name = "KEY")]
    pub target: Option<String>,
    /// The target's agent, for a key that does not name it
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
}

#[derive(Group)]
pub struct DiscoverOptions {
    /// Only of this program
    #[arg(long, value_name = "NAME", value_parser = catalog)]
    pub catalog: Option<Catalog>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub limit: u64,
    /// A program's home, as the gateway's config has it: `codex=/srv/codex`; may be repeated
    #[arg(long, value_name = "NAME=DIR")]
    root: Vec<String>,
}

impl DiscoverOptions {
    pub fn roots(&self) -> Result<Option<Roots>, Failure> {
        let mut roots = Roots::default();
        for given in &self.root {
            let split = given
                .split_once('=')
                .map(|(name, dir)| (Catalog::from_name(name), dir));
            let Some((Some(catalog), dir)) = split.filter(|(_, dir)| !dir.is_empty()) else {
                return Err(Failure::new(
                    "--root takes a program and a folder, such as claude=/home/ann/.claude",
                ));
            };
            roots.set(catalog, dir);
        }
        Ok((!self.root.is_empty()).then_some(roots))
    }
}

#[derive(Group)]
pub struct FollowOptions {
    /// Only this session
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
    /// The session's agent, for a key that does not name it; without KEY, only its sessions
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// Begin above this sequence rather than now
    #[arg(long, value_name = "N")]
    pub since: Option<u64>,
    /// Only events of this kind; may be repeated
    #[arg(long, value_name = "KIND", value_parser = kind)]
    pub kind: Vec<Kind>,
}

#[derive(Group)]
pub struct DoctorOptions {
    /// Where the proc file system is, when this runs in a container with the host's elsewhere
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub proc: PathBuf,
}

#[derive(Group)]
pub struct TimelineOptions {
    /// The file to write; one that is there is replaced
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Only events above this sequence
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub since: u64,
    /// The page's title
    #[arg(long, value_name = "TEXT", default_value = "Session timeline")]
    pub title: String,
}

fn kind(name: &str) -> Result<Kind, String> {
    Kind::from_name(name)
        .ok_or_else(|| format!("one of {}", Kind::ALL.map(Kind::as_str).join(", ")))
}

fn catalog(name: &str) -> Result<Catalog, String> {
    Catalog::from_name(name)
        .ok_or_else(|| format!("one of {}", Catalog::ALL.map(Catalog::as_str).join(", ")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Args::command().debug_assert();
    }
}
