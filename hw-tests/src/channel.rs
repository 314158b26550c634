// SPDX-License-Identifier: MIT OR Apache-2.0
//! The caller's end of a stream of frames: many jobs at a time over one connection to an agent.
//!
//! Used by [`crate::fabric`] (a guest's virtio-serial port, or pipes to the agent of this machine) and the guest's
//! `rsh` (TCP). Setup grade; a channel may be shared between threads. A thread reads the stream until it ends; jobs
//! that run then see their events end. Tests: at the end of this file, together with [`crate::agent`].

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, bail};

use crate::job::{Event, Job, Stream};
use crate::running::Running;
use crate::wire::{ENDED, Frame, HELLO, Hello, KILL, PROTOCOL, START, STDERR, STDOUT, STOP};

/// A connection to an agent.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
}

struct Shared {
    output: Mutex<Box<dyn Write + Send>>,
    jobs: Mutex<Jobs>,
}

/// The jobs that run, by number; `None` once the stream has ended.
struct Jobs {
    last: u32,
    running: Option<HashMap<u32, Sender<Event>>>,
}

/// Reads the agent's hello.
///
/// # Errors
/// The stream ends or fails first, the agent speaks another protocol, or its node is in trouble.
pub fn await_hello(input: &mut impl Read) -> anyhow::Result<()> {
    let Some(frame) = Frame::read(input).context("read the agent's hello")? else {
        bail!("the agent ended before it said hello");
    };
    if frame.kind != HELLO {
        bail!("the agent began with a frame of kind {}, not with its hello", frame.kind);
    }
    let hello: Hello = frame.json().context("read the agent's hello")?;
    if hello.protocol != PROTOCOL {
        let theirs = hello.protocol;
        bail!("the agent speaks protocol {theirs}, this program {PROTOCOL}; build the package ibex-hw-tests anew");
    }
    match hello.trouble {
        Some(trouble) => bail!("node {} cannot be used: {trouble}", hello.node),
        None => Ok(()),
    }
}

impl Channel {
    /// Waits for the agent's hello on `input` and takes jobs from then on.
    ///
    /// # Errors
    /// Those of [`await_hello`].
    pub fn over(mut input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> anyhow::Result<Self> {
        await_hello(&mut input)?;
        Ok(Self::greeted(input, output))
    }

    /// Takes jobs over a stream whose hello was read already, by [`await_hello`].
    #[must_use]
    pub fn greeted(mut input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> Self {
        let jobs = Jobs { last: 0, running: Some(HashMap::new()) };
        let shared = Arc::new(Shared { output: Mutex::new(Box::new(output)), jobs: Mutex::new(jobs) });
        let reader = Arc::clone(&shared);
        thread::spawn(move || {
            while let Ok(Some(frame)) = Frame::read(&mut input) {
                reader.take(&frame);
            }
            reader.jobs().running = None;
        });
        Self { shared }
    }

    /// Hands a job to the agent.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn start(&self, job: &Job) -> anyhow::Result<Running> {
        let (sender, events) = mpsc::channel();
        let number = self.shared.enter(sender).context("the node has ended; open the fabric anew")?;
        self.shared.send(&Frame::with_json(START, number, job)?)?;
        let shared = Arc::clone(&self.shared);
        // A failed send is ignored: if the stream has ended, the job has ended, too.
        let kill = move || drop(shared.send(&Frame::new(KILL, number, Vec::new())));
        Ok(Running::new(job, events, Box::new(kill)))
    }

    /// Asks the other side to end.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.shared.send(&Frame::new(STOP, 0, Vec::new()))
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.shared.jobs().running.is_none()
    }
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, frame: &Frame) -> anyhow::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        frame.write(&mut *output).context("the connection to the node is broken; open the fabric anew")
    }

    fn enter(&self, events: Sender<Event>) -> Option<u32> {
        let mut jobs = self.jobs();
        let number = jobs.last.wrapping_add(1);
        jobs.running.as_mut()?.insert(number, events);
        jobs.last = number;
        Some(number)
    }

    fn take(&self, frame: &Frame) {
        let mut jobs = self.jobs();
        let Some(running) = jobs.running.as_mut() else { return };
        let event = match frame.kind {
            STDOUT => Event::Wrote(Stream::Stdout, frame.body.clone()),
            STDERR => Event::Wrote(Stream::Stderr, frame.body.clone()),
            ENDED => match frame.json() {
                Ok((ending, elapsed)) => Event::Ended(ending, elapsed),
                // Without its ending a job's events end, which its waiter reports.
                Err(_) => return drop(running.remove(&frame.job)),
            },
            _ => return,
        };
        if let Some(events) = running.get(&frame.job) {
            // A job whose caller has gone runs on only until the kill that its drop sent arrives.
            let _ = events.send(event);
        }
        if frame.kind == ENDED {
            running.remove(&frame.job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Here, serve};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn agent(hello: Hello) -> UnixStream {
        let (here, there) = UnixStream::pair().unwrap();
        thread::spawn(move || serve(there.try_clone().unwrap(), there, &hello, &Here::default()));
        here
    }

    fn hello() -> Hello {
        Hello { protocol: PROTOCOL, node: 0, trouble: None }
    }

    fn channel() -> Channel {
        let stream = agent(hello());
        Channel::over(stream.try_clone().unwrap(), stream).unwrap()
    }

    #[test]
    fn two_jobs_run_at_the_same_time_over_one_channel() {
        let channel = channel();
        let folder = std::env::temp_dir().join(format!("hw-tests-channel-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe");
        let make = channel.start(&Job::new(["mkfifo", pipe.to_str().unwrap()])).unwrap().wait().unwrap();
        assert!(make.success(), "{make}");
        // Each end of a named pipe waits for the other: only jobs that overlap can end.
        let reader = channel.start(&Job::new(["cat", "pipe"]).cwd(&folder)).unwrap();
        let writer = channel.start(&Job::new(["sh", "-c", "echo through > pipe"]).cwd(&folder)).unwrap();
        assert_eq!(reader.wait().unwrap().stdout, "through\n");
        assert!(writer.wait().unwrap().success());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_agent_of_another_protocol_is_refused() {
        let stream = agent(Hello { protocol: PROTOCOL + 1, ..hello() });
        let refusal = Channel::over(stream.try_clone().unwrap(), stream).err().unwrap().to_string();
        assert!(refusal.contains("protocol 3"), "{refusal}");
    }

    #[test]
    fn a_node_in_trouble_says_which() {
        let stream = agent(Hello { trouble: Some("no rxe0".to_owned()), ..hello() });
        let refusal = Channel::over(stream.try_clone().unwrap(), stream).err().unwrap().to_string();
        assert!(refusal.contains("node 0 cannot be used: no rxe0"), "{refusal}");
    }

    #[test]
    fn jobs_end_when_their_caller_goes_away() {
        let stream = agent(hello());
        let channel = Channel::over(stream.try_clone().unwrap(), stream.try_clone().unwrap()).unwrap();
        let mut running = channel.start(&Job::new(["sh", "-c", "echo $$; sleep 1000"])).unwrap();
        let process = loop {
            let line = running.wait_for_line("", Duration::from_mins(2)).unwrap();
            if !line.is_empty() {
                break line;
            }
        };
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        let file = format!("/proc/{}/environ", process.trim());
        let until = std::time::Instant::now() + Duration::from_mins(2);
        while std::fs::read(&file).is_ok_and(|bytes| !bytes.is_empty()) {
            assert!(std::time::Instant::now() < until, "process {process} outlived its caller");
            thread::yield_now();
        }
    }
}
