// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tags of messages on the wire, and the face that each is for.
//!
//! A tag is 8 bits of the immediate data, so the receiver knows the face before it looks at the message. The BTL's are
//! those of Open MPI's upper layers, given in `btl.h` (`MCA_BTL_TAG_*`); the last 32, which no layer has, are the
//! PML's. Grade: hot (one comparison). Plain data. Tests: below.

use super::face::Face;

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
