// SPDX-License-Identifier: MIT OR Apache-2.0
//! Safe wrappers of the calls that this tool makes: `MPI_T` (`ibex_mpi_t.h`, `mpi.h`), the rank, and system calls that
//! std lacks. build.rs makes the bindings; mpi.c wraps the parts that only a C compiler can read. Called by the other
//! files. Grade: [`read_event`] is hot, the rest setup. Threads: any, after [`initialize`]. Tests: the callers'.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;

use ibex_trace::{ElementKind, Source};

use crate::catalogue::{Element, EventType};

#[allow(non_camel_case_types, non_snake_case, non_upper_case_globals, unused, unreachable_pub, missing_docs)]
#[allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks, reason = "made by bindgen")]
pub(crate) mod sys {
    include!(concat!(env!("OUT_DIR"), "/mpi.rs"));
}

pub(crate) use sys::{MPI_Count as Count, MPI_T_cb_safety as Safety, MPI_T_event_instance, MPI_T_event_registration};

pub(crate) type Callback = unsafe extern "C" fn(MPI_T_event_instance, MPI_T_event_registration, Safety, *mut c_void);
pub(crate) type Dropped = unsafe extern "C" fn(Count, MPI_T_event_registration, c_int, Safety, *mut c_void);

unsafe extern "C" {
    safe fn ibex_log_is_success(code: c_int) -> c_int;
    safe fn ibex_log_info_null() -> sys::MPI_Info;
    fn ibex_log_kind(datatype: sys::MPI_Datatype, size: *mut c_int) -> c_int;
    safe fn ibex_log_rank() -> c_int;
    safe fn ibex_log_ranks() -> c_int;
    safe fn ibex_log_is_spawned() -> c_int;
}

#[cfg(test)]
#[link(name = "ibex-log-stand-in", kind = "static")]
unsafe extern "C" {}

/// Largest number of elements of a type that are read.
const ELEMENTS: usize = 32;

/// A call has failed, with this code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused(pub(crate) c_int);

fn check(code: c_int) -> Result<(), Refused> {
    if succeeded(code) { Ok(()) } else { Err(Refused(code)) }
}

/// Returns the NUL-terminated text that a call has written to a buffer.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&byte| byte.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
}

/// Initialises `MPI_T` and never finalises it, since events occur until the process ends. Prints a failure with `done`.
pub(crate) fn initialize(done: &str) -> Option<()> {
    let mut provided = 0;
    // MPI_THREAD_MULTIPLE is 3 in every MPI. It is needed because the writing thread queries sources.
    // SAFETY: the pointer is to a local.
    let initialized = check(unsafe { sys::MPI_T_init_thread(3, &raw mut provided) });
    let told = |refused: &Refused| complain(&format!("MPI_T_init_thread answers {}: nothing is {done}", refused.0));
    initialized.inspect_err(told).ok()
}

pub(crate) fn succeeded(code: c_int) -> bool {
    ibex_log_is_success(code) != 0
}

/// Returns the rank in `MPI_COMM_WORLD`, while MPI is initialised.
pub(crate) fn rank() -> Option<u32> {
    u32::try_from(ibex_log_rank()).ok()
}

pub(crate) fn ranks() -> Option<u32> {
    u32::try_from(ibex_log_ranks()).ok()
}

pub(crate) fn is_spawned() -> bool {
    ibex_log_is_spawned() != 0
}

pub(crate) fn type_count() -> c_int {
    count(sys::MPI_T_event_get_num)
}

/// Returns the number that this call writes; 0 if it fails.
fn count(call: unsafe extern "C" fn(*mut c_int) -> c_int) -> c_int {
    let mut count = 0;
    // SAFETY: the callers name calls that write one number; the pointer is to a local.
    if succeeded(unsafe { call(&raw mut count) }) { count } else { 0 }
}

pub(crate) fn event_type(index: c_int) -> Result<EventType, Refused> {
    let (mut name, mut description) = ([0; 128], [0; 1024]);
    let (mut name_len, mut description_len) = (name.len() as c_int, description.len() as c_int);
    let mut datatypes = [std::ptr::null_mut(); ELEMENTS];
    let mut displacements = [0; ELEMENTS];
    let (mut count, mut level, mut bind) = (ELEMENTS as c_int, 0, 0);
    let (mut items, mut info) = (std::ptr::null_mut(), ibex_log_info_null());
    // SAFETY: the arrays have as many elements as the counts say; the other pointers are to locals.
    check(unsafe {
        sys::MPI_T_event_get_info(
            index,
            name.as_mut_ptr(),
            &raw mut name_len,
            &raw mut level,
            datatypes.as_mut_ptr(),
            displacements.as_mut_ptr(),
            &raw mut count,
            &raw mut items,
            &raw mut info,
            description.as_mut_ptr(),
            &raw mut description_len,
            &raw mut bind,
        )
    })?;
    let elements = (0..usize::try_from(count).unwrap_or(0).min(ELEMENTS))
        .map(|element| {
            let name = item(items, element as c_int).unwrap_or_else(|| format!("{element}"));
            Element { name, kind: kind(datatypes[element]), at: displacements[element].unsigned_abs() }
        })
        .collect();
    Ok(EventType { index: Some(index), name: text(&name), description: text(&description), elements })
}

/// Returns the type of an element, if this tool knows its datatype.
fn kind(datatype: sys::MPI_Datatype) -> Option<ElementKind> {
    let mut size = 0;
    // SAFETY: a handle from MPI_T_event_get_info; the pointer is to a local.
    match (unsafe { ibex_log_kind(datatype, &raw mut size) }, size) {
        (0, 4) => Some(ElementKind::I32),
        (1, 4) => Some(ElementKind::U32),
        (0, 8) => Some(ElementKind::I64),
        (1, 8) => Some(ElementKind::U64),
        _ => None,
    }
}

