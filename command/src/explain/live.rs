// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex explain --live PID`: the receipt of a running process. If the process records a trace, reads the trace of the
//! whole job so far. Otherwise reads the process's counts from its flight recorder's file (`counted.rs`). The process
//! does nothing. Grade: setup. Tests: below; in tests/; with a device, `hw-tests/tests/device/flight.rs`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ibex::flight::Flight;
use ibex::flight::leftovers;
use ibex_messages::Job;
use ibex_trace::{Error, Folder, Reader};

pub(super) struct Live {
    pid: u32,
    /// Its start time, which distinguishes it from a later process of the same number.
    began: String,
    pub(super) trace: Option<PathBuf>,
    flight: Option<PathBuf>,
}

impl Live {
    /// Finds the process of this number, whose flight recorder's file is in `folder`. Fails if there is none, it
    /// belongs to another user, or it does not use ibex.
    pub(super) fn find(pid: u32, folder: &Path) -> Result<Live> {
        let about = PathBuf::from(format!("/proc/{pid}"));
        let Some(began) = began(pid) else { bail!("there is no process {pid} on this host{}", others(folder)) };
        let files = fs::read_dir(about.join("fd")).or_else(|error| {
            let owner = fs::metadata(&about).map(|of| of.uid()).unwrap_or_default();
            let why = format!(
                "process {pid} ({}) may be examined only by its user, whose number is {owner}, and by root",
                program(pid)
            );
            Err(error).context(why)
        })?;
        let open = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        let trace = open.into_iter().find_map(|file| folder_of_trace(&file));
        let own = leftovers::find(folder).into_iter().filter(|file| file.pid == pid).map(|file| file.path);
        // A dead process may have had this number; an unreadable file is reported when it is read.
        let flight = own.into_iter().find(|file| !matches!(Flight::read(file), Ok(flight) if !flight.is_alive));
        if trace.is_none() && flight.is_none() {
            bail!("{}{}", nothing(pid, folder), others(folder));
        }
        Ok(Live { pid, began, trace, flight })
    }

    pub(super) fn is_running(&self) -> bool {
        began(self.pid).as_ref() == Some(&self.began)
    }

    pub(super) fn counted(&self) -> Result<Flight> {
        let path = self.flight.as_ref().context("the process has no flight recorder's file")?;
        Ok(Flight::read(path)?)
    }
}

pub(super) fn recorded(trace: &Path) -> Result<Job> {
    let folder = Folder::open(trace)?;
    let mut job = Job::read(&folder);
    so_far(&mut job, &folder);
    Ok(job)
}

/// Replaces the remarks about unfinished files, which are normal while processes run, by one with their number.
fn so_far(job: &mut Job, folder: &Folder) {
    let unfinished = |error: &&Error| matches!(error, Error::Unfinished { .. } | Error::Truncated { .. });
    let faults = folder.readers().iter().flat_map(Reader::faults).filter(unfinished);
    let sentences: Vec<String> = faults.map(|error| format!("{error}.")).collect();
    job.faults.retain(|fault| !sentences.contains(fault));
    if !sentences.is_empty() {
        let count = sentences.len();
        job.faults.insert(
            0,
            format!(
                "This is the job so far: {count} of {} files are not finished, and do not contain the last events yet \
                 (a recorder writes each second).",
                folder.readers().len()
            ),
        );
    }
}

fn folder_of_trace(file: &Path) -> Option<PathBuf> {
    let is_trace = file.extension().is_some_and(|extension| extension == "ibex");
    (is_trace && file.is_absolute()).then(|| file.parent().map(Path::to_owned)).flatten()
}

/// Returns a process's start time; `None`: there is none, or it has ended.
fn began(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let is_over = fields.first().is_some_and(|state| ["Z", "X"].contains(state));
    fields.get(19).filter(|_| !is_over).map(|field| (*field).to_owned())
}

fn program(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Returns why there is no data about the process.
fn nothing(pid: u32, folder: &Path) -> String {
    let (program, folder) = (program(pid), folder.display());
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    if maps.contains("mca_btl_ibex") || maps.contains("mca_pml_ibex") {
        return format!(
            "process {pid} ({program}) has ibex loaded, but no file in {folder}: no port of ibex is open in it, or \
             btl_ibex_flight_recorder names another folder (then use --folder) or is \"no\""
        );
    }
    format!("process {pid} ({program}) does not use ibex, or has called MPI_Finalize")
}

/// Names the processes that use ibex.
fn others(folder: &Path) -> String {
    let alive = leftovers::find(folder).into_iter().filter(|file| leftovers::is_alive(file.pid));
    let named: Vec<String> =
        alive.take(8).map(|of| format!("{} (rank {} of job {})", of.pid, of.rank, of.job)).collect();
    if named.is_empty() {
        return ". No process on this host uses ibex".to_owned();
    }
    format!(". Processes on this host that use ibex: {}", named.join(", "))
}

pub(super) fn pause(seconds: f64) -> Result<std::time::Duration> {
    ensure!((0.1..=3600.0).contains(&seconds), "--every {seconds} is not between 0.1 and 3600 seconds");
    Ok(std::time::Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ibex-live-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder of our own");
        folder
    }

    fn refusal(pid: u32, folder: &Path) -> String {
        Live::find(pid, folder).err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn a_missing_process_and_one_without_ibex_are_refused_with_the_reason() {
        let folder = scratch("none");
        // The number is greater than any that Linux gives.
        let none = refusal(5_000_000, &folder);
        assert_eq!(none, "there is no process 5000000 on this host. No process on this host uses ibex");
        let parent = refusal(std::os::unix::process::parent_id(), &folder);
        assert!(parent.contains("does not use ibex"), "{parent}");
        // A file with the name that a process of ibex would give it.
        let file = folder.join(format!("ibex-flight.9.3.{}", std::process::id()));
        fs::write(file, "damaged").expect("a folder of our own");
        let other = refusal(5_000_000, &folder);
        assert!(other.contains(&format!("use ibex: {} (rank 3 of job 9)", std::process::id())), "{other}");
        let damaged = Live::find(std::process::id(), &folder).expect("it has a file").counted().expect_err("damaged");
        assert!(damaged.to_string().contains("is no file of ibex' flight recorder"), "{damaged}");
        fs::remove_dir_all(folder).expect("a folder of our own");
    }

    #[test]
    fn a_process_that_has_a_trace_open_records_it() {
        let folder = scratch("trace");
        let file = fs::File::create(folder.join("trace.0.0.n1.5.ibex")).expect("a folder of our own");
        // Another process: this one may have traces of other tests open.
        let mut process = std::process::Command::new("sleep").arg("1000").stdin(file).spawn().expect("coreutils");
        let live = Live::find(process.id(), &folder).expect("it records");
        assert_eq!(live.trace.as_deref(), Some(fs::canonicalize(&folder).expect("there").as_path()));
        assert!(live.is_running());
        process.kill().expect("a child");
        process.wait().expect("a child");
        fs::remove_dir_all(folder).expect("a folder of our own");
        assert_eq!(folder_of_trace(Path::new("/a/b.ibex (deleted)")), None);
    }
}
