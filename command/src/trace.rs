// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex trace -- mpirun ... ./app`: runs a job with the recorder, libibex-log.so, preloaded into the ranks, and prints
//! a summary of the trace. The recorder writes one file per rank into a folder. `mpirun` gets the ranks' environment by
//! `-x`, so that ranks on other hosts have it too; other launchers pass on their own. Grade: setup. Tests: below; with
//! a device, hw-tests/tests/device/recorder.rs.

use crate::answer::{self, Form};
use crate::installed::{Installed, OpenMpi};
use crate::known_crash::{self, KnownCrash};
use crate::launcher::{is_launcher, launched};
use crate::parameters::nearest;
use crate::run::{self, Overrides};
use anyhow::{Context, Result, bail};
use ibex::events::TABLE;
use ibex_trace::{Counts, Folder, GROUPS, Reader, listed, short};
use serde::Serialize;
use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = "Example: record a job, then look at it\n  \
                        ibex trace -o run1 -- mpirun -n 4 ./app\n  \
                        ibex view run1\n\n\
                        The same of MPICH, Intel MPI, and other programs of libfabric\n  \
                        ibex trace -o run1 -- ibex run -- mpiexec -n 4 ./app")]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
    /// The folder for the trace, which all hosts of the job must share; created if missing
    #[arg(short, long, value_name = "DIR", default_value = "ibex-trace")]
    output: PathBuf,
    /// The events to record: names from docs/events.md, or groups: default (docs/logger.md says what it leaves out),
    /// all, messages, calls, searches, transfers, communicators, operations, connections, waits, incidents
    #[arg(long, value_name = "LIST")]
    events: Option<String>,
    /// The command that starts the job
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the job, and prints a summary of the trace. The exit status is the job's.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    known(arguments.events.as_deref())?;
    let folder = prepared(&arguments.output)?;
    let by_libfabric = run::by_libfabric(&arguments.command)?;
    let command = command(arguments, &folder, by_libfabric)?;
    let (status, crash) = watched(command)?;
    let recorded = Recorded::of(&folder, status);
    match recorded {
        Ok(recorded) if arguments.form.is_json() => answer::print(&arguments.form, &recorded)?,
        // Standard output belongs to the job and may be a pipe.
        Ok(recorded) => eprint!("{recorded}"),
        Err(error) => {
            eprintln!("ibex: {}", answer::reason(&error));
            if by_libfabric.is_some() {
                eprintln!(
                    "ibex: nothing was recorded. Does the job use ibex (`ibex trace -- ibex run -- mpiexec ...`; with -v, \
                     `ibex run` says which MPI it found), and do its hosts share {}?",
                    folder.display()
                );
                return Ok(if status.success() { ExitCode::FAILURE } else { code(status) });
            }
            eprintln!(
                "ibex: nothing was recorded. Does the job call MPI_Init of a shared library of Open MPI, and do its hosts \
                 share {}? A script in the job that sets LD_PRELOAD must keep the existing value: \
                 export LD_PRELOAD=mine.so${{LD_PRELOAD:+:$LD_PRELOAD}}",
                folder.display()
            );
            say(crash);
            return Ok(if status.success() { ExitCode::FAILURE } else { code(status) });
        }
    }
    say(crash);
    Ok(code(status))
}

/// Returns the command of the job. The ranks of an Open MPI that has ibex' components preload the recorder. The
/// libfabric provider records by itself; preloaded, it records the calls of MPI, too.
fn command(arguments: &Arguments, folder: &Path, by_libfabric: Option<Overrides>) -> Result<Command> {
    let (words, events) = (&arguments.command, arguments.events.as_deref());
    let mut variables = variables(folder, events);
    let mut words = words.clone();
    if let Some(libraries) = preloaded(&words, by_libfabric)? {
        variables.insert(0, ("LD_PRELOAD", preload(&libraries, &words)));
        words = beside_others(&words, &libraries, &variables);
    }
    if by_libfabric.is_some() {
        // Launchers of other MPIs pass their environment on to the ranks. Open MPI's does so within a host.
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(variables);
        return Ok(command);
    }
    Ok(launched(&words, &variables))
}

