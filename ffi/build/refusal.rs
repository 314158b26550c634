// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a build that cannot go on. Part of `build.rs`.

/// Ends the build with a message that cargo shows.
pub(crate) fn fail(message: &str) -> ! {
    for line in message.lines() {
        println!("cargo::error={line}");
    }
    std::process::exit(1)
}
