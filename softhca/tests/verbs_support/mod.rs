// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library as programs use it: loaded, and called by its symbols and by the function pointers of a context. A
//! process belongs to one fabric for its life, so each case is a test in a process of its own, which the test that
//! checks it starts.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test program uses a part of it")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use softhca::sys::{
    ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_mr, ibv_pd, ibv_qp, ibv_qp_init_attr, verbs_context,
};

const LIBRARY: &str = "SOFTHCA_TEST_LIBRARY";

pub fn own_library() -> String {
    let library = softhca::fabric_folder::library_of(Path::new(env!("CARGO_BIN_EXE_softhca")));
    library.unwrap().to_string_lossy().into_owned()
}

/// Makes the command of an ignored test of this program, in the fabric in this folder.
pub fn within(fabric: &Path, test: &str) -> Command {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--ignored", "--exact", test]).env(LIBRARY, own_library()).env("SOFTHCA_FABRIC", fabric);
    process
}

/// Runs an ignored test of this program in a process of its own, on adapters as configured; fails if it fails.
pub fn in_a_process(test: &str, configuration: &str, variables: &[(&str, &str)]) {
    let name = format!("softhca-{test}-{}-{}", std::process::id(), configuration.len() + variables.len());
    let fabric = std::env::temp_dir().join(name);
    softhca::fabric_folder::make_private(&fabric).unwrap();
    let file = fabric.join("adapters.toml");
    std::fs::write(&file, configuration).unwrap();
    let mut process = within(&fabric, test);
    let output =
        process.arg("--nocapture").env("SOFTHCA_CONFIG", &file).envs(variables.iter().copied()).output().unwrap();
    std::fs::remove_dir_all(&fabric).unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{test}: {said}");
}

pub fn folder() -> PathBuf {
    PathBuf::from(std::env::var_os("SOFTHCA_FABRIC").expect("started by another test"))
}

#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

// SAFETY: what dlopen gives may be used by any thread.
unsafe impl Send for Library {}

impl Library {
    pub fn load() -> Library {
        let library = Library::find(0);
        assert!(!library.is_null(), "the library cannot be loaded");
        Library(library)
    }

    pub fn is_loaded() -> bool {
        !Library::find(libc::RTLD_NOLOAD).is_null()
    }

    fn find(flags: c_int) -> *mut c_void {
        let path = std::env::var_os(LIBRARY).expect("started by another test");
        let path = CString::new(path.into_encoded_bytes()).unwrap();
        // SAFETY: a C string; the library's constructors are those of libibverbs.
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | flags) }
    }

    /// Gives it back, once, when nothing of it is used any more.
    pub fn unload(self) {
        // SAFETY: from dlopen.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }

    /// # Safety
    /// `F` is a function pointer of its type.
    pub unsafe fn function<F: Copy>(self, name: &CStr) -> F {
        // SAFETY: the library stays loaded.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        // SAFETY: a pointer to a function, of the caller's type.
        unsafe { std::mem::transmute_copy(&found) }
    }

    pub fn open(self, index: usize) -> Context {
        // SAFETY: the types are those of verbs.h; the list has the adapter, and is freed once.
        unsafe {
            let list: unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device = self.function(c"ibv_get_device_list");
            let open: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context = self.function(c"ibv_open_device");
            let free: unsafe extern "C" fn(*mut *mut ibv_device) = self.function(c"ibv_free_device_list");
            let mut count = 0;
            let devices = list(&raw mut count);
            assert!((index as c_int) < count);
            let context = open(*devices.add(index));
            assert!(!context.is_null(), "{}", std::io::Error::last_os_error());
            free(devices);
            Context { library: self, raw: context }
        }
    }
}

#[derive(Clone, Copy)]
pub struct Context {
    pub library: Library,
    pub raw: *mut ibv_context,
}

impl Context {
    pub fn verbs(&self) -> &verbs_context {
        let before = std::mem::offset_of!(verbs_context, context);
        // SAFETY: a context of this library is the field of such a structure.
        unsafe { &*self.raw.byte_sub(before).cast::<verbs_context>() }
    }

    pub fn attributes(&self) -> ibv_device_attr {
        // SAFETY: the types are those of verbs.h.
        unsafe {
            let query: unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int =
                self.library.function(c"ibv_query_device");
            let mut attributes = std::mem::zeroed();
            assert_eq!(query(self.raw, &raw mut attributes), 0);
            attributes
        }
    }

    pub fn domain(&self) -> *mut ibv_pd {
        // SAFETY: the types are those of verbs.h.
        unsafe {
            let alloc: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd = self.library.function(c"ibv_alloc_pd");
            alloc(self.raw)
        }
    }

    pub fn register(&self, pd: *mut ibv_pd, memory: &mut [u8]) -> *mut ibv_mr {
        // SAFETY: the types are those of verbs.h.
        unsafe {
            let register: unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr =
                self.library.function(c"ibv_reg_mr");
            register(pd, memory.as_mut_ptr().cast(), memory.len(), 1)
        }
    }

    pub fn completion_queue(&self, cqe: c_int) -> *mut ibv_cq {
        type Create = unsafe extern "C" fn(*mut ibv_context, c_int, *mut c_void, *mut c_void, c_int) -> *mut ibv_cq;
        let none = std::ptr::null_mut;
        // SAFETY: the types are those of verbs.h.
        unsafe { self.library.function::<Create>(c"ibv_create_cq")(self.raw, cqe, none(), none(), 0) }
    }

    pub fn queue_pair(&self, pd: *mut ibv_pd, init: &mut ibv_qp_init_attr) -> *mut ibv_qp {
        // SAFETY: the types are those of verbs.h.
        unsafe {
            let create: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp =
                self.library.function(c"ibv_create_qp");
            create(pd, init)
        }
    }
}

pub fn errno() -> &'static mut c_int {
    // SAFETY: libc gives the calling thread's own, valid while it runs; nobody keeps it over a call.
    unsafe { &mut *libc::__errno_location() }
}
