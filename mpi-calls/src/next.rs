// SPDX-License-Identifier: MIT OR Apache-2.0
//! The next definition of a function after this library's: that of the MPI, or of another tool. The loader's own search
//! (`RTLD_NEXT`) does not see an MPI that a Python module has brought with it, so all loaded objects are searched then.
//! Grade: hot for [`Next::find`] after the first time, else setup. Threads: any. Tests: below; event-log/tests;
//! hw-tests/tests/device/provider_tools.rs.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a call returns that no MPI has. No MPI gives this error code to `MPI_SUCCESS`.
pub const MISSING: c_int = 1;

/// The address of the next definition of a function.
pub struct Next {
    name: &'static str,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// For the function of this name.
    pub const fn new(name: &'static str) -> Next {
        Next { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Returns the address; without one says so.
    #[inline]
    pub fn find(&self) -> Option<NonNull<c_void>> {
        // Relaxed: the function has been there since its library was loaded.
        NonNull::new(self.address.load(Ordering::Relaxed)).or_else(|| self.look_up())
    }

    #[cold]
    fn look_up(&self) -> Option<NonNull<c_void>> {
        let found = CString::new(self.name).ok().and_then(|name| definition(&name));
        match found {
            Some(found) => self.address.store(found.as_ptr(), Ordering::Relaxed),
            None => eprintln!("ibex: no MPI has {}: is it linked statically?", self.name),
        }
        found
    }
}

/// Returns the next definition of a function.
pub fn definition(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the name is NUL-terminated.
    let found = NonNull::new(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) });
    found.filter(|found| !is_own(*found)).or_else(|| loaded().iter().find_map(|object| defined_by(object, name)))
}

/// Whether a program that calls this function calls this library's, and there is a next definition.
pub fn is_overridden(name: &CStr) -> bool {
    called(name).is_some_and(is_own) && definition(name).is_some()
}

/// Whether a program that calls this function calls that of the MPI itself: of the object that also has `other`.
pub fn is_called_directly(name: &CStr, other: &CStr) -> bool {
    let Some(found) = definition(name) else { return false };
    called(name).is_none_or(|called| called == found && definition(other).and_then(base) == base(found))
}

/// Returns the definition that comes first in the loader's global search order: the one that a program calls.
fn called(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the name is NUL-terminated.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

fn defined_by(object: &CStr, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: both names are NUL-terminated; RTLD_NOLOAD loads nothing, and runs none of the object's code.
    let handle = NonNull::new(unsafe { libc::dlopen(object.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) })?;
    // SAFETY: the handle is open.
    let found = NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) });
    // SAFETY: closed once. The object stays, because others hold it.
    unsafe { libc::dlclose(handle.as_ptr()) };
    found.filter(|found| !is_own(*found))
}

/// The file names of all loaded objects but the program, in the order in which they were loaded.
fn loaded() -> Vec<CString> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
        // SAFETY: the loader's information and name, and the `Vec` below, live during the call.
        let (name, names) = unsafe { (CStr::from_ptr((*info).dlpi_name), &mut *names.cast::<Vec<CString>>()) };
        if !name.is_empty() {
            names.push(name.to_owned());
        }
        0
    }
    let mut names = Vec::<CString>::new();
    // SAFETY: `add` gets the `Vec`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut names).cast()) };
    names
}

fn is_own(address: NonNull<c_void>) -> bool {
    let own = base(NonNull::from(&MISSING).cast());
    own.is_some() && base(address) == own
}

/// Returns where the object is loaded that has this address.
fn base(address: NonNull<c_void>) -> Option<*mut c_void> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: `dladdr` reads no memory at the address, and fills the information if it returns anything but zero.
    unsafe { (libc::dladdr(address.as_ptr(), info.as_mut_ptr()) != 0).then(|| info.assume_init().dli_fbase) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_a_loaded_object_is_found_and_none_that_nobody_has() {
        let object = loaded().into_iter().find(|name| name.to_string_lossy().contains("libc.so")).expect("libc");
        assert_eq!(defined_by(&object, c"getpid"), definition(c"getpid"));
        assert!(definition(c"getpid").is_some_and(|found| !is_own(found)));
        assert!(!is_overridden(c"getpid"), "it is libc's");
        assert!(is_called_directly(c"getpid", c"getppid") && !is_called_directly(c"MPI_Nothing", c"getpid"));
        assert_eq!(Next::new("MPI_Nothing").find(), None);
    }
}
