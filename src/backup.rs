//! A consistent copy of the database.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::contract::{BackupReply, Error, Result};
use crate::store::Store;
use crate::store::alive::for_its_owner;
use crate::sys;

/// How many copies this process has begun.
static PARTS: AtomicU64 = AtomicU64::new(0);

/// Writes the copy under a name of its own and gives it its name when it is whole.
pub(crate) fn write(store: &Store, path: &str) -> Result<BackupReply> {
    let target = check(path)?;
    let part = make_part(&target)?;
    let name = part
        .0
        .to_str()
        .ok_or_else(|| Error::invalid("path", "the path is not UTF-8"))?;
    store.copy_to(name)?;
    let failed =
        |problem: std::io::Error| Error::storage(format!("the copy cannot be finished: {problem}"));
    let file = OpenOptions::new()
        .read(true)
        .open(&part.0)
        .map_err(failed)?;
    file.sync_all().map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    // A link, unlike a rename, never replaces what somebody else put there meanwhile.
    match fs::hard_link(&part.0, &target) {
        Ok(()) => Ok(BackupReply { bytes }),
        Err(problem) if problem.kind() == ErrorKind::AlreadyExists => Err(exists()),
        // Some file systems have no links.
        Err(_) => fs::rename(&part.0, &target)
            .map(|()| BackupReply { bytes })
            .map_err(failed),
    }
}

/// Makes the file the copy is written to, under a name that nobody else has,
/// with its mode; SQLite fills an empty file.
fn make_part(target: &Path) -> Result<Removed> {
    loop {
        let mut part = target.as_os_str().to_owned();
        let number = PARTS.fetch_add(1, Ordering::Relaxed);
        part.push(format!("-part-{}-{number}", sys::process_id()));
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&part)
            .and_then(for_its_owner)
        {
            Ok(_) => return Ok(Removed(part.into())),
            // Left by a process of the same number that was killed.
            Err(problem) if problem.kind() == ErrorKind::AlreadyExists => {}
            Err(problem) => {
                return Err(Error::storage(format!(
                    "the copy cannot be made: {problem}"
                )));
            }
        }
    }
}

fn check(path: &str) -> Result<PathBuf> {
    let target = Path::new(path);
    if path.is_empty() || path.contains('\0') || target.file_name().is_none() {
        return Err(Error::invalid("path", "the path of a file to make"));
    }
    if target.symlink_metadata().is_ok() {
        return Err(exists());
    }
    let target = std::path::absolute(target).map_err(|problem| {
        Error::invalid("path", format!("the path cannot be resolved: {problem}"))
    })?;
    if !target.parent().is_some_and(Path::is_dir) {
        return Err(Error::invalid("path", "the folder does not exist"));
    }
    Ok(target)
}

fn exists() -> Error {
    Error::invalid("path", "something is at this path already")
}

/// A file that goes when its maker is done with it, well or not.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
