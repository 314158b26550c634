// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program may load the library by `dlopen`, as Open MPI's components do, and unload it when it has closed its
//! device: the thread that looks after the process must not lose its code. Each process of a test unloads once, at
//! another moment.

mod own_library;

use own_library::own_library;
use std::ffi::{CStr, CString, c_int, c_void};
use std::process::Command;

/// Processes that load, use and unload. Of a library that can be unloaded one in thirty crashed, and on a busy machine
/// more.
const PROCESSES: usize = 150;

const CHILD: &str = "SOFTHCA_TEST_LIBRARY";

#[test]
fn a_program_that_unloads_the_library_ends_well() {
    let fabric = std::env::temp_dir().join(format!("softhca-unloading-{}", std::process::id()));
    softhca::fabric_folder::make_private(&fabric).unwrap();
    let start = |_| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "loads_uses_and_unloads"])
            .env(CHILD, own_library())
            .env("SOFTHCA_FABRIC", &fabric)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut failed = Vec::new();
    for _ in 0..PROCESSES / 10 {
        // Several at once, so that threads wait for a processor.
        let children: Vec<_> = (0..10).map(start).collect();
        let ended = children.into_iter().map(|mut child| child.wait().unwrap());
        failed.extend(ended.filter(|status| !status.success()));
    }
    std::fs::remove_dir_all(&fabric).unwrap();
    assert!(failed.is_empty(), "{} of {PROCESSES} processes: {}", failed.len(), failed[0]);
}

#[test]
#[ignore = "started by the test above, many times"]
fn loads_uses_and_unloads() {
    let path = std::env::var_os(CHILD).expect("started by another test");
    let path = CString::new(path.into_encoded_bytes()).unwrap();
    let load = |flags| {
        // SAFETY: a C string; the library's constructors are those of libibverbs.
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | flags) }
    };
    let library = load(0);
    assert!(!library.is_null(), "dlopen {path:?}");
    let library = library as usize;
    // In a thread of its own: what such a thread leaves behind for its end would keep the library.
    std::thread::spawn(move || use_a_device(library as *mut c_void)).join().unwrap();
    // SAFETY: from dlopen, given back once.
    assert_eq!(unsafe { libc::dlclose(library as *mut c_void) }, 0);
    assert!(!load(libc::RTLD_NOLOAD).is_null(), "it stays where it was, for its thread");
}

/// Opens the first device and closes it.
fn use_a_device(library: *mut c_void) {
    let find = |name: &CStr| {
        // SAFETY: `library` is from dlopen.
        let function = unsafe { libc::dlsym(library, name.as_ptr()) };
        assert!(!function.is_null(), "{name:?}");
        function
    };
    // SAFETY: the types of verbs.h, less what the pointers point to.
    let (list, open, close, free) = unsafe {
        (
            std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_int) -> *mut *mut c_void>(find(
                c"ibv_get_device_list",
            )),
            std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void) -> *mut c_void>(find(c"ibv_open_device")),
            std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void) -> c_int>(find(c"ibv_close_device")),
            std::mem::transmute::<*mut c_void, extern "C" fn(*mut *mut c_void)>(find(c"ibv_free_device_list")),
        )
    };
    let mut count = 0;
    let devices = list(&raw mut count);
    assert!(count > 0);
    // SAFETY: a list of `count` devices, which is more than none.
    let context = open(unsafe { *devices });
    assert!(!context.is_null(), "{}", std::io::Error::last_os_error());
    assert_eq!(close(context), 0);
    free(devices);
}
