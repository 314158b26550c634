// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry points: the functions that Open MPI and tools call by pointer. An entry point has ibex's types where C has
//! pointers, such as `&Module`; so the type of an argument says what its C caller ensures, and its body needs no unsafe
//! code to use it. Called where a table of functions or a callback is filled in. Grade: hot, without cost. Threads:
//! any. Tests: the compiler checks each entry point against the type in Open MPI's header.

use std::ffi::c_void;
use std::marker::PhantomData;
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
// SAFETY: a pointer.
unsafe impl<T> Argument<*const T> for &T {}
// SAFETY: a pointer. C passes on the context of a callback.
unsafe impl<T> Argument<*mut c_void> for &T {}
// SAFETY: a pointer. Open MPI reads a performance variable that is registered with as many values.
unsafe impl<const COUNT: usize> Argument<*mut c_void> for Values<'_, COUNT> {}
// SAFETY: a pointer.
unsafe impl<T> Argument<*mut T> for Out<'_, T> {}
// SAFETY: a pointer. C passes on the context of a callback.
unsafe impl<T> Argument<Opaque> for &T {}
// SAFETY: a pointer. C passes on a context that `Box::into_raw` made for one call.
unsafe impl<T> Argument<*mut c_void> for Box<T> {}

/// A C caller's pointer or handle, which ibex passes on and never dereferences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Opaque(pub(crate) *mut c_void);

// SAFETY: ibex never dereferences it; its owner says in which threads what it names may be used.
unsafe impl Send for Opaque {}
// SAFETY: as above.
unsafe impl Sync for Opaque {}

/// Room for the values of a performance variable of type `unsigned long long`, at any alignment.
pub(crate) type Values<'call, const COUNT: usize> = &'call mut [MaybeUninit<[u8; 8]>; COUNT];
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
    entry10(A CA, B CB, D CD, E CE, F CF, G CG, H CH, I CI, J CJ, K CK);
    entry12(A CA, B CB, D CD, E CE, F CF, G CG, H CH, I CI, J CJ, K CK, L CL, M CM);
    entry13(A CA, B CB, D CD, E CE, F CF, G CG, H CH, I CI, J CJ, K CK, L CL, M CM, N CN);
}

/// A C caller's pointer for a result: null, or (a condition of every call) room for one value during the call.
#[repr(transparent)]
pub(crate) struct Out<'call, T>(*mut T, PhantomData<&'call mut T>);

/// A result is required, and the caller has passed a null pointer.
#[derive(Debug)]
pub(crate) struct Null;

impl<T> Out<'_, T> {
    #[inline]
    pub(crate) fn required(&self) -> Result<(), Null> {
        if self.0.is_null() { Err(Null) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn fill(&self, value: T) -> Result<(), Null> {
        self.required()?;
        // SAFETY: not null, so there is room for one value.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes an optional result. Calls `make` only if the caller wants the result, because the caller has to free it.
    pub(crate) fn give(&self, make: impl FnOnce() -> T) {
        if self.required().is_ok() {
            let _ = self.fill(make());
        }
    }

    pub(crate) fn pointer(&self) -> *mut T {
        self.0
    }
}

impl<'call, T> Out<'call, T> {
    #[cfg(test)]
    pub(crate) const NULL: Self = Out(std::ptr::null_mut(), PhantomData);

    pub(crate) fn to(place: &'call mut T) -> Self {
        Out(place, PhantomData)
    }
}
