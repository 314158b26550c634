// SPDX-License-Identifier: MIT OR Apache-2.0
//! A time on the common time line of a job's ranks.

use std::num::NonZeroI64;

use serde::{Deserialize, Serialize};

/// Nanoseconds since 1970. An `Option` of it takes no more room: 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(NonZeroI64);

impl Time {
    /// Makes a time from nanoseconds since 1970; 0 becomes 1.
    pub fn new(nanoseconds: i64) -> Time {
        const FIRST: NonZeroI64 = NonZeroI64::new(1).unwrap();
        Time(NonZeroI64::new(nanoseconds).unwrap_or(FIRST))
    }

    /// Returns the nanoseconds since 1970.
    pub fn nanoseconds(self) -> i64 {
        self.0.get()
    }

    /// Returns the nanoseconds from `earlier` to this time; negative if this time is the earlier one.
    pub fn since(self, earlier: Time) -> i64 {
        self.nanoseconds().saturating_sub(earlier.nanoseconds())
    }
}
