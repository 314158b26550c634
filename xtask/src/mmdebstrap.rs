// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mmdebstrap`, which makes root file systems of Debian: as it gets packages on this machine.
//!
//! Called by `debian13.rs` and `package.rs`. Grade: setup. Tests: at the end of this file.

use crate::command::output;
use crate::environment::Environment;
use crate::setup;
use anyhow::Result;
use std::process::Command;

/// Where the archive is for whose apt names no Debian.
const MIRROR: &str = "http://deb.debian.org/debian";

/// The beginning of its command line: a system with apt and what that needs, made by the way that this user has.
pub(crate) fn command() -> Result<Command> {
    let mut make = Command::new("mmdebstrap");
    make.arg("--variant=apt").arg(if setup::is_root() { "--mode=root" } else { "--mode=unshare" });
    if let Some(proxy) = proxy()? {
        make.arg(format!("--aptopt=Acquire::http::Proxy \"{proxy}\""));
    }
    Ok(make)
}

/// Where this machine's apt gets Debian from.
pub(crate) fn mirror() -> Result<String> {
    if !has_program("apt-get") {
        return Ok(MIRROR.to_owned());
    }
    let sources = output(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]))?;
    Ok(mirror_of(&sources))
}

/// The first source that is Debian's archive itself, and not that of its security updates or somebody else's.
fn mirror_of(sources: &str) -> String {
    let mut sources = sources.lines().map(|line| line.trim().trim_end_matches('/'));
    sources.find(|uri| uri.ends_with("/debian")).unwrap_or(MIRROR).to_owned()
}

/// The proxy that this machine's apt goes by, which `mmdebstrap` does not look for.
fn proxy() -> Result<Option<String>> {
    if !has_program("apt-config") {
        return Ok(None);
    }
    let said = output(Command::new("apt-config").args(["dump", "--format", "%v", "Acquire::http::Proxy"]))?;
    Ok(Some(said.trim().to_owned()).filter(|proxy| !proxy.is_empty()))
}

fn has_program(name: &str) -> bool {
    Environment::here().program(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_machines_own_and_debians_where_it_has_none() {
        let sources =
            "http://security.example/debian-security/\nhttps://mirror.example/debian/\nhttps://x.example/y/\n";
        assert_eq!(mirror_of(sources), "https://mirror.example/debian");
        assert_eq!(mirror_of("https://x.example/ubuntu/\n"), MIRROR);
    }
}
