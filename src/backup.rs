//! A consistent copy of the database.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::contract::{BackupReply, Error, Result};
use crate::store::Store;
use crate::sys;

/// Writes the copy under a name of its own and gives it its name when it is whole.
pub(crate) fn write(store: &Store, path: &str) -> Result<BackupReply> {
    let target = check(path)?;
    let mut part = target.clone().into_os_string();
    part.push(format!("-part-{}", sys::process_id()));
    let part = Removed(part.into());
    let name = part
        .0
        .to_str()
        .ok_or_else(|| Error::invalid("path", "the path is not UTF-8"))?;
    // Made first, for its mode; SQLite fills an empty file.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part.0)
        .map_err(|problem| Error::storage(format!("the copy cannot be made: {problem}")))?;
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
