// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where lines go: the file of a rank, or standard error with the rank before each line.
//!
//! Lines are gathered and written whole. What cannot be written is told once. Grade: pending. Threads: the owner's.
//! Tests: below.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;

use crate::mpi;

/// How much is gathered, bytes.
const GATHERED: usize = 1 << 16;

/// The lines of a rank.
pub(crate) struct Output {
    file: Option<File>,
    /// Stands before each line.
    prefix: String,
    text: String,
    failed: bool,
}

impl Output {
    /// To a new file of this name; to standard error without one, or where it cannot be made.
    pub(crate) fn open(name: Option<&str>, rank: &str) -> Output {
        let file = name.and_then(|name| match File::create(name) {
            Ok(file) => Some(file),
            Err(error) => {
                mpi::complain(&format!("IBEX_LOG_FILE: cannot make {name}: {error}; writing to standard error"));
                None
            }
        });
        let prefix = if file.is_some() { String::new() } else { format!("[{rank}] ") };
        Output { file, prefix, text: String::with_capacity(GATHERED + 4096), failed: false }
    }

    /// Begins a line; what is written to the string it gives is its text, up to [`Output::end`].
    pub(crate) fn line(&mut self) -> &mut String {
        self.text.push_str(&self.prefix);
        &mut self.text
    }

    /// Ends a line.
    pub(crate) fn end(&mut self) {
        self.text.push('\n');
        if self.text.len() >= GATHERED {
            self.flush();
        }
    }

    /// A line.
    pub(crate) fn say(&mut self, line: &str) {
        let _ = write!(self.line(), "{line}");
        self.end();
    }

    /// Writes what is gathered.
    pub(crate) fn flush(&mut self) {
        let written = match &mut self.file {
            Some(file) => file.write_all(self.text.as_bytes()),
            None => std::io::stderr().write_all(self.text.as_bytes()),
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

#[cfg(test)]
mod tests {
    use super::*;

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
