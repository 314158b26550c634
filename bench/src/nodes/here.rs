// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs jobs on this machine, and ends all processes that they started. `mpirun` gives each rank a process group of its
//! own, so a group does not hold a job together. But each process hands its environment to its children, so a variable
//! with a value of its own marks the job. An interrupt from the keyboard reaches a job, which stays in the group of
//! this program. Called by `ibex bench`, and by [`super::hosts`]. Grade: setup; two threads per job. Tests: below.

use super::job::{Job, Nodes, Outcome, Stream};
use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};
use which::which;

/// Whether a program of that name is in `PATH`.
#[must_use]
pub fn is_in_path(program: &str) -> bool {
    which(program).is_ok()
}

/// This machine.
#[derive(Clone, Copy, Debug)]
pub struct Here;

impl Nodes for Here {
    fn run(&self, job: &Job, line: &mut dyn FnMut(Stream, &str)) -> Result<Outcome> {
        Ok(match Started::new(job, Stdio::null()) {
            Ok(started) => started.wait(line),
            Err(error) => Outcome { shown: format!("{error:#}"), ..Outcome::default() },
        })
    }
}

const MARK: &str = "IBEX_BENCH_JOB";

/// Time that a job gets to end when asked; `mpirun` ends its ranks on other hosts in this time.
const GOING: Duration = Duration::from_secs(10);

/// Interval of the checks whether a silent job has ended.
const LOOK: Duration = Duration::from_millis(100);

/// A job that runs; dropping it ends it.
pub(crate) struct Started {
    child: Child,
    command: String,
    mark: String,
    began: Instant,
    limit: Duration,
    lines: Receiver<(Stream, String)>,
    outcome: Outcome,
    ended: bool,
}

impl Started {
    pub(crate) fn new(job: &Job, stdin: Stdio) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let Some((program, arguments)) = job.argv.split_first() else { bail!("the job has no program") };
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(program);
        command.args(arguments).envs(job.env.iter().cloned()).env(MARK, &mark);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let words = job.argv.join(" ");
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => bail!("`{words}` could not be started: {error}"),
        };
        let (sender, lines) = mpsc::channel();
        if let Some(pipe) = child.stdout.take() {
            pass_on(pipe, Stream::Stdout, sender.clone());
        }
        if let Some(pipe) = child.stderr.take() {
            pass_on(pipe, Stream::Stderr, sender);
        }
        let (began, limit) = (Instant::now(), job.limit);
        Ok(Self { child, command: words, mark, began, limit, lines, outcome: Outcome::default(), ended: false })
    }

    /// Writes to the job's standard input, which stays open until this is dropped.
    pub(crate) fn tell(&mut self, text: &str) {
        if let Some(stdin) = &mut self.child.stdin {
            // `wait` notices a job that has ended.
            let _ = stdin.write_all(text.as_bytes());
        }
    }

    /// Waits until the job prints such a line. Returns whether it did.
    pub(crate) fn prints(&mut self, wanted: &str) -> bool {
        while let Some((stream, text)) = self.next() {
            self.keep(stream, &text);
            if text == wanted {
                return true;
            }
        }
        false
    }

    pub(crate) fn ends_within(&mut self, time: Duration) {
        self.limit = self.limit.min(self.began.elapsed() + time);
    }

    /// Waits for the job's end, at most until its limit.
    pub(crate) fn wait(mut self, line: &mut dyn FnMut(Stream, &str)) -> Outcome {
        while let Some((stream, text)) = self.next() {
            self.keep(stream, &text);
            line(stream, &text);
        }
        let status = self.status();
        self.ended = true;
        let ending = match status {
            Some(status) => format!("ended with {status}"),
            None => "reached its time limit and was ended".to_owned(),
        };
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.success = status.is_some_and(|status| status.success());
        outcome.shown = format!("`{}` {ending} after {:.1} s", self.command, self.began.elapsed().as_secs_f64());
        for (name, text) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
            if !text.trim().is_empty() {
                let printed = last_lines(text, 40);
                outcome.shown = outcome.shown + "\n--- " + name + " ---\n" + &printed;
            }
        }
        outcome
    }

    /// Returns the job's next line; `None` once it has ended, or has no time left.
    fn next(&mut self) -> Option<(Stream, String)> {
        let mut exited = None;
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok(line) => return Some(line),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.began.elapsed() >= self.limit {
                return None;
            }
            // Processes that the job has left may hold its pipes; their content has been read by then.
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                let since = *exited.get_or_insert_with(Instant::now);
                if since.elapsed() >= 10 * LOOK {
                    return None;
                }
            }
        }
    }

    fn keep(&mut self, stream: Stream, text: &str) {
        let all = match stream {
            Stream::Stdout => &mut self.outcome.stdout,
            Stream::Stderr => &mut self.outcome.stderr,
        };
        all.push_str(text);
        all.push('\n');
    }

    /// Returns the job's status if it ended before its limit. All processes that it started have ended then.
    fn status(&mut self) -> Option<ExitStatus> {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if self.began.elapsed() < self.limit => thread::sleep(LOOK / 10),
                _ => break None,
            }
        };
        self.end();
        status
    }

    /// Asks all processes of the job to end, and kills those that do not.
    fn end(&mut self) {
        let until = Instant::now() + GOING;
        let mut signal = Signal::TERM;
        loop {
            let gone = !matches!(self.child.try_wait(), Ok(None));
            let left = marked(&self.mark);
            if gone && left.is_empty() || Instant::now() >= until + GOING {
                return;
            }
            if Instant::now() >= until {
                signal = Signal::KILL;
            }
            // Fails only for a process that has ended.
            for process in left {
                let _ = kill_process(process, signal);
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.ended {
            self.end();
        }
    }
}

fn pass_on(pipe: impl Read + Send + 'static, stream: Stream, lines: Sender<(Stream, String)>) {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while matches!(pipe.read_until(b'\n', &mut line), Ok(count) if count > 0) {
            let text = String::from_utf8_lossy(&line);
            let sent = lines.send((stream, text.trim_end_matches(['\n', '\r']).to_owned()));
            if sent.is_err() {
                return;
            }
            line.clear();
        }
    });
}

