// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that wait in the engine, in order, until they can be posted.
//!
//! Called by `send` and `detour`. Grade: pending. Threads: inside the port.

use engine::transport::EndpointId;
use engine::transport::Port;
use engine::transport::Refused;
use engine::transport::WhenDiverted;

use super::descriptor::pool::{Descriptor, bytes, spans};
use super::token;

/// Lets a descriptor's message wait. Its callback comes: the upper layer may be waiting for it to go.
///
/// # Errors
/// Those of [`Port::queue_send`].
///
/// # Safety
/// M2; the descriptor is filled and was not posted.
pub(crate) unsafe fn wait(
    port: &mut Port,
    to: EndpointId,
    tag: u8,
    descriptor: *mut Descriptor,
    when: WhenDiverted,
) -> Result<(), Refused> {
    // SAFETY: M2.
    unsafe {
        (*descriptor).callback_wanted = true;
        (*descriptor).tag = tag;
    }
    // SAFETY: M2.
    if let Some(message) = unsafe { bytes(descriptor) } {
        return port.queue_bytes(to, tag, message, token::descriptor(descriptor), when);
    }
    // SAFETY: M2; the second segment was made by btl_prepare_src.
    let (spans, count) = unsafe { spans(descriptor) };
    port.queue_send(to, tag, &spans[..count], token::descriptor(descriptor), when)
}
