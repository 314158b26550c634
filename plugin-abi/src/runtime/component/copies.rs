// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out whether this libibex.so is the only one in the process, or the first.
//!
//! A tool may be linked with one file while Open MPI loads another as its component. The dynamic linker then resolves
//! symbols that both export to the first file, while each copy keeps its own private state: a tool would call one copy,
//! and the other would raise the events. A tool can be loaded after Open MPI's components, when the chooser has run, so
//! only the library can refuse: the copy that was loaded later prints a message and takes no part, its component
//! declines, and its functions for tools refuse. Two links to one file are one copy. Called by both components, and by
//! every function of `tool` that C may call. Grade: setup; the first call looks at every library of the process, all
//! others are a load. Threads: any. Tests: below, and `tests/copies.rs`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use crate::runtime::entry::entry3;
use crate::runtime::messages;

/// Symbol that every version of ibex exports.
const MARK: &CStr = c"mca_btl_ibex_component";

/// A variable whose address is in this copy.
static HERE: u8 = 0;

#[derive(Debug, PartialEq, Eq)]
struct Library {
    base: usize,
    path: String,
}

/// Returns the message for the user about two copies, by the paths by which they were loaded.
fn message(first: &str, later: &str) -> String {
    let (first, later) = (with_target(first), with_target(later));
    format!(
        "There are two copies of ibex in this process, and the one that was loaded later takes no part in it:\n  \
         first: {first}\n  later: {later}\n\
         Link (or preload) the tool with the libibex.so that Open MPI loads, the one that cargo xtask install has installed."
    )
}

fn with_target(path: &str) -> String {
    match std::fs::canonicalize(path) {
        Ok(target) if target != Path::new(path) => format!("{path} ({})", target.display()),
        _ => path.to_owned(),
    }
}

/// Returns the message about the copy of ibex that was loaded before this one, if there is one.
pub(crate) fn earlier() -> Option<&'static String> {
    static EARLIER: OnceLock<Option<String>> = OnceLock::new();
    EARLIER.get_or_init(find).as_ref()
}

/// Returns whether an earlier copy exists, so that this one must do nothing; prints a message if so.
#[inline]
pub(crate) fn is_refused() -> bool {
    let Some(earlier) = earlier() else { return false };
    messages::another_ibex(earlier);
    true
}

#[cold]
fn find() -> Option<String> {
    let this = library_of((&raw const HERE).cast())?;
    // `loaded` returns the libraries in the order in which they were loaded.
    let first = loaded().iter().find_map(|path| marked(path))?;
    (first.base != this.base).then(|| message(&first.path, &this.path))
}

fn library_of(address: *const c_void) -> Option<Library> {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: null_mut(),
    };
    // SAFETY: `dladdr` does not follow the address, and `found` is room for its result.
    if unsafe { libc::dladdr(address, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker's own name of a loaded library.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_string_lossy().into_owned();
    Some(Library { base: found.dli_fbase.addr(), path })
}

/// Returns the library that exports `MARK`: the one at `path`, or one that it depends on.
fn marked(path: &CStr) -> Option<Library> {
    // SAFETY: the name is NUL-terminated; `RTLD_NOLOAD` loads nothing, so no code of a library runs.
    let handle = NonNull::new(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) })?;
    // SAFETY: the handle is open, and the name is NUL-terminated.
    let mark = unsafe { libc::dlsym(handle.as_ptr(), MARK.as_ptr()) };
    let library = if mark.is_null() { None } else { library_of(mark) };
    // SAFETY: `dlopen` above returned the handle, and it is closed once.
    unsafe { libc::dlclose(handle.as_ptr()) };
    library
}

/// Returns the names of libraries that are paths. The names of the program and of the kernel's library are not.
fn loaded() -> Vec<CString> {
    extern "C" fn note(info: &mut libc::dl_phdr_info, _: usize, names: &RefCell<Vec<CString>>) -> c_int {
        if !info.dlpi_name.is_null() {
            // SAFETY: the linker's own name of a library.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) };
            names.borrow_mut().extend(name.to_bytes().contains(&b'/').then(|| name.to_owned()));
        }
        0
    }
    let names = RefCell::default();
    // SAFETY: `note` gets the vector that it expects, and keeps no pointer to it.
    unsafe { libc::dl_iterate_phdr(Some(entry3(note)), (&raw const names).cast_mut().cast()) };
    names.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaded_lists_the_libraries_of_the_test_and_none_of_them_is_an_ibex() {
        let all = loaded();
        assert!(all.iter().any(|name| name.to_string_lossy().contains("libmpi")), "{all:?}");
        assert!(all.iter().all(|name| marked(name).is_none()), "the tests are a program");
        assert!(earlier().is_none());
        let library = library_of(libc::malloc as *const c_void).expect("of the C library");
        assert!(all.iter().any(|name| name.to_string_lossy() == library.path), "{library:?}");
    }

    #[test]
    fn the_message_names_both_copies_and_a_remedy() {
        let text = message("/no/a.so", "/no/b.so");
        assert!(text.contains("  first: /no/a.so\n") && text.contains("  later: /no/b.so\n"), "{text}");
        assert!(text.contains("cargo xtask install"), "{text}");
        assert_eq!(with_target("/proc/self/.."), "/proc/self/.. (/proc)");
    }
}
