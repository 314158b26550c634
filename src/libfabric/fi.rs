// SPDX-License-Identifier: MIT OR Apache-2.0
//! The constants of libfabric that an endpoint's messages need, by libfabric's names. They are part of its binary
//! interface, so they do not change, and no header is needed here; the provider, which has the headers, compares them.
//! Grade: none, no code. Tests: `provider/src/tests`.

/// An address: an index into the address vector.
pub type Address = u64;

/// No address: any source (`FI_ADDR_UNSPEC`), or a source that is not in the address vector (`FI_ADDR_NOTAVAIL`).
pub const FI_ADDR_UNSPEC: Address = u64::MAX;
#[allow(missing_docs, reason = "above")]
pub const FI_ADDR_NOTAVAIL: Address = u64::MAX;

macro_rules! constants {
    ($all:ident: $type:ty; $($name:ident = $value:expr;)*) => {
        $(
            #[allow(missing_docs, reason = "the names are libfabric's")]
            pub const $name: $type = $value;
        )*
        /// All of them, by name.
        pub const $all: &[(&str, $type)] = &[$((stringify!($name), $name)),*];
    };
}

constants! {
    FLAGS: u64;
    FI_MSG = 1 << 1;
    FI_TAGGED = 1 << 3;
    FI_RECV = 1 << 10;
    FI_SEND = 1 << 11;
    FI_REMOTE_READ = 1 << 12;
    FI_REMOTE_WRITE = 1 << 13;
    FI_MULTI_RECV = 1 << 16;
    FI_REMOTE_CQ_DATA = 1 << 17;
    FI_PEEK = 1 << 19;
    FI_COMPLETION = 1 << 24;
    FI_INJECT = 1 << 25;
    FI_DELIVERY_COMPLETE = 1 << 28;
    FI_MATCH_COMPLETE = 1 << 31;
    FI_DISCARD = 1 << 58;
    FI_CLAIM = 1 << 59;
}

constants! {
    ERRORS: u32;
    FI_EIO = 5;
    FI_EINVAL = 22;
    FI_ENOMSG = 42;
    FI_ECANCELED = 125;
    FI_EBADFLAGS = 260;
    FI_ETRUNC = 265;
}
