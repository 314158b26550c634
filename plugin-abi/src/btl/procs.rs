// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btl_add_procs` and `btl_del_procs`: the processes that ibex reaches, and their endpoints. ibex reaches a process
//! that has published a port to pair with one of this process. These include processes of this host and this
//! process itself, because osc/rdma needs all of them. Adding a peer makes no connection. Called by Open MPI. Grade:
//! setup. Threads: any; Open MPI adds peers lazily, even from within a receive callback. Tests: `hw-tests`.

use std::ffi::c_int;
use std::sync::Once;

use engine::select::address;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::{sys, variable};

use super::endpoint::endpoint;
use super::module::Module;
use crate::runtime::guard::fence;
use crate::runtime::variables::now;
use crate::runtime::{messages, modex};
use crate::tool;

/// `btl_add_procs`: sets `endpoints` of the processes that this port reaches, and their bits in `reachable` if given.
///
/// # Safety
/// `procs`, which live until `MPI_Finalize`, and `endpoints` have `count` elements, and `reachable` as many bits.
pub(crate) unsafe extern "C" fn btl_add_procs(
    module: &Module,
    count: usize,
    procs: *mut *mut sys::opal_proc_t,
    endpoints: *mut *mut sys::mca_btl_base_endpoint_t,
    reachable: *mut sys::opal_bitmap_t,
) -> c_int {
    fence("btl_add_procs", sys::OPAL_ERROR, || {
        // By now MPI_Init has set up MPI's own error codes.
        tool::explain_codes();
        if module.index > 0 {
            keep_fragments_in_order();
        }
        for index in 0..count {
            // SAFETY: the caller says that there are `count` processes, which live until MPI_Finalize.
            let process = unsafe { Process::from_raw(procs.add(index).read()) };
            let Some(pointer) = process.and_then(|process| add(module, process)) else { continue };
            // SAFETY: the caller says that there is room for `count` elements.
            unsafe { endpoints.add(index).write(pointer) };
            if !reachable.is_null() {
                // SAFETY: the caller says that it has `count` bits.
                unsafe { sys::opal_bitmap_set_bit(reachable, index as c_int) };
            }
        }
        sys::OPAL_SUCCESS
    })
}

fn add(module: &Module, process: Process) -> Option<*mut sys::mca_btl_base_endpoint_t> {
    let peer = modex::from_openmpi(process.name());
    let not_reached = |reason: &str| {
        if now::verbosity() > 0 {
            messages::verbose(&format!("{}: rank {} is not reached: {reason}", module.place(), peer.rank));
        }
    };
    if Process::me().is_some_and(|me| me.architecture() != process.architecture()) {
        not_reached("its processor has another architecture");
        return None;
    }
    let ports = match modex::ports_of(peer) {
        Some(Ok(ports)) => ports,
        Some(Err(error)) => {
            messages::unreadable_peer(peer, &process.host(), &error);
            return None;
        }
        None => {
            not_reached("it published no ibex port; it runs without ibex, or found none");
            return None;
        }
    };
    let addresses: Vec<_> = ports.iter().map(|entry| entry.address).collect();
    let pairs = address::pair(&modex::published(), &addresses);
    let Some(remote) = pairs.get(usize::from(module.index)).copied().flatten() else {
        not_reached("none of its ports is on this port's network, or they are paired with other ports of this process");
        return None;
    };
    let id = module.enter()?.port.peer(peer, remote as u8);
    Some(module.pointer(id))
}

/// Makes ob1 send all fragments of a message through one port, and the next message through another. If fragments
/// arrive in another order than they were sent, ob1 unpacks data with gaps wrongly, beyond the end of the buffer; it
/// does so over openib with two ports and over tcp with two links, too. Does nothing with another PML, or if the user
/// has set the parameter. Called when peers are added to a second port, because ob1 has then registered its parameters.
fn keep_fragments_in_order() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        // SAFETY: an int of ob1 (pml_ob1_component.c), which reads it only when it sends; nothing has been sent yet.
        unsafe { variable::set_unless_chosen(c"pml", Some(c"ob1"), Some(c"max_send_per_range"), 1) };
    });
}

/// `btl_del_procs`: forgets endpoints, which Open MPI uses no more.
///
/// # Safety
/// `endpoints` has `count` elements.
pub(crate) unsafe extern "C" fn btl_del_procs(
    module: &Module,
    count: usize,
    _procs: *mut *mut sys::opal_proc_t,
    endpoints: *mut *mut sys::mca_btl_base_endpoint_t,
) -> c_int {
    fence("btl_del_procs", sys::OPAL_ERROR, || {
        let Some(mut state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        for index in 0..count {
            // SAFETY: the caller says that there are `count` elements.
            let pointer = unsafe { endpoints.add(index).read() };
            if !pointer.is_null() {
                state.port.forget(endpoint(pointer));
            }
        }
        sys::OPAL_SUCCESS
    })
}
