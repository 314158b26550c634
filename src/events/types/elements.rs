// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`elements`] declares the structure of an event's elements for the tables, and its encoding in C's layout. Grade:
//! hot, behind the branch of a site: a handful of shifts. Threads: plain data. Tests: `tests/table.rs`.

use super::event_type::{ElementType, Words};

pub(super) trait Scalar: Copy {
    fn bits(self) -> u64;
}

impl Scalar for i32 {
    #[inline]
    fn bits(self) -> u64 {
        u64::from(self.cast_unsigned())
    }
}

impl Scalar for u32 {
    #[inline]
    fn bits(self) -> u64 {
        u64::from(self)
    }
}

impl Scalar for u64 {
    #[inline]
    fn bits(self) -> u64 {
        self
    }
}

/// Stores a value at its displacement: in the low half of a word at a multiple of 8, else in the high half.
#[inline]
pub(super) fn put(words: &mut Words, at: usize, value: impl Scalar) {
    words[at / 8] |= value.bits() << (at % 8 * 8);
}

pub(super) const fn displacements<const N: usize>(kinds: [ElementType; N]) -> [usize; N] {
    let mut at = [0; N];
    let mut next = 0_usize;
    let mut index = 0;
    while index < N {
        let size = kinds[index].size();
        at[index] = next.next_multiple_of(size);
        next = at[index] + size;
        index += 1;
    }
    at
}

/// Returns the end of the last element, without C's padding behind it: the size of a tool's buffer for the elements.
pub(super) const fn extent<const N: usize>(kinds: [ElementType; N]) -> usize {
    if N == 0 { 0 } else { displacements(kinds)[N - 1] + kinds[N - 1].size() }
}

/// Declares the structure of an event's elements, in the order of their layout.
macro_rules! elements {
    (@type I32) => { i32 };
    (@type U32) => { u32 };
    (@type U64) => { u64 };
    ($(#[$of_all:meta])* $structure:ident { $( $element:ident: $kind:ident $help:literal; )* }) => {
        $(#[$of_all])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $structure {
            $( #[doc = $help] pub $element: $crate::events::types::elements::elements!(@type $kind), )*
        }

        impl $structure {
            const KINDS: [ElementType; [$(stringify!($element)),*].len()] = [$(ElementType::$kind),*];
            const AT: [usize; Self::KINDS.len()] = displacements(Self::KINDS);
            pub(super) const EXTENT: usize = extent(Self::KINDS);
            pub(super) const DISPLACEMENTS: &'static [usize] = &Self::AT;
            pub(super) const ELEMENTS: &'static [Element] =
                &[$( Element { name: stringify!($element), element_type: ElementType::$kind, help: $help } ),*];

            #[inline(always)]
            pub(in crate::events) fn words(&self) -> Words {
                const { assert!(Self::EXTENT <= WORDS * 8, "an event's data fits an instance") };
                let mut words = [0; WORDS];
                let mut at = Self::AT.iter();
                $( put(&mut words, at.next().copied().unwrap_or(0), self.$element); )*
                words
            }

            /// Makes an event of a type with these elements.
            #[inline]
            pub fn instance(&self, event_type: TypeId, source: SourceId, timestamp: u64) -> EventInstance {
                EventInstance { event_type, source, timestamp, words: self.words() }
            }
        }
    };
}

pub(super) use elements;
