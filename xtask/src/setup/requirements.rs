// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of requirements: purpose, check, and package names of each; and the package managers. Only the names for
//! apt are tested, so a requirement counts as met when its check succeeds, whatever package it came from. Grade: setup.
//! Called by [`super`]. Tests: tests.rs.

/// Purpose of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Building, and running on an adapter.
    Build,
    /// Building, if no Open MPI is named or found.
    OpenMpi,
    /// Tests and measurements on any device.
    Device,
    VirtualMachine,
    /// Programs that measure, and the transports to compare with.
    Bench,
    /// The peer of a measured MPICH.
    Mpich,
    Study,
    Test,
    Package,
    /// Making a root file system of Debian.
    Root,
}

/// Check of a requirement.
#[derive(Clone, Copy, Debug)]
pub(super) enum Proof {
    /// A program in `PATH`, of one of these names.
    Program(&'static [&'static str]),
    /// A header that the C compiler finds, itself or with pkg-config's options for `module`.
    Header { header: &'static str, module: &'static str },
    /// libclang, which bindgen loads.
    LibClang,
    /// The drivers that libibverbs loads.
    Drivers,
    /// `import NAME` in Python.
    Python(&'static str),
}

#[derive(Debug)]
pub(super) struct Requirement {
    /// Debian's package, and the requirement's name here.
    pub(super) name: &'static str,
    pub(super) why: &'static str,
    pub(super) need: Need,
    pub(super) proof: Proof,
    /// Names of the packages of dnf, zypper, pacman, spack and conda; `-`: unknown.
    pub(super) others: &'static str,
}

impl Requirement {
    const fn proof(mut self, proof: Proof) -> Self {
        self.proof = proof;
        self
    }

    const fn elsewhere(mut self, others: &'static str) -> Self {
        self.others = others;
        self
    }

    /// Returns the package's name in this package manager; `None`: unknown.
    pub(super) fn package(&self, manager: &Manager) -> Option<&'static str> {
        let Some(column) = manager.column else { return Some(self.name) };
        self.others.split(' ').nth(column).filter(|name| *name != "-")
    }
}

/// Makes a requirement; [`Requirement::proof`] and [`Requirement::elsewhere`] complete it.
const fn thing(name: &'static str, need: Need, why: &'static str) -> Requirement {
    Requirement { name, why, need, proof: Program(&[]), others: "- - - - -" }
}

const fn header(header: &'static str, module: &'static str) -> Proof {
    Proof::Header { header, module }
}

use Need::{Bench, Build, Device, Mpich, OpenMpi, Package, Root, Study, Test, VirtualMachine};
use Proof::Program;

