// SPDX-License-Identifier: MIT OR Apache-2.0
//! A started job: waits for lines of its output or for its end, and kills it. Setup grade; a `Running` belongs to one
//! thread at a time. Tests: at the end of this file.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::job::{Ending, Event, Job, Outcome, Stream, printed};
use crate::process::Kill;

/// A started job, which is killed if this is dropped before it ended.
pub struct Running {
    command: String,
    deadline: Instant,
    events: Receiver<Event>,
    kill: Kill,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    ended: Option<(Ending, Duration)>,
}

impl Running {
    /// Time that the node may take, after the longest time of a job, to kill it and report; later it counts as stuck.
    const GRACE: Duration = Duration::from_mins(2);

    /// Makes it of the events of a started job, and of a function that asks its node to kill it.
    #[must_use]
    pub fn new(job: &Job, events: Receiver<Event>, kill: Kill) -> Self {
        Self {
            command: job.argv.join(" "),
            deadline: Instant::now() + job.limit * Job::CROWDED + Self::GRACE,
            events,
            kill,
            stdout: Vec::new(),
            stderr: Vec::new(),
            ended: None,
        }
    }

    /// Asks the node to kill all processes of the job; [`Running::wait`] then returns soon.
    pub fn kill(&self) {
        (self.kill)();
    }

    /// Waits for the end of the job.
    ///
    /// # Errors
    /// The node is gone, or reported nothing until long after the job's limit.
    pub fn wait(self) -> anyhow::Result<Outcome> {
        self.wait_with(|_, _| {})
    }

    /// Waits for the end of the job, and kills it if it has not ended after `time`.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn wait_within(mut self, time: Duration) -> anyhow::Result<Outcome> {
        let until = Instant::now() + time;
        while self.ended.is_none() && Instant::now() < until {
            self.next_event(until)?;
        }
        if self.ended.is_none() {
            self.kill();
        }
        self.wait()
    }

    /// Waits for the end of the job and calls `line` with each complete line of output, without its newline.
    ///
    /// # Errors
    /// As [`Running::wait`].
    pub fn wait_with(mut self, mut line: impl FnMut(Stream, &str)) -> anyhow::Result<Outcome> {
        let mut seen = (0, 0);
        loop {
            let ended = self.ended.is_some();
            seen.0 = give_lines(&self.stdout, seen.0, ended, |text| line(Stream::Stdout, text));
            seen.1 = give_lines(&self.stderr, seen.1, ended, |text| line(Stream::Stderr, text));
            if ended {
                return self.into_outcome();
            }
            self.next_event(self.deadline)?;
        }
    }

    /// Waits for a line of standard output that contains `part`, and returns it.
    ///
    /// # Errors
    /// The job ended without such a line, or `limit` passed first; the message shows what the job printed.
    pub fn wait_for_line(&mut self, part: &str, limit: Duration) -> anyhow::Result<String> {
        let until = Instant::now() + limit;
        loop {
            let text = String::from_utf8_lossy(&self.stdout);
            let complete = text.rfind('\n').map_or("", |end| &text[..end]);
            if let Some(found) = complete.lines().find(|line| line.contains(part)) {
                return Ok(found.to_owned());
            }
            let (command, printed) = (&self.command, || printed(&text, &String::from_utf8_lossy(&self.stderr)));
            if let Some((ending, _)) = &self.ended {
                bail!("`{command}` {ending} before it printed {part:?}{}", printed());
            }
            if Instant::now() >= until {
                bail!("`{command}` did not print {part:?} within {limit:?}{}", printed());
            }
            self.next_event(until)?;
        }
    }

    /// Waits until the job has printed `part`, to either stream, or has ended.
    ///
    /// # Errors
    /// The node does not answer.
    pub fn wait_for_text(&mut self, part: &str) -> anyhow::Result<()> {
        let has = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(part);
        while self.ended.is_none() && !has(&self.stdout) && !has(&self.stderr) {
            self.next_event(self.deadline)?;
        }
        Ok(())
    }

    /// Takes in one event, or returns when `until` has passed, if that is before the node's own deadline.
    fn next_event(&mut self, until: Instant) -> anyhow::Result<()> {
        let until = until.min(self.deadline);
        match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Wrote(Stream::Stdout, bytes)) => self.stdout.extend(bytes),
            Ok(Event::Wrote(Stream::Stderr, bytes)) => self.stderr.extend(bytes),
            Ok(Event::Ended(ending, elapsed)) => self.ended = Some((ending, elapsed)),
            Err(RecvTimeoutError::Timeout) if until < self.deadline => {}
            Err(RecvTimeoutError::Timeout) => bail!(
                "the node does not answer: `{}` should have been killed {} s ago; the fabric must be opened anew",
                self.command,
                Self::GRACE.as_secs()
            ),
            Err(RecvTimeoutError::Disconnected) => bail!("the node ended while `{}` ran in it", self.command),
        }
        Ok(())
    }

    fn into_outcome(mut self) -> anyhow::Result<Outcome> {
        let Some((ending, elapsed)) = self.ended.clone() else {
            bail!("`{}` has not ended", self.command);
        };
        Ok(Outcome {
            command: std::mem::take(&mut self.command),
            ending,
            stdout: String::from_utf8_lossy(&self.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&self.stderr).into_owned(),
            elapsed,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
        }
    }
}

