// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output: the file of a rank, or standard error with the rank before each line. Writes lines whole, and reports a
//! failed write once. Called by `writer.rs`. Grade: pending. Threads: the owner's. Tests: below.

use std::fs::File;
use std::io::Write as _;

use crate::mpi;

/// Number of bytes that are collected before they are written.
const GATHERED: usize = 1 << 16;

pub(crate) struct Output {
    file: Option<File>,
    prefix: String,
    text: Vec<u8>,
    failed: bool,
}

impl Output {
    /// Opens a new file of this name; standard error if there is no name or the file cannot be made.
    pub(crate) fn open(name: Option<&str>, rank: &str) -> Output {
        let file = name.and_then(|name| match File::create(name) {
            Ok(file) => Some(file),
            Err(error) => {
                mpi::complain(&format!("IBEX_LOG_FILE: cannot make {name}: {error}; writing to standard error"));
                None
            }
        });
        let prefix = if file.is_some() { String::new() } else { format!("[{rank}] ") };
        Output { file, prefix, text: Vec::with_capacity(GATHERED + 4096), failed: false }
    }

    /// Begins a line. Text that is appended to the returned buffer belongs to it, until [`Output::end`].
    pub(crate) fn line(&mut self) -> &mut Vec<u8> {
        self.text.extend_from_slice(self.prefix.as_bytes());
        &mut self.text
    }

    pub(crate) fn end(&mut self) {
        self.text.push(b'\n');
        if self.text.len() >= GATHERED {
            self.flush();
        }
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.line().extend_from_slice(line.as_bytes());
        self.end();
    }

    pub(crate) fn flush(&mut self) {
        let written = match &mut self.file {
            Some(file) => file.write_all(&self.text),
            None => std::io::stderr().write_all(&self.text),
        };
        self.text.clear();
        if let Err(error) = written
            && !self.failed
        {
            self.failed = true;
            mpi::complain(&format!("cannot write: {error}; the log is not complete"));
        }
    }
}

/// Appends a number to a line. std's formatting is more general, and several times slower.
pub(crate) fn push_number(line: &mut Vec<u8>, value: i128) {
    line.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends nanoseconds to a line, as seconds.
pub(crate) fn push_seconds(line: &mut Vec<u8>, nanoseconds: i64) {
    push_number(line, nanoseconds.div_euclid(1_000_000_000).into());
    let mut buffer = itoa::Buffer::new();
    let part = buffer.format(nanoseconds.rem_euclid(1_000_000_000));
    line.extend_from_slice(&b".000000000"[..10 - part.len()]);
    line.extend_from_slice(part.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_nine_places() {
        let seconds = |nanoseconds| {
            let mut line = Vec::new();
            push_seconds(&mut line, nanoseconds);
            String::from_utf8(line).expect("digits")
        };
        assert_eq!(seconds(1_795_253_443_083_550_476), "1795253443.083550476");
        assert_eq!((seconds(0), seconds(5)), ("0.000000000".to_owned(), "0.000000005".to_owned()));
    }

    #[test]
    fn a_file_gets_whole_lines_in_order() {
        let name = std::env::temp_dir().join(format!("ibex-log-output-{}", std::process::id()));
        let mut output = Output::open(name.to_str(), "0");
        let long = "x".repeat(1000);
        for number in 0..100 {
            output.say(&format!("{number} {long}"));
        }
        output.flush();
        let text = std::fs::read_to_string(&name).expect("written");
        std::fs::remove_file(&name).expect("there");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[99].len()), (100, 1003));
        assert!(lines.iter().enumerate().all(|(number, line)| line.starts_with(&format!("{number} x"))));
    }
}
