// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry points: the functions that libfabric's callers call by pointer. [`call`] keeps Rust's panics out of C and
//! turns errors into negative numbers; [`Absent`] is the function of an operation that the provider does not have, so
//! that no table has a null pointer where a caller does not expect one.
//!
//! Called by every table of functions. Grade: hot (a predicted branch). Threads: any. Tests: below.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{flight, sys};

/// A result whose error is an error number of `fi_errno(3)`, positive.
pub(crate) type Result<T> = std::result::Result<T, u32>;

/// A type that a function of libfabric returns, with negative error numbers.
pub(crate) trait Answer {
    fn error(number: u32) -> Self;
}

impl Answer for c_int {
    fn error(number: u32) -> Self {
        -(number as c_int)
    }
}

impl Answer for isize {
    fn error(number: u32) -> Self {
        -(number as isize)
    }
}

impl Answer for u64 {
    /// A counter's value: there is no error.
    fn error(_: u32) -> Self {
        0
    }
}

impl<T> Answer for *const T {
    fn error(_: u32) -> Self {
        std::ptr::null()
    }
}

/// Runs the body of an entry point. A panic is a defect of ibex: it is printed, and the call fails.
#[inline(always)]
pub(crate) fn call<T: Answer>(what: &'static str, body: impl FnOnce() -> Result<T>) -> T {
    // An answer alone, and not a result, comes out in one register.
    let answer = || body().unwrap_or_else(T::error);
    match catch_unwind(AssertUnwindSafe(answer)) {
        Ok(answer) => answer,
        Err(panic) => {
            report(what, &*panic);
            T::error(sys::FI_EOTHER)
        }
    }
}

/// Like [`call`], for functions that return 0.
#[inline(always)]
pub(crate) fn done(what: &'static str, body: impl FnOnce() -> Result<()>) -> c_int {
    call(what, || body().map(|()| 0))
}

#[cold]
fn report(what: &str, panic: &(dyn std::any::Any + Send)) {
    let cause = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    let text = format!("defect in {what}: {}; the call fails", cause.unwrap_or("no text"));
    eprintln!("ibex: {}", flight::defect(&text));
}

/// A type of functions that has one which refuses with `FI_ENOSYS`.
pub(crate) trait Absent {
    const FUNCTION: Self;
}

macro_rules! absent {
    ($($argument:ident)*) => {
        impl<$($argument,)* R: Answer> Absent for unsafe extern "C" fn($($argument),*) -> R {
            const FUNCTION: Self = {
                extern "C" fn refuse<$($argument,)* R: Answer>($(_: $argument),*) -> R {
                    R::error(sys::FI_ENOSYS)
                }
                refuse::<$($argument,)* R>
            };
        }
    };
}

absent!(A);
absent!(A B);
absent!(A B C);
absent!(A B C D);
absent!(A B C D E);
absent!(A B C D E F);
absent!(A B C D E F G);
absent!(A B C D E F G H);
absent!(A B C D E F G H I);
absent!(A B C D E F G H I J);
absent!(A B C D E F G H I J K);
absent!(A B C D E F G H I J K L);
absent!(A B C D E F G H I J K L M);
absent!(A B C D E F G H I J K L M N);
absent!(A B C D E F G H I J K L M N O);
absent!(A B C D E F G H I J K L M N O P);

/// Makes a table of functions: those that are there, and after `absent` those that are not. Functions that a later
/// libfabric has added to the table are null; its callers check them.
macro_rules! table {
    ($type:ident { absent: $($absent:ident),* $(,)? }) => { table!($type { ; absent: $($absent),* }) };
    ($type:ident { $($name:ident: $function:expr),*; absent: $($absent:ident),* $(,)? }) => {{
        #[allow(clippy::needless_update, reason = "the table of a later libfabric has more functions")]
        crate::sys::$type {
            size: size_of::<crate::sys::$type>(),
            $($name: Some($function),)*
            $($absent: Some(crate::entry::Absent::FUNCTION),)*
            // SAFETY: a table has a size and functions that may be absent, for which zero is a value.
            ..unsafe { std::mem::zeroed() }
        }
    }};
}
pub(crate) use table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_panics_are_negative_numbers() {
        assert_eq!(call("test", || Ok(7)), 7);
        assert_eq!(done("test", || Err(sys::FI_EINVAL)), -22);
        assert_eq!(call::<isize>("test", || panic!("as the test wants it")), -(sys::FI_EOTHER as isize));
    }

    #[test]
    fn an_absent_operation_says_that_it_is_not_there() {
        let function: unsafe extern "C" fn(u64, *const u8) -> isize = Absent::FUNCTION;
        // SAFETY: it ignores its arguments.
        assert_eq!(unsafe { function(1, std::ptr::null()) }, -(sys::FI_ENOSYS as isize));
    }
}
