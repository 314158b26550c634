// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol of the two sides over TCP: lines of JSON.
//!
//! None of it is timed. Called by [`super`] and [`super::side`]. Grade: setup. Tests: at the end of this file.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What a process publishes of its port, as the modex of a job has it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Published {
    pub(super) ports: Vec<u8>,
    pub(super) host: String,
    /// The memory for the other side's puts and gets.
    pub(super) memory: u64,
    pub(super) key: u32,
}

/// The client's request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    Run(Run),
    End,
}

/// A run of a timed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) shape: Shape,
    pub(super) bytes: u32,
    pub(super) iterations: u64,
    /// Messages in flight; even.
    pub(super) window: u64,
}

/// The communication pattern of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Shape {
    /// A message there and one back.
    PingPong,
    /// Messages one way.
    Stream,
    /// Puts, of which the server has no part.
    Put,
    /// The same of gets.
    Get,
}

/// The server is ready for the run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready;

/// The TCP connection of the two sides.
pub(super) struct Talk {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Talk {
    /// # Errors
    /// The connection cannot be used both ways.
    pub(super) fn over(stream: TcpStream) -> Result<Talk> {
        stream.set_nodelay(true)?;
        Ok(Talk { reader: BufReader::new(stream.try_clone()?), writer: stream })
    }

    /// # Errors
    /// The other side is gone.
    pub(super) fn say(&mut self, what: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(what)? + "\n";
        self.writer.write_all(line.as_bytes()).context("the other side of the measurement has ended")
    }

    /// # Errors
    /// The other side is gone, or says what is not understood.
    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        let length = self.reader.read_line(&mut line).context("the other side of the measurement has ended")?;
        ensure!(length > 0, "the other side of the measurement has ended");
        serde_json::from_str(&line).with_context(|| format!("the other side says {line:?}; is its ibex the same?"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn what_one_says_the_other_hears_and_its_end_too() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let one = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let mut other = Talk::over(listener.accept().expect("accepted").0).expect("both ways");
        let run = Run { shape: Shape::Put, bytes: 8, iterations: 3, window: 64 };
        let mut one = Talk::over(one).expect("both ways");
        one.say(&Ask::Run(run)).expect("said");
        assert!(matches!(other.hear().expect("heard"), Ask::Run(heard) if heard == run));
        drop(one);
        assert!(other.hear::<Ask>().unwrap_err().to_string().contains("has ended"));
    }
}