/// Returns the libraries that a job's processes preload, separated by colons.
fn preloaded(words: &[OsString], by_libfabric: Option<Overrides>) -> Result<Option<OsString>> {
    let Some(overrides) = by_libfabric else { return recorder(words).map(|recorder| Some(recorder.into())) };
    if overrides == Overrides::Nothing {
        return Ok(None);
    }
    let provider = Installed::here()?.provider()?;
    let mut libraries = provider.clone().into_os_string();
    if overrides == Overrides::Mpi4 {
        libraries.push(":");
        libraries.push(provider.with_file_name("libibex-mpi4.so"));
    }
    Ok(Some(libraries))
}

fn say(crash: Option<&KnownCrash>) {
    if let Some(KnownCrash { what, mend, .. }) = crash {
        eprintln!("ibex: {what}\nibex: set {mend}");
    }
}

/// Time for the rest of a job's output after its launcher has ended, as a surviving process may keep the pipe.
const REST: Duration = Duration::from_secs(2);

/// Runs the job, forwards its standard error as it comes, and searches it for known crashes.
fn watched(mut command: Command) -> Result<(ExitStatus, Option<&'static KnownCrash>)> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut job = command.stderr(Stdio::piped()).spawn().with_context(|| format!("cannot start {name}"))?;
    let said = job.stderr.take().map(|from| {
        let (found, crashes) = mpsc::channel();
        thread::spawn(move || found.send(handed_on(from, io::stderr())));
        crashes
    });
    let status = job.wait().with_context(|| format!("cannot wait for {name}"))?;
    Ok((status, said.and_then(|crashes| crashes.recv_timeout(REST).ok().flatten())))
}

fn handed_on(from: impl Read, mut to: impl Write) -> Option<&'static KnownCrash> {
    let (mut from, mut line, mut crash) = (BufReader::new(from), Vec::new(), None);
    loop {
        // A prompt has no end of line.
        let Ok(bytes) = from.fill_buf() else { return crash };
        if bytes.is_empty() {
            return crash;
        }
        let count = bytes.len();
        line.extend_from_slice(bytes);
        let _ = to.write_all(bytes);
        let _ = to.flush();
        from.consume(count);
        crash = crash.or_else(|| known_crash::find(&line));
        // A name may be split across two reads.
        line.drain(..line.len().saturating_sub(LONGEST_NAME));
    }
}

const LONGEST_NAME: usize = 256;

/// The recorder's own events that can be chosen. They occur even if no message crosses ibex.
const CALLS: [&str; 2] = ["mpi_call_begin", "mpi_call_end"];

/// The recorder's event of `MPI_Pcontrol`, which is always recorded.
const CONTROL: &str = "mpi_pcontrol";

/// Checks the names of events and groups: the recorder would ignore unknown ones.
fn known(events: Option<&str>) -> Result<()> {
    for name in listed(events.unwrap_or_default()) {
        let short = short(name);
        let names = || GROUPS.into_iter().chain(CALLS).chain(TABLE.iter().map(|row| row.name));
        if !names().any(|known| known == short) {
            let meant =
                nearest(short, names()).map_or_else(String::new, |meant| format!("; {meant} is meant, perhaps"));
            bail!("there is no event or group {name}{meant} (--help has the groups, docs/events.md the events)");
        }
    }
    Ok(())
}

/// Prepares the folder, which must have no trace yet, and returns its absolute path.
fn prepared(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = fs::canonicalize(folder).with_context(|| format!("cannot find {}", folder.display()))?;
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let is_trace = |name: OsString| Path::new(&name).extension().is_some_and(|extension| extension == "ibex");
    if entries.flatten().any(|entry| is_trace(entry.file_name())) {
        bail!(
            "{0} has a trace already, and the files of two jobs in one folder would look like one job: name another \
             folder with -o, or remove it (rm -r {0})",
            folder.display()
        );
    }
    Ok(folder)
}

