// SPDX-License-Identifier: MIT OR Apache-2.0
//! The export list against the installed real libibverbs (Debian: libibverbs1), which the dynamic loader's cache names.
//! A missing real library is a failure: it is what the emulation stands in for.

mod own_library;

use own_library::own_library;
use std::collections::BTreeSet;
use std::process::Command;

/// What an rdma-core older than 56 lacks.
const LATER: [&str; 2] = ["ibv_cmd_create_cq_ex2@@IBVERBS_PRIVATE_34", "ibv_wr_opcode_str@@IBVERBS_PRIVATE_34"];

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a shared object defines, as `name@@NODE` or `name@NODE`; names without a version as they are.
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
    // The two that stand in for libc's where programs look for device files (src/abi/interpose.rs).
    assert_eq!(more, ["access", "stat"]);
}

#[test]
fn the_shared_object_calls_itself_libibverbs() {
    let dynamic = output("readelf", &["-d", &own_library()]);
    assert!(dynamic.contains("Library soname: [libibverbs.so.1]"), "{dynamic}");
}
