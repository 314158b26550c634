// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of requirements: purpose, check, and package names of each.
//!
//! The names for apt are tested at each change, the others are not: so a requirement counts as met when its check
//! succeeds, whatever package it came from.
//!
//! Grade: setup. Called by [`super`]. Tests: tests.rs.

use super::manager::Manager;

/// What a thing is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Building, and running on an adapter.
    Build,
    /// Building, where no Open MPI is named or found.
    OpenMpi,
    /// Tests and measurements on any device.
    Device,
    /// The virtual machine of soft-RoCE.
    VirtualMachine,
    /// What ibex is measured beside, and with.
    Bench,
    /// What only the study runs.
    Study,
    /// What only tests want.
    Test,
    /// Building Debian packages.
    Package,
    /// Making a root file system of Debian.
    Root,
}

/// How one sees that a thing is there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Proof {
    /// A program in `PATH`, of one of these names.
    Program(&'static [&'static str]),
    /// A header that the C compiler finds; by pkg-config's name it may lie anywhere.
    Header { header: &'static str, module: &'static str },
    /// libclang, which bindgen loads.
    LibClang,
    /// The drivers that libibverbs loads.
    Drivers,
    /// `import NAME` in Python.
    Python(&'static str),
}

/// A thing that is needed.
#[derive(Debug)]
pub(super) struct Requirement {
    /// Debian's package, by which it is called here.
    pub(super) name: &'static str,
    pub(super) why: &'static str,
    pub(super) need: Need,
    pub(super) proof: Proof,
    /// The packages of dnf, zypper, pacman, spack and conda; empty where none is known.
    others: [&'static str; 5],
}

impl Requirement {
    /// What it is called there; none: not known to be had from there.
    pub(super) fn package(&self, manager: Manager) -> Option<&'static str> {
        let index = match manager {
            Manager::Apt => return Some(self.name),
            Manager::Dnf => 0,
            Manager::Zypper => 1,
            Manager::Pacman => 2,
            Manager::Spack => 3,
            Manager::Conda => 4,
        };
        Some(self.others[index]).filter(|name| !name.is_empty())
    }
}

