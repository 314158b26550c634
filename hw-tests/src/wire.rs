// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frames between a fabric and the agent in a node: a length, a kind, a job number, a body.
//!
//! `u32 length of the rest | u8 kind | u32 job | body`, little-endian. The body of `HELLO`, `START` and `ENDED` is
//! JSON, that of `STDOUT` and `STDERR` the job's bytes as they came, that of `KILL` and `STOP` empty. Written by
//! [`crate::channel`] and [`crate::agent`], over a virtio-serial port, TCP between nodes, or pipes. Setup grade, any
//! thread. Tests: at the end of this file.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// The version of these frames; both ends must speak the same.
pub const PROTOCOL: u32 = 2;

/// Agent to fabric, once, first: [`Hello`].
pub const HELLO: u8 = 1;
/// Fabric to agent: start a job: a [`Job`](crate::Job).
pub const START: u8 = 2;
/// Fabric to agent: kill all processes of the job.
pub const KILL: u8 = 3;
/// Agent to fabric: bytes the job wrote to standard output.
pub const STDOUT: u8 = 4;
/// Agent to fabric: bytes the job wrote to standard error.
pub const STDERR: u8 = 5;
/// Agent to fabric, last of a job: its [`Ending`](crate::Ending), and how long it ran by the node's monotonic clock.
pub const ENDED: u8 = 6;
/// Fabric to agent: kill all jobs and end.
pub const STOP: u8 = 7;

/// Bytes after the length field that every frame has: kind and job number.
const HEAD: usize = 5;
/// The longest frame that is believed. Output travels in pieces of at most 64 KiB; a longer length is a broken stream.
const LONGEST: usize = 1 << 24;

/// One frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frame {
    /// One of the constants of this module.
    pub kind: u8,
    /// The job's number, chosen by the side that starts it; 0 where no job is meant.
    pub job: u32,
    /// See the constants.
    pub body: Vec<u8>,
}

/// Who answers.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Hello {
    /// The sender's [`PROTOCOL`].
    pub protocol: u32,
    /// The node's number.
    pub node: usize,
    /// Why the node cannot be used; `None` when it can.
    pub trouble: Option<String>,
}

impl Frame {
    /// A frame with the given bytes as its body.
    #[must_use]
    pub fn new(kind: u8, job: u32, body: Vec<u8>) -> Self {
        Self { kind, job, body }
    }

    /// A frame whose body is `content` in JSON.
    ///
    /// # Errors
    /// `content` has no JSON form.
    pub fn with_json(kind: u8, job: u32, content: &impl Serialize) -> io::Result<Self> {
        Ok(Self::new(kind, job, serde_json::to_vec(content)?))
    }

    /// The body, read as JSON.
    ///
    /// # Errors
    /// The body is not the JSON of a `T`.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.body)?)
    }

    /// Writes the frame in one call, so that writers that take turns cannot mix their frames.
    ///
    /// # Errors
    /// The body is longer than a frame may be, or the stream fails.
    pub fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let length = HEAD + self.body.len();
        if length > LONGEST {
            return Err(io::Error::other(format!("a frame of {length} bytes is too long (at most {LONGEST})")));
        }
        let mut bytes = Vec::with_capacity(4 + length);
        bytes.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.push(self.kind);
        bytes.extend_from_slice(&self.job.to_le_bytes());
        bytes.extend_from_slice(&self.body);
        stream.write_all(&bytes)?;
        stream.flush()
    }

    /// Reads one frame; `None` when the stream ended before it began.
    ///
    /// # Errors
    /// The stream fails or ends inside a frame, or the length is none that a frame can have.
    pub fn read(stream: &mut impl Read) -> io::Result<Option<Self>> {
        let mut length = [0; 4];
        let got = stream.read(&mut length)?;
        if got == 0 {
            return Ok(None);
        }
        stream.read_exact(&mut length[got..])?;
        let length = u32::from_le_bytes(length) as usize;
        if !(HEAD..=LONGEST).contains(&length) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a frame of {length} bytes cannot be ({HEAD} to {LONGEST}); the stream is broken"),
            ));
        }
        let mut rest = vec![0; length];
        stream.read_exact(&mut rest)?;
        let body = rest.split_off(HEAD);
        Ok(Some(Self::new(rest[0], u32::from_le_bytes([rest[1], rest[2], rest[3], rest[4]]), body)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Job;
    use std::time::Duration;

    #[test]
    fn frames_come_back_as_they_went_and_in_order() {
        let frames = [Frame::new(STDOUT, 7, vec![0, 255, 10]), Frame::new(KILL, u32::MAX, vec![])];
        let mut stream = Vec::new();
        for frame in &frames {
            frame.write(&mut stream).unwrap();
        }
        let mut reader = stream.as_slice();
        assert_eq!(Frame::read(&mut reader).unwrap().as_ref(), Some(&frames[0]));
        assert_eq!(Frame::read(&mut reader).unwrap().as_ref(), Some(&frames[1]));
        assert_eq!(Frame::read(&mut reader).unwrap(), None);
    }

    #[test]
    fn a_frame_is_laid_out_little_endian_with_its_length_first() {
        let mut stream = Vec::new();
        Frame::new(ENDED, 0x0102_0304, b"{}".to_vec()).write(&mut stream).unwrap();
        assert_eq!(stream, [7, 0, 0, 0, ENDED, 4, 3, 2, 1, b'{', b'}']);
    }

    #[test]
    fn a_stream_that_ends_inside_a_frame_is_an_error() {
        let mut stream = Vec::new();
        Frame::new(STDOUT, 1, vec![1, 2, 3]).write(&mut stream).unwrap();
        stream.pop();
        assert_eq!(Frame::read(&mut stream.as_slice()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_length_no_frame_can_have_is_refused() {
        for length in [0_u32, 4, LONGEST as u32 + 1, u32::MAX] {
            let refusal = Frame::read(&mut length.to_le_bytes().as_slice()).unwrap_err();
            assert_eq!(refusal.kind(), io::ErrorKind::InvalidData, "length {length}");
        }
    }

    #[test]
    fn a_body_too_long_for_a_frame_is_not_written() {
        let mut stream = Vec::new();
        assert!(Frame::new(STDOUT, 1, vec![0; LONGEST]).write(&mut stream).is_err());
        assert!(stream.is_empty());
    }

    #[test]
    fn a_job_travels_whole() {
        let job = Job::new(["a", "b c"]).on(1).env("K", "V=W").cwd("/x").limit(Duration::from_millis(1500));
        let frame = Frame::with_json(START, 3, &job).unwrap();
        assert_eq!(frame.json::<Job>().unwrap(), job);
    }
}
