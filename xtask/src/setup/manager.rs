// SPDX-License-Identifier: MIT OR Apache-2.0
//! Package managers: the programs by which each is recognised, its command, its name.
//!
//! Grade: setup. Used by [`super::requirements`] (names of packages) and [`super::system`] (which one is there). Tests: tests.rs.

/// A package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    /// Debian, Ubuntu: the only one that is queried and installs packages.
    Apt,
    /// Fedora, RHEL and derivatives.
    Dnf,
    /// openSUSE, SLES.
    Zypper,
    /// Arch.
    Pacman,
    /// Spack, on any system.
    Spack,
    /// Conda, on any system.
    Conda,
}

/// In the order of the search: a system's own, then those that users add.
pub(super) const MANAGERS: [(Manager, &[&str]); 6] = [
    (Manager::Apt, &["dpkg-query", "apt-get"]),
    (Manager::Dnf, &["dnf"]),
    (Manager::Zypper, &["zypper"]),
    (Manager::Pacman, &["pacman"]),
    (Manager::Spack, &["spack"]),
    (Manager::Conda, &["conda"]),
];

impl Manager {
    /// The command that installs packages.
    pub(super) fn install(self) -> &'static str {
        match self {
            Manager::Apt => "apt-get update && apt-get install --no-install-recommends",
            Manager::Dnf => "dnf install",
            Manager::Zypper => "zypper install",
            Manager::Pacman => "pacman -S --needed",
            Manager::Spack => "spack install",
            Manager::Conda => "conda install --channel conda-forge",
        }
    }

    /// The name that its users know.
    pub(super) fn name(self) -> &'static str {
        match self {
            Manager::Apt => "Debian",
            Manager::Dnf => "dnf",
            Manager::Zypper => "zypper",
            Manager::Pacman => "pacman",
            Manager::Spack => "Spack",
            Manager::Conda => "conda-forge",
        }
    }
}
