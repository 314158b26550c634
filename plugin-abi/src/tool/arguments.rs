// SPDX-License-Identifier: MIT OR Apache-2.0
//! A C caller's strings and arrays: results are cut by the convention of MPI 4.1, section 15.3.3. Called by the files
//! of this folder. Grade: setup. Threads: any. Tests: below; `tests/tool.rs`.

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;

use super::host::Code;
pub(super) use crate::runtime::entry::{Null, Out};

impl From<Null> for Code {
    fn from(Null: Null) -> Code {
        Code::Invalid
    }
}

/// A C caller's string: null, or (a condition of every call) a string during the call.
#[repr(transparent)]
pub(crate) struct Text<'call>(*const c_char, PhantomData<&'call CStr>);

impl<'call> Text<'call> {
    pub(crate) fn required(&self) -> Result<&'call CStr, Null> {
        if self.0.is_null() {
            return Err(Null);
        }
        // SAFETY: not null, so it is a string.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}

#[cfg(test)]
impl<'call> Text<'call> {
    pub(crate) const NULL: Self = Text(std::ptr::null(), PhantomData);

    pub(crate) fn of(text: &'call CStr) -> Self {
        Text(text.as_ptr(), PhantomData)
    }
}

/// A C caller's buffer for a string or an array.
pub(crate) struct Room<'call, T> {
    buffer: *mut T,
    /// Number of elements; 0 without a buffer or without a length.
    elements: usize,
    length: &'call Out<'call, c_int>,
}

impl<'call, T> Room<'call, T> {
    /// The error is that the length of a buffer is negative.
    ///
    /// # Safety
    /// `length` is null or can be read during the call; `buffer` is null or has room for `*length` elements.
    pub(crate) unsafe fn of(buffer: *mut T, length: &'call Out<'call, c_int>) -> Result<Self, Code> {
        let elements = if buffer.is_null() || length.required().is_err() {
            0
        } else {
            // SAFETY: not null; the caller says that it can be read.
            usize::try_from(unsafe { length.pointer().read() }).map_err(|_| Code::Invalid)?
        };
        Ok(Room { buffer, elements, length })
    }

    /// Writes elements, as many as there is room for.
    pub(crate) fn put(&self, elements: impl Iterator<Item = T>) {
        for (index, element) in elements.take(self.elements).enumerate() {
            // SAFETY: `index` is less than the number of elements, for which there is room (`of`).
            unsafe { self.buffer.add(index).write(element) };
        }
    }
}

impl Room<'_, c_char> {
    /// Writes `text` and a NUL, cut to the room, and to the length the size of the whole text with its NUL.
    pub(crate) fn give_text(&self, text: &str) {
        let kept = text.bytes().take(self.elements.saturating_sub(1)).map(|byte| byte as c_char);
        self.put(kept.chain([0]));
        self.length.give(|| text.len() as c_int + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(room: c_int) -> Result<(Vec<u8>, c_int), Code> {
        let (mut buffer, mut length) = ([b'#' as c_char; 8], room);
        let place = Out::to(&mut length);
        // SAFETY: the buffer is at least as large as every length of the tests.
        unsafe { Room::of(buffer.as_mut_ptr(), &place) }?.give_text("abcd");
        Ok((buffer.iter().map(|&byte| byte as u8).collect(), length))
    }

    #[test]
    fn give_text_cuts_a_string_to_the_room_and_returns_its_whole_length() {
        assert_eq!(written(8), Ok((b"abcd\0###".to_vec(), 5)));
        assert_eq!(written(5), Ok((b"abcd\0###".to_vec(), 5)));
        assert_eq!(written(3), Ok((b"ab\0#####".to_vec(), 5)));
        assert_eq!(written(1), Ok((b"\0#######".to_vec(), 5)));
        assert_eq!(written(0), Ok((b"########".to_vec(), 5)));
        assert_eq!(written(-1), Err(Code::Invalid));
    }

    #[test]
    fn give_text_returns_only_the_length_without_a_buffer_and_nothing_without_a_length() {
        let (mut buffer, mut length) = ([b'#' as c_char; 8], -1);
        for (buffer, length) in [(std::ptr::null_mut(), Out::to(&mut length)), (buffer.as_mut_ptr(), Out::NULL)] {
            // SAFETY: one pointer is null, the other to a local.
            let room = unsafe { Room::of(buffer, &length) };
            room.expect("a length without a buffer may be negative").give_text("abcd");
        }
        assert_eq!((buffer, length), ([b'#' as c_char; 8], 5));
    }
}
