// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of a completion queue that C calls, and the entries that they write. Each format has functions of its
//! own.
//!
//! Grade: hot ([`read`]), else setup. Threads: any. Tests: below.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::{Completion, CompletionQueue, Failed};
use crate::domain::Domain;
use crate::entry::{Result, call, done, table};
use crate::fid::{self, give, head, object, pointer};
use crate::sys;
use crate::wait::Wait;

static OPERATIONS: sys::fi_ops = table!(fi_ops {
    close: fid::close::<CompletionQueue>, control: control;
    absent: bind, ops_open, tostr, ops_set,
});

/// By format.
static FUNCTIONS: [sys::fi_ops_cq; 5] = [
    functions::<{ sys::FI_CQ_FORMAT_TAGGED }>(),
    functions::<{ sys::FI_CQ_FORMAT_CONTEXT }>(),
    functions::<{ sys::FI_CQ_FORMAT_MSG }>(),
    functions::<{ sys::FI_CQ_FORMAT_DATA }>(),
    functions::<{ sys::FI_CQ_FORMAT_TAGGED }>(),
];

const fn functions<const FORMAT: sys::fi_cq_format>() -> sys::fi_ops_cq {
    table!(fi_ops_cq {
        read: read::<FORMAT>, readfrom: readfrom::<FORMAT>, readerr: readerr, strerror: strerror,
        sread: sread::<FORMAT>, sreadfrom: sreadfrom::<FORMAT>, signal: signal;
        absent:
    })
}

/// `fi_cq_open`.
///
/// # Safety
/// F1, F2.
pub(crate) unsafe extern "C" fn open(
    domain: *mut sys::fid_domain,
    attributes: *mut sys::fi_cq_attr,
    place: *mut *mut sys::fid_cq,
    context: *mut c_void,
) -> c_int {
    done("fi_cq_open", || {
        // SAFETY: F1, F2.
        let (domain, attributes) = unsafe { (object::<Domain>(domain), attributes.as_ref()) };
        let attributes = attributes.copied().unwrap_or_default();
        let functions = FUNCTIONS.get(attributes.format as usize).ok_or(sys::FI_EINVAL)?;
        if attributes.flags & !sys::FI_AFFINITY != 0 {
            return Err(sys::FI_EBADFLAGS);
        }
        let wait = Wait::of(attributes.wait_obj)?;
        let queue = Arc::new(CompletionQueue::new(Arc::clone(domain), wait));
        let fid = head::<CompletionQueue>(context, &OPERATIONS);
        // SAFETY: F2.
        unsafe { give(sys::fid_cq { fid, ops: pointer(functions) }, queue, place) }
    })
}

/// Writes a completion into a program's buffer.
///
/// # Safety
/// F2: `buffer` has room for `index` and one more entries of this format.
#[inline(always)]
unsafe fn write<const FORMAT: sys::fi_cq_format>(buffer: *mut c_void, index: usize, completion: &Completion) {
    let Completion { context, flags, length: len, buffer: data_at, data, tag, .. } = *completion;
    let op_context = std::ptr::with_exposed_provenance_mut(context);
    let buf = std::ptr::with_exposed_provenance_mut(data_at);
    // SAFETY: F2, for each format.
    unsafe {
        match FORMAT {
            sys::FI_CQ_FORMAT_CONTEXT => {
                buffer.cast::<sys::fi_cq_entry>().add(index).write(sys::fi_cq_entry { op_context });
            }
            sys::FI_CQ_FORMAT_MSG => {
                buffer.cast::<sys::fi_cq_msg_entry>().add(index).write(sys::fi_cq_msg_entry { op_context, flags, len });
            }
            sys::FI_CQ_FORMAT_DATA => {
                let entry = sys::fi_cq_data_entry { op_context, flags, len, buf, data };
                buffer.cast::<sys::fi_cq_data_entry>().add(index).write(entry);
            }
            _ => {
                let entry = sys::fi_cq_tagged_entry { op_context, flags, len, buf, data, tag };
                buffer.cast::<sys::fi_cq_tagged_entry>().add(index).write(entry);
            }
        }
    }
}

/// [`write`], with the source unless `sources` is null.
///
/// # Safety
/// F2: both have room for `index` and one more.
#[inline(always)]
unsafe fn write_from<const FORMAT: sys::fi_cq_format>(
    (buffer, sources): (*mut c_void, *mut sys::fi_addr_t),
    index: usize,
    completion: &Completion,
) {
    // SAFETY: F2.
    unsafe {
        write::<FORMAT>(buffer, index, completion);
        if !sources.is_null() {
            sources.add(index).write(completion.source);
        }
    }
}

/// `fi_control`: the wait object.
unsafe extern "C" fn control(queue: *mut sys::fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: F1, F2.
    done("fi_control", || unsafe { Wait::control(object::<CompletionQueue>(queue).wait.as_ref(), command, argument) })
}

/// Checks that there is a buffer, unless a call only makes progress.
#[inline(always)]
fn check(buffer: *mut c_void, count: usize) -> Result<()> {
    if buffer.is_null() {
        std::hint::cold_path();
        return if count > 0 { Err(sys::FI_EINVAL) } else { Ok(()) };
    }
    Ok(())
}

