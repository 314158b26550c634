// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address handles: where datagrams go, resolved once.
//!
//! Called by: the C side; sendq reads the resolved port. Grade: setup.

use std::sync::Arc;

use super::{
    AhAttr, Errno, Pd, Result,
    codes::link_layer,
    hca::Hca,
    pd::{InPd, PdState},
};

/// An address handle.
pub struct Ah {
    attr: AhAttr,
    pub(crate) pd: u32,
    /// Adapter and port that have this address; a multicast group has none.
    pub(crate) to: Option<(u32, u32)>,
    in_pd: std::sync::Mutex<Option<InPd>>,
}

impl Ah {
    pub(crate) fn new(hca: &Arc<Hca>, pd: &Pd, attr: &AhAttr) -> Result<Ah> {
        check(hca, attr)?;
        let state: &PdState = &pd.0;
        let to = hca.fabric.route(hca.device, attr.port_num, attr);
        Ok(Ah { attr: *attr, pd: state.id, to, in_pd: std::sync::Mutex::new(Some(pd.enter())) })
    }

    /// As created.
    #[must_use]
    pub fn attr(&self) -> &AhAttr {
        &self.attr
    }

    /// # Errors
    /// None today.
    pub fn destroy(&self) -> Result<()> {
        self.in_pd.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        Ok(())
    }
}

/// Whether an address can be used from this adapter.
pub(crate) fn check(hca: &Hca, attr: &AhAttr) -> Result<()> {
    let spec = hca.spec();
    let port = spec.ports.get(usize::from(attr.port_num).wrapping_sub(1)).ok_or(Errno(libc::EINVAL))?;
    if attr.is_global && usize::from(attr.sgid_index) >= port.gids.len() {
        return Err(Errno(libc::EINVAL));
    }
    if spec.link_layer == link_layer::ETHERNET && !attr.is_global {
        return Err(Errno(libc::EINVAL));
    }
    Ok(())
}
