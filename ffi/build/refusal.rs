// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ends a build that cannot continue. Part of `build.rs`.

pub(crate) fn fail(message: &str) -> ! {
    for line in message.lines() {
        println!("cargo::error={line}");
    }
    std::process::exit(1)
}
