// SPDX-License-Identifier: MIT OR Apache-2.0
//! The values of the behaviours that have more values than yes and no, with their words in the configuration. Error
//! numbers may be written in capitals. Called by: `behaviour`. Grade: setup.

use serde::Deserialize;

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$what:meta])* $value:ident = $word:literal $(| $other:literal)?,)+ })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
        #[allow(missing_docs, reason = "a value that is an error number says what it does")]
        pub enum $name {
            $($(#[$what])* #[serde(rename = $word $(, alias = $other)?)] $value,)+
        }
    )*};
}

words! {
    /// Answer of `ibv_modify_qp` to `REMOTE_ATOMIC` if there are no atomics. Registering memory with it succeeds.
    AtomicAccess {
        /// EOPNOTSUPP once the queue pair has a depth for incoming reads: at RTR, if INIT gave the right.
        Eopnotsupp = "eopnotsupp" | "EOPNOTSUPP",
        /// Success; a query does not show the right.
        Accepted = "accepted",
        Einval = "einval" | "EINVAL",
    }

    /// Answer of `ibv_reg_mr` to flags of the optional range.
    OptionalAccess {
        /// Success, whether they have an effect or not.
        Accepted = "accepted",
        Eopnotsupp = "eopnotsupp" | "EOPNOTSUPP",
    }

    /// Fate of the completions of a queue pair that is destroyed or reset.
    Purge {
        /// They are removed, and their places are free at once.
        Compact = "compact",
        /// They stay in their places, and polling skips them.
        Skip = "skip",
        /// They are polled like any other, with the number of the former queue pair.
        No = "no",
    }

    /// Requests of a shared receive queue that are lost with a queue pair.
    Lost {
        No = "no",
        /// Requests of purged completions.
        Purged = "purged",
        /// A request that a message in flight has taken, unless the queue pair was in ERR before.
        Taken = "taken",
        Both = "both",
    }

    /// `byte_len` and `vendor_err` of a send that succeeded.
    ByteLen {
        Set = "set",
        /// Left as the program had them.
        Untouched = "untouched",
    }

    /// `src_qp` of a datagram.
    SrcQp {
        Right = "right",
        /// All but two of its upper 8 bits are cleared (the mask is the number of a shift, 0x18).
        Wrong = "wrong",
    }

    /// `errno` of a queue pair that cannot be made.
    CreateErrno {
        Einval = "einval" | "EINVAL",
        /// `errno` keeps its value.
        Unset = "unset",
    }

    /// Error with which a verb refuses.
    Refusal {
        Einval = "einval" | "EINVAL",
        Enomem = "enomem" | "ENOMEM",
        Eopnotsupp = "eopnotsupp" | "EOPNOTSUPP",
    }

    /// A send posted before RTS.
    SendBeforeRts {
        Einval = "einval" | "EINVAL",
        Enomem = "enomem" | "ENOMEM",
        /// EINVAL, and it stays in the queue: it is sent at RTS.
        EinvalQueued = "einval-queued",
        /// Success: it is sent at RTS.
        Accepted = "accepted",
    }

    /// Rule for the granted `max_inline_data`.
    InlineGrant {
        /// The adapter's limit, whatever was asked for.
        Largest = "largest",
        Exact = "exact",
        /// The rest of a work queue entry whose size is a multiple of 64 bytes.
        Wqe = "wqe",
        /// The room of the requested pieces, if that is more; and as many pieces as the inline data has room for.
        SharedWithSge = "shared-with-sge",
    }

    /// First answer of `ibv_is_fork_initialized`.
    Fork {
        /// The kernel copies pinned pages at a fork: nothing has to be done.
        Unneeded = "unneeded",
        /// The kernel does not copy them; the library keeps registered pages from the child.
        Enabled = "enabled",
        /// The kernel does not copy them; the library keeps them from the child if the program calls `ibv_fork_init`
        /// before any registration.
        Disabled = "disabled",
    }
}

impl Refusal {
    /// Returns the error number.
    pub fn number(self) -> i32 {
        match self {
            Refusal::Einval => libc::EINVAL,
            Refusal::Enomem => libc::ENOMEM,
            Refusal::Eopnotsupp => libc::EOPNOTSUPP,
        }
    }
}

impl Lost {
    /// Whether requests of purged completions are lost.
    pub fn purged(self) -> bool {
        matches!(self, Lost::Purged | Lost::Both)
    }

    /// Whether a request that was taken is lost.
    pub fn taken(self) -> bool {
        matches!(self, Lost::Taken | Lost::Both)
    }
}