fn marked(mark: &str) -> Vec<Pid> {
    let entry = format!("{MARK}={mark}");
    let process = |folder: fs::DirEntry| {
        let number: i32 = folder.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(folder.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes()).then(|| Pid::from_raw(number))?
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(process).collect()
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Job {
        Job::new(["sh", "-c", script])
    }

    fn run(job: &Job) -> Outcome {
        Here.run(job, &mut |_, _| {}).unwrap()
    }

    /// A process that has ended may still be there for its parent.
    fn has_ended(process: &str) -> bool {
        let state = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    }

    #[test]
    fn a_job_is_shown_with_its_status_and_what_it_printed() {
        let mut lines = Vec::new();
        let job = Job { env: vec![("WORD".to_owned(), "b".to_owned())], ..shell("echo a; echo $WORD >&2; exit 3") };
        let outcome = Here.run(&job, &mut |stream, line| lines.push((stream, line.to_owned()))).unwrap();
        assert!(!outcome.success && outcome.shown.contains("exit status: 3"), "{}", outcome.shown);
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("a\n", "b\n"));
        assert!(lines.contains(&(Stream::Stdout, "a".to_owned())) && lines.contains(&(Stream::Stderr, "b".to_owned())));
        assert!(run(&shell("true")).success);
    }

    #[test]
    fn a_program_that_is_not_there_is_a_job_that_failed() {
        let outcome = run(&Job::new(["no-such-program-of-ibex"]));
        assert!(!outcome.success && outcome.shown.contains("could not be started"), "{}", outcome.shown);
    }

    #[test]
    fn a_job_without_time_left_is_ended_with_all_that_it_started() {
        let mut started = Started::new(&shell("setsid sleep 1000 & echo $!; echo up; wait"), Stdio::null()).unwrap();
        assert!(started.prints("up"));
        started.ends_within(Duration::ZERO);
        let outcome = started.wait(&mut |_, _| {});
        assert!(!outcome.success && outcome.shown.contains("time limit"), "{}", outcome.shown);
        let child = outcome.stdout.lines().next().unwrap();
        assert!(has_ended(child));
    }

    #[test]
    fn what_a_job_leaves_behind_is_ended() {
        let outcome = run(&shell("setsid sleep 1000 & echo $!"));
        assert!(outcome.success, "{}", outcome.shown);
        assert!(has_ended(outcome.stdout.trim()));
    }

    #[test]
    fn a_job_that_is_dropped_is_ended_and_what_it_reads_stays_open_until_then() {
        let mut started = Started::new(&shell("read word; echo $word; cat; echo over"), Stdio::piped()).unwrap();
        started.tell("go\n");
        assert!(started.prints("go"));
        let process = started.child.id().to_string();
        drop(started);
        assert!(has_ended(&process));
    }
}
