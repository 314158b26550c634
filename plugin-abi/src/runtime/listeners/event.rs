// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of requests and messages, and the specifications with which listeners are called. Grade: setup.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ibex_ffi::openmpi::sys;

macro_rules! events {
    ($(#[$of_all:meta])* enum Event { $($(#[$of_one:meta])* $name:ident,)* }) => {
        $(#[$of_all])*
        pub(crate) enum Event { $($(#[$of_one])* $name,)* }

        impl Event {
            pub(crate) const ALL: [Event; [$(Event::$name),*].len()] = [$(Event::$name),*];
        }
    };
}

events! {
    /// Events of requests and messages. The numbers are those of PERUSE (`include/peruse.h`) minus 1.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(u8)]
    enum Event {
        Activate,
        MatchUnexpected,
        InsertPosted,
        RemovePosted,
        XferBegin,
        XferEnd,
        Complete,
        Notify,
        Arrived,
        InsertUnexpected,
        RemoveUnexpected,
        MatchPosted,
        SearchPostedBegin,
        SearchPostedEnd,
        SearchUnexpectedBegin,
        SearchUnexpectedEnd,
        XferContinue,
        Cancel,
        Free,
        /// The protocol of a request's message ([`super::Listeners::tell_protocol`]). PERUSE has no such event.
        Protocol,
        /// No PERUSE event. While [`super::NOBODY`] listens to it, the PML raises the engine's transfers and arrivals.
        Transfer,
    }
}

/// `peruse_comm_spec_t`, as a callback gets it, followed by fields that PERUSE does not have.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) comm: *mut sys::ompi_communicator_t,
    pub(crate) buf: *mut c_void,
    pub(crate) count: c_int,
    pub(crate) datatype: *mut sys::ompi_datatype_t,
    pub(crate) peer: c_int,
    pub(crate) tag: c_int,
    pub(crate) operation: c_int,
    /// Context number of the communicator. This and the following fields are ibex' own; this one fills C's padding.
    pub(crate) context: u32,
    pub(crate) bytes: u64,
    /// Time of the event, once a listener has read the clock. Before that it is 0, or `TOLD` (`tool/instance.rs`) after
    /// the first of several listeners. A lone listener ignores the previous value.
    pub(crate) stamp: u64,
}

impl Spec {
    pub(crate) const EMPTY: Spec = Spec {
        comm: null_mut(),
        buf: null_mut(),
        count: 0,
        datatype: null_mut(),
        peer: 0,
        tag: 0,
        operation: 0,
        context: 0,
        bytes: 0,
        stamp: 0,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Protocol {
    Inline,
    /// Eager: copied into a send buffer, and on the receiver's side out of a receive slot.
    Copied,
    /// Announced; the receiver reads it by RDMA.
    Read,
    /// Announced; the sender sends copied fragments.
    Pieces,
    /// Copied through the memory that the processes of a host share.
    SharedMemory,
    Oneself,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    Size,
    /// Traces of former versions have it.
    Synchronous,
    /// The sender's or the receiver's datatype has gaps.
    Gaps,
    NotRegistered,
    /// The receiver holds its senders back (flow control).
    HeldBack,
    /// The adapter does not support the better protocol, or no port is left that can read.
    Adapter,
    Oneself,
    SameHost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    pub(crate) protocol: Protocol,
    pub(crate) reason: Reason,
    /// Index of the port among the ports of the process; [`Passage::NO_PORT`]: none.
    pub(crate) port: u32,
    /// Number of this side's queue pair; 0: none.
    pub(crate) queue_pair: u32,
    /// Number of ports that carry the message.
    pub(crate) rails: u32,
}

impl Passage {
    pub(crate) const NO_PORT: u32 = u32::MAX;
}

/// Argument of listeners to [`Event::Protocol`], in place of a [`Spec`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtocolSpec {
    /// Specification of the request; only `bytes` is the message's.
    pub(crate) spec: Spec,
    /// For a receive: number of its message.
    pub(crate) message: u64,
    pub(crate) passage: Passage,
}
