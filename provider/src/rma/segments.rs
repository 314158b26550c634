// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts an operation into segments: each lies in one piece of local and in one of remote memory, and is not longer than
//! the adapter permits. Grade: pending. Threads: plain values. Tests: below.

use ibex_ffi::verbs::{LocalSpan, RemoteSpan};

/// Memory of the target: what a `fi_rma_iov` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) address: u64,
    pub(crate) length: usize,
    pub(crate) key: u64,
}

impl Remote {
    /// Names its start. The lower half of the key is the adapter's.
    pub(super) fn span(self) -> RemoteSpan {
        RemoteSpan { addr: self.address, rkey: self.key as u32 }
    }
}

/// Memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) address: u64,
    pub(super) length: usize,
    /// Key of its registration; 0 if the adapter does not use it.
    pub(super) key: u32,
}

impl Span {
    /// Names registered memory.
    ///
    /// # Safety
    /// As [`LocalSpan::new`]: it stays registered by this key, and is the adapter's, until the operation has ended.
    pub(super) unsafe fn registered(address: u64, length: usize, key: u32) -> Self {
        Span { address, length, key }
    }

    /// Names memory that only the processor uses.
    pub(super) fn of_processor(address: u64, length: usize) -> Self {
        Span { address, length, key: 0 }
    }
}

/// A part of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) local: Span,
    pub(super) remote: Remote,
}

impl Segment {
    /// Names its local memory for a request of the adapter.
    pub(super) fn local(&self) -> LocalSpan {
        let Span { address, length, key } = self.local;
        // SAFETY: a part of a registered span (`Span::registered`); key 0 is that of no registration.
        unsafe { LocalSpan::new(address, length as u32, key) }
    }

    pub(super) fn remote(&self) -> RemoteSpan {
        self.remote.span()
    }
}

/// Returns the segments of an operation, in order. Both sides have the same length.
pub(super) fn segments(local: &[Span], remote: &[Remote], longest: usize) -> impl Iterator<Item = Segment> {
    let (mut local, mut remote) = (local.iter().copied(), remote.iter().copied());
    let (mut here, mut there) = (local.next(), remote.next());
    std::iter::from_fn(move || {
        while here.is_some_and(|span| span.length == 0) {
            here = local.next();
        }
        while there.is_some_and(|of| of.length == 0) {
            there = remote.next();
        }
        let (from, to) = (here.as_mut()?, there.as_mut()?);
        let length = from.length.min(to.length).min(longest);
        let segment = Segment { local: Span { length, ..*from }, remote: Remote { length, ..*to } };
        from.address = from.address.wrapping_add(length as u64);
        to.address = to.address.wrapping_add(length as u64);
        from.length -= length;
        to.length -= length;
        Some(segment)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(local: &[(u64, usize)], remote: &[(u64, usize)], longest: usize) -> Vec<(u64, u64, usize)> {
        let local: Vec<_> = local.iter().map(|(address, length)| Span::of_processor(*address, *length)).collect();
        let remote = remote.iter().map(|(address, length)| Remote { address: *address, length: *length, key: 1 });
        let remote: Vec<_> = remote.collect();
        let cut = segments(&local, &remote, longest).map(|segment| {
            assert_eq!(segment.local.length, segment.remote.length);
            (segment.local.address, segment.remote.address, segment.local.length)
        });
        cut.collect()
    }

    #[test]
    fn an_operation_is_cut_at_the_bounds_of_both_sides_and_at_the_limit() {
        assert_eq!(cut(&[(10, 8)], &[(50, 8)], 100), [(10, 50, 8)]);
        assert_eq!(cut(&[(10, 8)], &[(50, 8)], 3), [(10, 50, 3), (13, 53, 3), (16, 56, 2)]);
        assert_eq!(cut(&[(10, 2), (0, 0), (30, 6)], &[(50, 5), (90, 3)], 100), [(10, 50, 2), (30, 52, 3), (33, 90, 3)]);
        assert_eq!(cut(&[(0, 0), (10, 4)], &[(0, 0), (50, 4), (9, 0)], 100), [(10, 50, 4)]);
        assert_eq!(cut(&[], &[(50, 0)], 100), []);
    }
}
