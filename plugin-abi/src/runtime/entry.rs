// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry points: the functions that Open MPI and tools call by pointer. An entry point has ibex's types where C has
//! pointers, such as `Comm`; so the type of an argument says what its C caller ensures, and its body needs no unsafe
//! code to use it. Called where a table of functions or a callback is filled in. Grade: hot, without cost. Threads: any.
//! Tests: the compiler checks each entry point against the type in Open MPI's header.

use std::mem::MaybeUninit;

/// A type of an argument of an entry point, in the place of C's type `C`.
///
/// # Safety
/// Values of both types are passed in the same way, like a pointer and a reference.
pub(crate) unsafe trait Argument<C> {}

// SAFETY: it is the same type.
unsafe impl<T> Argument<T> for T {}
// SAFETY: a pointer.
unsafe impl<T> Argument<*mut T> for &mut T {}
// SAFETY: a pointer, which may be null.
unsafe impl<T> Argument<*mut T> for Option<&mut T> {}
// SAFETY: a pointer, to a place for a result.
unsafe impl<T> Argument<*mut T> for &mut MaybeUninit<T> {}

macro_rules! entries {
    ($($(#[$doc:meta])* $name:ident($($ours:ident $theirs:ident),*);)*) => { $(
        $(#[$doc])*
        #[allow(clippy::missing_transmute_annotations, reason = "both types are those of the signature")]
        pub(crate) const fn $name<R, $($ours: Argument<$theirs>, $theirs),*>(
            function: unsafe extern "C" fn($($ours),*) -> R,
        ) -> unsafe extern "C" fn($($theirs),*) -> R {
            // SAFETY: both are pointers to functions, whose arguments are passed in the same way (`Argument`).
            unsafe { std::mem::transmute(function) }
        }
    )* };
}

entries! {
    /// Returns an entry point of one argument as C calls it; the functions below do so for more arguments.
    entry1(A CA);
    entry2(A CA, B CB);
    entry3(A CA, B CB, D CD);
    entry4(A CA, B CB, D CD, E CE);
    entry5(A CA, B CB, D CD, E CE, F CF);
    entry6(A CA, B CB, D CD, E CE, F CF, G CG);
    entry7(A CA, B CB, D CD, E CE, F CF, G CG, H CH);
    entry8(A CA, B CB, D CD, E CE, F CF, G CG, H CH, I CI);
}
