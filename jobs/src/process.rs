// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a job on this machine: starts it, passes on its output, and ends all its processes.
//!
//! `mpirun` puts each rank in a process group of its own, so an environment variable marks the processes of a job: each
//! process hands it to its children, and `/proc/PID/environ` shows it. Setup grade; each job has four threads that end
//! with it (supervisor, waiter, one per stream). Tests: at the end of this file.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::job::{Ending, Event, Job, Stream};
use crate::pace::Pace;
use crate::running::Running;

/// Beginning of the name of the variable that marks a job. Each has its own: a job may run jobs.
const MARK: &str = "MARKED_JOB_";
/// Time that killed processes have to end, for which they need a processor.
const GOING: Duration = Duration::from_secs(30);
/// Time that processes have to end by themselves once they are asked to.
const ASKED: Duration = Duration::from_secs(10);
/// Longest time between two measurements of the time a job had.
const LOOKS: Duration = Duration::from_secs(1);

/// Ends its job; does nothing if the job has ended.
pub type Kill = Box<dyn Fn() + Send>;

/// What jobs run for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// A test. Only the time counts in which the job has the processors that it wants (`pace`), up to a bound of all
    /// time: a busy machine fails no test. The job has a process group of its own, and is ended by `SIGKILL`.
    Test,
    /// A measurement, which nobody may disturb by looking at processes: all time counts. An interrupt from the keyboard
    /// reaches the job, which stays in the caller's process group. It is ended by `SIGTERM`, so that `mpirun` ends its
    /// ranks on other hosts, and after ten seconds by `SIGKILL`.
    Measurement,
}

enum News {
    Exited(std::io::Result<ExitStatus>),
    KillAsked,
    StreamEnded,
}

/// Starts `job` on this machine.
#[must_use]
pub fn here(job: &Job, purpose: Purpose) -> Running {
    let (sender, events) = mpsc::channel();
    let kill = start(job, &[], purpose, sender);
    Running::new(job, events, kill)
}

