// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of the job: names, hosts, architectures; and the modex, bytes that each process publishes at start and the
//! others fetch. The bytes, not the key, contain a version, so different builds of ibex find each other's. Called by
//! plugin-abi. Grade: setup ([`fetch`] may wait for another host's data) and errors. Threads: any, `PMIx` takes its own
//! lock. An `opal_proc_t` is Open MPI's, and lives until `MPI_Finalize`.

use std::ffi::CStr;
use std::ptr::NonNull;

use super::{release, sys};

/// Open MPI's name of a process: the job, and the rank within it (`MPI_COMM_WORLD`'s).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Name {
    /// `jobid`, as mpirun gave it.
    pub job: u32,
    /// `vpid`: the rank.
    pub rank: u32,
}

impl Name {
    pub(super) fn to_c(self) -> sys::opal_process_name_t {
        sys::opal_process_name_t { jobid: self.job, vpid: self.rank }
    }
}

/// Number of the job's processes on this host, this one included.
pub fn local_processes() -> u32 {
    // SAFETY: Open MPI writes this number before it opens components.
    let others = unsafe { (&raw const sys::opal_process_info.num_local_peers).read() };
    // The release series determines whether the number is signed.
    u32::try_from(i64::from(others)).unwrap_or(0).saturating_add(1)
}

/// A process as Open MPI describes it.
#[derive(Clone, Copy, Debug)]
pub struct Process(NonNull<sys::opal_proc_t>);

impl Process {
    /// Takes a pointer that Open MPI gave.
    ///
    /// # Safety
    /// `raw` is null, or an `opal_proc_t` of Open MPI that outlives the value.
    pub unsafe fn from_raw(raw: *mut sys::opal_proc_t) -> Option<Self> {
        NonNull::new(raw).map(Process)
    }

    /// This process; `None` before `MPI_Init` has made its object.
    pub fn me() -> Option<Self> {
        // SAFETY: the call has no arguments, and returns this process's object, or null.
        let raw = unsafe { sys::opal_proc_local_get() };
        // SAFETY: null, or this process's own object, which lives until the process ends.
        unsafe { Self::from_raw(raw) }
    }

    /// The process of this name; Open MPI makes the object if there is none yet.
    pub fn of(name: Name) -> Option<Self> {
        // SAFETY: Open MPI sets this function pointer at start, and never again.
        let lookup = unsafe { (&raw const sys::opal_proc_for_name).read() }?;
        // SAFETY: the lookup takes any name, and returns null for one it does not know.
        let raw = unsafe { lookup(name.to_c()) };
        // SAFETY: null, or an object of Open MPI's list of processes, which keeps it until MPI_Finalize.
        unsafe { Self::from_raw(raw) }
    }

    /// Its name.
    pub fn name(self) -> Name {
        // SAFETY: a live `opal_proc_t` (constructor); the name is set before the object is published.
        let name = unsafe { (&raw const (*self.0.as_ptr()).proc_name).read() };
        Name { job: name.jobid, rank: name.vpid }
    }

    /// Its architecture, as Open MPI's convertors encode it (byte order, sizes of the C types).
    pub fn architecture(self) -> u32 {
        // SAFETY: a live `opal_proc_t` (constructor); the field is set when Open MPI makes the object.
        unsafe { (&raw const (*self.0.as_ptr()).proc_arch).read() }
    }

    /// The host; Open MPI fetches it from the modex at the first use.
    pub fn host(self) -> String {
        // SAFETY: a live `opal_proc_t`; the text is its own and must not be freed.
        let text = unsafe { release::host_name(self.0.as_ptr()) };
        if text.is_null() {
            return "an unknown host".to_owned();
        }
        // SAFETY: a NUL-terminated text that lives as long as the process object.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// The pointer, to hand back to Open MPI.
    pub fn as_raw(self) -> *mut sys::opal_proc_t {
        self.0.as_ptr()
    }
}

/// Publishes `bytes` under `key` to every process of the job.
///
/// # Errors
/// The OPAL code (negative) with which `PMIx` refused.
pub fn publish(key: &CStr, bytes: &[u8]) -> Result<(), i32> {
    // SAFETY: the key and the bytes are only read, and copied before the call returns.
    match unsafe { sys::ibex_modex_put(key.as_ptr(), bytes.as_ptr().cast(), bytes.len()) } {
        sys::OPAL_SUCCESS => Ok(()),
        code => Err(code),
    }
}

/// The bytes that process `name` has published under `key`; `None` if there are none. Waits for a thread of `PMIx` and
/// makes no progress of Open MPI's, so the caller may have entered the PML and ports.
pub fn fetch(key: &CStr, name: Name) -> Option<Vec<u8>> {
    let name = name.to_c();
    let mut bytes = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: all four pointers are to live locals; the callee writes the last two.
    let code = unsafe { sys::ibex_modex_get(key.as_ptr(), &raw const name, &raw mut bytes, &raw mut size) };
    if code != sys::OPAL_SUCCESS || bytes.is_null() {
        return None;
    }
    // SAFETY: on success `bytes` is a block of `size` bytes from malloc(), which the caller owns.
    let copy = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) }.to_vec();
    // SAFETY: a block from malloc() that this function owns, and does not use again.
    unsafe { libc::free(bytes) };
    Some(copy)
}
