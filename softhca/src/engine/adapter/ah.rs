// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address handles: where datagrams go, resolved once.
//!
//! Called by: the C side; `send::post` reads the resolved port. Grade: setup. Thread rule: any thread.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::{
    Errno, Result,
    adapter::{
        hca::Hca,
        pd::{InPd, Pd},
    },
    codes::link_layer,
    spec::{
        attributes::{AhAttr, set_of},
        device::Gid,
    },
};

/// An address handle.
pub struct Ah {
    attr: AhAttr,
    pub(crate) pd: u32,
    /// Adapter and port that have this address; a multicast group has none.
    pub(crate) to: Option<(u32, u32)>,
    /// Its number, where the adapter looks the handle up when it sends; else 0.
    pub(crate) handle: u32,
    hca: Arc<Hca>,
    in_pd: Mutex<Option<InPd>>,
}

impl Ah {
    /// As created.
    #[must_use]
    pub fn attr(&self) -> &AhAttr {
        &self.attr
    }

    /// # Errors
    /// None today.
    pub fn destroy(&self) -> Result<()> {
        self.in_pd.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.hca.fabric.handles.leave(self.handle);
        Ok(())
    }
}

impl Hca {
    /// An address handle.
    /// # Errors
    /// EINVAL: no such port or GID index; on Ethernet an address without GRH.
    pub fn create_ah(self: &Arc<Self>, pd: &Pd, attr: &AhAttr) -> Result<Ah> {
        check(self, attr)?;
        let attr = set_of(attr);
        let to = self.fabric.route(self.device, attr.port_num, &attr);
        let handle = if self.behaviour().ah_by_index { self.fabric.next_id() } else { 0 };
        if handle != 0 {
            self.fabric.handles.enter(handle);
        }
        let in_pd = Mutex::new(Some(pd.enter()));
        Ok(Ah { attr, pd: pd.0.id, to, handle, hca: Arc::clone(self), in_pd })
    }
}

/// Whether an address can be used from this adapter.
pub(crate) fn check(hca: &Hca, attr: &AhAttr) -> Result<()> {
    let spec = hca.spec();
    if attr.port_num == 0 || usize::from(attr.port_num) > spec.ports.len() {
        return Err(Errno(libc::EINVAL));
    }
    let gids = &hca.fabric.port(hca.device, u32::from(attr.port_num)).gids;
    let is_global = attr.is_global != 0;
    if is_global && gids.get(usize::from(attr.grh.sgid_index)).is_none_or(Gid::is_empty) {
        return Err(Errno(libc::EINVAL));
    }
    if spec.link_layer == link_layer::ETHERNET && !is_global {
        return Err(Errno(libc::EINVAL));
    }
    Ok(())
}
