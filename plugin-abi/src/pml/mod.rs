// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML: Open MPI's component for MPI's point-to-point messages. Its interface is `ompi/mca/pml/pml.h`.
//!
//! - Called by Open MPI: `component` (life of the PML), and `module`: the table of functions, with those that add
//!   processes and communicators, send, receive and probe. Their objects: `request`, `communicator`, `datatype`.
//! - The process: `instance` (the state, and the right to use it), `progress` (polls, hands what arrived to the
//!   messenger, and leaves the PML).
//! - Called by the messenger, which does matching and protocols (`engine::messenger`): `host` (requests, memory,
//!   ports), `communicator`, `peers` (which route leads to a peer), and `tools` (all that tools see).
//!
//! A thread *has entered the PML* while it holds `Entered<State>` or a `&mut State` borrowed from it. *Nothing is
//! entered* while the thread has entered neither the PML nor a port. Safety: unsafe blocks of this folder cite the
//! rules of the crate's head and these:
//! - **P1** The memory of requests lives as long as the PML, so a `Handle` leads to it at any time. A request is alive
//!   from `State::requests.take` to `State::requests.give_back`, which takes only a request that is finished or was
//!   never begun, and to which nothing refers any more. So a handle in a communicator's queue, in `State`, in a token
//!   that the engine returns, or owned by a call leads to a request that is alive. While a request is not finished, its
//!   communicator and datatype live, too. After `host::finish` only its owner uses a request. The PML's
//!   communicators in `contexts` of the messenger's state are alive, so a `&'static Communicator` that comes from there
//!   or from an unfinished request may be used while the PML is entered without a break.
//! - **P2** The memory that the data of a request or a call describes may be read (send) or written (receive) until the
//!   request is finished or the call returns. MPI forbids the program to touch it meanwhile (MPI 4.1, section 3.7.2).
//! - **P3** Only the thread that has entered the PML uses `State` and everything that it leads to (requests, queues and
//!   listeners of communicators, send buffers, batches). A `&mut State` is the proof of it. References to a request
//!   (`State::requests.get`, `cores`) and to the queues of a communicator borrow the state, so they are the only ones.
//!
//! Entry points have types for such arguments (`Comm`, `Datatype`, `Buffer`, `RawRequest`, `Matched`), and
//! `Description` and `Extent` are made of them. Nobody else makes one without unsafe code, and their values are used
//! until the call returns, or until the request that has noted them is finished: so P2 and M4 hold for each of them.
//!
//! A function that takes a handle, safe or not, takes that of an unfinished request; if the function begins or posts
//! the request, the caller has filled it in, and nobody else has it (P1). A message passed with a receive matches it.
//!
//! An unsafe function without a `# Safety` section requires of its caller: The PML is entered if the function gets a
//! `Request`, `Listeners` or a `&Communicator` (P3). A communicator lives, and was added to the PML and not removed;
//! listeners are its own. Arguments of MPI and Open MPI are valid (M4). Data, extents, messages, and pointers with a
//! length may be read or written during the call (P2).

mod communicator;
mod component;
mod datatype;
mod host;
mod instance;
mod module;
mod peers;
mod progress;
mod request;
mod tools;

#[cfg(test)]
pub(crate) mod tests;
