// SPDX-License-Identifier: MIT OR Apache-2.0
//! The component (BTL or PML) that a request or a message belongs to: a token, the engine's name of a request, has it,
//! and so has a tag, which a message carries on the wire.
//!
//! A token is the address of the request's record, with bits that an address does not use. The two low bits, free
//! because records are aligned, are the component and the kind of record; a component compares both at once. The upper
//! 16 bits, free because programs have the lower half of 48 bits, are a number that the component chooses.
//!
//! A tag is 8 bits of the immediate data, so the receiver knows the component before it reads the message. Tags of the
//! BTL are those of Open MPI's upper layers, defined in `btl.h` (`MCA_BTL_TAG_*`); the last 32, which no layer uses,
//! are the PML's. Grade: hot. Plain data. Tests: below.

use std::ptr::NonNull;

use engine::transport::Token;

/// Bit of a token that distinguishes the two kinds of record of a component.
const KIND: u64 = 1;

/// Bit of a token that is set if the record is the PML's.
const OF_PML: u64 = 2;

/// Lowest bit of the number that the component chooses.
const NUMBER_SHIFT: u32 = 48;

/// Lowest bit of an index, which stands in place of an address.
const INDEX_SHIFT: u32 = 2;

const ADDRESS: u64 = ((1 << NUMBER_SHIFT) - 1) & !(KIND | OF_PML);

/// Component and kind of a record: the two low bits of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordKind(u64);

impl RecordKind {
    /// Returns the first (0) or second (1) kind of a component's records.
    pub(crate) const fn new(face: Face, kind: u8) -> Self {
        assert!(kind as u64 <= KIND, "a face has two kinds of record");
        let face = match face {
            Face::Btl => 0,
            Face::Pml => OF_PML,
        };
        RecordKind(face | kind as u64)
    }

    #[inline]
    pub(crate) const fn of(token: Token) -> Self {
        RecordKind(token.0 & (KIND | OF_PML))
    }

    #[inline]
    pub(crate) fn token<T>(self, record: *mut T, number: u16) -> Token {
        const { assert!(align_of::<T>() as u64 > (KIND | OF_PML), "the low bits of its address are free") };
        Token(record.expose_provenance() as u64 | self.0 | u64::from(number) << NUMBER_SHIFT)
    }

    /// Makes the token of a record that is named by its index.
    #[inline]
    pub(crate) const fn indexed(self, index: u32) -> Token {
        Token((index as u64) << INDEX_SHIFT | self.0)
    }
}

/// Kind of the BTL's puts, gets and atomics. It is here because the PML's poll compares it, too.
pub(crate) const OPERATION: RecordKind = RecordKind::new(Face::Btl, 1);

/// Returns whether a token is that of an operation that no tool watches. Such tokens have the number 0.
#[inline]
pub(crate) const fn is_operation(token: Token) -> bool {
    token.0 & !ADDRESS == OPERATION.0
}

/// Returns the record of a token; `None` if the token has none. [`RecordKind`] determines the type `T`.
#[inline]
pub(crate) fn record<T>(token: Token) -> Option<NonNull<T>> {
    NonNull::new(std::ptr::with_exposed_provenance_mut((token.0 & ADDRESS) as usize))
}

/// Returns the index of a token of [`RecordKind::indexed`].
#[inline]
pub(crate) const fn index(token: Token) -> u32 {
    (token.0 >> INDEX_SHIFT) as u32
}

#[inline]
pub(crate) fn number(token: Token) -> u16 {
    (token.0 >> NUMBER_SHIFT) as u16
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    Btl,
    Pml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u8);

/// First tag of the PML. All higher ones are the PML's, too.
const FIRST_OF_PML: u8 = 0xe0;

impl Tag {
    /// Tag of the PML's messages. Their kind is in their headers.
    pub(crate) const PML: Tag = Tag(FIRST_OF_PML);

    #[inline]
    pub(crate) const fn face(self) -> Face {
        if self.0 < FIRST_OF_PML { Face::Btl } else { Face::Pml }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex_ffi::openmpi::sys;

    #[test]
    fn a_token_of_any_number_names_its_component_its_kind_and_its_record() {
        let mut value = 0_u64;
        let place = &raw mut value;
        for face in [Face::Btl, Face::Pml] {
            for kind in [0, 1].map(|kind| RecordKind::new(face, kind)) {
                for number in [0, 1, u16::MAX] {
                    let token = kind.token(place, number);
                    assert_eq!(RecordKind::of(token), kind);
                    assert_eq!(record(token), NonNull::new(place));
                    assert_eq!(super::number(token), number);
                }
            }
        }
        assert_eq!(record::<u64>(Token(0)), None);
    }

    #[test]
    fn the_tags_of_open_mpis_upper_layers_are_the_btls() {
        // Each layer has 32 tags, from its first one on (btl.h, MCA_BTL_AM_FRAMEWORK_MASK).
        let layers = [sys::MCA_BTL_TAG_BTL, sys::MCA_BTL_TAG_PML, sys::MCA_BTL_TAG_OSC_RDMA, sys::MCA_BTL_TAG_USR];
        for first in layers {
            for tag in first..first + 32 {
                assert_eq!(Tag(tag as u8).face(), Face::Btl, "tag {tag:#x}");
            }
        }
    }

    #[test]
    fn every_tag_of_the_btl_has_a_callback_in_open_mpis_table() {
        let last = (0..=u8::MAX).filter(|tag| Tag(*tag).face() == Face::Btl).max();
        assert!(last.is_some_and(|last| u32::from(last) < sys::MCA_BTL_TAG_MAX), "{last:?}");
        assert_eq!(Tag::PML.face(), Face::Pml);
        assert_eq!((Tag(0xdf).face(), Tag(0xe0).face(), Tag(0xff).face()), (Face::Btl, Face::Pml, Face::Pml));
    }
}
