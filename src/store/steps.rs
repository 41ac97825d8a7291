//! Places where a test lets the library fail. Outside of tests there are none.

/// The steps of who leads a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Before more tasks are waited for.
    Gather,
    /// The tasks are taken, nothing is done.
    Led,
    /// Before the open files are held against those at the path.
    Current,
    /// Before `BEGIN`.
    Begin,
    /// The transaction is open, no task was begun.
    Begun,
    /// A task was carried out, the next one or the commit comes.
    Done,
    /// Before `COMMIT`.
    Commit,
    /// The commit is over.
    Committed,
    /// Before the wakes are handed on.
    HandOn,
    /// They were.
    HandedOn,
    /// Before a task is told.
    Finish,
    /// After it was told.
    Finished,
    /// A fault ended the transaction, which is not undone yet.
    Undo,
    /// Still leading, with nothing left to do.
    Leave,
    /// Nobody leads, and nobody was told so.
    HandOver,
}

#[cfg(test)]
impl Step {
    pub(crate) const ALL: [Step; 15] = [
        Step::Gather,
        Step::Led,
        Step::Current,
        Step::Begin,
        Step::Begun,
        Step::Done,
        Step::Commit,
        Step::Committed,
        Step::HandOn,
        Step::HandedOn,
        Step::Finish,
        Step::Finished,
        Step::Undo,
        Step::Leave,
        Step::HandOver,
    ];
}

// A step that was added is among them.
#[cfg(test)]
const _: () = assert!(Step::HandOver as usize + 1 == Step::ALL.len());

/// What a test has happen at the steps.
#[derive(Clone, Default)]
pub(crate) struct Steps {
    #[cfg(test)]
    pub(crate) at: Option<std::sync::Arc<dyn Fn(Step) + Send + Sync>>,
}

impl Steps {
    /// Says that this step is reached; what a test has put there may panic.
    #[inline]
    pub(crate) fn reach(&self, step: Step) {
        #[cfg(test)]
        if let Some(at) = &self.at {
            at(step);
        }
        let _ = step;
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Steps")
    }
}
