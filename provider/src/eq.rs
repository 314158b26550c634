// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event queues (`fi_eq(3)`): what a program writes into them (`FI_WRITE`). The provider has no event of its own yet,
//! because it does everything before a call returns.
//!
//! Grade: setup. Threads: any. Tests: `tests/`, and `hw-tests/libfabric/fi_waits.c`.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cq;
use crate::entry::{Result, call, done, table};
use crate::fabric::Fabric;
use crate::fid::{self, Class, give, head, object, pointer};
use crate::sys;
use crate::wait::Wait;

/// An event queue.
pub(crate) struct EventQueue {
    events: Mutex<VecDeque<(u32, Box<[u8]>)>>,
    /// What threads sleep on until there is an event.
    wait: Option<Wait>,
    _fabric: Arc<Fabric>,
}

impl Class for EventQueue {
    type Fid = sys::fid_eq;

    const NUMBER: u32 = sys::FI_CLASS_EQ;
}

impl EventQueue {
    /// Reads an event, and keeps it with `FI_PEEK`. Returns its length.
    ///
    /// # Safety
    /// F2: `event` is null or has room for a number, and `buffer` has `length` bytes.
    unsafe fn read(&self, event: *mut u32, (buffer, length): (*mut c_void, usize), flags: u64) -> Result<isize> {
        let mut events = self.events.lock();
        let (number, bytes) = events.front().ok_or(sys::FI_EAGAIN)?;
        if event.is_null() || bytes.len() > length {
            return Err(sys::FI_ETOOSMALL);
        }
        // SAFETY: F2.
        unsafe {
            event.write(*number);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
        }
        let read = bytes.len() as isize;
        if flags & sys::FI_PEEK == 0 {
            events.pop_front();
        }
        Ok(read)
    }

    /// Whether a program may sleep on the descriptor: there is no event, and one makes it readable.
    pub(crate) fn can_sleep(&self) -> Result<bool> {
        self.wait.as_ref().ok_or(sys::FI_EINVAL)?.arm();
        Ok(self.events.lock().is_empty())
    }
}

static OPERATIONS: sys::fi_ops = table!(fi_ops {
    close: fid::close::<EventQueue>, control: control;
    absent: bind, ops_open, tostr, ops_set,
});

static FUNCTIONS: sys::fi_ops_eq = table!(fi_ops_eq {
    read: read, readerr: readerr, write: write, sread: sread, strerror: strerror;
    absent:
});

/// `fi_eq_open`.
///
/// # Safety
/// F1, F2.
pub(crate) unsafe extern "C" fn open(
    fabric: *mut sys::fid_fabric,
    attributes: *mut sys::fi_eq_attr,
    place: *mut *mut sys::fid_eq,
    context: *mut c_void,
) -> c_int {
    done("fi_eq_open", || {
        // SAFETY: F1, F2.
        let (fabric, attributes) = unsafe { (object::<Fabric>(fabric), attributes.as_ref()) };
        let wait = Wait::of(attributes.map_or(sys::FI_WAIT_NONE, |attributes| attributes.wait_obj))?;
        let queue = Arc::new(EventQueue { events: Mutex::default(), wait, _fabric: Arc::clone(fabric) });
        let fid = head::<EventQueue>(context, &OPERATIONS);
        // SAFETY: F2.
        unsafe { give(sys::fid_eq { fid, ops: pointer(&FUNCTIONS) }, queue, place) }
    })
}

/// `fi_eq_read`.
unsafe extern "C" fn read(
    queue: *mut sys::fid_eq,
    event: *mut u32,
    buffer: *mut c_void,
    length: usize,
    flags: u64,
) -> isize {
    // SAFETY: F1, F2.
    call("fi_eq_read", || unsafe { object::<EventQueue>(queue).read(event, (buffer, length), flags) })
}

/// `fi_eq_sread`.
unsafe extern "C" fn sread(
    queue: *mut sys::fid_eq,
    event: *mut u32,
    buffer: *mut c_void,
    length: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    call("fi_eq_sread", || {
        // SAFETY: F1.
        let queue = unsafe { object::<EventQueue>(queue) };
        let wait = queue.wait.as_ref().ok_or(sys::FI_EINVAL)?;
        wait.until((timeout, sys::FI_EAGAIN), Wait::arm, || {
            // SAFETY: F2.
            match unsafe { queue.read(event, (buffer, length), flags) } {
                Err(sys::FI_EAGAIN) => None,
                result => Some(result),
            }
        })
    })
}

/// `fi_control`: the wait object.
unsafe extern "C" fn control(queue: *mut sys::fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: F1, F2.
    done("fi_control", || unsafe { Wait::control(object::<EventQueue>(queue).wait.as_ref(), command, argument) })
}

/// `fi_eq_readerr`: no event is an error.
unsafe extern "C" fn readerr(_: *mut sys::fid_eq, _: *mut sys::fi_eq_err_entry, _: u64) -> isize {
    call("fi_eq_readerr", || Err(sys::FI_EAGAIN))
}

/// `fi_eq_write`.
unsafe extern "C" fn write(queue: *mut sys::fid_eq, event: u32, buffer: *const c_void, length: usize, _: u64) -> isize {
    call("fi_eq_write", || {
        // SAFETY: F1.
        let queue = unsafe { object::<EventQueue>(queue) };
        let bytes = match length {
            0 => &[],
            // SAFETY: F2: the buffer has `length` bytes.
            _ => unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), length) },
        };
        queue.events.lock().push_back((event, bytes.into()));
        queue.wait.iter().for_each(Wait::wake);
        Ok(length as isize)
    })
}

/// `fi_eq_strerror`.
unsafe extern "C" fn strerror(
    _: *mut sys::fid_eq,
    _: c_int,
    _: *const c_void,
    buffer: *mut c_char,
    length: usize,
) -> *const c_char {
    call("fi_eq_strerror", || {
        let text = c"no event of this provider is an error";
        // SAFETY: F2: `buffer` is null or has `length` bytes.
        Ok(unsafe { cq::copy(text.to_bytes(), buffer, length) }.unwrap_or(text.as_ptr()))
    })
}
