// SPDX-License-Identifier: MIT OR Apache-2.0
//! Package managers: which programs tell that one is there, and what it is told.
//!
//! Grade: setup. Read by [`super::things`] for names of packages, by [`super::system`] for what there is. Tests: tests.rs.

/// A package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    /// Debian, Ubuntu: the only one that is asked what it has, and told to install.
    Apt,
    /// Fedora, RHEL and what is made of it.
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

/// In the order in which they are looked for: a system's own, then what a user has beside it.
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

    /// What those who have it call it.
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
