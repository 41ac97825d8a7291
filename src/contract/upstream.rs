use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Event;
use super::parse::maybe_whole;

/// The agent programs whose sessions can be adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Catalog {
    /// Claude Code.
    Claude,
    /// OpenAI Codex.
    Codex,
    /// OpenCode.
    Opencode,
    /// Pi.
    Pi,
}

impl Catalog {
    /// Every catalog, in the order of their names.
    pub const ALL: [Catalog; 4] = [
        Catalog::Claude,
        Catalog::Codex,
        Catalog::Opencode,
        Catalog::Pi,
    ];

    /// The name in requests, replies and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Catalog::Claude => "claude",
            Catalog::Codex => "codex",
            Catalog::Opencode => "opencode",
            Catalog::Pi => "pi",
        }
    }

    /// The catalog of this name.
    pub fn from_name(name: &str) -> Option<Catalog> {
        Catalog::ALL
            .into_iter()
            .find(|catalog| catalog.as_str() == name)
    }
}

/// Which of the turns an adopted session holds already are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Baseline {
    /// None: they are only remembered.
    #[default]
    Now,
    /// All of them.
    Start,
}

/// The request of `adopt`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Adopt {
    /// The session that stands for the upstream one.
    pub session_key: String,
    /// Its agent when the key is bare; default `main`.
    pub agent_id: Option<String>,
    /// The program whose session it is.
    pub catalog: Catalog,
    /// The upstream session's own id. With it alone the session is looked up
    /// in the agent's own store; for OpenCode, and for a host that is not
    /// `local`, it is required. At most 512 bytes.
    pub thread_id: Option<String>,
    /// The upstream session's file; for OpenCode an `opencode.db`, or the data
    /// folder with `storage/` in it. At most 4,096 bytes.
    pub source: Option<String>,
    /// The host the session is on; default `local`. For another one nothing is
    /// looked up, and its rows come by `feed`. At most 512 bytes.
    pub host_id: Option<String>,
    /// Whether the turns that are there already are told (default `now`: they are not).
    pub baseline: Option<Baseline>,
}

impl Adopt {
    /// Adopts the session of `catalog` in the file `source`, telling only what comes from now on.
    pub fn new(
        session_key: impl Into<String>,
        catalog: Catalog,
        source: impl Into<String>,
    ) -> Adopt {
        Adopt {
            session_key: session_key.into(),
            agent_id: None,
            catalog,
            thread_id: None,
            source: Some(source.into()),
            host_id: None,
            baseline: None,
        }
    }

    /// Adopts the session of this id, looked up in the agent's own store, telling only what comes from now on.
    pub fn thread(
        session_key: impl Into<String>,
        catalog: Catalog,
        thread_id: impl Into<String>,
    ) -> Adopt {
        Adopt {
            source: None,
            thread_id: Some(thread_id.into()),
            ..Adopt::new(session_key, catalog, "")
        }
    }
}

/// The reply of `adopt`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Adopted {
    /// Always true.
    pub adopted: bool,
    /// Whether the session's file is watched from now on.
    pub linked: bool,
    /// Why it is not: `legacy_format`, a Pi file older than version 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// The `adopted` event: the first one, when the same source was adopted before.
    pub event: Event,
}

/// A session's tie to its upstream source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The session.
    pub session_key: String,
    /// Its agent.
    pub agent_id: String,
    /// The program whose session the source is.
    pub catalog: Catalog,
    /// The upstream session's own id.
    pub thread_id: String,
    /// Its file; absent for a host that is not `local`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The host it is on.
    pub host_id: String,
    /// When it was adopted, ms since the epoch.
    pub adopted_at: i64,
    /// How often in a row the source was not there; three end the link.
    pub missing: u32,
    /// What keeps the source from being read, as whoever looked last noted it.
    /// `links` alone tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<LinkFault>,
}

/// What keeps a link's source from being read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkFault {
    /// Since when, ms since the epoch.
    pub since: i64,
    /// Why, the last time.
    pub message: String,
}

