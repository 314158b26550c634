// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service thread does nothing that the program must know of: it maps and unmaps no memory once the fabric is
//! joined, and it takes no signals but those of its own faults. MPI libraries write hooks over `munmap` and its like
//! right after they have opened a device; a thread that is within one of these then crashes (src/engine/service.rs).
//! Runs a process of its own under strace, which delays the thread's first call. Needs strace.

mod engine_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use engine_support::prelude::*;

const FOLDER: &str = "SOFTHCA_TEST_FOLDER";

/// Functions over which programs write hooks.
const HOOKED: [&str; 6] = ["mmap", "munmap", "mremap", "madvise", "shmat", "shmdt"];

/// The kernel's folder of this process' service thread. The list of threads breaks off where one ends meanwhile, as
/// those of other tests do; then the thread may be missing.
fn service_thread() -> Option<PathBuf> {
    let tasks = fs::read_dir("/proc/self/task").expect("this process has threads");
    let mut threads = tasks.flatten().map(|task| task.path());
    threads.find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "softhca"))
}

fn sleeps(thread: &Path) -> bool {
    let stat = fs::read_to_string(thread.join("stat")).expect("it lives as long as the process");
    stat.rsplit_once(") ").expect("a name in parentheses").1.starts_with('S')
}

#[test]
fn the_thread_has_its_memory_when_the_fabric_is_joined() {
    let folder = new_folder();
    let trace = folder.file("strace");
    let mut strace = Command::new("strace");
    strace.args(["--follow-forks", &format!("--trace=prctl,{}", HOOKED.join(",")), "--inject=prctl:delay_exit=200000"]);
    strace.arg("--output").arg(&trace).arg(std::env::current_exe().unwrap());
    strace.args(["--ignored", "--exact", "joins_and_reports_it"]).env(FOLDER, folder.path());
    let output = strace.output().expect("start strace: is it installed?");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{strace:?}: {}\n{said}", output.status);

    let text = fs::read_to_string(&trace).expect("read what strace wrote");
    let lines: Vec<&str> = text.lines().collect();
    let named = |name: &str| lines.iter().position(|line| line.contains(&format!("prctl(PR_SET_NAME, \"{name}\"")));
    let (begins, joined) = (named("softhca").expect("it has a name"), named("joined").expect("it was joined"));
    let thread = lines[begins].split_whitespace().next().expect("strace begins with the thread's number");
    let late: Vec<_> = lines[joined..]
        .iter()
        .filter(|line| line.split_whitespace().next() == Some(thread))
        .filter(|line| {
            HOOKED.iter().any(|call| line.contains(&format!("{call}(")) || line.contains(&format!("{call} ")))
        })
        .collect();
    assert!(begins < joined && late.is_empty(), "after the fabric was joined: {late:?}\n{text}");
}

#[test]
#[ignore = "started by the test above, under strace"]
fn joins_and_reports_it() {
    let folder = std::env::var_os(FOLDER).expect("started by another test");
    let fabric = Fabric::join(spec(folder.as_ref())).expect("the fabric can be joined");
    // SAFETY: a C string of less than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"joined".as_ptr()) };
    while !service_thread().is_some_and(|thread| sleeps(&thread)) {
        std::thread::yield_now();
    }
    drop(fabric);
}

#[test]
fn the_thread_takes_the_signals_of_its_own_faults_only() {
    let folder = new_folder();
    let _fabric = Fabric::join(spec(folder.path())).expect("the fabric can be joined");
    let thread = (0..1000).find_map(|_| service_thread()).expect("a process that has joined has the thread");
    let thread = fs::read_to_string(thread.join("status")).expect("it lives as long as the process");
    let blocked = thread.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("the kernel says it");
    let blocked = u64::from_str_radix(blocked.trim(), 16).expect("hexadecimal");
    let is_blocked = |signal: &i32| blocked & 1 << (signal - 1) != 0;
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
    assert!(!faults.iter().any(is_blocked), "{blocked:#x}");
    let programs = [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGUSR1, libc::SIGALRM, libc::SIGABRT];
    assert!(programs.iter().all(is_blocked), "{blocked:#x}");
}
