//! What a pass found, as it is told.

use super::act::ActKind;
use crate::contract::{Catalog, Outcome, OutcomeKind};
use crate::key::Session;
use crate::store::links::LinkRow;

/// What a pass has found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    prompts: u64,
    commands: u64,
    shells: u64,
}

impl Counts {
    /// What an outcome says was found.
    pub(super) fn of(outcome: &Outcome) -> Counts {
        Counts {
            prompts: outcome.prompts,
            commands: outcome.commands,
            shells: outcome.shells,
        }
    }

    pub(super) fn add(&mut self, kind: ActKind) {
        match kind {
            ActKind::Prompt => self.prompts += 1,
            ActKind::Command => self.commands += 1,
            ActKind::Shell => self.shells += 1,
        }
    }

    pub(super) fn join(&mut self, other: Counts) {
        self.prompts += other.prompts;
        self.commands += other.commands;
        self.shells += other.shells;
    }

    /// Whether anything was found.
    pub(super) fn any(&self) -> bool {
        self.turns() > 0
    }

    pub(super) fn turns(&self) -> u64 {
        self.prompts + self.commands + self.shells
    }
}

/// The outcome with what was counted before it.
pub(super) fn with(done: Outcome, before: Counts) -> Outcome {
    Outcome {
        human_turns: done.human_turns + before.turns(),
        prompts: done.prompts + before.prompts,
        commands: done.commands + before.commands,
        shells: done.shells + before.shells,
        outcome: match done.outcome {
            OutcomeKind::Unchanged if before.any() => OutcomeKind::Activity,
            kind => kind,
        },
        ..done
    }
}

pub(super) fn outcome(link: &LinkRow, kind: OutcomeKind, counts: Counts) -> Outcome {
    outcome_of(&link.session, link.catalog, kind, counts)
}

pub(super) fn outcome_of(
    session: &Session,
    catalog: Catalog,
    kind: OutcomeKind,
    counts: Counts,
) -> Outcome {
    Outcome {
        session_key: session.key.clone(),
        agent_id: session.agent.clone(),
        catalog,
        outcome: kind,
        human_turns: counts.turns(),
        prompts: counts.prompts,
        commands: counts.commands,
        shells: counts.shells,
        message: None,
    }
}

pub(super) fn failed(link: &LinkRow, message: String) -> Outcome {
    Outcome {
        message: Some(message),
        ..outcome(link, OutcomeKind::Error, Counts::default())
    }
}
