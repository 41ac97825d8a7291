//! The signal log: recording, pages of changes, retention.

mod page;
mod record;
mod retention;

pub(crate) use page::{
    asked, changes_since, events, sessions, state_versions, write_state_versions,
};
pub(crate) use record::{Appended, Draft, append, drafts};
pub(crate) use retention::{Limits, prune_step};

/// A page's size: the limit given, else `default`, never above `most`; 0 is refused.
pub(crate) fn page_size(
    limit: Option<u64>,
    default: usize,
    most: usize,
) -> crate::contract::Result<usize> {
    match limit {
        None => Ok(default),
        Some(0) => Err(crate::contract::Error::invalid("limit", "at least 1")),
        Some(limit) => Ok(usize::try_from(limit).unwrap_or(most).min(most)),
    }
}
