// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that another port of this process carries, because their port has no link or could not connect to the peer.
//! ob1 keeps choosing the ports in turn. If the engine refuses a message because its peer is diverted
//! (`engine::transport`, `divert_all`), this file copies the message to a slot of another port, which sends it. So the
//! tables of ob1 and bml, to whose entries ob1 keeps pointers, stay unchanged. A message with a key of its port's
//! memory is never diverted. Called by `send`, `completion`, `failures` and `functions`. Grade: pending; a detour costs
//! a copy. Threads: any; a thread enters one port at a time. Tests: `hw-tests`.

use std::ffi::c_int;

use engine::peer::PeerName;
use engine::transport::{Cause, EndpointId, Failed, Sent, Token, WhenDiverted};
use ibex_ffi::openmpi::sys;

use super::descriptor::pool::Descriptor;
use super::send::wait;
use crate::btl::module::{self, Module, State};
use crate::btl::{failures, token};
use crate::runtime::entry::entry4;
use crate::runtime::failures::print_reasons_except;
use crate::runtime::free_list::Owned;
use crate::runtime::guard::fence;
use crate::runtime::messages;

/// Tags of ob1's messages (`pml_ob1_hdr.h`): a whole message, a rendezvous request whose rest is sent, its
/// acknowledgement, a fragment of a longer message, and the end of an RDMA read or write.
const MATCH: u8 = sys::MCA_BTL_TAG_PML as u8 + 1;
const RENDEZVOUS: u8 = MATCH + 1;
const ACKNOWLEDGEMENT: u8 = MATCH + 3;
const FRAGMENT: u8 = MATCH + 5;
const FINISHED: u8 = MATCH + 8;

/// Returns whether any port can send a message with this tag. Only its own port can if it has a key of its memory.
fn goes_by_any_port(tag: u8) -> bool {
    matches!(tag, MATCH | RENDEZVOUS | ACKNOWLEDGEMENT | FRAGMENT | FINISHED)
}

/// Starts or ends the diversion of a module's messages when its port has lost its link or has it back.
#[cold]
pub(crate) fn link_changed(module: &Module, is_up: bool) {
    if module::all().count() < 2 {
        return;
    }
    if is_up {
        come_back(module);
        return;
    }
    let Some(mut state) = module.enter() else { return };
    state.port.divert_all(|tag| goes_by_any_port(tag) && tag != FRAGMENT);
    drop(state);
    module.has_detours(true);
    messages::rail_down(module.place());
}

/// Ends the diversion of each peer to which no other port has unfinished messages, because ob1 needs the fragments of a
/// message in order. It does not wait for messages at a port without a link.
fn come_back(module: &Module) {
    let busy = |name| {
        others(module)
            .any(|other| other.enter().is_some_and(|state| !state.port.is_down() && state.port.is_busy_with(name)))
    };
    let Some(diverted) = module.enter().map(|state| state.port.diverted()) else { return };
    let free: Vec<PeerName> = diverted.into_iter().filter(|name| !busy(*name)).collect();
    let Some(mut state) = module.enter() else { return };
    let left = state.port.undivert(|name| free.contains(&name));
    drop(state);
    if left == 0 && module.is_detouring() {
        module.has_detours(false);
        messages::rail_back(module.place());
    }
}

/// Handles a failed connection to a peer. True: it could not be made, and messages are diverted to another port.
#[cold]
pub(crate) fn goes_around(module: &Module, to: EndpointId) -> bool {
    let Some((name, failure)) =
        module.enter().and_then(|state| Some((state.port.peer_name(to)?, state.port.failure(to)?.clone())))
    else {
        return false;
    };
    if !matches!(failure.cause, Cause::Connect { .. }) {
        return false;
    }
    let Some(other) = others(module).find(|other| reaches(other, name)) else { return false };
    module.has_detours(true);
    if let Some(mut state) = module.enter() {
        print_reasons_except(&mut state.port, &failure.to_string());
    }
    messages::rail_unusable(&failure, other.place());
    true
}

/// Returns whether this port should register no memory for the peer, because another port carries its messages.
#[cold]
pub(crate) fn is_away(module: &Module, to: EndpointId) -> bool {
    let name = module.enter().filter(|state| state.port.is_diverted(to)).and_then(|state| state.port.peer_name(to));
    name.is_some_and(|name| others(module).any(|other| reaches(other, name)))
}

/// Returns whether this port should register no memory for the peer yet: it may reach none of the peer's ports, and a
/// message with a key of it cannot be diverted.
pub(crate) fn is_unproven(module: &Module, to: EndpointId) -> bool {
    let name =
        module.enter().and_then(|mut state| state.port.is_unproven(to).then(|| state.port.peer_name(to)).flatten());
    name.is_some_and(|name| others(module).any(|other| reaches(other, name)))
}

