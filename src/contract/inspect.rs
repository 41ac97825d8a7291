use serde::Serialize;

/// What is in a database beside its log, for people who look into it: see
/// [`Awareness::inspect`](crate::Awareness::inspect).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The handles that are open now, in every process, but those opened read only.
    pub handles: Vec<HandleRow>,
    /// The sessions those handles say that the host runs, the longest first.
    pub run_marks: Vec<RunMark>,
    /// Events that failed to store, over all handles there ever were.
    pub failed_appends: Tally,
    /// Events that were shed, over all handles there ever were.
    pub shed_events: Tally,
}

/// An open handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleRow {
    /// Its number; the file `DATABASE-handle-N` is locked by its process.
    pub id: u64,
    /// When it was opened, ms since the epoch; 0 when its version does not say.
    pub opened_at: i64,
    /// The version of the library that opened it, when it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A mark of `set_run_active`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunMark {
    /// The session.
    pub session_key: String,
    /// Its agent.
    pub agent_id: String,
    /// The handle that set it.
    pub handle: u64,
    /// Since when, ms since the epoch; 0 when the handle's version does not say.
    pub set_at: i64,
}

/// A count that is kept in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// How many.
    pub total: u64,
    /// When the last of them was, ms since the epoch; 0 when there are none.
    pub last_at: i64,
}
