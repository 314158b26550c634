// SPDX-License-Identifier: MIT OR Apache-2.0
//! The doctor's connection to an agent on a host, with a time limit for each answer. Two threads read the agent's
//! output, so a host that hangs delays no other. The launcher ends with the connection. Called by `session`. Grade:
//! setup. Tests: below.

use super::finding::Finding;
use super::launch::Launch;
use super::protocol::{self, Answer, Ask};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Number of lines kept to explain a failure.
const LINES: usize = 40;

/// Time for the rest of a program's output, and for an agent to end once its input has ended.
const PARTING: Duration = Duration::from_secs(2);

/// Time for a program that has closed its output to end: it needs only a processor, which a busy host gives late.
const ENDING: Duration = Duration::from_mins(1);

/// Printed lines that are no answers.
type Said = Arc<Mutex<VecDeque<String>>>;

pub(super) struct Remote {
    pub(super) name: String,
    launch: Launch,
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Result<Answer, String>>,
    said: Said,
    complaints: Receiver<()>,
}

impl Remote {
    pub(super) fn start(name: &str, launch: Launch, script: &str) -> Result<Self, Finding> {
        // ssh would take it for an option.
        if name.is_empty() || name.starts_with('-') {
            return Err(launch.failure(name, "", "this is not a host name"));
        }
        // `localhost (2)` is the second host of that name.
        let host = name.split(' ').next().unwrap_or(name);
        Self::run(name, launch, launch.command(host, script))
    }

    fn run(name: &str, launch: Launch, mut command: Command) -> Result<Self, Finding> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .spawn()
            .map_err(|error| launch.failure(name, "", &format!("{program} cannot be started: {error}")))?;
        let (sender, answers) = mpsc::channel();
        let said = Said::default();
        if let Some(output) = child.stdout.take() {
            let said = Arc::clone(&said);
            thread::spawn(move || hear(output, Some(&sender), &said));
        }
        let (complaining, complaints) = mpsc::channel();
        if let Some(output) = child.stderr.take() {
            let said = Arc::clone(&said);
            thread::spawn(move || {
                hear(output, None, &said);
                drop(complaining);
            });
        }
        Ok(Remote { name: name.to_owned(), launch, input: child.stdin.take(), child, answers, said, complaints })
    }

    pub(super) fn ask(&mut self, ask: &Ask, within: Duration) -> Result<Answer, Finding> {
        let line = protocol::line(ask).unwrap_or_default();
        let _ = self.input.as_mut().map(|input| input.write_all(line.as_bytes()).and_then(|()| input.flush()));
        self.hear(within)
    }

    pub(super) fn hear(&mut self, within: Duration) -> Result<Answer, Finding> {
        let why = match self.answers.recv_timeout(within) {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(why)) => format!("its ibex has another version: {why}"),
            Err(RecvTimeoutError::Timeout) => {
                format!("it has not answered for {} s (--patience)", within.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                // The reason may be in the last lines.
                let _ = self.complaints.recv_timeout(PARTING);
                self.ended(ENDING)
            }
        };
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = said.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        Err(self.launch.failure(&self.name, &said, &why))
    }

    /// Returns how the program ended, or that it has not.
    fn ended(&mut self, within: Duration) -> String {
        let end = Instant::now() + within;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("ended with {status}"),
                Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(10)),
                _ => return "it stopped answering".to_owned(),
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // An agent ends with its input.
        self.input = None;
        self.ended(PARTING);
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Forwards answers, and keeps the last lines of other output.
fn hear(output: impl Read, answers: Option<&Sender<Result<Answer, String>>>, said: &Said) {
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if let Some((answers, answer)) = answers.zip(protocol::read(&line)) {
            // Fails if the receiver has gone.
            let _ = answers.send(answer.map_err(|error| format!("{error:#}")));
            continue;
        }
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.push_back(line.into_owned());
        while said.len() > LINES {
            said.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(script: &str) -> Remote {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Remote::run("node1", Launch::Ssh, command).expect("a shell")
    }

    #[test]
    fn answers_are_found_among_other_output() {
        let mut remote = remote("echo Welcome; read ask; echo 'ibex-doctor: {\"Known\":{\"failures\":[]}}'");
        let answer = remote.ask(&Ask::Know(Vec::new()), Duration::from_mins(1)).expect("an answer");
        assert!(matches!(answer, Answer::Known { .. }));
    }

    #[test]
    fn a_host_that_hangs_or_ends_is_a_finding_and_delays_no_other() {
        let silent = remote("exec sleep 1000").hear(Duration::from_millis(50)).expect_err("silence");
        assert!(silent.measured.contains("it has not answered for 0 s"), "{silent:?}");
        let ended = remote("echo Permission denied >&2; exit 255").hear(Duration::from_mins(1)).expect_err("an end");
        assert!(ended.measured.contains("255"), "{ended:?}");
        let other = remote("echo 'ibex-doctor: {\"New\":1}'").hear(Duration::from_mins(1)).expect_err("not understood");
        assert!(other.measured.contains("another version"), "{other:?}");
        assert!(Remote::start("-oProxyCommand=x", Launch::Ssh, "").is_err());
    }
}
