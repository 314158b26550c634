// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results for a C caller: single values, and strings by the convention of MPI 4.1, section 15.3.3. Called by the files
//! of this folder. Grade: setup, except [`Out::fill`]. Threads: any. Tests: below; `tests/tool.rs`.

use std::ffi::{c_char, c_int};
use std::marker::PhantomData;

use super::host::Code;

/// A C caller's pointer for a result: null, or (a condition of every call) room for one value during the call.
#[repr(transparent)]
pub(crate) struct Out<'call, T>(*mut T, PhantomData<&'call mut T>);

/// A result is required, and the caller has passed a null pointer.
pub(crate) struct Null;

impl From<Null> for Code {
    fn from(Null: Null) -> Code {
        Code::Invalid
    }
}

impl<T> Out<'_, T> {
    pub(crate) fn required(&self) -> Result<(), Null> {
        if self.0.is_null() { Err(Null) } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn fill(self, value: T) -> Result<(), Null> {
        self.required()?;
        // SAFETY: not null, so there is room for one value.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes an optional result. Calls `make` only if the caller wants the result, because the caller has to free it.
    pub(crate) fn give(self, make: impl FnOnce() -> T) {
        if self.required().is_ok() {
            let _ = self.fill(make());
        }
    }

    pub(crate) fn pointer(&self) -> *mut T {
        self.0
    }
}

#[cfg(test)]
impl<'call, T> Out<'call, T> {
    pub(crate) const NULL: Self = Out(std::ptr::null_mut(), PhantomData);

    pub(crate) fn to(place: &'call mut T) -> Self {
        Out(place, PhantomData)
    }
}

/// Returns `*length`, the number of elements of `buffer`; 0 if one of the pointers is null; an error if it is negative.
///
/// # Safety
/// `length` is null or can be read.
pub(crate) unsafe fn room<T>(buffer: *const T, length: *const c_int) -> Result<usize, Code> {
    if buffer.is_null() || length.is_null() {
        return Ok(0);
    }
    // SAFETY: not null; the caller says that it can be read.
    usize::try_from(unsafe { length.read() }).map_err(|_| Code::Invalid)
}

/// Writes `text` and a NUL to `buffer`, cut to `*length` bytes, and to `*length` the size of the whole text with its
/// NUL. Without a buffer, or if `*length` is 0, only the size; without `length` nothing.
///
/// # Safety
/// `length` is null or can be read and written; `buffer` is null or has room for `*length` bytes.
pub(crate) unsafe fn give_text(buffer: *mut c_char, length: *mut c_int, text: &str) {
    if length.is_null() {
        return;
    }
    // SAFETY: not null; the caller says that it can be read.
    let room = usize::try_from(unsafe { length.read() }).unwrap_or(0);
    if !buffer.is_null() && room > 0 {
        let count = text.len().min(room - 1);
        // SAFETY: `count` bytes and the 0 are at most `room`.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), buffer, count);
            buffer.add(count).write(0);
        }
    }
    // SAFETY: not null; the caller says that it can be written.
    unsafe { length.write(text.len() as c_int + 1) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(room: c_int) -> (Vec<u8>, c_int) {
        let (mut buffer, mut length) = ([b'#' as c_char; 8], room);
        // SAFETY: the buffer is larger than every `length` of the tests.
        unsafe { give_text(buffer.as_mut_ptr(), &raw mut length, "abcd") };
        (buffer.iter().map(|&byte| byte as u8).collect(), length)
    }

    #[test]
    fn give_text_cuts_a_string_to_the_room_and_returns_its_whole_length() {
        assert_eq!(written(8), (b"abcd\0###".to_vec(), 5));
        assert_eq!(written(5), (b"abcd\0###".to_vec(), 5));
        assert_eq!(written(3), (b"ab\0#####".to_vec(), 5));
        assert_eq!(written(1), (b"\0#######".to_vec(), 5));
        assert_eq!(written(0), (b"########".to_vec(), 5));
        assert_eq!(written(-1), (b"########".to_vec(), 5));
    }

    #[test]
    fn room_refuses_a_negative_length_of_a_buffer() {
        let byte = 0_u8;
        for (length, wanted) in [(0, Ok(0)), (7, Ok(7)), (-1, Err(Code::Invalid))] {
            // SAFETY: pointers to locals, and null.
            let rooms =
                unsafe { [room(&raw const byte, &raw const length), room(std::ptr::null::<u8>(), &raw const length)] };
            assert_eq!(rooms, [wanted, Ok(0)]);
        }
        // SAFETY: null is permitted.
        assert_eq!(unsafe { room(&raw const byte, std::ptr::null()) }, Ok(0));
    }

    #[test]
    fn give_text_returns_only_the_length_without_a_buffer_and_nothing_without_a_length() {
        let mut length = 8;
        // SAFETY: null pointers are permitted.
        unsafe { give_text(std::ptr::null_mut(), &raw mut length, "abcd") };
        assert_eq!(length, 5);
        let mut buffer = [b'#' as c_char; 8];
        // SAFETY: a null pointer is permitted.
        unsafe { give_text(buffer.as_mut_ptr(), std::ptr::null_mut(), "abcd") };
        assert_eq!(buffer, [b'#' as c_char; 8]);
    }
}