/// Starts `job` here and reports to `events`: its output as it comes, and at last [`Event::Ended`]. A program that
/// cannot be started is an ending, not an error. The job's own variables override `inherited`.
#[must_use]
pub fn start(job: &Job, inherited: &[(String, String)], purpose: Purpose, events: Sender<Event>) -> Kill {
    let (news, hears) = mpsc::channel();
    let asked = news.clone();
    let began = Instant::now();
    let mark = new_mark();
    match spawn(job, inherited, purpose, &mark) {
        Ok(child) => {
            let limit = job.limit;
            thread::spawn(move || {
                let ending = supervise(child, &mark, (purpose, limit), &events, &news, &hears);
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
    format!("{}_{count}_{now}", std::process::id())
}

fn spawn(job: &Job, inherited: &[(String, String)], purpose: Purpose, mark: &str) -> Result<Child, String> {
    let Some((program, arguments)) = job.argv.split_first() else {
        return Err("the job has no program".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if job.input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.envs(inherited.iter().cloned()).envs(job.env.iter().cloned()).env(format!("{MARK}{mark}"), "");
    if let Some(folder) = &job.cwd {
        if !folder.is_dir() {
            return Err(format!("there is no folder {} to run {program} in", folder.display()));
        }
        command.current_dir(folder);
    }
    if purpose == Purpose::Test {
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
    if let (Some(pipe), Some(text)) = (&mut child.stdin, &job.input) {
        // Fails if the job has ended.
        let _ = pipe.write_all(text.as_bytes());
    }
    Ok(child)
}

fn supervise(
    mut child: Child,
    mark: &str,
    (purpose, limit): (Purpose, Duration),
    events: &Sender<Event>,
    news: &Sender<News>,
    hears: &Receiver<News>,
) -> Ending {
    // `wait` would close it.
    let _input = child.stdin.take();
    let stdout = child.stdout.take().map(|pipe| pass_on(pipe, Stream::Stdout, events, news));
    let stderr = child.stderr.take().map(|pipe| pass_on(pipe, Stream::Stderr, events, news));
    let mut open = [&stdout, &stderr].iter().filter(|thread| thread.is_some()).count();
    let exits = news.clone();
    thread::spawn(move || {
        let _ = exits.send(News::Exited(child.wait()));
    });
    let mut early = None;
    let mut pace = Pace::new();
    let is_test = purpose == Purpose::Test;
    let (entry, latest) = (entry(mark), Instant::now() + if is_test { limit * Job::CROWDED } else { limit });
    let look = (limit / 8).clamp(Duration::from_millis(10), LOOKS);
    let status = loop {
        match hears.recv_timeout(look) {
            Ok(News::Exited(status)) => break status,
            Ok(News::StreamEnded) => open -= 1,
            Ok(News::KillAsked) => {
                early.get_or_insert(Ending::Killed);
                end_marked(&entry, purpose);
            }
            Err(RecvTimeoutError::Timeout) => {
                let is_over = is_test && pace.own(&marked(&entry)) >= limit || Instant::now() >= latest;
                if early.is_some() || is_over {
                    early.get_or_insert(Ending::TimedOut);
                    end_marked(&entry, purpose);
                }
            }
            // Cannot happen while `news` lives.
            Err(RecvTimeoutError::Disconnected) => return Ending::Killed,
        }
    };
    // Processes that the job left behind hold its pipes open.
    end_marked(&entry, purpose);
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

/// Ends every process that carries the mark, until a search finds none: a process may fork during the search.
fn end_marked(entry: &str, purpose: Purpose) {
    let began = Instant::now();
    loop {
        let (found, passed) = (marked(entry), began.elapsed());
        if found.is_empty() || passed >= GOING {
            return;
        }
        let (signal, pause) = match purpose {
            Purpose::Measurement if passed < ASKED => (Signal::TERM, 100),
            _ => (Signal::KILL, 2),
        };
        for process in found {
            // Fails only for a process that has ended.
            let _ = kill_process(process, signal);
        }
        thread::sleep(Duration::from_millis(pause));
    }
}

fn entry(mark: &str) -> String {
    format!("{MARK}{mark}=")
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

    fn run(job: &Job) -> Outcome {
        here(job, Purpose::Test).wait().unwrap()
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
    fn a_program_or_a_folder_that_is_not_there_is_named() {
        let in_no_folder = shell("true").cwd("/no/folder");
        for (job, named) in [(Job::new(["/no/such/program"]), "/no/such/program"), (in_no_folder, "/no/folder")] {
            let outcome = run(&job);
            assert!(matches!(&outcome.ending, Ending::NotStarted(why) if why.contains(named)), "{outcome}");
        }
    }

    /// Runs a job whose limit is over when it has made the file `$SAID`, however long that takes. Returns its output.
    fn timed_out(script: &str, purpose: Purpose) -> String {
        let mark = new_mark();
        let said = std::env::temp_dir().join(format!("ibex-jobs-{mark}"));
        let child = spawn(&shell(script).env("SAID", said.to_str().unwrap()), &[], purpose, &mark).unwrap();
        while !said.exists() {
            thread::sleep(Duration::from_millis(1));
        }
        let ((events, told), (news, hears)) = (mpsc::channel(), mpsc::channel());
        assert_eq!(supervise(child, &mark, (purpose, Duration::ZERO), &events, &news, &hears), Ending::TimedOut);
        fs::remove_file(said).unwrap();
        let wrote = |event| if let Event::Wrote(Stream::Stdout, bytes) = event { bytes } else { Vec::new() };
        String::from_utf8(told.try_iter().flat_map(wrote).collect()).unwrap()
    }

    #[test]
    fn a_job_past_its_limit_ends_with_all_it_started_even_in_other_process_groups() {
        let output = timed_out("setsid sleep 1000 & echo $!; : > $SAID; sleep 1000", Purpose::Test);
        let child: i32 = output.trim().parse().expect("the job printed a process number");
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        assert!(status.is_empty() || status.contains("State:\tZ"), "process {child} still runs: {status}");
    }

    #[test]
    fn a_job_that_spins_past_its_limit_ends_too() {
        let outcome = run(&shell("while :; do :; done").limit(Duration::from_millis(300)));
        assert_eq!(outcome.ending, Ending::TimedOut);
    }

    #[test]
    fn processes_that_a_job_leaves_behind_are_ended_and_do_not_delay_its_end() {
        let outcome = run(&shell("setsid sleep 1000 & echo done"));
        assert_eq!((outcome.ending.clone(), outcome.stdout.as_str()), (Ending::Exited(0), "done\n"));
        assert!(outcome.elapsed < Duration::from_mins(15), "{outcome}");
    }

    #[test]
    fn a_job_can_be_killed_while_it_runs() {
        let mut running = here(&shell("echo up; sleep 1000"), Purpose::Test);
        running.wait_for_line("up", Duration::from_mins(2)).unwrap();
        running.kill();
        assert_eq!(running.wait().unwrap().ending, Ending::Killed);
    }

    #[test]
    fn a_measurement_is_asked_to_end_when_its_time_is_over_or_its_caller_has_waited_enough() {
        let script = "trap 'echo asked; exit' TERM; echo up; : > ${SAID:-/dev/null}; while :; do sleep 0.01; done";
        assert_eq!(timed_out(script, Purpose::Measurement), "up\nasked\n");
        let mut running = here(&shell(script), Purpose::Measurement);
        running.wait_for_line("up", Duration::from_mins(2)).unwrap();
        let outcome = running.wait_within(Duration::ZERO).unwrap();
        assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Killed, "up\nasked\n"));
    }

    #[test]
    fn the_input_of_a_job_stays_open_until_it_ends() {
        let job = Job { input: Some("go\n".to_owned()), ..shell("read word; echo $word; cat; echo over") };
        let mut running = here(&job, Purpose::Test);
        running.wait_for_line("go", Duration::from_mins(2)).unwrap();
        let outcome = running.wait_within(Duration::from_millis(50)).unwrap();
        assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Killed, "go\n"));
    }
}
