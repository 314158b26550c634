// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages between a fabric and the agent of a node: JSON values over a virtio-serial port, TCP or pipes. Setup
//! grade, any thread. Tests: at the end of this file.

use std::io::{self, BufReader, Read, Write};

use ibex_jobs::{Event, Job};
use serde::{Deserialize, Serialize};

/// Version of these messages, which must be the same at both ends.
pub(crate) const PROTOCOL: u32 = 3;

/// One message. The side that starts a job chooses its number.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(crate) enum Message {
    /// Agent to fabric, first of all.
    Hello(Hello),
    /// Fabric to agent: starts a job.
    Start(u32, Job),
    /// Fabric to agent: kills all processes of a job.
    Kill(u32),
    /// Agent to fabric: output of a job, or its ending.
    Told(u32, Event),
    /// Fabric to agent: kills all jobs and ends.
    Stop,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) node: usize,
    /// Reason why the node cannot be used, if there is one.
    pub(crate) trouble: Option<String>,
}

pub(crate) type Messages = Box<dyn Iterator<Item = serde_json::Result<Message>> + Send>;

pub(crate) fn read(stream: impl Read + Send + 'static) -> Messages {
    Box::new(serde_json::Deserializer::from_reader(BufReader::new(stream)).into_iter())
}

/// Writes a message in one call, so that messages of writers that take turns do not mix.
pub(crate) fn write(stream: &mut impl Write, message: &Message) -> io::Result<()> {
    stream.write_all(&serde_json::to_vec(message)?)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex_jobs::{Ending, Stream};
    use std::time::Duration;

    fn written() -> (Vec<Message>, Vec<u8>) {
        let job = Job::new(["a", "b c"]).on(1).env("K", "V=W").cwd("/x").limit(Duration::from_millis(1500));
        let hello = Hello { protocol: PROTOCOL, node: 1, trouble: None };
        let messages = vec![
            Message::Hello(hello),
            Message::Start(7, job),
            Message::Told(u32::MAX, Event::Wrote(Stream::Stderr, vec![0, 255, 10, b'"'])),
            Message::Told(7, Event::Ended(Ending::Exited(-1), Duration::from_nanos(1))),
            Message::Kill(0),
            Message::Stop,
        ];
        let mut stream = Vec::new();
        for message in &messages {
            write(&mut stream, message).unwrap();
        }
        (messages, stream)
    }

    #[test]
    fn messages_come_back_as_they_went_and_in_order() {
        let (messages, stream) = written();
        let read: Vec<Message> = read(io::Cursor::new(stream)).map(Result::unwrap).collect();
        assert_eq!(read, messages);
    }

    #[test]
    fn a_stream_that_ends_inside_a_message_is_an_error() {
        let (messages, mut stream) = written();
        stream.pop();
        let mut read = read(io::Cursor::new(stream)).skip(messages.len() - 1);
        assert!(read.next().unwrap().unwrap_err().is_eof());
    }
}
