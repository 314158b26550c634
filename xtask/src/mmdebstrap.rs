// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mmdebstrap`, which makes root file systems of Debian, from this machine's archive and proxy. Called by
//! `debian13` and `package.rs`. Grade: setup. Tests: below.

use crate::command::output;
use crate::environment::Environment;
use crate::setup;
use anyhow::Result;
use std::process::Command;

/// The archive to use if this machine's apt names no archive of Debian.
const MIRROR: &str = "http://deb.debian.org/debian";

/// Returns the beginning of a command line that makes a system with apt, as root or in a user namespace.
pub(crate) fn command() -> Result<Command> {
    let mut make = Command::new("mmdebstrap");
    make.arg("--variant=apt").arg(if setup::is_root() { "--mode=root" } else { "--mode=unshare" });
    if let Some(proxy) = proxy()? {
        make.arg(format!("--aptopt=Acquire::http::Proxy \"{proxy}\""));
    }
    Ok(make)
}

pub(crate) fn mirror() -> Result<String> {
    if !has_program("apt-get") {
        return Ok(MIRROR.to_owned());
    }
    let sources = output(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"]))?;
    Ok(mirror_of(&sources))
}

/// Returns the first source that is Debian's archive, not its security updates or another archive.
fn mirror_of(sources: &str) -> String {
    let mut sources = sources.lines().map(|line| line.trim().trim_end_matches('/'));
    sources.find(|uri| uri.ends_with("/debian")).unwrap_or(MIRROR).to_owned()
}

/// Returns the proxy of this machine's apt, which `mmdebstrap` does not look for.
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