const fn thing(
    name: &'static str,
    (need, why): (Need, &'static str),
    proof: Proof,
    others: [&'static str; 5],
) -> Requirement {
    Requirement { name, why, need, proof, others }
}

const fn header(header: &'static str, module: &'static str) -> Proof {
    Proof::Header { header, module }
}

use Need::{Bench, Build, Device, OpenMpi, Package, Root, Study, Test, VirtualMachine};
use Proof::Program;

/// Everything that a system with nothing but Rust lacks. What one of these depends on is not listed.
pub(super) static REQUIREMENTS: &[Requirement] = &[
    thing("gcc", (Build, "compiles the C parts"), Program(&["cc"]), ["gcc", "gcc", "gcc", "gcc", "c-compiler"]),
    thing(
        "libc6-dev",
        (Build, "headers of the C library"),
        header("stdio.h", ""),
        ["glibc-devel", "glibc-devel", "glibc", "", "sysroot_linux-64"],
    ),
    thing(
        "pkg-config",
        (Build, "finds libraries"),
        Program(&["pkg-config", "pkgconf"]),
        ["pkgconf-pkg-config", "pkg-config", "pkgconf", "pkgconf", "pkg-config"],
    ),
    thing(
        "libclang-dev",
        (Build, "reads C headers for the bindings"),
        Proof::LibClang,
        ["clang-devel", "clang-devel", "clang", "llvm", "libclang"],
    ),
    thing(
        "libibverbs-dev",
        (Build, "the verbs library"),
        header("infiniband/verbs.h", "libibverbs"),
        ["rdma-core-devel", "rdma-core-devel", "rdma-core", "rdma-core", "rdma-core"],
    ),
    thing(
        "libhwloc-dev",
        (Build, "distance between an adapter and a process"),
        header("hwloc.h", "hwloc"),
        ["hwloc-devel", "hwloc-devel", "hwloc", "hwloc", "libhwloc"],
    ),
    thing(
        "libudev-dev",
        (Build, "what hwloc names to its linkers"),
        header("libudev.h", "libudev"),
        ["systemd-devel", "systemd-devel", "systemd-libs", "systemd", "libudev"],
    ),
    thing(
        "ibverbs-providers",
        (Build, "user-space drivers of the adapters"),
        Proof::Drivers,
        ["libibverbs", "libibverbs", "rdma-core", "rdma-core", "rdma-core"],
    ),
    thing(
        "libopenmpi-dev",
        (OpenMpi, "Open MPI's headers and compiler wrapper"),
        Program(&["mpicc"]),
        ["openmpi-devel", "openmpi4-devel", "openmpi", "openmpi", ""],
    ),
    thing(
        "openmpi-bin",
        (OpenMpi, "mpirun, ompi_info"),
        Program(&["ompi_info"]),
        ["openmpi", "openmpi4", "openmpi", "openmpi", ""],
    ),
    thing(
        "ibverbs-utils",
        (Device, "ibv_devinfo, to say what a device is"),
        Program(&["ibv_devinfo"]),
        ["libibverbs-utils", "libibverbs-utils", "rdma-core", "rdma-core", "rdma-core"],
    ),
    thing(
        "perftest",
        (Device, "the raw measurements ibex is compared with"),
        Program(&["ib_send_lat"]),
        ["perftest", "perftest", "", "", ""],
    ),
    thing(
        "ucx-utils",
        (Device, "ucx_perftest: another user of verbs, for the emulated adapter"),
        Program(&["ucx_perftest"]),
        ["ucx", "ucx-tools", "openucx", "ucx", "ucx"],
    ),
    thing(
        "python3-pyverbs",
        (Device, "rdma-core's own test suite, for the emulated adapter"),
        Proof::Python("pyverbs"),
        ["python3-pyverbs", "python3-pyverbs", "", "", ""],
    ),
    thing(
        "hpcc",
        (Device, "the HPC Challenge: its answers over ibex and over shared memory are compared, in a test"),
        Program(&["hpcc"]),
        ["", "", "", "hpcc", ""],
    ),
    thing(
        "netpipe-openmpi",
        (Device, "checks messages of all lengths, in a test"),
        Program(&["NPopenmpi", "NPmpi"]),
        ["", "", "", "netpipe", ""],
    ),
    thing(
        "otf2-tools",
        (Device, "reads the exports as OTF2, in tests; brings the library that writes them"),
        Program(&["otf2-print"]),
        ["otf2", "", "", "otf2", ""],
    ),
    thing(
        "iproute2",
        (Device, "sets up network interfaces"),
        Program(&["ip"]),
        ["iproute", "iproute2", "iproute2", "iproute2", ""],
    ),
    thing(
        "strace",
        (Device, "counts the system calls of a message, in a test"),
        Program(&["strace"]),
        ["strace", "strace", "strace", "strace", "strace"],
    ),
    thing(
        "g++",
        (Device, "compiles ibex' headers as C++, in a test"),
        Program(&["g++"]),
        ["gcc-c++", "gcc-c++", "gcc", "gcc", "cxx-compiler"],
    ),
    thing(
        "valgrind",
        (Bench, "counts the instructions of a message"),
        Program(&["valgrind"]),
        ["valgrind", "valgrind", "valgrind", "valgrind", "valgrind"],
    ),
    thing(
        "lammps",
        (Study, "LAMMPS: an application that the study times"),
        Program(&["lmp"]),
        ["lammps-openmpi", "", "", "lammps", "lammps"],
    ),
    // With all that it needs 124 MB to fetch and 412 MB on the disk: not for who only installs or measures.
    thing(
        "chromium",
        (Test, "shows the pages of `ibex view`, in a test, and draws their pictures"),
        Program(&["chromium", "chromium-browser", "google-chrome"]),
        ["chromium", "chromium", "chromium", "", ""],
    ),
    thing("python3-otf2", (Test, "reads the exports as OTF2, in a test"), Proof::Python("otf2"), ["", "", "", "", ""]),
    thing(
        "python3-venv",
        (Test, "holds the Python packages that read exports in tests"),
        Proof::Python("ensurepip"),
        ["python3", "python3", "python", "python", "python"],
    ),
    thing(
        "qemu-system-x86",
        (VirtualMachine, "the virtual machine with soft-RoCE"),
        Program(&["qemu-system-x86_64"]),
        ["qemu-system-x86-core", "qemu-x86", "qemu-system-x86", "qemu", ""],
    ),
    thing(
        "busybox-static",
        (VirtualMachine, "its first program"),
        Program(&["busybox"]),
        ["busybox", "busybox-static", "busybox", "", ""],
    ),
    thing(
        "kmod",
        (VirtualMachine, "lists its kernel modules"),
        Program(&["modinfo"]),
        ["kmod", "kmod", "kmod", "kmod", "kmod"],
    ),
    thing("debhelper", (Package, "builds Debian packages"), Program(&["dh"]), ["", "", "", "", ""]),
    thing(
        "dpkg-dev",
        (Package, "says what libraries a package depends on"),
        Program(&["dpkg-shlibdeps"]),
        ["", "", "", "", ""],
    ),
    thing("lowdown", (Package, "makes manual pages of docs/"), Program(&["lowdown"]), ["", "", "", "", ""]),
    thing("lintian", (Package, "checks packages"), Program(&["lintian"]), ["", "", "", "", ""]),
    thing(
        "mmdebstrap",
        (Root, "makes the root file systems in which Open MPI 5 runs, and packages are tried"),
        Program(&["mmdebstrap"]),
        ["mmdebstrap", "", "mmdebstrap", "", ""],
    ),
];