/// `fi_cq_read`.
unsafe extern "C" fn read<const FORMAT: sys::fi_cq_format>(
    queue: *mut sys::fid_cq,
    buffer: *mut c_void,
    count: usize,
) -> isize {
    call("fi_cq_read", || {
        // SAFETY: F1.
        let queue = unsafe { object::<CompletionQueue>(queue) };
        check(buffer, count)?;
        // SAFETY: F2: the buffer has room for `count` entries.
        let taken = queue.take(count, |index, completion| unsafe { write::<FORMAT>(buffer, index, completion) })?;
        Ok(taken as isize)
    })
}

/// `fi_cq_sread`. A condition is a hint, which is not needed.
unsafe extern "C" fn sread<const FORMAT: sys::fi_cq_format>(
    queue: *mut sys::fid_cq,
    buffer: *mut c_void,
    count: usize,
    condition: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: F1, F2.
    unsafe { sreadfrom::<FORMAT>(queue, buffer, count, std::ptr::null_mut(), condition, timeout) }
}

/// `fi_cq_sreadfrom`.
unsafe extern "C" fn sreadfrom<const FORMAT: sys::fi_cq_format>(
    queue: *mut sys::fid_cq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut sys::fi_addr_t,
    _: *const c_void,
    timeout: c_int,
) -> isize {
    call("fi_cq_sread", || {
        // SAFETY: F1.
        let queue = unsafe { object::<CompletionQueue>(queue) };
        check(buffer, count)?;
        // SAFETY: F2: both buffers have room for `count` entries; `sources` may be null.
        let taken = queue.take_or_sleep(count, timeout, |index, completion| unsafe {
            write_from::<FORMAT>((buffer, sources), index, completion);
        })?;
        Ok(taken as isize)
    })
}

/// `fi_cq_signal`.
unsafe extern "C" fn signal(queue: *mut sys::fid_cq) -> c_int {
    // SAFETY: F1.
    done("fi_cq_signal", || unsafe { object::<CompletionQueue>(queue) }.signal())
}

/// `fi_cq_readfrom`.
unsafe extern "C" fn readfrom<const FORMAT: sys::fi_cq_format>(
    queue: *mut sys::fid_cq,
    buffer: *mut c_void,
    count: usize,
    sources: *mut sys::fi_addr_t,
) -> isize {
    call("fi_cq_readfrom", || {
        // SAFETY: F1.
        let queue = unsafe { object::<CompletionQueue>(queue) };
        check(buffer, count)?;
        // SAFETY: F2: both buffers have room for `count` entries; `sources` may be null.
        let taken = queue.take(count, |index, completion| unsafe {
            write_from::<FORMAT>((buffer, sources), index, completion);
        })?;
        Ok(taken as isize)
    })
}

/// `fi_cq_readerr`. There are no error data.
unsafe extern "C" fn readerr(queue: *mut sys::fid_cq, buffer: *mut sys::fi_cq_err_entry, _: u64) -> isize {
    call("fi_cq_readerr", || {
        // SAFETY: F1.
        let queue = unsafe { object::<CompletionQueue>(queue) };
        // SAFETY: F2. The program has set the size of its room for error data.
        let entry = unsafe { buffer.as_mut() }.ok_or(sys::FI_EINVAL)?;
        fill(entry, queue.take_failure()?);
        Ok(1)
    })
}

fn fill(entry: &mut sys::fi_cq_err_entry, (completion, failed): (Completion, Failed)) {
    let Failed { error, excess, reason } = failed;
    entry.op_context = std::ptr::with_exposed_provenance_mut(completion.context);
    entry.flags = completion.flags;
    entry.len = completion.length;
    entry.buf = std::ptr::with_exposed_provenance_mut(completion.buffer);
    entry.data = completion.data;
    entry.tag = completion.tag;
    entry.olen = excess;
    entry.err = error as c_int;
    entry.prov_errno = reason as c_int;
    entry.err_data_size = 0;
}

/// `fi_cq_strerror`.
unsafe extern "C" fn strerror(
    queue: *mut sys::fid_cq,
    number: c_int,
    _: *const c_void,
    buffer: *mut c_char,
    length: usize,
) -> *const c_char {
    call("fi_cq_strerror", || {
        // SAFETY: F1.
        let queue = unsafe { object::<CompletionQueue>(queue) };
        // SAFETY: F2: `buffer` is null or has `length` bytes.
        Ok(queue.reason(number, |text| unsafe { copy(text.to_bytes(), buffer, length) }.unwrap_or(text.as_ptr())))
    })
}

