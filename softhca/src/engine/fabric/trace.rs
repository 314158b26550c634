// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace (docs/softhca.md): a line in a file of the fabric for each stamped completion, and one in another file for
//! each registration, so that a test can compare the events that a program saw with the executed requests. Called by:
//! cq, while it makes a completion and holds the queue's lock; mr. Grade: one system call per line; only where the
//! configuration asks for it. Thread rule: any thread of any process; a line is one write to the end of the file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::engine::{Completion, DeviceSpec, Result, clock};

const NAME: &str = "trace";
const REGISTRATIONS: &str = "registrations";

pub(crate) struct Trace {
    completions: File,
    registrations: File,
}

impl Trace {
    pub(crate) fn open(folder: &Path) -> Result<Trace> {
        let open = |name| OpenOptions::new().create(true).append(true).open(folder.join(name));
        Ok(Trace { completions: open(NAME)?, registrations: open(REGISTRATIONS)? })
    }

    #[cold]
    pub(crate) fn registered(&self, device: &DeviceSpec, flags: u32, bytes: u64) {
        let line = format!("{} {} 0x{flags:x} {bytes}\n", device.name, std::process::id());
        let _ = (&self.registrations).write_all(line.as_bytes());
    }

    #[cold]
    pub(crate) fn write(&self, device: &DeviceSpec, qpn: u32, c: &Completion, at_ns: u64) {
        let ticks = clock::all_ticks(&device.clock, at_ns);
        let line = format!("{} {qpn} {} {} {} {ticks}\n", device.name, c.opcode, c.status, c.byte_len);
        // A full disk makes the comparison fail, not the fabric.
        let _ = (&self.completions).write_all(line.as_bytes());
    }
}
