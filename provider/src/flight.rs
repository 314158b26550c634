// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flight recorder of a process (docs/flight.md), from its first port to its end. The engine writes the entries and
//! the counts; here the file begins, stays after a failure, and ends.
//!
//! Called by `adapter` (a port opens), `host` and `entry` (failures) and `lib.rs` (the end). Grade: setup.
//! Threads: any. Tests: `hw-tests`.

use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicU16, Ordering};

use ibex::flight::{self, Entry, Kind, NO_PORT, NOBODY, Process};
use ibex::tunables::Tunables;

use crate::{adapter, log, sys};

/// Environment variable with the folder of the file, or `no`.
const FOLDER: &str = "FI_IBEX_FLIGHT_RECORDER";

/// Begins the file, with the first port of the process.
pub(crate) fn begin() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let mut tunables = Tunables::default();
        if let Ok(folder) = std::env::var(FOLDER) {
            tunables.flight_recorder = folder;
        }
        let Some(folder) = tunables.flight_folder().map(PathBuf::from) else { return };
        let host = ibex_trace::host();
        let process = Process { job: job(), rank: adapter::rank(), host: &host, names_instances: true };
        if let Err(error) = flight::begin(&folder, &process) {
            let text = format!("there is no flight recorder: no file in {}: {error}", folder.display());
            log::line(sys::FI_LOG_INFO, sys::FI_LOG_CORE, &text);
        }
    });
}

/// The place of an endpoint in the file, free again once this is dropped: each has its own, since all are of one port of
/// the adapter. The file has 16; endpoints beyond them share the last.
#[derive(Debug)]
pub(crate) struct Place(u8);

/// The places in use, one bit each.
static TAKEN: AtomicU16 = AtomicU16::new(0);

impl Place {
    pub(crate) fn take() -> Self {
        let free = |taken: u16| taken.trailing_ones().min(u16::BITS - 1);
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| Some(taken | 1 << free(taken)));
        Place(taken.map_or(0, free) as u8)
    }

    pub(crate) fn number(&self) -> u8 {
        self.0
    }

    /// Names the place after the adapter's port.
    pub(crate) fn name(&self, port: &str, gid: [u8; 16]) {
        let name = if self.0 == 0 { port.to_owned() } else { format!("{port} ({})", self.0 + 1) };
        flight::name_port(self.0, &name, gid);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.fetch_and(!(1 << self.0), Ordering::Relaxed);
    }
}

/// Returns the number of the job: that of the batch system, or the process that has started this one, which a
/// launcher's processes of a host have in common.
fn job() -> u32 {
    ibex_trace::job().parse().unwrap_or_else(|_| parent_id())
}

/// Keeps the file because of a failure. Returns the text, with the place of the file.
pub(crate) fn kept(text: &str) -> String {
    match flight::keep(text) {
        Some(path) => format!("{text}\nThe last events of this process are in {0}: ibex flight {0}", path.display()),
        None => text.to_owned(),
    }
}

/// Keeps the file because of a defect of ibex.
pub(crate) fn defect(text: &str) -> String {
    flight::record((Kind::Defect, 0), NO_PORT, NOBODY, Entry::text(text));
    kept(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_places_of_their_own_as_long_as_there_are_free_ones() {
        let mut places: Vec<Place> = (0..18).map(|_| Place::take()).collect();
        let numbers = |places: &[Place]| places.iter().map(Place::number).collect::<Vec<_>>();
        assert_eq!(numbers(&places), (0..16).chain([15, 15]).collect::<Vec<_>>());
        drop(places.drain(3..5));
        places.extend([Place::take(), Place::take()]);
        assert_eq!(numbers(&places[16..]), [3, 4]);
    }
}