/// All requirements of a system that has only Rust, without the dependencies of these packages.
pub(super) static REQUIREMENTS: &[Requirement] = &[
    thing("gcc", Build, "compiles the C parts").proof(Program(&["cc"])).elsewhere("gcc gcc gcc gcc c-compiler"),
    thing("libc6-dev", Build, "headers of the C library")
        .proof(header("stdio.h", ""))
        .elsewhere("glibc-devel glibc-devel glibc - sysroot_linux-64"),
    thing("pkg-config", Build, "finds libraries")
        .proof(Program(&["pkg-config", "pkgconf"]))
        .elsewhere("pkgconf-pkg-config pkg-config pkgconf pkgconf pkg-config"),
    thing("libclang-dev", Build, "reads C headers for the bindings")
        .proof(Proof::LibClang)
        .elsewhere("clang-devel clang-devel clang llvm libclang"),
    thing("libibverbs-dev", Build, "the verbs library")
        .proof(header("infiniband/verbs.h", "libibverbs"))
        .elsewhere("rdma-core-devel rdma-core-devel rdma-core rdma-core rdma-core"),
    thing("libfabric-dev", Build, "headers for the libfabric provider")
        .proof(header("rdma/providers/fi_prov.h", "libfabric"))
        .elsewhere("libfabric-devel libfabric-devel libfabric libfabric libfabric"),
    thing("libhwloc-dev", Build, "distance between an adapter and a process")
        .proof(header("hwloc.h", "hwloc"))
        .elsewhere("hwloc-devel hwloc-devel hwloc hwloc libhwloc"),
    thing("libudev-dev", Build, "what hwloc names to its linkers")
        .proof(header("libudev.h", "libudev"))
        .elsewhere("systemd-devel systemd-devel systemd-libs systemd libudev"),
    thing("ibverbs-providers", Build, "user-space drivers of the adapters")
        .proof(Proof::Drivers)
        .elsewhere("libibverbs libibverbs rdma-core rdma-core rdma-core"),
    thing("libopenmpi-dev", OpenMpi, "Open MPI's headers and compiler wrapper")
        .proof(Program(&["mpicc"]))
        .elsewhere("openmpi-devel openmpi4-devel openmpi openmpi -"),
    thing("openmpi-bin", OpenMpi, "mpirun, ompi_info")
        .proof(Program(&["ompi_info"]))
        .elsewhere("openmpi openmpi4 openmpi openmpi -"),
    thing("ibverbs-utils", Device, "ibv_devinfo, to say what a device is")
        .proof(Program(&["ibv_devinfo"]))
        .elsewhere("libibverbs-utils libibverbs-utils rdma-core rdma-core rdma-core"),
    thing("perftest", Device, "the raw measurements ibex is compared with")
        .proof(Program(&["ib_send_lat"]))
        .elsewhere("perftest perftest - - -"),
    thing("libfabric-bin", Device, "fi_info: asks the libfabric provider, in a test")
        .proof(Program(&["fi_info"]))
        .elsewhere("libfabric libfabric libfabric libfabric libfabric"),
    thing("ucx-utils", Device, "ucx_perftest: another user of verbs, for the emulated adapter")
        .proof(Program(&["ucx_perftest"]))
        .elsewhere("ucx ucx-tools openucx ucx ucx"),
    thing("python3-pyverbs", Device, "rdma-core's own test suite, for the emulated adapter")
        .proof(Proof::Python("pyverbs"))
        .elsewhere("python3-pyverbs python3-pyverbs - - -"),
    thing("hpcc", Device, "the HPC Challenge: its answers over ibex and over shared memory are compared, in a test")
        .proof(Program(&["hpcc"]))
        .elsewhere("- - - hpcc -"),
    thing("netpipe-openmpi", Device, "checks messages of all lengths, in a test")
        .proof(Program(&["NPopenmpi", "NPmpi"]))
        .elsewhere("- - - netpipe -"),
    thing("otf2-tools", Device, "reads the exports as OTF2, in tests; brings the library that writes them")
        .proof(Program(&["otf2-print"]))
        .elsewhere("otf2 - - otf2 -"),
    thing("iproute2", Device, "sets up network interfaces")
        .proof(Program(&["ip"]))
        .elsewhere("iproute iproute2 iproute2 iproute2 -"),
    thing("strace", Device, "counts the system calls of a message, in a test")
        .proof(Program(&["strace"]))
        .elsewhere("strace strace strace strace strace"),
    thing("g++", Device, "compiles ibex' headers as C++, in a test")
        .proof(Program(&["g++"]))
        .elsewhere("gcc-c++ gcc-c++ gcc gcc cxx-compiler"),
    thing("valgrind", Bench, "counts the instructions of a message")
        .proof(Program(&["valgrind"]))
        .elsewhere("valgrind valgrind valgrind valgrind valgrind"),
    thing("mpich", Mpich, "an MPICH over UCX, to compare with").proof(Program(&["mpiexec.mpich"])),
    thing("libmpich-dev", Mpich, "its headers and compiler wrapper").proof(Program(&["mpicc.mpich"])),
    thing("lammps", Study, "LAMMPS: an application that the study times")
        .proof(Program(&["lmp"]))
        .elsewhere("lammps-openmpi - - lammps lammps"),
    // Only for tests: with its dependencies it is 124 MB to fetch and 412 MB on the disk.
    thing("chromium", Test, "shows the pages of `ibex view`, in a test, and draws their pictures")
        .proof(Program(&["chromium", "chromium-browser", "google-chrome"]))
        .elsewhere("chromium chromium chromium - -"),
    thing("python3-otf2", Test, "reads the exports as OTF2, in a test").proof(Proof::Python("otf2")),
    thing("python3-venv", Test, "holds the Python packages that read exports in tests")
        .proof(Proof::Python("ensurepip"))
        .elsewhere("python3 python3 python python python"),
    thing("qemu-system-x86", VirtualMachine, "the virtual machine with soft-RoCE")
        .proof(Program(&["qemu-system-x86_64"]))
        .elsewhere("qemu-system-x86-core qemu-x86 qemu-system-x86 qemu -"),
    thing("busybox-static", VirtualMachine, "its first program")
        .proof(Program(&["busybox"]))
        .elsewhere("busybox busybox-static busybox - -"),
    thing("kmod", VirtualMachine, "lists its kernel modules")
        .proof(Program(&["modinfo"]))
        .elsewhere("kmod kmod kmod kmod kmod"),
    thing("debhelper", Package, "builds Debian packages").proof(Program(&["dh"])),
    thing("dpkg-dev", Package, "says what libraries a package depends on").proof(Program(&["dpkg-shlibdeps"])),
    thing("lintian", Package, "checks packages").proof(Program(&["lintian"])),
    thing("mmdebstrap", Root, "makes the root file systems in which Open MPI 5 runs, and packages are tried")
        .proof(Program(&["mmdebstrap"]))
        .elsewhere("mmdebstrap - mmdebstrap - -"),
];

#[derive(Debug)]
pub(super) struct Manager {
    pub(super) name: &'static str,
    /// Programs that show that it is there.
    pub(super) programs: &'static [&'static str],
    pub(super) install: &'static str,
    /// Advice for a user of that command.
    pub(super) advice: &'static str,
    /// Place in [`Requirement::others`]; `None`: apt, the only manager that is queried and that installs packages.
    pub(super) column: Option<usize>,
}

const AS_ROOT: &str = "run this as root, then try again";

/// In the order of the search: first a system's own managers, then those that users add.
pub(super) static MANAGERS: [Manager; 6] = [
    Manager {
        name: "Debian",
        programs: &["dpkg-query", "apt-get"],
        install: "apt-get update && apt-get install --no-install-recommends",
        advice: "they cannot be installed from here (not root, and no sudo); run this as root, then try again",
        column: None,
    },
    // Fedora, RHEL and derivatives.
    Manager { name: "dnf", programs: &["dnf"], install: "dnf install", advice: AS_ROOT, column: Some(0) },
    Manager { name: "zypper", programs: &["zypper"], install: "zypper install", advice: AS_ROOT, column: Some(1) },
    Manager { name: "pacman", programs: &["pacman"], install: "pacman -S --needed", advice: AS_ROOT, column: Some(2) },
    Manager {
        name: "Spack",
        programs: &["spack"],
        install: "spack install",
        advice: "install and load them, then try again (`spack load` for what the shell is to find)",
        column: Some(3),
    },
    Manager {
        name: "conda-forge",
        programs: &["conda"],
        install: "conda install --channel conda-forge",
        advice: "install them into this environment, then try again",
        column: Some(4),
    },
];
