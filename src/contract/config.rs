use serde::Deserialize;

use super::Catalog;
use super::parse::{maybe_object, maybe_whole};

/// How `aware_open` opens a database. Only `database` is required.
///
/// ```
/// use session_awareness::Config;
/// let config = Config { create: Some(false), ..Config::new("/var/lib/gateway/awareness.db") };
/// assert_eq!(config.database, "/var/lib/gateway/awareness.db");
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The database file. The library alone may open it in this process.
    pub database: String,
    /// Make the file when it is not there (default true), with mode 0600.
    pub create: Option<bool>,
    /// Open readers alone: no migration, no sweep, no pruning, no wakes; what
    /// would change something answers `unsupported`. Default false.
    pub read_only: Option<bool>,
    /// What a recorded event outlives (default `process`).
    pub durability: Option<Durability>,
    /// How long and how many events are kept.
    #[serde(default, deserialize_with = "maybe_object")]
    pub retention: Option<Retention>,
    /// How upstream sessions are watched.
    #[serde(default, deserialize_with = "maybe_object")]
    pub monitor: Option<MonitorConfig>,
    /// Which wakes this handle is offered.
    #[serde(default, deserialize_with = "maybe_object")]
    pub wakes: Option<WakeConfig>,
    /// How long a call waits for another process's write before it answers `busy`, in ms (default 5,000).
    #[serde(default, deserialize_with = "maybe_whole")]
    pub busy_timeout_ms: Option<u64>,
}

impl Config {
    /// The default config of this database file.
    pub fn new(database: impl Into<String>) -> Config {
        Config {
            database: database.into(),
            ..Config::default()
        }
    }
}

/// What a recorded event outlives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The death of the process, at any instant.
    #[default]
    Process,
    /// The death of the machine too: each commit waits for the disk.
    Power,
}

/// How long and how many events are kept.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Retention {
    /// Events recorded longer ago are pruned, and cursors not touched for as
    /// long, in ms (default 30 days). At least 1.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub max_age_ms: Option<u64>,
    /// Only the newest so many events are kept (default 50,000). At least 1.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub max_events: Option<u64>,
}

/// How upstream sessions are watched in the background.
///
/// ```
/// use session_awareness::{Config, MonitorConfig, Roots};
/// let roots = Roots { claude: Some("/srv/agents/claude".into()), ..Roots::default() };
/// let monitor = MonitorConfig { roots: Some(roots), ..MonitorConfig::default() };
/// let config = Config { monitor: Some(monitor), ..Config::new("/var/lib/gateway/awareness.db") };
/// # assert!(config.monitor.is_some());
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct MonitorConfig {
    /// Watch in the background at all (default true).
    pub enabled: Option<bool>,
    /// Time between two passes over everything, in ms (default 60,000). At least 1.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub interval_ms: Option<u64>,
    /// Time from open to the first pass, in ms (default 15,000).
    #[serde(default, deserialize_with = "maybe_whole")]
    pub initial_delay_ms: Option<u64>,
    /// Start passes from the file system's own change events (default true).
    pub file_events: Option<bool>,
    /// The agents' own homes, where they are not the usual ones.
    #[serde(default, deserialize_with = "maybe_object")]
    pub roots: Option<Roots>,
}

/// The agents' own homes: folders. A relative one is taken from where the process is when it opens the database.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roots {
    /// Claude Code, usually `~/.claude`.
    pub claude: Option<String>,
    /// Codex, usually `~/.codex`.
    pub codex: Option<String>,
    /// OpenCode, usually `~/.local/share/opencode`.
    pub opencode: Option<String>,
    /// Pi, usually `~/.pi/agent`.
    pub pi: Option<String>,
}

impl Roots {
    /// The home of an agent.
    pub fn of(&self, catalog: Catalog) -> Option<&str> {
        match catalog {
            Catalog::Claude => &self.claude,
            Catalog::Codex => &self.codex,
            Catalog::Opencode => &self.opencode,
            Catalog::Pi => &self.pi,
        }
        .as_deref()
    }

    /// Names the home of an agent.
    pub fn set(&mut self, catalog: Catalog, home: impl Into<String>) {
        let place = match catalog {
            Catalog::Claude => &mut self.claude,
            Catalog::Codex => &mut self.codex,
            Catalog::Opencode => &mut self.opencode,
            Catalog::Pi => &mut self.pi,
        };
        *place = Some(home.into());
    }
}

/// Which wakes a handle is offered.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeConfig {
    /// Only wakes for watchers of these agents; absent means all.
    pub agents: Option<Vec<String>>,
}