/// The request of `links`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinksRequest {
    /// At most so many: 1,000 when absent and at the most.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub limit: Option<u64>,
    /// Pass over so many first.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub offset: Option<u64>,
}

/// The reply of `links`, by session key and agent.
#[derive(Clone, Debug, Serialize)]
pub struct LinksReply {
    /// The links.
    pub links: Vec<Link>,
    /// Whether there are more behind them.
    pub more: bool,
}

/// The reply of `release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Released {
    /// Whether there was a link to end.
    pub released: bool,
}

/// The request of `discover`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Discover {
    /// Only the sessions of this program.
    pub catalog: Option<Catalog>,
    /// At most so many: 100 when absent, 1,000 at the most.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub limit: Option<u64>,
    /// Pass over so many first.
    #[serde(default, deserialize_with = "maybe_whole")]
    pub offset: Option<u64>,
}

/// The reply of `discover`, newest first, then by thread id.
#[derive(Clone, Debug, Serialize)]
pub struct Discovered {
    /// The sessions in the agents' own stores.
    pub sessions: Vec<UpstreamSession>,
    /// Whether there are more behind them.
    pub more: bool,
}

/// A session in an agent's own store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamSession {
    /// The program whose session it is.
    pub catalog: Catalog,
    /// Its own id.
    pub thread_id: String,
    /// Its file, or for OpenCode its store: what `adopt` takes as `source`.
    pub source: String,
    /// The folder it works in, when it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// When it was last written, ms since the epoch.
    pub updated_at: i64,
    /// Whether a session has adopted it.
    pub adopted: bool,
}

/// The request of `scan`; each given field narrows the pass.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scan {
    /// Only links of this program.
    pub catalog: Option<Catalog>,
    /// Only the link of this session, of every agent.
    pub session_key: Option<String>,
}

/// The reply of `scan`, by session key and agent.
#[derive(Clone, Debug, Serialize)]
pub struct Scanned {
    /// One outcome a link.
    pub outcomes: Vec<Outcome>,
}

/// What a pass over a link came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The session.
    pub session_key: String,
    /// Its agent.
    pub agent_id: String,
    /// The program whose session the source is.
    pub catalog: Catalog,
    /// In a word.
    pub outcome: OutcomeKind,
    /// The human turns of this pass: `prompts` + `commands` + `shells`.
    pub human_turns: u64,
    /// Texts and images sent to the agent.
    pub prompts: u64,
    /// Slash commands.
    pub commands: u64,
    /// Shell commands.
    pub shells: u64,
    /// What went wrong, for `error`. Never holds text of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a pass over a link came to, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeKind {
    /// The position did not move.
    Unchanged,
    /// The position moved.
    Activity,
    /// The source is not there.
    Missing,
    /// The host itself runs the session: nothing was read.
    Deferred,
    /// The source was rewritten or cut, and was read from its start.
    Replaced,
    /// The source cannot be read now.
    Error,
}

/// The request of `set_run_active`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SetRunActive {
    /// The session.
    pub session_key: String,
    /// Its agent when the key is bare; default `main`.
    pub agent_id: Option<String>,
    /// Whether the host runs it now.
    pub active: bool,
}

/// The reply of `set_run_active`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunActive {
    /// Whether the host runs it now, by this handle's mark or another's.
    pub active: bool,
}

/// The request of `own_message`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct OwnMessage {
    /// The session the host writes to.
    pub session_key: String,
    /// Its agent when the key is bare; default `main`.
    pub agent_id: Option<String>,
    /// What it writes. Only a keyed hash of it is kept.
    pub text: String,
}

/// The reply of `own_message`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remembered {
    /// Always true.
    pub remembered: bool,
}

/// The request of `feed`: `rows` or `missing`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Feed {
    /// The session, whose link is of a host that is not `local`.
    pub session_key: String,
    /// Its agent when the key is bare; default `main`.
    pub agent_id: Option<String>,
    /// The upstream's own rows as the host read them, in order (OpenCode: `{info, parts}`).
    pub rows: Option<Vec<Box<RawValue>>>,
    /// The host found the session gone.
    pub missing: Option<bool>,
}
