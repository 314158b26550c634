// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leftovers of a killed `softhca run`, and the run that removes them. One test, since each run looks at all folders.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use softhca::fabric_folder::{make_private, named_folder, run_folder};

/// A run whose program prints its fabric's folder and its own number, and then waits for its input to end.
struct Run {
    command: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    program: u32,
    folder: PathBuf,
}

impl Run {
    fn start(program: &str) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_softhca"))
            .args(["run", "--", "sh", "-c", &format!("echo $$ $SOFTHCA_FABRIC; {program}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(command.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let (program, folder) = line.trim().split_once(' ').unwrap();
        let input = command.stdin.take();
        Run { command, input, output, program: program.parse().unwrap(), folder: folder.into() }
    }

    /// Kills the command alone; its program goes on.
    fn kill_command(&mut self) {
        self.command.kill().unwrap();
        self.command.wait().unwrap();
    }

    fn kill_program(&self) {
        kill_process(Pid::from_raw(self.program as i32).unwrap(), Signal::KILL).unwrap();
        let stat = format!("/proc/{}/stat", self.program);
        // A zombie, and none of its threads is left: only then are its files closed. State and number of threads are
        // fields 3 and 20 (proc_pid_stat(5)); a list of the threads may break off where one ends.
        let has_ended = || {
            let Ok(stat) = std::fs::read_to_string(&stat) else { return true };
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            let fields: Vec<&str> = fields.split(' ').collect();
            (fields[0], fields[17]) == ("Z", "1")
        };
        let until = Instant::now() + Duration::from_mins(2);
        while !has_ended() {
            assert!(Instant::now() < until, "the program outlives SIGKILL");
            std::thread::yield_now();
        }
    }
}

fn look() {
    let done = Command::new(env!("CARGO_BIN_EXE_softhca")).args(["run", "--", "true"]).status().unwrap();
    assert!(done.success());
}

/// An empty folder as a run of process `pid` makes it first.
fn empty_folder(pid: u32) -> PathBuf {
    let folder = run_folder(pid, 0x7e57);
    make_private(&folder).unwrap();
    folder
}

#[test]
fn the_next_run_removes_the_folders_of_killed_runs_and_keeps_those_of_live_ones() {
    let mut alive = Run::start("cat");
    // The first program waits; the second has joined the fabric, and closed all other descriptors that it inherited.
    let mut waiting = Run::start("exec cat");
    let script = "for fd in /proc/$$/fd/2??; do eval \"exec ${fd##*/}>&-\"; done; exec stdbuf -oL ibv_asyncwatch";
    let mut joined = Run::start(&format!("exec bash -c '{script}'"));
    let mut line = String::new();
    joined.output.read_line(&mut line).unwrap();
    assert!(line.contains("softhca0"), "it has opened the adapter: {line:?}");
    let inherited = std::fs::read_dir(format!("/proc/{}/fd", joined.program)).unwrap();
    assert!(!inherited.flatten().any(|entry| entry.file_name() == "200"));
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (abandoned, being_made) = (empty_folder(ended.id()), empty_folder(std::process::id()));
    // A named fabric with such a name is no run's.
    let named = named_folder(&format!("run-{}-mine", ended.id()));
    make_private(&named).unwrap();
    let exist = |folders: &[&Path]| folders.iter().map(|folder| folder.exists()).collect::<Vec<_>>();

    waiting.kill_command();
    joined.kill_command();
    look();
    assert_eq!(exist(&[&alive.folder, &waiting.folder, &joined.folder]), [true; 3], "their programs live");
    assert_eq!(exist(&[&abandoned, &being_made, &named]), [false, true, true]);

    waiting.kill_program();
    look();
    assert_eq!(exist(&[&alive.folder, &waiting.folder, &joined.folder]), [true, false, true]);

    joined.kill_program();
    look();
    assert!(!joined.folder.exists());

    for empty in [&being_made, &named] {
        std::fs::remove_dir(empty).unwrap();
    }
    drop(alive.input.take());
    assert!(alive.command.wait().unwrap().success());
    assert!(!alive.folder.exists(), "a run that ends removes its folder itself");
}
