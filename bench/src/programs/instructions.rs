// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions per message: runs `ibex_mpi_instructions` over a transport with one rank under callgrind, or
//! `ibex_fi_instructions`, which has both sides in one process, and separates the adapter's instructions from those of
//! everything above it. If the adapter calls other libraries (`memcpy`), their instructions count as the adapter's. The
//! two sides alternate, so each poll finds something, and the counts repeat (see the programs). Called by
//! [`crate::run`]. Grade: setup. Tests: below.

use super::callgrind::Profile;
use super::event_counts::Counts;
use super::mpi;
use crate::catalogue::{Calls, Transport};
use crate::nodes::{Job, Outcome, Where};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// A count: these calls with messages of this many bytes over a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Count {
    pub(crate) transport: Transport,
    pub(crate) calls: Calls,
    pub(crate) bytes: u64,
}

impl Count {
    /// Returns the count whose objects the report shows.
    pub(crate) fn of_short_blocking(transport: Transport) -> Self {
        Self { transport, calls: Calls::Blocking, bytes: 8 }
    }

    pub(crate) fn test(self) -> &'static str {
        match self.calls {
            Calls::Blocking => "instructions",
            Calls::Nonblocking => "nonblocking_instructions",
            Calls::Libfabric => "libfabric_instructions",
        }
    }
}

/// Number of counted messages, each sent and received.
const MESSAGES: u64 = 1000;

/// Number of messages before them (`MESSAGES_BEFORE` of the program).
const MESSAGES_BEFORE: u64 = 500;

/// Number of ranks; each sends and receives [`MESSAGES`].
const RANKS: u64 = 2;

const PROGRAM: &str = "ibex_mpi_instructions";

/// The program of [`Calls::Libfabric`].
const OF_LIBFABRIC: &str = "ibex_fi_instructions";

const PROGRAM_NAME: &str = "the program";

