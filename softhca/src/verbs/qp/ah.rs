// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_ah`: address handles, and `ibv_ah_attr`, the address of a peer, which queue pairs have too.
//! Grade: setup. Threads: any. Byte orders: a GID is its 16 bytes on the wire; a GRH is big-endian.

use std::ffi::c_int;

use crate::engine::{Ah, AhAttr, Errno, Result};
use crate::sys::{IBV_WC_GRH, ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_grh, ibv_pd, ibv_wc};
use crate::verbs::context::SoftContext;
use crate::verbs::error::{number, pointer};
use crate::verbs::handle::Handle;
use crate::verbs::pd::SoftPd;

/// An address handle as programs hold it.
pub(crate) type SoftAh = Handle<ibv_ah, Ah>;

/// An address that is not given.
pub(super) fn attr_none() -> AhAttr {
    AhAttr::default()
}

/// C's address for the engine. The route is looked at only if the address is global.
pub(super) fn attr_in(attr: &ibv_ah_attr) -> AhAttr {
    let is_global = attr.is_global != 0;
    let mut address = AhAttr {
        is_global,
        dlid: attr.dlid,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        port_num: attr.port_num,
        ..AhAttr::default()
    };
    if is_global {
        // SAFETY: both members of the union are the same 16 bytes.
        address.dgid = unsafe { attr.grh.dgid.raw };
        address.flow_label = attr.grh.flow_label;
        address.sgid_index = attr.grh.sgid_index;
        address.hop_limit = attr.grh.hop_limit;
        address.traffic_class = attr.grh.traffic_class;
    }
    address
}

/// The engine's address for C.
pub(super) fn attr_out(address: &AhAttr) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: address.dgid },
            flow_label: address.flow_label,
            sgid_index: address.sgid_index,
            hop_limit: address.hop_limit,
            traffic_class: address.traffic_class,
        },
        dlid: address.dlid,
        sl: address.sl,
        src_path_bits: address.src_path_bits,
        static_rate: address.static_rate,
        is_global: u8::from(address.is_global),
        port_num: address.port_num,
    }
}

/// `ibv_create_ah(3)`.
///
/// # Safety
/// `pd` is allocated; `attr` is readable.
pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the caller says that `pd` is allocated, so its context open, and `attr` readable.
    let (context, engine) = unsafe {
        let hca = SoftContext::of((*pd).context).hca();
        ((*pd).context, hca.create_ah(&SoftPd::of(pd).engine, &attr_in(&*attr)))
    };
    pointer(engine.map(|engine| SoftAh::hand_out(ibv_ah { context, pd, handle: 0 }, engine)))
}

/// The address of who sent a datagram.
unsafe fn sender(context: *mut ibv_context, port: u8, wc: &ibv_wc, grh: *const ibv_grh) -> Result<ibv_ah_attr> {
    let mut address =
        AhAttr { dlid: wc.slid, sl: wc.sl, src_path_bits: wc.dlid_path_bits, port_num: port, ..AhAttr::default() };
    if wc.wc_flags & IBV_WC_GRH != 0 {
        // SAFETY: the completion says that there is a GRH, and the program says that this is it.
        let grh = unsafe { grh.read_unaligned() };
        // SAFETY: the context is open; both members of the union are the same 16 bytes.
        let (hca, own) = unsafe { (SoftContext::of(context).hca(), grh.dgid.raw) };
        let gids = &hca.port(u32::from(port))?.gids;
        let index = gids.iter().position(|gid| gid.raw == own).ok_or(Errno(libc::EINVAL))?;
        let version_tclass_flow = u32::from_be(grh.version_tclass_flow);
        address.is_global = true;
        // SAFETY: both members of the union are the same 16 bytes.
        address.dgid = unsafe { grh.sgid.raw };
        address.sgid_index = index as u8;
        address.flow_label = version_tclass_flow & 0xf_ffff;
        address.traffic_class = (version_tclass_flow >> 20) as u8;
        address.hop_limit = 0xff;
    }
    Ok(attr_out(&address))
}

/// `ibv_init_ah_from_wc(3)`.
///
/// # Safety
/// `context` is open; `wc` is a receive completion, `grh` its header where it has one; `attr` is writable.
pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the caller says that `context` is open, `wc` a completion with its header, and `attr` writable.
    number(unsafe { sender(context, port_num, &*wc, grh).map(|address| attr.write(address)) })
}

/// `ibv_create_ah_from_wc(3)`.
///
/// # Safety
/// `pd` is allocated; `wc` is a receive completion, `grh` its header where it has one.
pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    // SAFETY: the caller says that `pd` is allocated, so its context open, and `wc` a completion with its header.
    match unsafe { sender((*pd).context, port_num, &*wc, grh) } {
        // SAFETY: the caller says that `pd` is allocated; the attributes are our own.
        Ok(mut address) => unsafe { ibv_create_ah(pd, &raw mut address) },
        Err(errno) => pointer(Err(errno)),
    }
}

/// `ibv_destroy_ah(3)`.
///
/// # Safety
/// `ah` is not destroyed, and given up if this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the caller says that `ah` is not destroyed, and given up if this succeeds.
    unsafe { SoftAh::end(ah, Ah::destroy) }
}
