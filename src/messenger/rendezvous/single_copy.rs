// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single-copy rendezvous within a host: the kernel copies the message from the sender's memory to the user's buffer
//! (CMA). If it forbids that, the receiver asks for copies (`fragments.rs`).
//!
//! Called by `delivery`, and by the host when the kernel has copied. Grade: pending. Threads: the one that has entered
//! the messenger. Tests: `messenger/tests`, and `device/local.rs` in `hw-tests`.

use super::{Step, fragments};
use crate::messenger::events;
use crate::messenger::events::transfers::Bytes;
use crate::messenger::header::Header;
use crate::messenger::host::Host;
use crate::messenger::path_taken::Reason;
use crate::messenger::request::Transfer;
use crate::messenger::request::transfer_id::TransferId;
use crate::messenger::route::Route;

/// Starts to copy the first `wanted` bytes, at least 1, of a message to the contiguous buffer of its receive. Returns
/// false if the host cannot.
pub fn begin<H: Host>(
    process: &H::Process,
    host: &mut H,
    request: H::Handle,
    (route, sender, address): (Route, TransferId, u64),
    wanted: u64,
) -> bool {
    let core = host.core(request);
    core.route = route;
    core.transfer = Transfer::SingleCopy(sender, wanted);
    events::begins(host, request, Bytes::None.posted());
    let is_begun = host.copy_from_process(process, request, route, (address, wanted));
    if !is_begun {
        // The host does not call `done` if it copies nothing.
        host.core(request).transfer = Transfer::None;
    }
    is_begun
}

/// Finishes a receive whose message was copied; otherwise asks for copies.
pub fn done<H: Host>(process: &H::Process, host: &mut H, request: H::Handle, is_copied: bool) {
    let core = host.core(request);
    let (route, &Transfer::SingleCopy(sender, length)) = (core.route, &core.transfer) else { return };
    core.transfer = Transfer::None;
    if !is_copied {
        return fragments::ask(process, host, request, (route, sender), (length, Reason::NotRegistered));
    }
    events::ends(host, request, Bytes::Of { offset: 0, length }.posted());
    super::enter(host, request, &Step::Fetched(sender, length));
    host.control(process, route, &Header::Finished { request: sender.0, length });
    host.finish(request);
}
