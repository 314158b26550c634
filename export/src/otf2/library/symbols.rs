// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of the OTF2 library that ibex calls, declared by hand, and the search for the library. From the
//! headers of OTF2 3.0 (`otf2/OTF2_Archive.h`, `OTF2_EvtWriter.h`, `OTF2_GlobalDefWriter.h`, `OTF2_AttributeList.h`,
//! `OTF2_Callbacks.h`, `OTF2_ErrorCodes.h`). The name of the library ends with the number of its interface, 10; OTF2
//! 2.x has another number and other arguments. Enumerations are integers of the headers' widths. Called by `archive.rs`
//! and `definitions.rs`. Path: setup. Threads: any; the addresses do not change. Tests: export/tests/otf2.rs.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use anyhow::{Error, Result, anyhow};
use libloading::os::unix::Library;

/// Names of the library with interface 10: Debian's, and that of OTF2 itself.
const NAMES: [&str; 2] = ["libopen-trace-format2.so.10", "libotf2.so.10"];

pub(super) type Code = c_int;
pub(super) const SUCCESS: Code = 0;
pub(super) const TYPE_UINT64: u8 = 4;

/// Types that only the library knows.
macro_rules! opaque {
    ($($name:ident),*) => {$(
        #[repr(C)]
        pub(super) struct $name { _private: [u8; 0] }
    )*};
}
opaque!(RawArchive, EvtWriter, DefWriter, GlobalDefWriter, AttributeList);

/// `OTF2_FlushCallbacks`: whether a full buffer goes to its file, and the time to record afterwards.
#[repr(C)]
pub(super) struct FlushCallbacks {
    pub(super) before: Option<extern "C" fn(*mut c_void, u8, u64, *mut c_void, bool) -> u8>,
    pub(super) after: Option<extern "C" fn(*mut c_void, u8, u64) -> u64>,
}

#[repr(C)]
pub(super) struct MemoryCallbacks {
    pub(super) allocate: extern "C" fn(*mut c_void, u8, u64, *mut *mut c_void, u64) -> *mut c_void,
    pub(super) free_all: extern "C" fn(*mut c_void, u8, u64, *mut *mut c_void, bool),
}

/// `OTF2_ErrorCallback` without its last argument, a `va_list`, which each supported ABI passes in one register.
pub(super) type ErrorCallback =
    extern "C" fn(*mut c_void, *const c_char, u64, *const c_char, Code, *const c_char, *mut c_void) -> Code;

macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions, valid until the program ends because the library is never unloaded.
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn in_library(library: &Library) -> Result<Functions, libloading::Error> {
                Ok(Functions {
                    $(
                        // SAFETY: the library's interface is number 10, in whose headers the function has this type.
                        $field: *unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> $result>(concat!($name, "\0").as_bytes())
                        }?,
                    )*
                })
            }
        }
    };
}

