//! Long work shows how far it is: on standard error, and on a terminal alone.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Progress of work of a known length.
pub fn bar(length: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:32} {human_pos}/{human_len}") {
        bar.set_style(style);
    }
    bar
}

/// Shows that something goes on.
pub fn spinner(what: &'static str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