/// Name of the instructions of other libraries that the adapter calls.
const CALLED_BY_ADAPTER: &str = "called by it";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfObject {
    /// File name up to `.so`.
    pub(crate) object: String,
    pub(crate) adapter: bool,
    pub(crate) per_message: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counted {
    pub(crate) objects: Vec<OfObject>,
    /// Number of events raised, if a tool counted them. Includes the events of the job's start: a few per thousand.
    pub(crate) events: f64,
    /// Upper bound of allocations of memory.
    pub(crate) allocations: f64,
}

/// Between callgrind's options and the program.
const END_OF_OPTIONS: &str = "--";
/// Script that runs rank 0 under callgrind, with its options, and rank 1 without. A job of two command lines would
/// crash `mpirun` of Debian 13.
const FIRST_UNDER_CALLGRIND: &str = "\
    if [ \"${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\" = 0 ]; then exec valgrind --quiet --tool=callgrind \"$@\"; fi
    until [ \"$1\" = -- ]; do shift; done
    shift
    exec \"$@\"";

const ALLOCATING: [&str; 6] = ["malloc", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc"];

/// Counts instructions over a transport; `run` runs the job.
pub(crate) fn counted(place: Where, count: Count, run: impl FnOnce(&Job) -> Result<Outcome>) -> Result<Counted> {
    let (argv, file) = command(place, count)?;
    let remove = || fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()));
    if file.exists() {
        remove()?;
    }
    let mut job = mpi::job(place, count.transport, argv);
    if count.calls == Calls::Libfabric {
        job.env.extend(place.of_provider());
    }
    let outcome = run(&job)?.checked()?;
    let counted = read(&file, Counts::of_all(&outcome.stdout))?;
    // A file that could not be read stays for the user.
    remove()?;
    Ok(counted)
}

fn command(place: Where, count: Count) -> Result<(Vec<String>, PathBuf)> {
    let file = place.reports.join(format!("callgrind.{}", count.transport.name()));
    let folder = place.programs_over(count.transport);
    let name = if count.calls == Calls::Libfabric { OF_LIBFABRIC } else { PROGRAM };
    let mut program = vec![folder.join(name).display().to_string(), MESSAGES.to_string(), count.bytes.to_string()];
    let mut counted = ["--toggle-collect=counted_send", "--toggle-collect=counted_recv"];
    if count.calls == Calls::Nonblocking {
        program.push("nonblocking".to_owned());
        counted = ["--toggle-collect=counted_isend", "--toggle-collect=counted_irecv"];
    }
    let mut words = if count.calls == Calls::Libfabric {
        ["valgrind", "--quiet", "--tool=callgrind"].map(str::to_owned).into()
    } else {
        let mut words = mpi::mpirun(place, count.transport)?;
        words.extend(["-n", "2", "sh", "-c", FIRST_UNDER_CALLGRIND, "sh"].map(str::to_owned));
        words
    };
    words.extend(counted.map(str::to_owned));
    words.extend([format!("--callgrind-out-file={}", file.display()), END_OF_OPTIONS.to_owned()]);
    words.extend(program);
    Ok((words, file))
}

/// Reads a file of callgrind, and adds the events of all ranks. It is an error if no instruction is an adapter's.
fn read(file: &Path, events: Counts) -> Result<Counted> {
    let text = fs::read(file).with_context(|| format!("valgrind left no {}", file.display()))?;
    let profile = Profile::parse(&String::from_utf8_lossy(&text)).with_context(|| file.display().to_string())?;
    let objects = of_objects(&profile);
    if !objects.iter().any(|object| object.adapter) {
        bail!("no instruction of the emulated adapter is among those counted: {objects:?}");
    }
    Ok(Counted {
        objects,
        events: events.raised as f64 / (RANKS * (MESSAGES + MESSAGES_BEFORE)) as f64,
        allocations: profile.calls(&ALLOCATING) as f64 / MESSAGES as f64,
    })
}

/// Instructions per message of MPI and of all below it, without those of the adapter and of the program.
pub(crate) fn of_mpi(objects: &[OfObject]) -> f64 {
    let of_mpi = |object: &&OfObject| !object.adapter && object.object != PROGRAM_NAME;
    objects.iter().filter(of_mpi).map(|object| object.per_message).sum()
}

pub(crate) fn of_ibex(objects: &[OfObject]) -> f64 {
    objects.iter().filter(|object| object.object == "libibex").map(|object| object.per_message).sum()
}

/// Whether two counts agree to 1 %.
pub(crate) fn repeats(count: f64, other: f64) -> bool {
    (count - other).abs() <= 0.01 * other
}

/// Subtracts the instructions that objects executed for the adapter, and adds them as an entry of the adapter's own.
fn of_objects(profile: &Profile) -> Vec<OfObject> {
    let mut counts = profile.objects.clone();
    let mut for_adapter = 0;
    for ((called, caller), count) in &profile.on_behalf {
        if is_adapter(object_name(caller)) && !is_adapter(object_name(called)) {
            let own = counts.entry(called.clone()).or_default();
            // callgrind counts nested calls at every level, but an object cannot do more for others than in all.
            let moved = (*count).min(*own);
            *own -= moved;
            for_adapter += moved;
        }
    }
    let mut objects: Vec<_> = counts.iter().map(|(file, count)| of_object(file, *count)).collect();
    if for_adapter > 0 {
        let per_message = for_adapter as f64 / MESSAGES as f64;
        objects.push(OfObject { object: CALLED_BY_ADAPTER.to_owned(), adapter: true, per_message });
    }
    objects
}

fn of_object(file: &str, count: u64) -> OfObject {
    let object = object_name(file);
    OfObject { object: object.to_owned(), adapter: is_adapter(object), per_message: count as f64 / MESSAGES as f64 }
}

fn object_name(file: &str) -> &str {
    match file.split(".so").next() {
        Some(PROGRAM | OF_LIBFABRIC) => PROGRAM_NAME,
        Some("???") | None => "unknown",
        Some(name) => name,
    }
}

fn is_adapter(object: &str) -> bool {
    ["libsofthca", "libibverbs"].contains(&object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::place::tests::place;
    use std::process::Command;

    #[test]
    fn one_rank_is_counted_and_the_other_is_not() {
        let (words, file) = command(place(), Count::of_short_blocking(Transport::Openib)).unwrap();
        let line = words.join(" ");
        assert_eq!(line.matches("valgrind").count(), 1, "{line}");
        assert!(line.ends_with(" -- /t/mpi/ibex_mpi_instructions 1000 8"), "{line}");
        assert!(line.contains(&format!("--callgrind-out-file={} ", file.display())), "{line}");
        let count = Count { transport: Transport::Ucx, calls: Calls::Nonblocking, bytes: 64 };
        let line = command(place(), count).unwrap().0.join(" ");
        assert!(line.ends_with("ibex_mpi_instructions 1000 64 nonblocking") && line.contains(" -n 2 "), "{line}");
        assert!(line.contains("--toggle-collect=counted_isend --toggle-collect=counted_irecv"), "{line}");
        let count = Count { transport: Transport::Ibex, calls: Calls::Libfabric, bytes: 8 };
        let line = command(place(), count).unwrap().0.join(" ");
        assert!(line.starts_with("valgrind ") && line.ends_with(" -- /t/mpi/ibex_fi_instructions 1000 8"), "{line}");
        let of_rank = |variable: &str, rank: &str| {
            let echo = FIRST_UNDER_CALLGRIND.replace("exec ", "echo ").replace("; fi", "; exit; fi");
            let mut shell = Command::new("sh");
            shell.args(["-c", &echo, "sh", "--option", END_OF_OPTIONS, "program", "8"]).env(variable, rank);
            String::from_utf8(shell.output().unwrap().stdout).unwrap()
        };
        for variable in ["OMPI_COMM_WORLD_RANK", "PMI_RANK"] {
            assert_eq!(of_rank(variable, "0"), "valgrind --quiet --tool=callgrind --option -- program 8\n");
            assert_eq!(of_rank(variable, "1"), "program 8\n");
        }
    }

    #[test]
    fn counts_repeat_within_one_percent() {
        assert!(repeats(1606.0, 1604.0) && repeats(100.0, 101.0));
        assert!(!repeats(100.0, 102.0) && !repeats(102.0, 100.0));
    }

    #[test]
    fn instructions_that_other_libraries_execute_for_the_adapter_count_as_the_adapters() {
        let named = |names: [&str; 2]| names.map(str::to_owned).into();
        let profile = Profile {
            objects: [("libsofthca.so", 500_000), ("libc.so.6", 184_000), ("libibex.so", 429_000)]
                .map(|(file, count)| (file.to_owned(), count))
                .into(),
            on_behalf: [
                (named(["libc.so.6", "libsofthca.so"]), 172_000),
                (named(["libc.so.6", "libibex.so"]), 12_000),
                (named(["libsofthca.so", "libibex.so"]), 672_000),
            ]
            .into(),
            ..Profile::default()
        };
        let counted = of_objects(&profile);
        let of = |name: &str| counted.iter().find(|object| object.object == name).map(|object| object.per_message);
        assert_eq!([of("libc"), of(CALLED_BY_ADAPTER), of("libsofthca")], [Some(12.0), Some(172.0), Some(500.0)]);
        assert!((of_mpi(&counted) - 441.0).abs() < 1e-9);
    }

    #[test]
    fn instructions_are_split_among_the_adapter_the_program_and_the_rest() {
        let objects =
            [("libsofthca.so", 1_500_000), ("mca_pml_ob1.so", 600_000), (PROGRAM, 22_000), ("libc.so.6", 180_000)]
                .map(|(file, count)| of_object(file, count));
        assert!((of_mpi(&objects) - 780.0).abs() < 1e-9);
        assert_eq!(objects.map(|object| object.object), ["libsofthca", "mca_pml_ob1", "the program", "libc"]);
    }
}
