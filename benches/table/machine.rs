//! What the figures were measured on: no name of a host, no path.

use std::fs::read_to_string;
use std::path::Path;

/// The processor, its cores, the kernel, and the file system of `folder`.
pub fn line(folder: &Path) -> String {
    let cpu = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .and_then(|rest| rest.split_once(':'))
        .map_or("unknown processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // What a machine's owner appends to the version says nothing here.
    let kernel = kernel.trim().split('-').next().unwrap_or_default();
    format!(
        "{model}, {cores} cores, {} {}, {}",
        std::env::consts::OS,
        kernel,
        file_system(folder)
    )
}

fn file_system(folder: &Path) -> String {
    let mounts = read_to_string("/proc/self/mounts").unwrap_or_default();
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (place, kind) = (words.next()?, words.next()?);
            folder.starts_with(place).then_some((place.len(), kind))
        })
        .max_by_key(|(length, _)| *length)
        .map_or("unknown file system", |(_, kind)| kind)
        .to_owned()
}
