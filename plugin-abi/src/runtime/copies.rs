// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this libibex.so is the only one in the process, and which is the one that counts where there are several.
//!
//! A tool may be linked with one file while Open MPI loads another as its component. The dynamic linker then resolves
//! what both export to the one it finds first, while each keeps its own private state: calls of a tool would change one
//! and events happen in the other. So the copy that was loaded first is the one, whoever loaded it; it never changes.
//! Any other takes no part: as a component it declines (`refusal.rs`), and what a tool calls in it is handed on
//! (`tool/next_definition.rs`) or refused (`tool/peruse`).
//!
//! Grade: setup; the first question looks at every library of the process. Threads: any. Tests: `tests/copies.rs`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

/// What a library exports that is an ibex: of whatever version.
const MARK: &CStr = c"mca_btl_ibex_component";

/// Private to each copy.
static HERE: u8 = 0;

/// A library that is loaded.
#[derive(Debug, PartialEq, Eq)]
struct Library {
    /// Where it is mapped.
    base: usize,
    /// The name it was loaded by.
    path: CString,
}

/// The copy of ibex that was loaded before this one.
#[derive(Debug)]
pub(crate) struct First {
    /// The name it was loaded by.
    pub(crate) path: String,
    /// The name this one was loaded by.
    pub(crate) this: String,
    handle: usize,
}

impl First {
    /// Its function of this name.
    pub(crate) fn function(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: a handle that is never closed, and a name that ends in 0.
        NonNull::new(unsafe { libc::dlsym(std::ptr::with_exposed_provenance_mut(self.handle), name.as_ptr()) })
    }
}

/// The copy of ibex that counts, where it is not this one.
pub(crate) fn first() -> Option<&'static First> {
    static FIRST: OnceLock<Option<First>> = OnceLock::new();
    FIRST.get_or_init(find).as_ref()
}

/// Whether a function is of an ibex, this one or another.
pub(crate) fn is_of_ibex(function: NonNull<c_void>) -> bool {
    library_of(function.as_ptr()).is_some_and(|library| marked(&library.path).as_ref() == Some(&library))
}

#[cold]
fn find() -> Option<First> {
    let this = library_of((&raw const HERE).cast())?;
    // In the order in which they were loaded.
    let first = loaded().iter().find_map(|path| marked(path))?;
    if first.base == this.base {
        return None;
    }
    let handle = Opened::new(&first.path)?.keep();
    Some(First { path: text(&first.path), this: text(&this.path), handle })
}

fn text(path: &CStr) -> String {
    path.to_string_lossy().into_owned()
}

/// The library that an address lies in.
fn library_of(address: *const c_void) -> Option<Library> {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: null_mut(),
    };
    // SAFETY: any address, which is not followed; room for the answer.
    if unsafe { libc::dladdr(address, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker's own name of a library that is loaded.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_owned();
    Some(Library { base: found.dli_fbase.addr(), path })
}

/// The library with the mark that is found from this one on: this one, or one that it needs.
fn marked(path: &CStr) -> Option<Library> {
    let opened = Opened::new(path)?;
    // SAFETY: a handle that is open, and a name that ends in 0.
    let mark = unsafe { libc::dlsym(opened.0.as_ptr(), MARK.as_ptr()) };
    if mark.is_null() { None } else { library_of(mark) }
}

/// A library that was loaded before.
struct Opened(NonNull<c_void>);

impl Opened {
    fn new(path: &CStr) -> Option<Opened> {
        // SAFETY: a name that ends in 0; nothing is loaded by it.
        NonNull::new(unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }).map(Opened)
    }

    /// For as long as the process lives.
    fn keep(self) -> usize {
        let handle = self.0.as_ptr().expose_provenance();
        std::mem::forget(self);
        handle
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened by this, and closed once.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}

/// The names of all libraries of the process, in the order in which they were loaded.
fn loaded() -> Vec<CString> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, names: *mut c_void) -> c_int {
        // SAFETY: the linker's own structure; the vector of the caller below, which nothing else uses meanwhile.
        let (name, names) = unsafe { ((*info).dlpi_name, &mut *names.cast::<Vec<CString>>()) };
        if let Some(name) = path(name) {
            names.push(name);
        }
        0
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: a function that takes what is given with it, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    names
}

/// A name that is a path: not the program, nor what the kernel brings.
fn path(name: *const c_char) -> Option<CString> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the linker's own name of a library.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_bytes().contains(&b'/').then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_names_and_none_of_a_test_is_an_ibex() {
        let all = loaded();
        assert!(all.iter().any(|name| text(name).contains("libmpi")), "{all:?}");
        assert!(all.iter().all(|name| marked(name).is_none()), "the tests are a program");
        assert!(first().is_none());
        let function = NonNull::new(libc::malloc as *mut c_void).expect("a function");
        assert!(!is_of_ibex(function));
        let library = library_of(function.as_ptr()).expect("of the C library");
        assert!(all.contains(&library.path), "{library:?}");
    }
}
