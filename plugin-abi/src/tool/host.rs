// SPDX-License-Identifier: MIT OR Apache-2.0
//! Safe calls of the MPI that the tool interface serves, through `host.c`. Called by the files of this folder. Grade:
//! setup; they take MPI's locks, so the delivery of events calls only [`may_call`]. Threads: any. Tests:
//! `tests/tool.rs`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::AtomicU32;

use engine::events::ElementType;

use super::communicator::Comm;
use crate::runtime::entry::Opaque;

/// `MPI_INFO_NULL` or (a condition of every call) a valid info object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Info(*mut c_void);

#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Datatype(#[allow(dead_code, reason = "C reads it")] *mut c_void);

#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Enum(#[allow(dead_code, reason = "C reads it")] Opaque);

unsafe extern "C" {
    /// Returns whether `MPI_T_init_thread` has been called more often than `MPI_T_finalize`.
    #[link_name = "ibex_tool_mpi_t_is_initialized"]
    pub(crate) safe fn is_initialized() -> bool;
    safe fn ibex_tool_may_call() -> c_int;
    /// Returns the count that [`may_call`] compares with 0. Open MPI writes it with one store.
    #[link_name = "ibex_tool_init_count"]
    pub(crate) safe fn init_count() -> &'static AtomicU32;
    #[link_name = "ibex_tool_mpi_is_usable"]
    pub(crate) safe fn mpi_is_usable() -> bool;
    #[link_name = "ibex_tool_mpi_was_initialized"]
    pub(crate) safe fn mpi_was_initialized() -> bool;
    /// Returns whether `MPI_Finalize` has been called. May be called while the process ends.
    #[link_name = "ibex_tool_mpi_was_finalized"]
    pub(crate) safe fn mpi_was_finalized() -> bool;
    /// Returns whether this thread may call MPI now of its own accord, by the thread level of MPI. Before
    /// initialisation and after finalisation: yes, for the calls that MPI permits then.
    #[link_name = "ibex_tool_may_call_mpi"]
    pub(crate) safe fn may_call_mpi() -> bool;
    safe fn ibex_tool_datatype(kind: c_int) -> Datatype;
    safe fn ibex_tool_context(comm: &Comm, is_valid: &mut c_int) -> u64;
    /// Sets the function that `MPI_Comm_free` calls with the number of this communicator. Returns false if MPI refuses.
    /// Every communicator must get the same function; setting it twice has no effect.
    ///
    /// # Safety
    /// [`context`] has found the communicator valid.
    #[link_name = "ibex_tool_notify_when_freed"]
    pub(crate) fn notify_when_freed(comm: &Comm, on_freed: extern "C" fn(u64)) -> bool;
    fn ibex_tool_category(index: c_int, name: *mut c_char, room: c_int) -> c_int;
    fn ibex_tool_info_get(info: Info, key: *const c_char, value: *mut c_char, room: c_int) -> c_int;
    fn ibex_tool_info_new(info: *mut Info) -> c_int;
    fn ibex_tool_info_set(info: Info, key: *const c_char, value: *const c_char) -> c_int;
    safe fn ibex_tool_info_null() -> Info;
    fn ibex_tool_enum_new(name: *const c_char, items: *const *const c_char, count: c_int) -> Enum;
    safe fn ibex_tool_code(code: c_int) -> c_int;
    /// Adds the codes of `include/ibex_mpi_t.h` to `MPI_Error_string`. MPI is initialised and not finalised.
    #[link_name = "ibex_tool_explain_codes"]
    pub(crate) safe fn explain_codes();
    #[link_name = "ibex_tool_verbosity"]
    pub(crate) safe fn verbosity(level: c_int) -> c_int;
    #[link_name = "ibex_tool_bind"]
    pub(crate) safe fn bind(communicator: c_int) -> c_int;
}

