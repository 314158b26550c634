// SPDX-License-Identifier: MIT OR Apache-2.0
//! An agent on a host: started, asked, and waited for no longer than it may take.
//!
//! Two threads read what it prints, so that a host that hangs holds nobody up. What began it is ended with it. Called
//! by `session`. Grade: setup. Tests: below.

use super::finding::Finding;
use super::launch::Launch;
use super::talk::{self, Answer, Ask};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How many lines of others are kept, for who asks what went wrong.
const LINES: usize = 40;

/// How long an agent that has ended, or was told so, may take until its program has.
const PARTING: Duration = Duration::from_secs(2);

/// What it printed that is no answer.
type Said = Arc<Mutex<VecDeque<String>>>;

/// An agent.
pub(super) struct Remote {
    /// The host, as the user named it.
    pub(super) name: String,
    launch: Launch,
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Result<Answer, String>>,
    said: Said,
    /// Ends when no more is said of what goes wrong.
    complaints: Receiver<()>,
}

impl Remote {
    /// Starts it.
    ///
    /// # Errors
    /// What starts it is not there.
    pub(super) fn start(name: &str, launch: Launch, script: &str) -> Result<Self, Finding> {
        // It would be an option of ssh.
        if name.is_empty() || name.starts_with('-') {
            return Err(launch.failure(name, "", "this is no name of a host"));
        }
        // `localhost (2)`: the second of that name.
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

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// It has ended, says what is not understood, or does not answer within so long.
    pub(super) fn ask(&mut self, ask: &Ask, within: Duration) -> Result<Answer, Finding> {
        let line = talk::line(ask).unwrap_or_default();
        // What it is to be told and cannot take shows as an answer that does not come.
        let _ = self.input.as_mut().map(|input| input.write_all(line.as_bytes()).and_then(|()| input.flush()));
        self.hear(within)
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) fn hear(&mut self, within: Duration) -> Result<Answer, Finding> {
        let why = match self.answers.recv_timeout(within) {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(why)) => format!("its ibex is another one: {why}"),
            Err(RecvTimeoutError::Timeout) => {
                format!("it has said nothing for {} s (--patience)", within.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                // What went wrong may be said last.
                let _ = self.complaints.recv_timeout(PARTING);
                self.ended()
            }
        };
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = said.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        Err(self.launch.failure(&self.name, &said, &why))
    }

    /// How the program ended, if it has.
    fn ended(&mut self) -> String {
        let end = Instant::now() + PARTING;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("ended with {status}"),
                Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(10)),
                _ => return "it says no more".to_owned(),
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // An agent ends with its input.
        self.input = None;
        self.ended();
        // It may have ended meanwhile: that is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes answers on, and keeps the last lines of what is none.
fn hear(output: impl Read, answers: Option<&Sender<Result<Answer, String>>>, said: &Said) {
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if let Some((answers, answer)) = answers.zip(talk::read(&line)) {
            // Nobody waits any more: then nobody wants it.
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
    fn answers_are_found_among_what_else_is_printed() {
        let mut remote = remote("echo Welcome; read ask; echo 'ibex-doctor: {\"Known\":{\"failures\":[]}}'");
        let answer = remote.ask(&Ask::Know(Vec::new()), Duration::from_mins(1)).expect("an answer");
        assert!(matches!(answer, Answer::Known { .. }));
    }

    #[test]
    fn a_host_that_hangs_or_ends_is_told_and_holds_nobody_up() {
        let silent = remote("exec sleep 1000").hear(Duration::from_millis(50)).expect_err("silence");
        assert!(silent.measured.contains("it has said nothing for 0 s"), "{silent:?}");
        let ended = remote("echo Permission denied >&2; exit 255").hear(Duration::from_mins(1)).expect_err("an end");
        assert!(ended.measured.contains("255"), "{ended:?}");
        let other = remote("echo 'ibex-doctor: {\"New\":1}'").hear(Duration::from_mins(1)).expect_err("not understood");
        assert!(other.measured.contains("another one"), "{other:?}");
        assert!(Remote::start("-oProxyCommand=x", Launch::Ssh, "").is_err());
    }
}
