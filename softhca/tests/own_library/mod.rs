// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the library under test is, for tests that load it as other programs do.

use std::path::PathBuf;

/// The library under test, where cargo puts it for this test.
pub(crate) fn own_library() -> String {
    let beside = PathBuf::from(env!("CARGO_BIN_EXE_softhca"));
    let beside = beside.parent().unwrap();
    [beside.join("deps/libsofthca.so"), beside.join("libsofthca.so")]
        .into_iter()
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .expect("cargo builds libsofthca.so for the tests of this package")
        .1
        .to_string_lossy()
        .into_owned()
}
