// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codes that PERUSE's functions return. Plain data.

use crate::tool::arguments::Null;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Code {
    Init = 1,
    Generic = 2,
    Event = 4,
    EventHandle = 5,
    Parameter = 6,
    MpiInit = 7,
    Comm = 8,
    MpiObject = 9,
    Lock = 10,
    LockNotGrantable = 12,
}

impl From<Null> for Code {
    fn from(Null: Null) -> Code {
        Code::Parameter
    }
}
