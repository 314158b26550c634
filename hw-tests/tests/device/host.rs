// SPDX-License-Identifier: MIT OR Apache-2.0
//! This host, which the device tests of several processes share: those of another device, or of another checkout.
//!
//! A test that changes it for all, such as its pool of huge pages, runs while no other test does. Two locked files do
//! that: each test holds `room`, one that changes the host alone; and it takes it with `turnstile` held, so that one
//! that waits to be alone is next. Called by `main` for each test. Setup grade; one test at a time in a process.

use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};

/// A place among the tests that run on this host, until it is dropped.
pub(crate) struct Place {
    _room: File,
}

impl Place {
    /// Waits for one: beside others, or alone.
    ///
    /// # Errors
    /// The files cannot be made or locked.
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
