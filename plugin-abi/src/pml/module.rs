// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module: the table of functions that Open MPI copies when it chooses the PML.
//!
//! Grade: setup. Threads: one.

use std::ffi::c_int;

use engine::matching::Contexts;
use ibex_ffi::openmpi::{release, sys};

use super::{context, listening, persistent, probe, progress, receive, send};
use crate::runtime::component::Shown;
use crate::runtime::guard::fence;

/// Open MPI copies it; changing it later changes nothing.
// SAFETY: Open MPI's structure.
static MODULE: Shown<sys::mca_pml_base_module_t> = unsafe {
    Shown::new(sys::mca_pml_base_module_t {
        pml_add_procs: Some(context::pml_add_procs),
        pml_del_procs: Some(context::pml_del_procs),
        pml_enable: Some(pml_enable),
        pml_progress: Some(progress::pml_progress),
        pml_add_comm: Some(context::pml_add_comm),
        pml_del_comm: Some(context::pml_del_comm),
        pml_irecv_init: Some(persistent::pml_irecv_init),
        pml_irecv: Some(receive::pml_irecv),
        pml_recv: Some(receive::pml_recv),
        pml_isend_init: Some(persistent::pml_isend_init),
        pml_isend: Some(send::pml_isend),
        pml_send: Some(send::pml_send),
        pml_iprobe: Some(probe::pml_iprobe),
        pml_probe: Some(probe::pml_probe),
        pml_start: Some(persistent::pml_start),
        pml_improbe: Some(probe::pml_improbe),
        pml_mprobe: Some(probe::pml_mprobe),
        pml_imrecv: Some(receive::pml_imrecv),
        pml_mrecv: Some(receive::pml_mrecv),
        pml_max_contextid: Contexts::<(), ()>::LIMIT,
        pml_max_tag: i32::MAX,
        pml_flags: release::PML_FLAGS,
        // Nothing else is ever called.
        ..release::PML_MODULE
    })
};

/// Open MPI's pointer to the module.
pub(crate) fn module() -> *mut sys::mca_pml_base_module_t {
    MODULE.get()
}

/// `pml_enable`: once, with true, when this PML has been chosen. All is made when the component is initialised.
unsafe extern "C" fn pml_enable(enable: bool) -> c_int {
    fence("pml_enable", sys::OPAL_ERROR, || {
        listening::offer(enable);
        sys::OPAL_SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_open_mpi_calls_is_there() {
        // SAFETY: a static that nobody writes.
        let module = unsafe { module().read() };
        assert!(module.pml_improbe.is_some() && module.pml_mrecv.is_some() && module.pml_start.is_some());
        assert!(module.pml_max_contextid >= 1 << 16, "Open MPI does not survive their end");
        assert_eq!(Contexts::<(), ()>::EXTENDED, sys::IBEX_EXTENDED_CONTEXTS);
    }
}