/// Calls `line` with the complete lines of `bytes` from `from` on; with `all`, also with an incomplete last one.
fn give_lines(bytes: &[u8], mut from: usize, all: bool, mut line: impl FnMut(&str)) -> usize {
    while let Some(length) = bytes[from..].iter().position(|byte| *byte == b'\n') {
        line(&String::from_utf8_lossy(&bytes[from..from + length]));
        from += length + 1;
    }
    if all && from < bytes.len() {
        line(&String::from_utf8_lossy(&bytes[from..]));
        from = bytes.len();
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    fn started(events: Vec<Event>) -> (Running, Arc<AtomicBool>) {
        let (sender, receiver) = mpsc::channel();
        for event in events {
            sender.send(event).unwrap();
        }
        let killed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&killed);
        let kill = Box::new(move || flag.store(true, Ordering::SeqCst));
        (Running::new(&Job::new(["x"]), receiver, kill), killed)
    }

    fn wrote(text: &str) -> Event {
        Event::Wrote(Stream::Stdout, text.as_bytes().to_vec())
    }

    #[test]
    fn lines_are_given_whole_however_the_bytes_arrive() {
        let ended = Event::Ended(Ending::Exited(3), Duration::from_secs(1));
        let (running, _) = started(vec![wrote("on"), wrote("e\ntwo\nth"), wrote("ree"), ended]);
        let mut lines = Vec::new();
        let outcome = running.wait_with(|_, line| lines.push(line.to_owned())).unwrap();
        assert_eq!(lines, ["one", "two", "three"]);
        assert_eq!((outcome.status(), outcome.stdout.as_str()), (3, "one\ntwo\nthree"));
    }

    #[test]
    fn a_line_can_be_awaited_and_the_job_goes_on() {
        let ended = Event::Ended(Ending::Exited(0), Duration::ZERO);
        let (mut running, _) = started(vec![wrote("a\nready 17\n"), ended]);
        assert_eq!(running.wait_for_line("ready", Duration::from_secs(5)).unwrap(), "ready 17");
        assert!(running.wait().unwrap().success());
    }

    #[test]
    fn a_line_that_never_comes_is_an_error_that_shows_the_output() {
        let ended = Event::Ended(Ending::Exited(1), Duration::ZERO);
        let (mut running, _) = started(vec![wrote("no such device\n"), ended]);
        let refusal = running.wait_for_line("ready", Duration::from_secs(5)).unwrap_err().to_string();
        assert!(refusal.contains("no such device") && refusal.contains("status 1"), "{refusal}");
    }

    #[test]
    fn a_job_dropped_before_its_end_is_killed() {
        let (running, killed) = started(vec![]);
        drop(running);
        assert!(killed.load(Ordering::SeqCst));
    }

    #[test]
    fn a_node_that_goes_away_is_an_error() {
        let (running, _) = started(vec![wrote("a")]);
        assert!(running.wait().unwrap_err().to_string().contains("the node ended"));
    }
}