/// Sends a refused message by another port, or queues it at this one. Returns the code for `btl_send`.
#[cold]
#[inline(never)]
pub(crate) fn send(module: &Module, to: EndpointId, tag: u8, descriptor: Owned<Descriptor>) -> c_int {
    let carried = carry(module, to, tag, &descriptor);
    let Some(mut state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    let waits = match carried {
        Some(Carried::Posted) => {
            state.port.complete(to, token::descriptor(&descriptor), false);
            true
        }
        Some(Carried::Waiting) => true,
        None => wait(&mut state.port, to, tag, descriptor, WhenDiverted::Wait).is_ok(),
    };
    drop(state);
    if waits { sys::OPAL_SUCCESS } else { failures::refused(module) }
}

pub(crate) enum Again {
    Sent(Owned<Descriptor>),
    /// It waits, at another port or at its own; its token will be given back again.
    UnderWay,
    Failed(Owned<Descriptor>),
}

/// Sends a message that the engine gave back by another port, or queues it here again. A posted message has failed.
#[cold]
#[inline(never)]
pub(crate) fn again(module: &Module, to: EndpointId, descriptor: Owned<Descriptor>, failed: Failed) -> Again {
    if failed.posted {
        return Again::Failed(descriptor);
    }
    // It was not posted, so it waited, and `wait` noted its tag.
    let tag = descriptor.tag;
    // If a connection was made, other fragments of the message may have been posted. If not, the engine gives them back
    // with this one, and ob1 makes no more fragments before the other port has sent all of them.
    let is_fragment = tag == FRAGMENT;
    let stays = is_fragment && !never_connected(module, to);
    match if stays { None } else { carry(module, to, tag, &descriptor) } {
        Some(Carried::Posted) if is_fragment => {
            if let Some(mut state) = module.enter() {
                state.port.complete(to, token::descriptor(&descriptor), false);
            }
            Again::UnderWay
        }
        Some(Carried::Posted) => Again::Sent(descriptor),
        Some(Carried::Waiting) => Again::UnderWay,
        None => match module.enter() {
            Some(mut state) => wait(&mut state.port, to, tag, descriptor, WhenDiverted::Wait)
                .map_or_else(Again::Failed, |()| Again::UnderWay),
            None => Again::Failed(descriptor),
        },
    }
}

fn never_connected(module: &Module, to: EndpointId) -> bool {
    let is_unmade = |state: State<'_>| matches!(state.port.failure(to)?.cause, Cause::Connect { .. }).then_some(());
    module.enter().and_then(is_unmade).is_some()
}

enum Carried {
    Posted,
    /// It waits. When its copy completes, the token of the original descriptor is given back.
    Waiting,
}

/// Copies a message to another port and sends it there. `None`: no other port can take it.
fn carry(module: &Module, to: EndpointId, tag: u8, descriptor: &Owned<Descriptor>) -> Option<Carried> {
    let (name, is_busy) = module.enter().filter(|state| state.port.is_diverted(to)).and_then(|state| {
        let name = state.port.peer_name(to)?;
        Some((name, state.port.is_busy_with(name)))
    })?;
    // A fragment must not overtake earlier ones that are at this port.
    if !goes_by_any_port(tag) || (is_busy && tag == FRAGMENT) {
        return None;
    }
    let original = Original { module: module.index, to, token: token::descriptor(descriptor) };
    others(module).find_map(|other| take_over(other, name, tag, descriptor, original))
}

#[derive(Clone, Copy)]
struct Original {
    module: u8,
    to: EndpointId,
    token: Token,
}

fn take_over(module: &Module, name: PeerName, tag: u8, descriptor: &Descriptor, original: Original) -> Option<Carried> {
    let mut state = module.enter()?;
    let State { port, descriptors, .. } = &mut state;
    let to = port.reaches(name)?;
    let size = descriptor.length() as usize;
    let mut copy = descriptors.take(&mut **port, size, sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)?;
    copy.copy_from(descriptor);
    if copy.has_slot() {
        let (spans, count) = copy.spans();
        if port.send(to, tag, &spans[..count], token::descriptor(&copy), false) == Ok(Sent::Posted) {
            return Some(Carried::Posted);
        }
    }
    copy.base.des_cbfunc = Some(entry4(copy_done));
    copy.base.des_cbdata = Box::into_raw(Box::new(original)).cast();
    let refused = match wait(port, to, tag, copy, WhenDiverted::Refuse) {
        Ok(()) => return Some(Carried::Waiting),
        Err(copy) => copy,
    };
    // SAFETY: made above for the callback of this copy, which the engine has refused.
    drop(unsafe { Box::from_raw(refused.base.des_cbdata.cast::<Original>()) });
    // SAFETY: M2: it was taken from this port's pools, above.
    unsafe { descriptors.give_back(refused) };
    None
}

/// Completes the message whose copy has completed (`btl.h`, `mca_btl_base_completion_fn_t`).
extern "C" fn copy_done(
    _: &Module,
    _peer: *mut sys::mca_btl_base_endpoint_t,
    copy: &mut sys::mca_btl_base_descriptor_t,
    status: c_int,
) {
    fence("the end of a message that another port carried", (), || {
        // SAFETY: `take_over` made the box for this copy, which completes once.
        let original = unsafe { Box::from_raw(copy.des_cbdata.cast::<Original>()) };
        let module = module::all().find(|module| module.index == original.module);
        if let Some(mut state) = module.and_then(Module::enter) {
            state.port.complete(original.to, original.token, status != sys::OPAL_SUCCESS);
        }
    });
}

fn reaches(module: &Module, name: PeerName) -> bool {
    module.enter().is_some_and(|state| state.port.reaches(name).is_some())
}

fn others(module: &Module) -> impl Iterator<Item = &'static Module> {
    let index = module.index;
    module::all().filter(move |other| other.index != index)
}
