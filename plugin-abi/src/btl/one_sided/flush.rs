// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btl_flush`: waits until all puts, gets and atomics of a module are complete. osc/rdma calls it wherever a program
//! waits for one-sided operations (`MPI_Win_flush`, `MPI_Win_unlock`, `MPI_Win_fence`). It polls one port, whereas
//! `opal_progress` would call every component of Open MPI. When it returns, all callbacks have run: btl.h does not
//! require that, but osc/rdma forgets the origin of a get without a buffer of its own. Grade: hot. Threads: any. Tests:
//! `hw-tests/mpi/rma_transfer.c`, `hw-tests/mpi/rma_atomics.c`, `hw-tests/tools/mpi_t_operations.c`.

use std::ffi::c_int;

use engine::events::{self, FlushComplete, FlushStarted};
use ibex_ffi::openmpi::sys;

use crate::btl::endpoint::endpoint;
use crate::btl::module::Module;
use crate::btl::progress::progress_one;
use crate::btl::watch;
use crate::runtime::guard::{self, fence};
use crate::runtime::idle::Idle;
use crate::runtime::watch::SAFETY;

/// `btl_flush`. For a single endpoint, too, it waits for all operations, as btl.h allows.
pub(crate) extern "C" fn btl_flush(module: &Module, peer: *mut sys::mca_btl_base_endpoint_t) -> c_int {
    fence(
        "btl_flush",
        sys::OPAL_ERROR,
        || {
            if events::has_interest() { wait_watched(module, peer) } else { wait(module) }
        },
    )
}

#[inline(always)]
fn wait(module: &Module) -> c_int {
    if module.is_others_turn() {
        // SAFETY: nothing is entered, so callbacks of progress may enter any port.
        unsafe { sys::opal_progress() };
    }
    let mut idle = Idle::new();
    loop {
        let count = progress_one(module);
        // `None`: the port is entered further up the stack, which does not happen, as the engine does not call back.
        if module.enter().is_none_or(|state| state.operations.are_over()) {
            return sys::OPAL_SUCCESS;
        }
        if guard::broken() {
            // `btl_progress` reports the defect, and Open MPI ends the job.
            return sys::OPAL_ERROR;
        }
        if count == 0 {
            idle.nothing_happened();
        }
    }
}

#[cold]
#[inline(never)]
fn wait_watched(module: &Module, peer: *mut sys::mca_btl_base_endpoint_t) -> c_int {
    let operation = watch::operation_number();
    let peer = if peer.is_null() { u32::MAX } else { watch::rank(module.peer_name(endpoint(peer))) };
    let port = module.index.into();
    events::raise(SAFETY, || FlushStarted { operation, peer, port });
    let code = wait(module);
    events::raise(SAFETY, || FlushComplete { operation, peer, port });
    code
}
