// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small messages between two processes make no system call, nor does a helper thread for them. Not counted are offers
//! of the processor by polls in vain (`sched_yield`, on a busy machine a nap: `src/engine/fabric/idle.rs`). RDMA writes
//! and reads of another process' memory are one call each, of any size. Compiles `benches/verbs/host_memory_ratios.c`
//! and runs it under strace; the program marks where the messages begin and end. Needs cc, libibverbs' headers, strace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MESSAGES: u64 = 2000;

/// Two sides, five sizes, inline and not, both ways.
const EXCHANGED: u64 = 20 * MESSAGES;

/// All calls but those of fruitless polls: the library's offers, and the program's checks that its other half lives.
const TRACED: &str = "--trace=!sched_yield,clock_nanosleep,getppid,wait4";

#[test]
fn messages_of_up_to_256_bytes_make_no_system_call() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let trace = folder.join("system_calls.strace");
    let _ = fs::remove_file(&trace);
    let mut run = Command::new(env!("CARGO_BIN_EXE_softhca"));
    run.args(["run", "--", "timeout", "900", "strace", "--follow-forks", "--seccomp-bpf", TRACED]);
    run.arg("--output").arg(&trace).arg(program(folder)).args(["--messages", &MESSAGES.to_string()]);
    let output = run.output().expect("start `softhca run`");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{run:?}: {}; is strace installed? {said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(said.trim(), format!("exchanged {EXCHANGED} messages"));

    let text = fs::read_to_string(&trace).expect("read what strace wrote");
    let (own, of_others) = steady(&text);
    assert!(own.is_empty(), "system calls of the threads that send and receive:\n{}", own.join("\n"));
    // A helper would make one for a message at least. Threads that look after connections run by time, not by messages.
    assert!((of_others.len() as u64) < EXCHANGED / 10, "system calls of other threads:\n{}", of_others.join("\n"));
}

/// The lines of a trace between the first mark of a beginning and the last mark of an end: those of the two threads
/// that set the marks, and those of others.
fn steady(trace: &str) -> (Vec<&str>, Vec<&str>) {
    let thread = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let lines: Vec<&str> = trace.lines().collect();
    let at = |mark: &str| -> Vec<usize> {
        let marked = |at: &usize| lines[*at].contains("prctl(PR_SET_NAME") && lines[*at].contains(mark);
        (0..lines.len()).filter(marked).collect()
    };
    let (begins, ends) = (at("\"steady-begin\""), at("\"steady-end\""));
    assert_eq!((begins.len(), ends.len()), (2, 2), "two processes mark beginning and end:\n{trace}");
    let marking = [thread(lines[begins[0]]), thread(lines[begins[1]])];
    let between = lines[begins[0] + 1..ends[1]].iter();
    between
        .filter(|line| !line.contains("\"steady-") && !line.contains("<... prctl resumed>"))
        .partition(|line| marking.contains(&thread(line)))
}

fn program(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/verbs/host_memory_ratios.c");
    let program = folder.join("host_memory_ratios");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source).arg("-libverbs");
    let status = cc.status().expect("start cc");
    assert!(status.success(), "{cc:?}: {status}");
    program
}

#[test]
fn steady_finds_a_call_between_the_marks_and_none_around_them() {
    let trace = "10 read(3) = 0\n10 prctl(PR_SET_NAME, \"steady-begin\") = 0\n11 prctl(PR_SET_NAME, \"steady-begin\" <unfinished ...>\n\
                 11 <... prctl resumed>) = 0\n12 futex(0x7f) = 0\n11 read(3) = 0\n10 prctl(PR_SET_NAME, \"steady-end\") = 0\n\
                 11 prctl(PR_SET_NAME, \"steady-end\") = 0\n10 exit_group(0) = ?\n";
    assert_eq!(steady(trace), (vec!["11 read(3) = 0"], vec!["12 futex(0x7f) = 0"]));
}