/// Returns the installed recorder for the Open MPI of a job's launcher.
fn recorder(words: &[OsString]) -> Result<PathBuf> {
    let installed = Installed::here()?;
    let launcher = words.iter().find(|word| is_launcher(word));
    if let Some(name) = installed.name(OpenMpi::of(launcher.map(OsString::as_os_str)).as_ref())? {
        return Ok(installed.prefix.join("lib/ibex").join(name).join("libibex-log.so"));
    }
    // The first place is an installation's, the second a build tree's.
    let places = ["lib/libibex-log.so", "ibex/lib/libibex-log.so"].map(|place| installed.prefix.join(place));
    let found = places.iter().find_map(|place| fs::canonicalize(place).ok());
    found.with_context(|| {
        let places = places.map(|place| place.display().to_string());
        format!(
            "the recorder is not installed: there is no {}. `cargo xtask install` installs it",
            places.join(" and no ")
        )
    })
}

const PRELOAD: &str = "LD_PRELOAD=";

/// Returns the libraries and the user's own preloaded ones, from the words before the launcher or the environment.
fn preload(libraries: &OsStr, words: &[OsString]) -> OsString {
    let before = words.iter().take_while(|word| !is_launcher(word)).map(|word| word.as_bytes());
    let told = before.filter_map(|word| word.strip_prefix(PRELOAD.as_bytes())).last();
    let others = told.map(|others| OsStr::from_bytes(others).to_owned()).or_else(|| env::var_os("LD_PRELOAD"));
    let mut preload = libraries.to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    preload
}