/// Returns the name of an item of an enumeration, which is that of an element. `None`: the type has no enumeration.
fn item(items: sys::MPI_T_enum, index: c_int) -> Option<String> {
    if items.is_null() {
        return None;
    }
    let (mut name, mut value) = ([0; 64], 0);
    let mut name_len = name.len() as c_int;
    // SAFETY: an enumeration from MPI_T_event_get_info; the buffer has `name_len` bytes; the pointers are to locals.
    check(unsafe { sys::MPI_T_enum_get_item(items, index, &raw mut value, name.as_mut_ptr(), &raw mut name_len) })
        .ok()?;
    Some(text(&name))
}

pub(crate) fn source_count() -> c_int {
    count(sys::MPI_T_source_get_num)
}

pub(crate) fn source(index: c_int) -> Result<Source, Refused> {
    let (mut name, mut description) = ([0; 128], [0; 512]);
    let (mut name_len, mut description_len) = (name.len() as c_int, description.len() as c_int);
    let (mut order, mut ticks_per_second, mut most) = (sys::MPI_T_SOURCE_ORDERED, 0, 0);
    let mut info = ibex_log_info_null();
    // SAFETY: the arrays have as many elements as the counts say; the other pointers are to locals.
    check(unsafe {
        sys::MPI_T_source_get_info(
            index,
            name.as_mut_ptr(),
            &raw mut name_len,
            description.as_mut_ptr(),
            &raw mut description_len,
            &raw mut order,
            &raw mut ticks_per_second,
            &raw mut most,
            &raw mut info,
        )
    })?;
    let ordered = order == sys::MPI_T_SOURCE_ORDERED;
    let (ticks_per_second, max_ticks) = (ticks_per_second.unsigned_abs(), most.unsigned_abs());
    Ok(Source { name: text(&name), description: text(&description), ticks_per_second, max_ticks, ordered })
}

/// Returns the present time of a source's clock, in its ticks; `None` if it cannot be read.
pub(crate) fn source_now(index: c_int) -> Option<i64> {
    let mut ticks = 0;
    // SAFETY: the pointer is to a local.
    check(unsafe { sys::MPI_T_source_get_timestamp(index, &raw mut ticks) }).ok()?;
    Some(ticks)
}

/// A registration for the events of a type, of all communicators. Only [`Registration::free`] frees it.
#[derive(Clone, Copy)]
pub(crate) struct Registration(MPI_T_event_registration);

// SAFETY: a handle of the interface, which any thread may use.
unsafe impl Send for Registration {}

impl Registration {
    /// `MPI_T_event_handle_alloc`, with callbacks for events and for losses that may run anywhere.
    ///
    /// # Safety
    /// L1: the callbacks may be called with `user` at any time, in any thread, until the process ends.
    pub(crate) unsafe fn new(
        event_type: c_int,
        callback: Callback,
        dropped: Dropped,
        user: *mut c_void,
    ) -> Result<Registration, Refused> {
        let mut handle = std::ptr::null_mut();
        let (none, info) = (std::ptr::null_mut(), ibex_log_info_null());
        // SAFETY: no object and no info; the pointer is to a local.
        check(unsafe { sys::MPI_T_event_handle_alloc(event_type, none, info, &raw mut handle) })?;
        let level = sys::MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE;
        // SAFETY: L1 by the caller; the handle has just been made.
        check(unsafe { sys::MPI_T_event_set_dropped_handler(handle, Some(dropped)) })?;
        // SAFETY: L1 by the caller; the handle has just been made.
        check(unsafe { sys::MPI_T_event_register_callback(handle, level, info, user, Some(callback)) })?;
        Ok(Registration(handle))
    }

    /// `MPI_T_event_handle_free`: ibex delivers the waiting events first.
    pub(crate) fn free(self) {
        // SAFETY: a handle from `new`. A handle that has been freed is refused.
        unsafe { sys::MPI_T_event_handle_free(self.0, std::ptr::null_mut(), None) };
    }
}

/// Returns source and timestamp of an event, and copies its elements, to their displacements.
///
/// # Safety
/// L2: the instance is the argument of the callback that is running, and its type's elements end within `data`.
#[inline]
pub(crate) unsafe fn read_event(instance: MPI_T_event_instance, data: &mut [u64]) -> (c_int, i64) {
    let (mut source, mut ticks) = (0, 0);
    // SAFETY: L2; the pointers are to locals, which stay 0 if a call fails, and to `data`, which has room.
    unsafe {
        sys::MPI_T_event_get_source(instance, &raw mut source);
        sys::MPI_T_event_get_timestamp(instance, &raw mut ticks);
        sys::MPI_T_event_copy(instance, data.as_mut_ptr().cast());
    }
    (source, ticks)
}

/// Returns the monotonic clock in nanoseconds, which all processes of a host share.
pub(crate) fn monotonic() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local. Every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Writes a line to standard error, without a lock or a buffer.
pub(crate) fn complain(line: &str) {
    let text = CString::new(format!("libibex-log: {line}\n")).unwrap_or_default();
    // SAFETY: the text has so many bytes, and lives during the call.
    let _ = unsafe { libc::write(2, text.as_ptr().cast(), text.as_bytes().len()) };
}

/// Blocks all signals but those of faults, for this thread and those that it starts. Returns the former mask.
pub(crate) fn block_signals() -> libc::sigset_t {
    let (mut blocked, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: `sigfillset` and `pthread_sigmask` initialise the sets that they get.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            libc::sigdelset(blocked.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

pub(crate) fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the mask is one from `block_signals`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}
