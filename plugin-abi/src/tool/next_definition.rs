// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that are handed on to an MPI that has events of its own: ibex must not stand in front of its calls.
//!
//! ibex is built for one Open MPI and declines to be a component of another, but a tool that was linked with -libex may
//! meet one that has these calls. The dynamic linker then finds ibex's where it comes first, so each call looks once
//! whether another library has the `PMPI_T_` name, and hands itself on. (A tool that intercepts defines
//! `MPI_T_` names alone.) Where the MPI has an event engine, ibex's events are to be registered with that one, each
//! port as a source of its own whose clock returns the stamp of the event under delivery, as that engine reads the
//! source's clock when an event is raised.
//!
//! Grade: setup at the first call, then one load. Threads: any. Tests: `tests/tool.rs`.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::runtime::copies;

/// The function of a name that answers instead of this library's, if there is one: the MPI's own, or that of the ibex
/// that was loaded first (`copies.rs`).
pub(crate) struct NextDefinition {
    name: &'static CStr,
    address: OnceLock<Option<usize>>,
}

impl NextDefinition {
    pub(crate) const fn new(name: &'static CStr) -> NextDefinition {
        NextDefinition { name, address: OnceLock::new() }
    }

    /// Its address.
    #[inline]
    pub(crate) fn address(&self) -> Option<NonNull<c_void>> {
        let address = *self.address.get_or_init(|| {
            let found = match copies::first() {
                Some(first) => first.function(self.name),
                None => self.of_the_mpi(),
            };
            found.map(|found| found.as_ptr().expose_provenance())
        });
        address.and_then(|address| NonNull::new(std::ptr::with_exposed_provenance_mut(address)))
    }

    /// Another ibex that was loaded after this one is none, and hands itself on to this.
    fn of_the_mpi(&self) -> Option<NonNull<c_void>> {
        // First those after the one this code is in; then all, as a call of ibex's own has no other of its name before it.
        [libc::RTLD_NEXT, libc::RTLD_DEFAULT].into_iter().find_map(|libraries| {
            // SAFETY: a name that ends in 0; the linker's pseudo-handles.
            let found = unsafe { libc::dlsym(libraries, self.name.as_ptr()) };
            NonNull::new(found).filter(|found| !copies::is_of_ibex(*found))
        })
    }
}