/// Adds the libraries to every `LD_PRELOAD` that the words set for the ranks: the launcher uses the later of two
/// values, and `env` and shells their own.
fn beside_others(words: &[OsString], libraries: &OsStr, variables: &[(&'static str, OsString)]) -> Vec<OsString> {
    // Only the ranks preload the libraries, not the launcher.
    let of_launcher = words.iter().position(|word| is_launcher(word)).unwrap_or(0);
    let mut made = words[..of_launcher].to_vec();
    for word in &words[of_launcher..] {
        if word == "LD_PRELOAD" && made.last().is_some_and(|before| before == "-x") {
            // This environment has a value, without the libraries.
            let of_all = variables.iter().find(|(name, _)| *name == "LD_PRELOAD").map(|(_, value)| value.as_bytes());
            made.push(OsString::from_vec([PRELOAD.as_bytes(), of_all.unwrap_or_default()].concat()));
            continue;
        }
        let mut new = Vec::with_capacity(word.len());
        for (at, letter) in word.as_bytes().iter().enumerate() {
            new.push(*letter);
            let (until, rest) = word.as_bytes().split_at(at + 1);
            let before = until.strip_suffix(PRELOAD.as_bytes());
            if before.is_some_and(|before| !before.last().copied().is_some_and(is_of_a_name)) {
                new.extend_from_slice(libraries.as_bytes());
                new.extend(rest.first().filter(|next| !next.is_ascii_whitespace()).map(|_| b':'));
            }
        }
        made.push(OsString::from_vec(new));
    }
    made
}

fn is_of_a_name(letter: u8) -> bool {
    letter.is_ascii_alphanumeric() || letter == b'_'
}

fn variables(folder: &Path, events: Option<&str>) -> Vec<(&'static str, OsString)> {
    // All ranks have the recorder, so they may exchange messages to synchronise their clocks.
    let mut variables = vec![("IBEX_TRACE", folder.into()), ("IBEX_TRACE_CLOCKS", "1".into())];
    variables.extend(events.map(|events| ("IBEX_TRACE_EVENTS", events.into())));
    variables.extend(env::var_os("IBEX_TRACE_CLOCKS_EVERY").map(|every| ("IBEX_TRACE_CLOCKS_EVERY", every)));
    variables
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[derive(Debug, Default, Serialize)]
struct Recorded {
    folder: PathBuf,
    status: Option<i32>,
    files: Vec<File>,
    missing: u32,
    bytes: u64,
    events: u64,
    lost: u64,
    types: BTreeMap<String, Counts>,
    faults: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct File {
    path: PathBuf,
    world: u32,
    rank: Option<u32>,
    host: String,
    pid: u32,
    bytes: u64,
    events: u64,
    lost: u64,
    finished: bool,
}

impl Recorded {
    fn of(folder: &Path, status: ExitStatus) -> Result<Recorded> {
        let traces = Folder::open(folder)?;
        let mut recorded = Recorded {
            folder: folder.to_owned(),
            status: status.code(),
            faults: traces.unreadable().iter().map(ToString::to_string).collect(),
            ..Recorded::default()
        };
        let mut worlds: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for reader in traces.readers() {
            let head = reader.head();
            let world = worlds.entry(head.world).or_default();
            *world = (world.0.max(head.ranks.unwrap_or(0)), world.1 + 1);
            recorded.take(reader);
        }
        recorded.missing = worlds.values().map(|(ranks, files)| ranks.saturating_sub(*files)).sum();
        Ok(recorded)
    }

    fn take(&mut self, reader: &Reader) {
        let head = reader.head();
        let (mut events, mut lost) = (0, 0);
        for (of, counts) in head.types.iter().zip(reader.counts()) {
            if counts.events + counts.lost > 0 {
                let count = self.types.entry(of.name.clone()).or_default();
                count.events += counts.events;
                count.lost += counts.lost;
            }
            events += counts.events;
            lost += counts.lost;
        }
        let bytes = fs::metadata(reader.file()).map_or(0, |of| of.len());
        self.bytes += bytes;
        self.events += events;
        self.lost += lost;
        self.faults.extend(reader.faults().map(ToString::to_string));
        for note in reader.notes() {
            if !self.faults.contains(note) {
                self.faults.push(note.clone());
            }
        }
        self.files.push(File {
            path: reader.file().to_owned(),
            world: head.world,
            rank: head.rank,
            host: head.host.clone(),
            pid: head.pid,
            bytes,
            events,
            lost,
            finished: reader.is_finished(),
        });
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: std::collections::BTreeSet<_> = self.files.iter().map(|file| &file.host).collect();
        writeln!(
            f,
            "ibex: recorded {} of {} on {}, {} MB, in {}",
            many(self.events, "event"),
            many(self.files.len() as u64, "rank"),
            many(hosts.len() as u64, "host"),
            (self.bytes as f64 / 1e5).round() / 10.0,
            self.folder.display()
        )?;
        if self.types.keys().all(|name| name == CONTROL || CALLS.contains(&name.as_str())) {
            writeln!(
                f,
                "ibex: no event of ibex occurred. If ibex should have carried messages, use --mca pml ibex (of other MPIs than \
                 Open MPI: `ibex run`), and see `ibex info`"
            )?;
        }
        if self.lost > 0 {
            let lost = self.types.iter().filter(|(_, count)| count.lost > 0);
            let each: Vec<String> = lost.map(|(name, count)| format!("{} {name}", count.lost)).collect();
            writeln!(f, "ibex: {} lost ({})", many(self.lost, "event"), each.join(", "))?;
        }
        if self.missing > 0 {
            writeln!(f, "ibex: {} left no file", many(self.missing.into(), "rank"))?;
        }
        for fault in &self.faults {
            writeln!(f, "ibex: {fault}")?;
        }
        writeln!(f, "ibex: to view it: ibex view {}", self.folder.display())
    }
}

fn many(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_recorder_is_added_to_the_users_preloaded_libraries() {
        let recorder = OsStr::new("/r.so");
        for (given, made) in [
            ("mpirun -x LD_PRELOAD=/a.so:/b.so ./app", "mpirun -x LD_PRELOAD=/r.so:/a.so:/b.so ./app"),
            ("mpirun -x LD_PRELOAD ./app", "mpirun -x LD_PRELOAD=/r.so:/mine.so ./app"),
            ("mpirun -n 2 env LD_PRELOAD=/a.so ./app", "mpirun -n 2 env LD_PRELOAD=/r.so:/a.so ./app"),
            ("srun --export=ALL,LD_PRELOAD=/a.so ./app", "srun --export=ALL,LD_PRELOAD=/r.so:/a.so ./app"),
            ("sh -c LD_PRELOAD=\"$X\"\t./app", "sh -c LD_PRELOAD=/r.so:\"$X\"\t./app"),
            ("env LD_PRELOAD= ./app", "env LD_PRELOAD=/r.so ./app"),
            ("env LD_PRELOAD=/a.so mpirun ./app", "env LD_PRELOAD=/a.so mpirun ./app"),
            ("./app MY_LD_PRELOAD=/a.so", "./app MY_LD_PRELOAD=/a.so"),
        ] {
            let variables = [("LD_PRELOAD", OsString::from("/r.so:/mine.so"))];
            assert_eq!(beside_others(&words(given), recorder, &variables), words(made), "{given}");
        }
        assert_eq!(preload(recorder, &words("env LD_PRELOAD=/a.so mpirun -n 2 ./app")), "/r.so:/a.so");
        assert_eq!(preload(recorder, &words("env LD_PRELOAD= mpirun -x LD_PRELOAD=/b.so ./app")), "/r.so");
    }

    #[test]
    fn output_is_forwarded_and_a_known_crash_is_found_even_across_two_reads() {
        let (before, after) = ("a prompt? [ 2] (mca_btl_vader_emu", "_acswap+0x1ce)\nand the rest");
        let mut copy = Vec::new();
        let crash = handed_on(before.as_bytes().chain(after.as_bytes()), &mut copy);
        assert_eq!(copy, [before, after].concat().as_bytes());
        assert!(crash.is_some_and(|crash| crash.mend.contains("osc pt2pt")));
        let mut copy = Vec::new();
        assert_eq!((handed_on(&b"\xff"[..], &mut copy), copy), (None, vec![0xff]));
    }

    #[test]
    fn unknown_events_are_refused_with_a_suggestion() {
        for events in [None, Some(""), Some("all"), Some("default, comm_req_activate"), Some("ibex_put_started")] {
            known(events).expect("known");
        }
        let refused = |events| known(Some(events)).expect_err("unknown").to_string();
        assert!(refused("mesages").contains("no event or group mesages; messages is meant, perhaps"));
        assert!(refused("all,ibex_put_start").contains("ibex_put_start; put_started is meant"));
        assert!(!refused("something_else_altogether").contains("perhaps"));
    }

    #[test]
    fn a_folder_with_a_trace_is_refused_with_advice_and_others_are_not() {
        let folder = env::temp_dir().join(format!("ibex-trace-command-{}", std::process::id()));
        let inner = folder.join("a/b");
        assert_eq!(prepared(&inner).expect("made"), fs::canonicalize(&inner).expect("there"));
        fs::write(inner.join("notes"), "").expect("a folder of our own");
        prepared(&inner).expect("no trace yet");
        fs::write(inner.join("trace.0.0.n1.5.ibex"), "").expect("a folder of our own");
        let refused = prepared(&inner).expect_err("a trace is there").to_string();
        assert!(refused.contains("another folder with -o, or remove it (rm -r "), "{refused}");
        fs::remove_dir_all(folder).expect("a folder of our own");
    }

    #[test]
    fn the_summary_lists_recorded_and_missing_files_and_events() {
        let file = |rank| File { rank: Some(rank), host: "n1".into(), ..File::default() };
        let mut recorded = Recorded {
            folder: "/run1".into(),
            status: Some(0),
            files: vec![file(0), file(1)],
            missing: 1,
            bytes: 1_234_567,
            events: 10,
            lost: 3,
            types: BTreeMap::from([("ibex_xfer_end".to_owned(), Counts { events: 10, lost: 3 })]),
            faults: vec!["x was not finished".to_owned()],
        };
        let text = recorded.to_string();
        for line in [
            "recorded 10 events of 2 ranks on 1 host, 1.2 MB, in /run1\n",
            "3 events lost (3 ibex_xfer_end)",
            "1 rank left no file",
            "x was not finished",
            "ibex view /run1",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let nothing = "no event of ibex occurred. If ibex should have carried messages, use --mca pml ibex";
        assert!(!text.contains(nothing), "{text}");
        recorded.types = BTreeMap::from([("mpi_call_end".to_owned(), Counts { events: 10, lost: 0 })]);
        assert!(recorded.to_string().contains(nothing), "calls of MPI are not ibex'");
    }
}