/// Copies as much of a text as fits, with a final zero. Returns the copy; `None`: there is no buffer.
///
/// # Safety
/// F2: `buffer` is null or has `length` bytes.
pub(crate) unsafe fn copy(text: &[u8], buffer: *mut c_char, length: usize) -> Option<*const c_char> {
    if buffer.is_null() || length == 0 {
        return None;
    }
    let copied = text.len().min(length - 1);
    // SAFETY: F2, and `copied` is less than `length`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), copied);
        buffer.add(copied).write(0);
    }
    Some(buffer.cast_const())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cq::Failure;
    use crate::tests::domain;
    use std::ffi::CStr;

    /// Opens a queue through C; the completions are pushed by the returned object.
    fn queue(format: sys::fi_cq_format) -> (*mut sys::fid_cq, Arc<CompletionQueue>) {
        let queue = Arc::new(CompletionQueue::new(domain(), None));
        let mut place = std::ptr::null_mut();
        let fid = head::<CompletionQueue>(std::ptr::null_mut(), &OPERATIONS);
        let ops = pointer(&FUNCTIONS[format as usize]);
        // SAFETY: `place` has room.
        unsafe { give(sys::fid_cq { fid, ops }, Arc::clone(&queue), &raw mut place) }.expect("room");
        (place, queue)
    }

    fn push(queue: &CompletionQueue, number: usize) {
        let _inside = queue.domain.enter();
        // SAFETY: D1.
        unsafe { queue.push(completion(number)) };
    }

    fn close(place: *mut sys::fid_cq, queue: Arc<CompletionQueue>) {
        drop(queue);
        // SAFETY: F1.
        assert_eq!(unsafe { fid::close::<CompletionQueue>(place.cast()) }, 0);
    }

    fn completion(number: usize) -> Completion {
        let flags = sys::FI_TAGGED | sys::FI_RECV;
        Completion { context: number, flags, length: 2 * number, buffer: 3, data: 4, tag: 5, source: 6 }
    }

    #[test]
    fn each_format_has_the_fields_of_its_structure() {
        for format in sys::FI_CQ_FORMAT_UNSPEC..=sys::FI_CQ_FORMAT_TAGGED {
            let (place, queue) = queue(format);
            push(&queue, 1);
            push(&queue, 7);
            let mut entries = [0_usize; 12];
            let mut sources = [0_u64; 2];
            // SAFETY: the buffers have room for two of the largest entries.
            let taken = unsafe {
                ((*(*place).ops).readfrom.expect("it is there"))(
                    place,
                    (&raw mut entries).cast(),
                    2,
                    (&raw mut sources).cast::<u64>(),
                )
            };
            assert_eq!((taken, sources), (2, [6, 6]));
            let fields = match format {
                sys::FI_CQ_FORMAT_CONTEXT => 1,
                sys::FI_CQ_FORMAT_MSG => 3,
                sys::FI_CQ_FORMAT_DATA => 5,
                _ => 6,
            };
            let flags = completion(0).flags as usize;
            let wanted = |number: usize| [number, flags, 2 * number, 3, 4, 5][..fields].to_vec();
            assert_eq!(entries[..2 * fields], [wanted(1), wanted(7)].concat(), "format {format}");
            assert!(entries[2 * fields..].iter().all(|word| *word == 0), "format {format}");
            close(place, queue);
        }
    }

    #[test]
    fn an_empty_queue_says_again_and_a_failure_is_announced_read_and_explained() {
        let (place, queue) = queue(sys::FI_CQ_FORMAT_TAGGED);
        let mut entry = sys::fi_cq_tagged_entry::default();
        let mut error = sys::fi_cq_err_entry::default();
        let buffer = (&raw mut entry).cast();
        // SAFETY: room for one entry.
        let read_one = || unsafe { read::<{ sys::FI_CQ_FORMAT_TAGGED }>(place, buffer, 1) };
        // SAFETY: room for one entry.
        let mut read_error = || unsafe { readerr(place, &raw mut error, 0) };
        assert_eq!((read_one(), read_error()), (-11, -11));
        push(&queue, 1);
        let failure = Failure { error: sys::FI_ETRUNC, excess: 9, text: "too long" };
        // SAFETY: D1: nobody else uses the queue.
        unsafe { queue.push_failure(completion(2), failure) };
        push(&queue, 3);
        assert_eq!((read_one(), read_one(), read_one()), (1, -259, -259), "in their order");
        assert_eq!((read_error(), read_error()), (1, -11));
        assert_eq!((read_one(), read_one()), (1, -11));
        assert_eq!((error.op_context.addr(), error.err, error.olen), (2, 265, 9));
        let mut text = [1; 5];
        // SAFETY: the buffer has five bytes.
        let copied = unsafe { strerror(place, error.prov_errno, std::ptr::null(), (&raw mut text).cast(), 5) };
        assert_eq!((copied.addr(), text), ((&raw const text).addr(), *b"too \0"));
        // SAFETY: a C string.
        let whole =
            unsafe { CStr::from_ptr(strerror(place, error.prov_errno, std::ptr::null(), std::ptr::null_mut(), 0)) };
        assert_eq!(whole, c"too long");
        // SAFETY: as above.
        let unknown = unsafe { CStr::from_ptr(strerror(place, -5, std::ptr::null(), std::ptr::null_mut(), 0)) };
        assert_eq!(unknown, c"no further reason is known");
        close(place, queue);
    }
}
