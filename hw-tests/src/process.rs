// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a job on this machine: starts it, passes on its output, and ends all its processes.
//!
//! [`crate::agent`] calls it. `mpirun` puts each rank in a process group of its own, so an environment variable marks
//! the processes of a job: each process hands it to its children, and `/proc/PID/environ` shows it. The job's limit is
//! of the time that [`crate::pace`] measures, with a bound for all time. Setup grade; each job has four threads that
//! end with it (supervisor, waiter, one per stream). Tests: at the end of this file.

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::job::{Ending, Event, Job, Stream};
use crate::pace::Pace;

const MARK: &str = "FABRIC_JOB";
/// Time that killed processes have to end, for which they need a processor.
const GOING: Duration = Duration::from_secs(30);
/// Longest time between two measurements of the time a job had.
const LOOKS: Duration = Duration::from_secs(1);

/// Ends its job; does nothing if the job has ended.
pub(crate) type Kill = Box<dyn Fn() + Send>;

enum News {
    Exited(std::io::Result<ExitStatus>),
    KillAsked,
    StreamEnded,
}

/// Starts `job` here and reports to `events`: its output as it comes, and at last [`Event::Ended`]. A program that
/// cannot be started is an ending, not an error. The job's own variables override `inherited`.
pub(crate) fn start(job: &Job, inherited: &[(String, String)], events: Sender<Event>) -> Kill {
    let (news, hears) = mpsc::channel();
    let asked = news.clone();
    let began = Instant::now();
    let mark = new_mark();
    match spawn(job, inherited, &mark) {
        Ok(child) => {
            let limit = job.limit;
            thread::spawn(move || {
                let ending = supervise(child, &mark, limit, &events, &news, &hears);
                // If the caller has dropped its end, nobody waits for the ending.
                let _ = events.send(Event::Ended(ending, began.elapsed()));
            });
        }
        Err(reason) => {
            let _ = events.send(Event::Ended(Ending::NotStarted(reason), began.elapsed()));
        }
    }
    Box::new(move || {
        // If the supervisor has ended, so has the job.
        let _ = asked.send(News::KillAsked);
    })
}

fn new_mark() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    format!("{}-{count}-{now}", std::process::id())
}

fn spawn(job: &Job, inherited: &[(String, String)], mark: &str) -> Result<Child, String> {
    let Some((program, arguments)) = job.argv.split_first() else {
        return Err("the job has no program".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(inherited.iter().cloned()).envs(job.env.iter().cloned()).env(MARK, mark);
    if let Some(folder) = &job.cwd {
        if !folder.is_dir() {
            return Err(format!("there is no folder {} to run {program} in", folder.display()));
        }
        command.current_dir(folder);
    }
    command.process_group(0).spawn().map_err(|error| format!("{program}: {error}"))
}

fn supervise(
    mut child: Child,
    mark: &str,
    limit: Duration,
    events: &Sender<Event>,
    news: &Sender<News>,
    hears: &Receiver<News>,
) -> Ending {
    let group = Pid::from_child(&child);
    let stdout = child.stdout.take().map(|pipe| pass_on(pipe, Stream::Stdout, events, news));
    let stderr = child.stderr.take().map(|pipe| pass_on(pipe, Stream::Stderr, events, news));
    let mut open = [&stdout, &stderr].iter().filter(|thread| thread.is_some()).count();
    let exits = news.clone();
    thread::spawn(move || {
        let _ = exits.send(News::Exited(child.wait()));
    });
    let mut early = None;
    let mut pace = Pace::new();
    let (entry, latest) = (entry(mark), Instant::now() + limit * Job::CROWDED);
    let look = (limit / 8).clamp(Duration::from_millis(10), LOOKS);
    let status = loop {
        match hears.recv_timeout(look) {
            Ok(News::Exited(status)) => break status,
            Ok(News::StreamEnded) => open -= 1,
            Ok(News::KillAsked) => {
                early.get_or_insert(Ending::Killed);
                kill_all(group, mark);
            }
            Err(RecvTimeoutError::Timeout) => {
                if early.is_some() || pace.own(&marked(&entry)) >= limit || Instant::now() >= latest {
                    early.get_or_insert(Ending::TimedOut);
                    kill_all(group, mark);
                }
            }
            // Cannot happen while `news` lives.
            Err(RecvTimeoutError::Disconnected) => return Ending::Killed,
        }
    };
    // Processes that the job left behind hold its pipes open.
    kill_marked(mark);
    let until = Instant::now() + GOING;
    while open > 0 {
        match hears.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(News::StreamEnded) => open -= 1,
            Ok(_) => {}
            // A process without the mark holds the pipe; the job's own output is complete.
            Err(_) => break,
        }
    }
    early.unwrap_or_else(|| match status {
        Ok(status) => ending_of(status),
        Err(error) => Ending::NotStarted(format!("its status cannot be read: {error}")),
    })
}

fn ending_of(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, Some(signal)) => Ending::Signaled(signal),
        (None, None) => Ending::NotStarted(format!("it has no status: {status}")),
    }
}

