//! Where the log and its watchers meet: an event is recorded and told in one transaction.

use crate::contract::{Recorded, Result};
use crate::log::{Appended, Draft, append};
use crate::store::{Tx, cursors};
use crate::watch;

/// Appends one event and tells its watchers.
pub(crate) fn record(tx: &Tx<'_>, draft: &Draft) -> Result<Recorded> {
    let unwatched = draft.only_if_watched && !is_watched(tx, draft)?;
    if unwatched {
        return Ok(Recorded::UNWATCHED);
    }
    let (event, duplicate) = match append(tx, draft)? {
        Appended::New(event) => {
            watch::announce(
                tx,
                &draft.session,
                event.sequence,
                draft.kind,
                draft.actor_id.as_deref(),
                &draft.watchers,
            )?;
            (event, false)
        }
        Appended::Known(event) => (event, true),
    };
    Ok(Recorded::Stored {
        recorded: true,
        duplicate,
        event,
    })
}

/// Whether anybody watches the session, or is named as a watcher by an event that makes watchers.
fn is_watched(tx: &Tx<'_>, draft: &Draft) -> Result<bool> {
    Ok(!draft.watchers.is_empty() || cursors::is_watched(tx, &draft.session)?)
}
