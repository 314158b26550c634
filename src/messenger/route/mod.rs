// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a peer is reached: by a port of this process and that port's number for the peer, by shared memory, or within
//! this process. A route that a communicator stores may have marks, each with its own bit: it is one of several
//! ([`Route::as_multi_rail`]), or short messages may not use it now ([`Route::marked`]). A fast path compares a route
//! with its unmarked value, so a mark closes it without a further test. Called by the messenger and its hosts. Grade:
//! hot. Threads: any. Plain data. Tests: below.

use crate::transport::EndpointId;

pub mod table;

/// The route to a peer: its endpoint in the lower half, the rail and marks in the upper one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route(u64);

/// A peer in flow control: its first route, which stays the same when its messages use another one
/// (`rails/routes.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Account(pub Route);

const MULTI_RAIL: u64 = 1 << 63;

/// Short messages may not use the route now: the peer holds back, or sends to it pend.
const SLOW_PATH: u64 = 1 << 62;

const RAIL: u64 = 0xff;

impl Route {
    /// Not looked up yet. A known route never has all bits set.
    pub const UNKNOWN: Route = Route(u64::MAX);

    /// To this process; its rail does not exist.
    pub const LOOPBACK: Route = Route(0xfd << 32);

    /// Rail of routes by shared memory.
    const SHARED_MEMORY: usize = 0xfe;

    /// Makes the route by shared memory to the process with this place on the host.
    #[inline]
    pub const fn local(place: u32) -> Self {
        Route((Self::SHARED_MEMORY as u64) << 32 | place as u64)
    }

    /// Returns the peer's place on the host if this is an unmarked route by shared memory.
    #[inline]
    pub const fn as_local(self) -> Option<u32> {
        if self.0 >> 32 == Self::SHARED_MEMORY as u64 { Some(self.0 as u32) } else { None }
    }

    /// Makes the route by this rail (index of a port) and the rail's endpoint.
    #[inline]
    pub const fn new(rail: usize, to: EndpointId) -> Self {
        Route((rail as u64) << 32 | to.index() as u64)
    }

    /// Returns the index of its rail.
    #[inline]
    pub const fn rail(self) -> usize {
        (self.0 >> 32 & RAIL) as usize
    }

    /// Whether it uses the first rail and has no mark. In a communicator that rail is then the only one.
    #[inline]
    pub const fn is_open_single_rail(self) -> bool {
        self.0 >> 32 == 0
    }

    /// Returns the route with the mark that it is one of several.
    #[inline]
    #[must_use]
    pub const fn as_multi_rail(self) -> Self {
        Route(self.0 | MULTI_RAIL)
    }

    /// Whether it has the mark of [`Self::as_multi_rail`], and short messages may use it.
    #[inline]
    pub const fn is_open_multi_rail(self) -> bool {
        self.0 & (MULTI_RAIL | SLOW_PATH) == MULTI_RAIL
    }

    /// Returns the route with the mark that short messages may not use it now.
    #[inline]
    #[must_use]
    pub const fn marked(self) -> Self {
        Route(self.0 | SLOW_PATH)
    }

    /// Returns a known route without the mark of [`Self::marked`].
    #[inline]
    #[must_use]
    pub const fn unmarked(self) -> Self {
        Route(self.0 & !SLOW_PATH)
    }

    /// Returns the rail's endpoint of the peer.
    #[inline]
    pub const fn to(self) -> EndpointId {
        EndpointId::from_index(self.0 as u32)
    }

    /// Returns the route as a number, for an atomic.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the route of [`Self::bits`].
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Route(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_marks_share_a_bit_and_no_marked_route_takes_a_short_path() {
        let by_port = Route::new(0, EndpointId::from_index(7));
        let routes = [
            by_port,
            by_port.as_multi_rail(),
            Route::local(7),
            Route::LOOPBACK,
            Route::new(0xfc, EndpointId::from_index(u32::MAX)),
        ];
        for route in routes {
            let marked = route.marked();
            assert_eq!(marked.unmarked(), route);
            assert_eq!(marked.as_multi_rail().unmarked(), route.as_multi_rail());
            assert_eq!((marked.rail(), marked.to()), (route.rail(), route.to()));
            for known in [route, marked, marked.as_multi_rail()] {
                assert_ne!(known, Route::UNKNOWN);
            }
            assert!(!marked.is_open_single_rail() && !marked.is_open_multi_rail() && marked.as_local().is_none());
        }
        assert!(
            by_port.is_open_single_rail()
                && by_port.as_multi_rail().is_open_multi_rail()
                && Route::local(7).as_local() == Some(7)
        );
        assert!(
            !Route::UNKNOWN.is_open_single_rail()
                && !Route::UNKNOWN.is_open_multi_rail()
                && Route::UNKNOWN.as_local().is_none()
        );
    }
}
