// SPDX-License-Identifier: MIT OR Apache-2.0
//! The caller's end of a connection to an agent: many jobs at a time over one stream.
//!
//! [`crate::fabric`] and the guest's `rsh` use it. Setup grade; threads may share a channel. One thread reads the
//! stream; when it ends, so do the events of all jobs. Tests: at the end of this file, together with [`crate::agent`].

use std::collections::HashMap;
use std::io::Write;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, bail};
use ibex_jobs::{Event, Job, Running};

use crate::wire::{self, Message, Messages, PROTOCOL};

#[derive(Clone)]
pub(crate) struct Channel {
    shared: Arc<Shared>,
}

struct Shared {
    output: Mutex<Box<dyn Write + Send>>,
    jobs: Mutex<Jobs>,
}

/// The running jobs by number; `None` once the stream has ended.
struct Jobs {
    last: u32,
    running: Option<HashMap<u32, Sender<Event>>>,
}

/// Reads the agent's hello; fails if the agent speaks another protocol or reports trouble of its node.
pub(crate) fn await_hello(messages: &mut Messages) -> anyhow::Result<()> {
    let first = messages.next().context("the agent ended before it said hello")?.context("read the agent's hello")?;
    let Message::Hello(hello) = first else { bail!("the agent began with {first:?}, not with its hello") };
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
    pub(crate) fn over(mut messages: Messages, output: impl Write + Send + 'static) -> anyhow::Result<Self> {
        await_hello(&mut messages)?;
        Ok(Self::greeted(messages, output))
    }

    /// Takes jobs over a stream whose hello [`await_hello`] has read.
    pub(crate) fn greeted(messages: Messages, output: impl Write + Send + 'static) -> Self {
        let jobs = Jobs { last: 0, running: Some(HashMap::new()) };
        let shared = Arc::new(Shared { output: Mutex::new(Box::new(output)), jobs: Mutex::new(jobs) });
        let reader = Arc::clone(&shared);
        thread::spawn(move || {
            messages.map_while(Result::ok).for_each(|message| reader.take(message));
            reader.jobs().running = None;
        });
        Self { shared }
    }

    pub(crate) fn start(&self, job: &Job) -> anyhow::Result<Running> {
        let (sender, events) = mpsc::channel();
        let number = self.shared.enter(sender).context("the node has ended; open the fabric anew")?;
        self.shared.send(&Message::Start(number, job.clone()))?;
        let shared = Arc::clone(&self.shared);
        // If the send fails the stream has ended, and with it the job.
        let kill = move || drop(shared.send(&Message::Kill(number)));
        Ok(Running::new(job, events, Box::new(kill)))
    }

    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        self.shared.send(&Message::Stop)
    }

    pub(crate) fn ended(&self) -> bool {
        self.shared.jobs().running.is_none()
    }
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: &Message) -> anyhow::Result<()> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        wire::write(&mut *output, message).context("the connection to the node is broken; open the fabric anew")
    }

    fn enter(&self, events: Sender<Event>) -> Option<u32> {
        let mut jobs = self.jobs();
        let number = jobs.last.wrapping_add(1);
        jobs.running.as_mut()?.insert(number, events);
        jobs.last = number;
        Some(number)
    }

    fn take(&self, message: Message) {
        let Message::Told(number, event) = message else { return };
        let mut jobs = self.jobs();
        let Some(running) = jobs.running.as_mut() else { return };
        let ends = matches!(event, Event::Ended(..));
        if let Some(events) = running.get(&number) {
            // A dropped `Running` has sent a kill: its job runs on only until that arrives.
            let _ = events.send(event);
        }
        if ends {
            running.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Folder;
    use crate::agent::{Here, serve};
    use crate::wire::Hello;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn agent(hello: Hello) -> UnixStream {
        let (here, there) = UnixStream::pair().unwrap();
        thread::spawn(move || serve(there.try_clone().unwrap(), there, hello, &Here::default()));
        here
    }

    fn over(stream: &UnixStream) -> anyhow::Result<Channel> {
        Channel::over(wire::read(stream.try_clone().unwrap()), stream.try_clone().unwrap())
    }

    fn hello() -> Hello {
        Hello { protocol: PROTOCOL, node: 0, trouble: None }
    }

    fn channel() -> Channel {
        over(&agent(hello())).unwrap()
    }

    #[test]
    fn two_jobs_run_at_the_same_time_over_one_channel() {
        let channel = channel();
        let folder = Folder::new("hw-tests-channel").unwrap();
        let pipe = folder.file("pipe");
        let make = channel.start(&Job::new(["mkfifo", pipe.to_str().unwrap()])).unwrap().wait().unwrap();
        assert!(make.success(), "{make}");
        // Each end of a named pipe waits for the other, so these jobs end only if they overlap.
        let reader = channel.start(&Job::new(["cat", "pipe"]).cwd(folder.path())).unwrap();
        let writer = channel.start(&Job::new(["sh", "-c", "echo through > pipe"]).cwd(folder.path())).unwrap();
        assert_eq!(reader.wait().unwrap().stdout, "through\n");
        assert!(writer.wait().unwrap().success());
    }

    #[test]
    fn an_agent_of_another_protocol_is_refused() {
        let stream = agent(Hello { protocol: PROTOCOL + 1, ..hello() });
        let refusal = over(&stream).err().unwrap().to_string();
        assert!(refusal.contains("protocol 4"), "{refusal}");
    }

    #[test]
    fn a_node_in_trouble_says_which() {
        let stream = agent(Hello { trouble: Some("no rxe0".to_owned()), ..hello() });
        let refusal = over(&stream).err().unwrap().to_string();
        assert!(refusal.contains("node 0 cannot be used: no rxe0"), "{refusal}");
    }

    #[test]
    fn jobs_end_when_their_caller_goes_away() {
        let stream = agent(hello());
        let channel = over(&stream).unwrap();
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