fn pass_on(
    mut pipe: impl Read + Send + 'static,
    stream: Stream,
    events: &Sender<Event>,
    news: &Sender<News>,
) -> JoinHandle<()> {
    let (events, news) = (events.clone(), news.clone());
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(got) = pipe.read(&mut buffer) {
            if got == 0 || events.send(Event::Wrote(stream, buffer[..got].to_vec())).is_err() {
                break;
            }
        }
        let _ = news.send(News::StreamEnded);
    })
}

fn kill_all(group: Pid, mark: &str) {
    // Fails only if the group has no process left.
    let _ = kill_process_group(group, Signal::KILL);
    kill_marked(mark);
}

/// Kills every process that carries `mark`, until a search finds none: a process may fork during the search.
fn kill_marked(mark: &str) {
    let entry = entry(mark);
    let until = Instant::now() + GOING;
    loop {
        let found = marked(&entry);
        if found.is_empty() || Instant::now() >= until {
            return;
        }
        for process in found {
            let _ = kill_process(process, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn entry(mark: &str) -> String {
    format!("{MARK}={mark}")
}

fn marked(entry: &str) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|folder| {
            let number: i32 = folder.file_name().to_str()?.parse().ok()?;
            carries(&folder.path(), entry).then(|| Pid::from_raw(number))?
        })
        .collect()
}

/// Whether the process of this `/proc` folder has the environment entry. An ended process has an empty environment.
fn carries(folder: &Path, entry: &str) -> bool {
    let environment = fs::read(folder.join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Outcome;
    use crate::running::Running;

    fn run(job: &Job) -> Outcome {
        started(job).wait().unwrap()
    }

    fn started(job: &Job) -> Running {
        let (sender, receiver) = mpsc::channel();
        let kill = start(job, &[], sender);
        Running::new(job, receiver, kill)
    }

    fn shell(script: &str) -> Job {
        Job::new(["sh", "-c", script]).limit(Duration::from_secs(30))
    }

    #[test]
    fn output_and_status_of_a_job_are_its_own() {
        let outcome = run(&shell("echo out; echo err >&2; echo $K; exit 7").env("K", "value"));
        assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Exited(7), "out\nvalue\n"));
        assert_eq!(outcome.stderr, "err\n");
    }

    #[test]
    fn a_signal_is_told_from_a_status() {
        assert_eq!(run(&shell("kill -SEGV $$")).ending, Ending::Signaled(11));
    }

    #[test]
    fn a_program_that_is_not_there_did_not_start() {
        let outcome = run(&Job::new(["/no/such/program"]));
        assert!(matches!(&outcome.ending, Ending::NotStarted(why) if why.contains("/no/such/program")), "{outcome}");
        assert_eq!(outcome.status(), 127);
    }

    #[test]
    fn a_job_past_its_limit_ends_with_all_it_started_even_in_other_process_groups() {
        let (mark, folder) = (new_mark(), crate::Folder::new("hw-tests-process").unwrap());
        let said = folder.file("said");
        let job = shell("setsid sleep 1000 & echo $!; : > $SAID; sleep 1000").env("SAID", said.to_str().unwrap());
        let child = spawn(&job, &[], &mark).unwrap();
        // The limit is over when the job has said what it started, however long that takes.
        while !said.exists() {
            thread::sleep(Duration::from_millis(1));
        }
        let ((events, told), (news, hears)) = (mpsc::channel(), mpsc::channel());
        assert_eq!(supervise(child, &mark, Duration::ZERO, &events, &news, &hears), Ending::TimedOut);
        let output: Vec<u8> = told
            .try_iter()
            .flat_map(|event| if let Event::Wrote(Stream::Stdout, bytes) = event { bytes } else { Vec::new() })
            .collect();
        let child: i32 = String::from_utf8(output).unwrap().trim().parse().expect("the job printed a process number");
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        assert!(status.is_empty() || status.contains("State:\tZ"), "process {child} still runs: {status}");
    }

    #[test]
    fn a_job_that_spins_past_its_limit_ends_too() {
        let outcome = run(&shell("while :; do :; done").limit(Duration::from_millis(300)));
        assert_eq!(outcome.ending, Ending::TimedOut);
    }

    #[test]
    fn what_a_job_leaves_behind_is_ended_and_does_not_hold_up_its_ending() {
        let outcome = run(&shell("setsid sleep 1000 & echo done"));
        assert_eq!((outcome.ending.clone(), outcome.stdout.as_str()), (Ending::Exited(0), "done\n"));
        assert!(outcome.elapsed < Duration::from_mins(15), "{outcome}");
    }

    #[test]
    fn a_job_can_be_killed_while_it_runs() {
        let mut running = started(&shell("echo up; sleep 1000"));
        running.wait_for_line("up", Duration::from_mins(2)).unwrap();
        running.kill();
        assert_eq!(running.wait().unwrap().ending, Ending::Killed);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let outcome = run(&shell("true").cwd("/no/such/folder"));
        assert!(matches!(&outcome.ending, Ending::NotStarted(why) if why.contains("/no/such/folder")), "{outcome}");
    }
}
