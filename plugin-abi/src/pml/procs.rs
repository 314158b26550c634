// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pml_add_procs` and `pml_del_procs`: processes come and go.
//!
//! A peer is looked up when the first message goes to it (`peer`), so that adding one only asks whether it has chosen
//! this PML, too; those of this host that shared memory reaches are noted (`local`). Grade: setup. Threads: any.

use std::ffi::c_int;

use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use super::choice;
use super::instance::{Rail, pml};
use super::{local, parting, rails};
use crate::runtime::guard::fence;
use crate::runtime::modex;
use crate::tool;

/// `pml_add_procs`: at start, and for processes that were spawned or connected to. A process that is known already may
/// come again.
pub(crate) unsafe extern "C" fn pml_add_procs(procs: *mut *mut sys::ompi_proc_t, count: usize) -> c_int {
    fence("pml_add_procs", sys::OPAL_ERROR, || {
        // MPI_Init has come past the MPI's own.
        tool::explain_codes();
        for index in 0..count {
            // SAFETY: P4: `count` processes, which live until MPI_Finalize.
            let Some(process) = (unsafe { Process::from_raw(procs.add(index).read().cast()) }) else { continue };
            if !choice::is_same(process) {
                return sys::OPAL_ERR_UNREACH;
            }
            if let Some(pml) = pml() {
                parting::add(pml, process);
            }
        }
        // SAFETY: P4: `count` processes; says who has chosen otherwise. The name is not kept.
        let code = unsafe { sys::mca_pml_base_pml_check_selected(c"ibex".as_ptr(), procs, count) };
        if code != sys::OPAL_SUCCESS {
            choice::say_of_rank_0();
            return code;
        }
        if let Some(pml) = pml() {
            // SAFETY: P4: `count` processes, which live until MPI_Finalize.
            unsafe { local::add(pml, std::slice::from_raw_parts(procs, count)) };
        }
        sys::OPAL_SUCCESS
    })
}

/// `pml_del_procs`: no message goes to these, or comes from them, any more.
pub(crate) unsafe extern "C" fn pml_del_procs(procs: *mut *mut sys::ompi_proc_t, count: usize) -> c_int {
    fence("pml_del_procs", sys::OPAL_ERROR, || {
        let Some(pml) = pml() else { return sys::OPAL_SUCCESS };
        for index in 0..count {
            // SAFETY: P4: `count` processes, which live until MPI_Finalize.
            let Some(process) = (unsafe { Process::from_raw(procs.add(index).read().cast()) }) else { continue };
            let peer = modex::from_openmpi(process.name());
            let Some(mut state) = pml.enter() else { continue };
            let links = rails::remove(&mut state, peer);
            drop(state);
            for link in links {
                if let Some(mut port) = pml.rails().get(link.rail()).and_then(Rail::enter) {
                    port.forget(link.to());
                }
            }
        }
        // SAFETY: P4: `count` processes, which live until MPI_Finalize.
        unsafe { local::remove(pml, std::slice::from_raw_parts(procs, count)) };
        sys::OPAL_SUCCESS
    })
}
