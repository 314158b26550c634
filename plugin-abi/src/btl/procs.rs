// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btl_add_procs` and `btl_del_procs`: which processes ibex reaches, and how Open MPI names them to it.
//!
//! Every process that published a port this one can be paired with, processes of this host and this process itself
//! included (osc/rdma needs them all). Adding a peer makes no connection and keeps no copy of what it published. Grade:
//! setup. Threads: any; Open MPI adds peers lazily, also from within a receive callback.

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

/// `btl_add_procs`: fills `endpoints` for the processes it reaches, and sets their bits in `reachable` where that is
/// given.
pub(crate) unsafe extern "C" fn btl_add_procs(
    btl: *mut sys::mca_btl_base_module_t,
    count: usize,
    procs: *mut *mut sys::opal_proc_t,
    endpoints: *mut *mut sys::mca_btl_base_endpoint_t,
    reachable: *mut sys::opal_bitmap_t,
) -> c_int {
    fence("btl_add_procs", sys::OPAL_ERROR, || {
        // MPI_Init has come past the MPI's own.
        tool::explain_codes();
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        if module.index > 0 {
            keep_fragments_in_order();
        }
        for index in 0..count {
            // SAFETY: `count` pointers to processes, which live until MPI_Finalize.
            let process = unsafe { Process::from_raw(procs.add(index).read()) };
            let Some(pointer) = process.and_then(|process| add(module, process)) else {
                continue;
            };
            // SAFETY: the out array has `count` places.
            unsafe { endpoints.add(index).write(pointer) };
            if !reachable.is_null() {
                // SAFETY: a bitmap of at least `count` bits.
                unsafe { sys::opal_bitmap_set_bit(reachable, index as c_int) };
            }
        }
        sys::OPAL_SUCCESS
    })
}

/// The endpoint for a process, or `None` where this port does not reach it.
fn add(module: &Module, process: Process) -> Option<*mut sys::mca_btl_base_endpoint_t> {
    let peer = modex::from_openmpi(process.name());
    let told = |reason: &str| {
        if now::verbosity() > 0 {
            messages::verbose(&format!("{}: rank {} is not reached: {reason}", module.place(), peer.rank));
        }
    };
    if Process::me().is_some_and(|me| me.architecture() != process.architecture()) {
        told("its processor has another architecture");
        return None;
    }
    let ports = match modex::ports_of(peer) {
        Some(Ok(ports)) => ports,
        Some(Err(error)) => {
            messages::unreadable_peer(peer, &process.host(), &error);
            return None;
        }
        None => {
            told("it published no ibex port; it runs without ibex, or found none");
            return None;
        }
    };
    let addresses: Vec<_> = ports.iter().map(|entry| entry.address).collect();
    let pairs = address::pair(&modex::published(), &addresses);
    let Some(remote) = pairs.get(usize::from(module.index)).copied().flatten() else {
        told("none of its ports is on this port's network, or they are paired with other ports of this process");
        return None;
    };
    let id = module.enter()?.port.peer(peer, remote as u8);
    Some(module.pointer(id))
}

/// Has ob1 send all fragments of a message through one port, each message through the next. It unpacks data with gaps
/// wrongly, and beyond the end of the buffer, when fragments come in another order than they were sent; over openib on
/// two ports, and over tcp with two links, as well. Another pml, or a user who chose otherwise, is left alone.
///
/// Called when peers are added to a second port: ob1, which does that, is registered then and was not when ports were
/// opened.
fn keep_fragments_in_order() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        // SAFETY: an int of ob1's (pml_ob1_component.c), which it reads when it sends; the first peers are added by
        // MPI_Init.
        let _ = unsafe { variable::set_unless_chosen(c"pml", Some(c"ob1"), Some(c"max_send_per_range"), 1) };
    });
}

/// `btl_del_procs`: these endpoints are used no more.
pub(crate) unsafe extern "C" fn btl_del_procs(
    btl: *mut sys::mca_btl_base_module_t,
    count: usize,
    _procs: *mut *mut sys::opal_proc_t,
    endpoints: *mut *mut sys::mca_btl_base_endpoint_t,
) -> c_int {
    fence("btl_del_procs", sys::OPAL_ERROR, || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        let Some(mut state) = module.enter() else {
            return sys::OPAL_ERR_OUT_OF_RESOURCE;
        };
        for index in 0..count {
            // SAFETY: `count` endpoints of this module.
            let pointer = unsafe { endpoints.add(index).read() };
            if !pointer.is_null() {
                state.port.forget(endpoint(pointer));
            }
        }
        sys::OPAL_SUCCESS
    })
}