/// Result of a call of the interface (MPI 4.1, table 15.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Success,
    Invalid,
    NotInitialized,
    InvalidIndex,
    InvalidName,
    InvalidHandle,
    NotSupported,
}

impl Code {
    pub(crate) fn number(self) -> c_int {
        ibex_tool_code(self as c_int)
    }
}

pub(super) fn initialized() -> Result<(), Code> {
    if is_initialized() { Ok(()) } else { Err(Code::NotInitialized) }
}

/// Returns whether functions of a tool may be called: [`is_initialized`] without a lock. Hot.
#[inline]
pub(crate) fn may_call() -> bool {
    ibex_tool_may_call() != 0
}

pub(crate) fn datatype(element_type: ElementType) -> Datatype {
    ibex_tool_datatype(match element_type {
        ElementType::I32 => 0,
        ElementType::U32 => 1,
        ElementType::U64 => 2,
    })
}

/// Makes an enumeration with items of these names, at most 16. It is never freed.
pub(crate) fn enumeration(name: &str, items: impl Iterator<Item = &'static str>) -> Enum {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let (name, items): (_, Vec<CString>) = (text(name), items.map(text).collect());
    let pointers: Vec<*const c_char> = items.iter().map(|item| item.as_ptr()).collect();
    // SAFETY: `items` has as many strings as the last argument says, and MPI copies them.
    unsafe { ibex_tool_enum_new(name.as_ptr(), pointers.as_ptr(), pointers.len() as c_int) }
}

/// Returns the number of a communicator; `None` if it is not valid now, such as `MPI_COMM_NULL` or a freed one.
pub(crate) fn context(comm: Comm) -> Option<u64> {
    let mut is_valid = 0;
    let number = ibex_tool_context(&comm, &mut is_valid);
    (is_valid != 0).then_some(number)
}

/// Returns the name of a category of MPI, or MPI's code, such as that of a wrong index.
pub(crate) fn category(index: c_int) -> Result<String, c_int> {
    let mut name = [0_u8; 256];
    // SAFETY: MPI writes at most `name.len()` bytes, the last of them NUL.
    let code = unsafe { ibex_tool_category(index, name.as_mut_ptr().cast(), name.len() as c_int) };
    if code != Code::Success.number() {
        return Err(code);
    }
    Ok(text(&name))
}

/// Returns the string at the start of an array, whose last byte is 0.
fn text(array: &[u8]) -> String {
    CStr::from_bytes_until_nul(array).unwrap_or_default().to_string_lossy().into_owned()
}

impl Info {
    pub(crate) fn null() -> Info {
        ibex_tool_info_null()
    }

    /// Returns the value of a key; `None` if there is none, or no info object.
    pub(crate) fn value(self, key: &CStr) -> Option<String> {
        if self.0.is_null() || self == Info::null() || !mpi_is_usable() {
            return None;
        }
        let mut value = [0_u8; 64];
        // SAFETY: a valid info object, as it is not null; at most `value.len()` bytes are written.
        let there = unsafe { ibex_tool_info_get(self, key.as_ptr(), value.as_mut_ptr().cast(), value.len() as c_int) };
        (there != 0).then(|| text(&value))
    }

    /// Makes an info object with these keys and values; returns `MPI_INFO_NULL` while MPI cannot make one.
    pub(crate) fn with(pairs: &[(&CStr, &str)]) -> Info {
        let mut info = Info::null();
        // SAFETY: MPI is initialised and not finalised, and writes one handle.
        if !mpi_is_usable() || unsafe { ibex_tool_info_new(&raw mut info) } != Code::Success.number() {
            return Info::null();
        }
        for (key, value) in pairs {
            let value = CString::new(*value).unwrap_or_default();
            // SAFETY: the object has just been made, and MPI copies both strings. A pair that MPI refuses is left out.
            unsafe { ibex_tool_info_set(info, key.as_ptr(), value.as_ptr()) };
        }
        info
    }
}
