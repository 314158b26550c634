// SPDX-License-Identifier: MIT OR Apache-2.0
//! This host, which device tests of several processes share: those of another device, or of another checkout.
//!
//! A test that changes the host runs alone. Each test locks the file `room`, shared or, if it changes the host,
//! exclusively; it holds `turnstile` until it has `room`, so that a test that waits to be alone is next. `main` calls
//! it for each test. Setup grade; one test at a time in a process.

use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};

pub(crate) struct Place {
    _room: File,
}

impl Place {
    /// Waits for a place, beside other tests or alone.
    pub(crate) fn take(is_alone: bool) -> Result<Place> {
        let turnstile = file("turnstile")?;
        turnstile.lock().context("cannot lock the turnstile of this host's tests")?;
        let room = file("room")?;
        let locked = if is_alone { room.lock() } else { room.lock_shared() };
        locked.context("cannot lock the room of this host's tests")?;
        Ok(Place { _room: room })
    }
}

fn file(name: &str) -> Result<File> {
    let path = std::env::temp_dir().join(format!("ibex-device-tests.{name}"));
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    opened.with_context(|| format!("cannot open {}", path.display()))
}
