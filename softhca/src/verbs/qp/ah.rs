// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_ah`: address handles, and `ibv_ah_attr`, the address of a peer, which queue pairs have too.
//! Grade: setup. Threads: any. Byte orders: a GID is its 16 bytes on the wire; a GRH is big-endian.

use std::ffi::c_int;

use crate::engine::{Ah, Errno, Result};
use crate::sys::{IBV_WC_GRH, ibv_ah, ibv_ah_attr, ibv_context, ibv_global_route, ibv_grh, ibv_pd, ibv_wc};
use crate::verbs::{Handle, SoftPd, adapter, number, pointer};

pub(crate) type SoftAh = Handle<ibv_ah, Ah>;

pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: `pd` is allocated, so its context open, and `attr` readable (rule V).
    let (context, engine) = unsafe {
        let hca = adapter((*pd).context);
        ((*pd).context, hca.create_ah(&SoftPd::of(pd).engine, &*attr))
    };
    pointer(engine.map(|engine| SoftAh::hand_out(ibv_ah { context, pd, handle: 0 }, engine)))
}

unsafe fn sender(context: *mut ibv_context, port: u8, wc: &ibv_wc, grh: *const ibv_grh) -> Result<ibv_ah_attr> {
    let mut address = ibv_ah_attr {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num: port,
        ..ibv_ah_attr::default()
    };
    if wc.wc_flags & IBV_WC_GRH != 0 {
        // SAFETY: the completion says that there is a GRH, and the program says that this is it.
        let grh = unsafe { grh.read_unaligned() };
        // SAFETY: the context is open; both members of the union are the same 16 bytes.
        let (hca, own) = unsafe { (adapter(context), grh.dgid.raw) };
        let gids = &hca.port(u32::from(port))?.gids;
        let index = gids.iter().position(|gid| gid.raw == own).ok_or(Errno(libc::EINVAL))?;
        let version_tclass_flow = u32::from_be(grh.version_tclass_flow);
        address.is_global = 1;
        address.grh = ibv_global_route {
            dgid: grh.sgid,
            flow_label: version_tclass_flow & 0xf_ffff,
            sgid_index: index as u8,
            hop_limit: 0xff,
            traffic_class: (version_tclass_flow >> 20) as u8,
        };
    }
    Ok(address)
}

pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: `context` is open, `wc` a completion with its header, and `attr` writable (rule V).
    number(unsafe { sender(context, port_num, &*wc, grh).map(|address| attr.write(address)) })
}

pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    // SAFETY: `pd` is allocated, so its context open, and `wc` a completion with its header (rule V).
    match unsafe { sender((*pd).context, port_num, &*wc, grh) } {
        // SAFETY: `pd` is allocated; the attributes are our own (rule V).
        Ok(mut address) => unsafe { ibv_create_ah(pd, &raw mut address) },
        Err(errno) => pointer(Err(errno)),
    }
}

pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: `ah` is not destroyed, and given up if this succeeds (rule V).
    unsafe { SoftAh::end(ah, Ah::destroy) }
}
