# SPDX-License-Identifier: MIT OR Apache-2.0
"""A recipe of Spack for ibex. Copy this folder to packages/ibex of a repository of yours (`spack repo create`), and name
the checkout in spack.yaml (`develop: ibex: path: ...`), as there is no release to fetch yet."""

from spack.package import *


class Ibex(Package):
    """InfiniBand and RoCE for a stock Open MPI, as a PML and a BTL that it loads, and for MPICH and others as a provider
    of libfabric. Tools can watch the messages: by the events of MPI's tool interface and by PERUSE 2.0."""

    license("MIT OR Apache-2.0")

    version("0.1.0")

    depends_on("c", type="build")
    depends_on("rust@1.95:", type="build")
    depends_on("pkgconfig", type="build")
    # libclang, which reads the headers of Open MPI.
    depends_on("llvm+clang", type="build")
    depends_on("hwloc")
    depends_on("libfabric", type="build")
    depends_on("openmpi@4.1.0:4.1,5.0.0:5.0")
    depends_on("rdma-core")

    def setup_build_environment(self, env):
        env.set("MPICC", join_path(self.spec["openmpi"].prefix.bin, "mpicc"))
        env.set("LIBCLANG_PATH", self.spec["llvm"].prefix.lib)

    def setup_run_environment(self, env):
        env.set("OMPI_MCA_mca_base_component_path", f"{self.prefix.lib.openmpi}:SYSTEM_DEFAULT")
        env.prepend_path("FI_PROVIDER_PATH", self.prefix.lib.libfabric)

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("xtask", "install", "--prefix", prefix)
