// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parameters of BTL and PML: one table, one check of the user's values, and the checked values.
//!
//! The rows are in `tunables/rows.rs`, the type of a row in `row.rs`, the macro for the table in `table.rs`, the page
//! made from it (docs/parameters.md) in `page.rs`. The plugin registers each row with Open MPI under its full name and
//! passes the values in the same order to [`Tunables::for_face`]. Parameters that Open MPI defines for every BTL (eager
//! limit, flags, ...) are not here. A tool may write a parameter as a control variable (MPI 4.1, section 15.3.6): each
//! until `MPI_Init` reads it, and [`Writable::Always`] ones at any time.
//!
//! Grade: setup; the engine copies the values that a hot path needs. Threads: read-only after start. Tests:
//! `tunables/tests.rs` (`cargo test -p ibex tunables`; `IBEX_WRITE_DOCS=1` in front rewrites the page).

#[macro_use]
mod table;
mod page;
mod row;
mod rows;
#[cfg(test)]
mod tests;

use crate::interfaces;
use ibex_ffi::verbs::HugePages;
use std::path::Path;

pub use page::markdown;
pub use row::{Faces, Kind, OutOfBounds, Row, Scope, Value, Writable};
pub use rows::{TABLE, Tunables};

/// The carriers of the handshake.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum ConnectVia {
    /// Datagrams first; TCP as well if datagrams are missing or unanswered.
    Auto,
    /// Datagrams alone.
    Ud,
    /// TCP alone.
    Tcp,
}

/// Whether memory that adapters use must be kept out of child processes.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum ForkSupport {
    /// If possible.
    Auto,
    /// Required.
    Yes,
    /// Not by ibex.
    No,
}

impl Tunables {
    /// Takes the value of every parameter, in the order of [`TABLE`], and checks each and how they go together.
    ///
    /// # Errors
    /// [`OutOfBounds`] for the first value that is not permitted; it names parameter, value and range.
    pub fn from_values(values: &[Value]) -> Result<Tunables, OutOfBounds> {
        let tunables = Tunables::from_rows(values)?;
        tunables.check_together()?;
        Ok(tunables)
    }

    /// Like [`Tunables::from_values`] for one component. The BTL gets the PML's own parameters at their defaults. Any
    /// other wrong value excludes both components: with one of them alone, ranks would choose differently.
    ///
    /// # Errors
    /// See [`Tunables::from_values`].
    pub fn for_face(face: Faces, values: &[Value]) -> Result<Tunables, OutOfBounds> {
        let concerning = |(row, value): (&Row, &Value)| match row.faces {
            Faces::Pml if face == Faces::Btl => row.default_value(),
            _ => value.clone(),
        };
        Tunables::from_values(&TABLE.iter().zip(values).map(concerning).collect::<Vec<_>>())
    }

    /// Checks what a single row cannot: contents of texts, and combinations of values.
    fn check_together(&self) -> Result<(), OutOfBounds> {
        for (name, list) in [("tcp_if_include", &self.tcp_if_include), ("tcp_if_exclude", &self.tcp_if_exclude)] {
            if let Some(item) = interfaces::malformed(list) {
                let permitted = "a list of interface names (eth0) and networks (10.1.0.0/16)".to_owned();
                return Err(refused(name, item, permitted));
            }
        }
        if !self.tcp_if_include.is_empty() && !self.tcp_if_exclude.is_empty() {
            let permitted = "set only where btl_ibex_tcp_if_include is not".to_owned();
            return Err(refused("tcp_if_exclude", &self.tcp_if_exclude, permitted));
        }
        Ok(())
    }

    /// The requested GID table entry; `None`: choose by type.
    pub(crate) fn forced_gid_index(&self) -> Option<u32> {
        self.gid_index.parse().ok()
    }

    /// The requested MTU, in bytes; `None`: the ports' active one.
    pub(crate) fn forced_mtu(&self) -> Option<u32> {
        self.mtu.parse().ok()
    }

    /// Whether memory that adapters use must be kept out of child processes.
    pub fn forks(&self) -> ForkSupport {
        match self.fork_support.as_str() {
            "yes" => ForkSupport::Yes,
            "no" => ForkSupport::No,
            _ => ForkSupport::Auto,
        }
    }

    /// The huge pages that slots may use, in one of `processes` processes of the job on this host.
    pub fn pages(&self, processes: u32) -> HugePages {
        match self.huge_pages.as_str() {
            "explicit" => HugePages::Explicit,
            "transparent" => HugePages::Transparent,
            "no" => HugePages::No,
            _ => HugePages::Shared { processes },
        }
    }

    /// The folder of the flight recorder's file; `None`: no file.
    pub fn flight_folder(&self) -> Option<&Path> {
        let is_wanted = !["", "no"].contains(&self.flight_recorder.as_str());
        is_wanted.then(|| Path::new(&self.flight_recorder))
    }

    /// The carriers of the handshake.
    pub fn via(&self) -> ConnectVia {
        match self.connect_via.as_str() {
            "ud" => ConnectVia::Ud,
            "tcp" => ConnectVia::Tcp,
            _ => ConnectVia::Auto,
        }
    }
}

fn refused(name: &'static str, given: &str, permitted: String) -> OutOfBounds {
    let row = TABLE.iter().find(|row| row.name == name).unwrap_or(&TABLE[0]);
    OutOfBounds::new(row, given.to_owned(), permitted)
}

impl Default for Tunables {
    fn default() -> Tunables {
        let values: Vec<Value> = TABLE.iter().map(Row::default_value).collect();
        Tunables::from_values(&values).expect("the defaults are inside their bounds: a unit test asserts it")
    }
}
