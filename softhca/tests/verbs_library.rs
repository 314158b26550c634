// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared object: its exports, against those of the installed real libibverbs (Debian: libibverbs1), which the
//! dynamic loader's cache names and which has to be installed; and its unloading. A program may load it by `dlopen`, as
//! Open MPI's components do, and unload it after it has closed its device: the service thread must keep its code. Each
//! process of that test unloads once, at another moment.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use softhca::fabric_folder::{library_of, make_private};
use softhca::sys::{ibv_context, ibv_device};

/// The library of a test's process.
const LIBRARY: &str = "SOFTHCA_TEST_LIBRARY";

fn own_library() -> String {
    library_of(Path::new(env!("CARGO_BIN_EXE_softhca"))).unwrap().to_string_lossy().into_owned()
}

/// Symbols that an rdma-core older than 56 lacks.
const LATER: [&str; 2] = ["ibv_cmd_create_cq_ex2@@IBVERBS_PRIVATE_34", "ibv_wr_opcode_str@@IBVERBS_PRIVATE_34"];

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Symbols that a shared object defines, as `name@@NODE` or `name@NODE`; names without a version as they are.
fn exports(library: &str) -> BTreeSet<String> {
    output("nm", &["-D", "--defined-only", "--with-symbol-versions", library])
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| !name.starts_with("IBVERBS_"))
        .map(str::to_owned)
        .collect()
}

fn real_library() -> String {
    output("/sbin/ldconfig", &["-p"])
        .lines()
        .filter(|line| line.trim_start().starts_with("libibverbs.so.1 "))
        .find_map(|line| line.split("=> ").nth(1))
        .expect("libibverbs.so.1 is installed (Debian: libibverbs1)")
        .to_owned()
}

#[test]
fn the_library_exports_every_symbol_of_the_real_one_at_its_version_and_nothing_else() {
    let (real, own) = (exports(&real_library()), exports(&own_library()));
    let missing: Vec<_> = real.difference(&own).collect();
    let more: Vec<_> = own.difference(&real).map(String::as_str).filter(|name| !LATER.contains(name)).collect();
    println!("{}: {} symbols; softhca: {}", real_library(), real.len(), own.len());
    assert!(missing.is_empty(), "missing: {missing:?}");
    assert!(LATER.iter().all(|name| own.contains(*name)), "{LATER:?}");
    // These two stand in for libc's where programs look for device files (src/abi/interpose.rs).
    assert_eq!(more, ["access", "stat"]);
}

#[test]
fn the_shared_object_calls_itself_libibverbs() {
    let dynamic = output("readelf", &["-d", &own_library()]);
    assert!(dynamic.contains("Library soname: [libibverbs.so.1]"), "{dynamic}");
}

/// Number of processes that load, use and unload. With a library that can be unloaded, one in thirty crashed.
const PROCESSES: usize = 150;

#[test]
fn a_program_that_unloads_the_library_ends_well() {
    let fabric = std::env::temp_dir().join(format!("softhca-unloading-{}", std::process::id()));
    make_private(&fabric).unwrap();
    let start = |_| {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--ignored", "--exact", "loads_uses_and_unloads"]).stdout(Stdio::null());
        process.env(LIBRARY, own_library()).env("SOFTHCA_FABRIC", &fabric).spawn().unwrap()
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

/// Loads the library as a program does; null where a flag forbids it.
fn load(flags: c_int) -> *mut c_void {
    let path = CString::new(std::env::var(LIBRARY).expect("started by another test")).unwrap();
    // SAFETY: a C string; the library's constructors are those of libibverbs.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | flags) }
}

/// # Safety
/// `F` is the type of the function.
unsafe fn function<F>(library: *mut c_void, name: &CStr) -> F {
    // SAFETY: the library is loaded.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null() && size_of::<F>() == size_of::<*mut c_void>(), "{name:?}");
    // SAFETY: a pointer to a function of the caller's type.
    unsafe { std::mem::transmute_copy(&found) }
}

#[test]
#[ignore = "started by the test above, many times"]
fn loads_uses_and_unloads() {
    let uses = || {
        let library = load(0);
        assert!(!library.is_null(), "the library cannot be loaded");
        // SAFETY: the types are those of verbs.h; the list has an adapter; the context is given up.
        unsafe {
            type List = unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device;
            let devices = function::<List>(library, c"ibv_get_device_list")(null_mut());
            let open: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context = function(library, c"ibv_open_device");
            let close: unsafe extern "C" fn(*mut ibv_context) -> c_int = function(library, c"ibv_close_device");
            let context = open(*devices);
            assert!(!context.is_null(), "{}", std::io::Error::last_os_error());
            assert_eq!(close(context), 0);
        }
        library as usize
    };
    // In a thread of its own: the destructors that a thread registers for its end would keep the library.
    let library = std::thread::spawn(uses).join().unwrap();
    // SAFETY: from dlopen.
    assert_eq!(unsafe { libc::dlclose(library as *mut c_void) }, 0);
    assert!(!load(libc::RTLD_NOLOAD).is_null(), "it stays where it was, for its thread");
}
