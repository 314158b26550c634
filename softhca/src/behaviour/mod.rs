// SPDX-License-Identifier: MIT OR Apache-2.0
//! How an adapter behaves where verbs allow real adapters to differ: the keys of `[device.behaviour]` and their
//! defaults. docs/softhca.md documents each key; `profiles` has the values of real adapters. Called by: the
//! configuration (reads them), the engine and `verbs` (act by them). Grade: setup; the engine looks up a behaviour only
//! if a request fails, an object is made, a queue is armed or a datagram arrives.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::engine::codes::event;

mod values;

pub use values::{
    AtomicAccess, ByteLen, CreateErrno, Fork, InlineGrant, Lost, OptionalAccess, Purge, Refusal, SendBeforeRts, SrcQp,
};

/// Defines [`Behaviour`], and the table of the file in which every key may be left out.
macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident: $kind:ty = $usual:expr;)*) => {
        /// How one adapter behaves.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Behaviour {
            $($(#[$doc])* pub $key: $kind,)*
        }

        impl Behaviour {
            /// The behaviour of an adapter without a profile.
            pub const USUAL: Behaviour = Behaviour { $($key: $usual,)* };
        }

        /// `[device.behaviour]`
        #[derive(Clone, Copy, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Given {
            $($key: Option<$kind>,)*
        }

        impl Given {
            /// Returns `base` with the given keys in place of its own.
            pub(crate) fn over(&self, base: &Behaviour) -> Behaviour {
                Behaviour { $($key: self.$key.unwrap_or(base.$key),)* }
            }
        }
    };
}

keys! {
    /// Whether sysfs has the adapter among the devices without a bus, like the kernel's software adapters.
    virtual_device: bool = false;
    /// Answer to a request for `REMOTE_ATOMIC` if the adapter has no atomics.
    atomic_access_without_cap: AtomicAccess = AtomicAccess::Einval;
    /// Answer to a registration with flags of the optional range (relaxed ordering).
    optional_access: OptionalAccess = OptionalAccess::Accepted;
    /// Fate of unpolled completions when their queue pair is destroyed or reset.
    purge_cq_on_destroy: Purge = Purge::Skip;
    /// Requests of a shared receive queue that are lost when a queue pair is destroyed or reset.
    srq_wr_lost_on_destroy: Lost = Lost::No;
    /// Whether a queue pair that was in ERR, or was reset, can be used again.
    qp_recycle_via_reset: bool = true;
    /// Whether there are shared receive queues.
    srq: bool = true;
    /// Error of making a shared receive queue if there are none.
    srq_errno: Refusal = Refusal::Eopnotsupp;
    /// Whether there are extended completion queues.
    cq_ex: bool = true;
    /// Whether `IBV_WC_STANDARD_FLAGS` is accepted; otherwise its `DLID_PATH_BITS` is not.
    standard_wc_flags: bool = true;
    /// Whether completions can carry raw times.
    timestamps: bool = true;
    /// Whether completions can carry times of the host's clock.
    wallclock: bool = true;
    /// Without timestamps: the number of bits of one that a query reports nevertheless.
    refused_timestamp_bits: u8 = 0;
    /// Whether the adapter's clock can be read (`ibv_query_rt_values_ex`).
    rt_values: bool = true;
    /// Whether there is `ibv_create_qp_ex`, and so `ibv_wr_*`.
    wr_api: bool = true;
    /// Whether there are thread and parent domains.
    thread_domain: bool = true;
    /// Whether a send names its address handle by an index that the adapter looks up when it sends.
    ah_by_index: bool = false;
    /// Whether `QP_LAST_WQE_REACHED` is raised.
    last_wqe_event: bool = true;
    /// Whether a queue pair that has used up its retries also raises `QP_FATAL`.
    qp_fatal_on_retry_exc: bool = false;
    /// Which async events are raised.
    async_events: Events = Events::ALL;
    /// Whether arming a completion queue gives an event at once if unpolled completions wait in it.
    arm_tells_of_unread: bool = false;
    /// Whether a queue pair that an access of its peer has stopped flushes its requests only once its event is read.
    flush_needs_async_read: bool = false;
    /// Whether `ibv_poll_cq` writes `byte_len` and `vendor_err` of a send that succeeded.
    success_byte_len_on_send: ByteLen = ByteLen::Set;
    /// Whether the upper 8 bits of `src_qp` of a datagram are right.
    src_qp_top_bits: SrcQp = SrcQp::Right;
    /// Value of `errno` after making a queue pair beyond the limits has failed.
    create_qp_errno_on_limit: CreateErrno = CreateErrno::Einval;
    /// Error of posting a send with too many pieces.
    errno_sge: Refusal = Refusal::Einval;
    /// Error of posting a send with too much inline data.
    errno_inline: Refusal = Refusal::Einval;
    /// Answer to a send that is posted before RTS.
    send_before_rts: SendBeforeRts = SendBeforeRts::Einval;
    /// Whether a retry count of 7 means for ever.
    retry7_endless: bool = false;
    /// Whether an RNR retry count of 7 means for ever.
    rnr7_endless: bool = true;
    /// Whether a connection stops when the GID that it sends from leaves the table.
    gid_vanish_kills_rc: bool = false;
    /// Rule for the amount of inline data that is granted.
    inline_grant: InlineGrant = InlineGrant::Largest;
    /// Whether the kernel copies pinned pages at a fork.
    fork: Fork = Fork::Unneeded;
}

/// A set of groups of async events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events(u16);

const GROUPS: [(&str, &[u32]); 9] = [
    ("port", &[event::PORT_ACTIVE, event::PORT_ERR]),
    ("gid", &[event::GID_CHANGE]),
    ("subnet", &[event::LID_CHANGE, event::PKEY_CHANGE, event::SM_CHANGE, event::CLIENT_REREGISTER]),
    ("qp", &[event::QP_FATAL, event::QP_REQ_ERR, event::QP_ACCESS_ERR, event::SQ_DRAINED]),
    ("comm-est", &[event::COMM_EST]),
    ("last-wqe", &[event::QP_LAST_WQE_REACHED]),
    ("cq", &[event::CQ_ERR]),
    ("srq", &[event::SRQ_LIMIT_REACHED, event::SRQ_ERR]),
    ("device", &[event::DEVICE_FATAL]),
];

impl Events {
    /// The set of all events.
    pub const ALL: Events = Events((1 << GROUPS.len()) - 1);

    /// Whether `event` (`codes::event`) is raised.
    pub fn raises(self, event: u32) -> bool {
        GROUPS.iter().enumerate().any(|(group, (_, events))| self.0 & (1 << group) != 0 && events.contains(&event))
    }
}

impl<'de> Deserialize<'de> for Events {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut set = 0;
        for given in Vec::<String>::deserialize(deserializer)? {
            let Some(group) = GROUPS.iter().position(|(name, _)| *name == given) else {
                let names = GROUPS.map(|(name, _)| name).join(", ");
                return Err(D::Error::custom(format!("{given:?} is no group of async events: one of {names}")));
            };
            set |= 1 << group;
        }
        Ok(Events(set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_in_one_group() {
        for event in 0..=event::GID_CHANGE {
            let groups = GROUPS.iter().filter(|(_, events)| events.contains(&event)).count();
            // PATH_MIG and PATH_MIG_ERR are not emulated.
            let is_emulated = !matches!(event, 6 | 7);
            assert_eq!((groups, Events::ALL.raises(event)), (usize::from(is_emulated), is_emulated), "event {event}");
        }
    }
}