functions! {
    error_callback = "OTF2_Error_RegisterCallback"(Option<ErrorCallback>, *mut c_void) -> Option<ErrorCallback>;
    error_description = "OTF2_Error_GetDescription"(Code) -> *const c_char;
    open = "OTF2_Archive_Open"(*const c_char, *const c_char, u8, u64, u64, u8, u8) -> *mut RawArchive;
    close = "OTF2_Archive_Close"(*mut RawArchive) -> Code;
    set_flush = "OTF2_Archive_SetFlushCallbacks"(*mut RawArchive, *const FlushCallbacks, *mut c_void) -> Code;
    set_memory = "OTF2_Archive_SetMemoryCallbacks"(*mut RawArchive, *const MemoryCallbacks, *mut c_void) -> Code;
    set_serial = "OTF2_Archive_SetSerialCollectiveCallbacks"(*mut RawArchive) -> Code;
    set_creator = "OTF2_Archive_SetCreator"(*mut RawArchive, *const c_char) -> Code;
    set_description = "OTF2_Archive_SetDescription"(*mut RawArchive, *const c_char) -> Code;
    set_property = "OTF2_Archive_SetProperty"(*mut RawArchive, *const c_char, *const c_char, bool) -> Code;
    open_events = "OTF2_Archive_OpenEvtFiles"(*mut RawArchive) -> Code;
    close_events = "OTF2_Archive_CloseEvtFiles"(*mut RawArchive) -> Code;
    event_writer = "OTF2_Archive_GetEvtWriter"(*mut RawArchive, u64) -> *mut EvtWriter;
    close_event_writer = "OTF2_Archive_CloseEvtWriter"(*mut RawArchive, *mut EvtWriter) -> Code;
    open_definitions = "OTF2_Archive_OpenDefFiles"(*mut RawArchive) -> Code;
    close_definitions = "OTF2_Archive_CloseDefFiles"(*mut RawArchive) -> Code;
    definition_writer = "OTF2_Archive_GetDefWriter"(*mut RawArchive, u64) -> *mut DefWriter;
    close_definition_writer = "OTF2_Archive_CloseDefWriter"(*mut RawArchive, *mut DefWriter) -> Code;
    global_writer = "OTF2_Archive_GetGlobalDefWriter"(*mut RawArchive) -> *mut GlobalDefWriter;
    close_global_writer = "OTF2_Archive_CloseGlobalDefWriter"(*mut RawArchive, *mut GlobalDefWriter) -> Code;
    new_attributes = "OTF2_AttributeList_New"() -> *mut AttributeList;
    delete_attributes = "OTF2_AttributeList_Delete"(*mut AttributeList) -> Code;
    add_number = "OTF2_AttributeList_AddUint32"(*mut AttributeList, u32, u32) -> Code;
    add_signed = "OTF2_AttributeList_AddInt32"(*mut AttributeList, u32, i32) -> Code;
    add_string = "OTF2_AttributeList_AddStringRef"(*mut AttributeList, u32, u32) -> Code;
    event_count = "OTF2_EvtWriter_GetNumberOfEvents"(*mut EvtWriter, *mut u64) -> Code;
    enter = "OTF2_EvtWriter_Enter"(*mut EvtWriter, *mut AttributeList, u64, u32) -> Code;
    leave = "OTF2_EvtWriter_Leave"(*mut EvtWriter, *mut AttributeList, u64, u32) -> Code;
    measurement = "OTF2_EvtWriter_MeasurementOnOff"(*mut EvtWriter, *mut AttributeList, u64, u8) -> Code;
    isend = "OTF2_EvtWriter_MpiIsend"(*mut EvtWriter, *mut AttributeList, u64, u32, u32, u32, u64, u64) -> Code;
    isend_complete = "OTF2_EvtWriter_MpiIsendComplete"(*mut EvtWriter, *mut AttributeList, u64, u64) -> Code;
    irecv_request = "OTF2_EvtWriter_MpiIrecvRequest"(*mut EvtWriter, *mut AttributeList, u64, u64) -> Code;
    irecv = "OTF2_EvtWriter_MpiIrecv"(*mut EvtWriter, *mut AttributeList, u64, u32, u32, u32, u64, u64) -> Code;
    metric = "OTF2_EvtWriter_Metric"(*mut EvtWriter, *mut AttributeList, u64, u32, u8, *const u8, *const u64) -> Code;
    clock = "OTF2_GlobalDefWriter_WriteClockProperties"(*mut GlobalDefWriter, u64, u64, u64, u64) -> Code;
    string = "OTF2_GlobalDefWriter_WriteString"(*mut GlobalDefWriter, u32, *const c_char) -> Code;
    tree_node = "OTF2_GlobalDefWriter_WriteSystemTreeNode"(*mut GlobalDefWriter, u32, u32, u32, u32) -> Code;
    location_group = "OTF2_GlobalDefWriter_WriteLocationGroup"(*mut GlobalDefWriter, u32, u32, u8, u32, u32) -> Code;
    location = "OTF2_GlobalDefWriter_WriteLocation"(*mut GlobalDefWriter, u64, u32, u8, u64, u32) -> Code;
    region = "OTF2_GlobalDefWriter_WriteRegion"(
        *mut GlobalDefWriter, u32, u32, u32, u32, u8, u8, u32, u32, u32, u32
    ) -> Code;
    group = "OTF2_GlobalDefWriter_WriteGroup"(*mut GlobalDefWriter, u32, u32, u8, u8, u32, u32, *const u64) -> Code;
    communicator = "OTF2_GlobalDefWriter_WriteComm"(*mut GlobalDefWriter, u32, u32, u32, u32, u32) -> Code;
    intercommunicator = "OTF2_GlobalDefWriter_WriteInterComm"(*mut GlobalDefWriter, u32, u32, u32, u32, u32, u32) -> Code;
    metric_member = "OTF2_GlobalDefWriter_WriteMetricMember"(
        *mut GlobalDefWriter, u32, u32, u32, u8, u8, u8, u8, i64, u32
    ) -> Code;
    metric_class = "OTF2_GlobalDefWriter_WriteMetricClass"(*mut GlobalDefWriter, u32, u8, *const u32, u8, u8) -> Code;
    attribute = "OTF2_GlobalDefWriter_WriteAttribute"(*mut GlobalDefWriter, u32, u32, u32, u8) -> Code;
}

pub(super) fn functions() -> Result<&'static Functions> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(|why| {
        anyhow!(
            "the OTF2 library (3.x) cannot be loaded: {why}; install it: apt-get install libopen-trace-format2-10 \
             (with its programs: otf2-tools)"
        )
    })
}

fn load() -> Result<Functions, String> {
    let mut why = String::new();
    for name in NAMES {
        // SAFETY: the library's initializers set up its own state alone.
        match unsafe { Library::new(name) } {
            Err(error) => why = error.to_string(),
            Ok(library) => {
                let functions = Functions::in_library(&library).map_err(|error| error.to_string())?;
                // SAFETY: the header declares this type; `quiet` reads none of its arguments.
                unsafe { (functions.error_callback)(Some(quiet), std::ptr::null_mut()) };
                std::mem::forget(library);
                return Ok(functions);
            }
        }
    }
    Err(why)
}

/// Keeps the library from printing: ibex reports the error.
extern "C" fn quiet(
    _: *mut c_void,
    _: *const c_char,
    _: u64,
    _: *const c_char,
    code: Code,
    _: *const c_char,
    _: *mut c_void,
) -> Code {
    code
}

impl Functions {
    /// Makes an error of a code other than success.
    pub(super) fn check(&self, what: &str, code: Code) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(failed(what, &self.describe(code))) }
    }

    fn describe(&self, code: Code) -> String {
        // SAFETY: takes any number.
        let text = unsafe { (self.error_description)(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: a text of the library, which is never unloaded.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

pub(super) fn failed(what: &str, why: &str) -> Error {
    anyhow!("the OTF2 library cannot {what}: {why}")
}

pub(super) fn text(text: impl AsRef<[u8]>) -> Result<CString> {
    let text = text.as_ref();
    CString::new(text).map_err(|_| {
        let text = String::from_utf8_lossy(text);
        anyhow!("a name cannot be written to an OTF2 archive, as it has a byte 0: {text:?}")
    })
}
