// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which face a request or a message is for: tokens, by which the engine names a request when it is done, and tags, which
//! messages carry on the wire.
//!
//! A token says which face made the request, and which record it has. It is the address of the record, with bits that an
//! address does not have: below, as records are aligned, the kind of record and the face; above, as programs have the lower
//! half of 48 bits, a number that the face may choose. A face reads the two low bits at once, so that asking for the face
//! costs nothing beside asking for the kind.
//!
//! A tag is 8 bits of the immediate data, so the receiver knows the face before it looks at the message. The BTL's are
//! those of Open MPI's upper layers, given in `btl.h` (`MCA_BTL_TAG_*`); the last 32, which no layer has, are the PML's.
//! Grade: hot. Plain data. Tests: below.

use std::ptr::NonNull;

use engine::transport::Token;

/// Which of its two kinds of record a face's token is of.
const KIND: u64 = 1;

/// Set in a token of the PML's.
const OF_PML: u64 = 2;

/// Where the number begins that a face may choose.
const NUMBER_SHIFT: u32 = 48;

/// The bits that are the address of a record.
const ADDRESS: u64 = ((1 << NUMBER_SHIFT) - 1) & !(KIND | OF_PML);

/// The face and the kind of a record: the low bits of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordKind(u64);

impl RecordKind {
    /// A face's first (0) or second (1) kind.
    pub(crate) const fn new(face: Face, kind: u8) -> Self {
        assert!(kind as u64 <= KIND, "a face has two kinds of record");
        let face = match face {
            Face::Btl => 0,
            Face::Pml => OF_PML,
        };
        RecordKind(face | kind as u64)
    }

    /// The kind of record that a token is of.
    #[inline]
    pub(crate) const fn of(token: Token) -> Self {
        RecordKind(token.0 & (KIND | OF_PML))
    }

    /// The face that has such records.
    #[inline]
    pub(crate) const fn face(self) -> Face {
        if self.0 & OF_PML == 0 { Face::Btl } else { Face::Pml }
    }

    /// The token of a record of this kind, with a number of 16 bits beside.
    #[inline]
    pub(crate) fn token<T>(self, record: *mut T, number: u16) -> Token {
        const { assert!(align_of::<T>() as u64 > (KIND | OF_PML), "the low bits of its address are free") };
        Token(record.expose_provenance() as u64 | self.0 | u64::from(number) << NUMBER_SHIFT)
    }
}

/// The BTL's puts, gets and atomics: here, as whoever polls knows them.
pub(crate) const OPERATION: RecordKind = RecordKind::new(Face::Btl, 1);

/// Whether a token is of an operation that no tool watches, which has the number 0.
#[inline]
pub(crate) const fn is_operation(token: Token) -> bool {
    token.0 & !ADDRESS == OPERATION.0
}

/// The record a token is of; `None` where the token has none. What type it is, its [`RecordKind`] says.
#[inline]
pub(crate) fn record<T>(token: Token) -> Option<NonNull<T>> {
    NonNull::new(std::ptr::with_exposed_provenance_mut((token.0 & ADDRESS) as usize))
}

/// The number that the face has chosen.
#[inline]
pub(crate) fn number(token: Token) -> u16 {
    (token.0 >> NUMBER_SHIFT) as u16
}

/// A face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// The byte transfer layer, for ob1 and osc/rdma.
    Btl,
    /// The point-to-point management layer: MPI's messages themselves.
    Pml,
}

/// The tag of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u8);

/// The first of the PML's tags; all from here on are its.
const FIRST_OF_PML: u8 = 0xe0;

impl Tag {
    /// Of the PML's messages: what each is, its header says.
    pub(crate) const PML: Tag = Tag(FIRST_OF_PML);

    /// Whose message it is.
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
    fn a_token_says_its_face_its_kind_and_its_record_whatever_its_number() {
        let mut value = 0_u64;
        let place = &raw mut value;
        for face in [Face::Btl, Face::Pml] {
            for kind in [0, 1].map(|kind| RecordKind::new(face, kind)) {
                for number in [0, 1, u16::MAX] {
                    let token = kind.token(place, number);
                    assert_eq!((RecordKind::of(token), RecordKind::of(token).face()), (kind, face));
                    assert_eq!(record(token), NonNull::new(place));
                    assert_eq!(super::number(token), number);
                }
            }
        }
        assert_eq!(record::<u64>(Token(0)), None);
    }

    #[test]
    fn the_tags_of_open_mpis_upper_layers_are_the_btls() {
        // Each layer has 32 from its first on (btl.h, MCA_BTL_AM_FRAMEWORK_MASK).
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
