// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shared object: its exports, against those of the installed real libibverbs (Debian: libibverbs1), which the
//! dynamic loader's cache names and which has to be installed; and its unloading. A program may load it by `dlopen`, as
//! Open MPI's components do, and unload it after it has closed its device: the service thread must keep its code. Each
//! process of that test unloads once, at another moment.

mod verbs_support;

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::process::Command;

use softhca::sys::ibv_context;
use verbs_support::{Library, own_library, within};

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
fn every_symbol_of_the_real_library_is_exported_at_its_version_and_nothing_else() {
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
    softhca::fabric_folder::make_private(&fabric).unwrap();
    let start = |_| within(&fabric, "loads_uses_and_unloads").stdout(std::process::Stdio::null()).spawn().unwrap();
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
    let library = Library::load();
    // In a thread of its own: the destructors that a thread registers for its end would keep the library.
    std::thread::spawn(move || {
        let context = library.open(0);
        // SAFETY: the type is that of verbs.h; the context is given up.
        unsafe {
            let close: unsafe extern "C" fn(*mut ibv_context) -> c_int = library.function(c"ibv_close_device");
            assert_eq!(close(context.raw), 0);
        }
    })
    .join()
    .unwrap();
    library.unload();
    assert!(Library::is_loaded(), "it stays where it was, for its thread");
}
