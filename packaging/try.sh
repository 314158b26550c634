#!/bin/sh
# Tries the packages in /packages as a new user of a fresh Debian would: installs them, runs a job, builds a tool, removes them.
# `cargo xtask package --try` runs this inside a root file system that is thrown away afterwards.
set -eu
export DEBIAN_FRONTEND=noninteractive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HOME=/root
fail() { echo "FAILED: $*" >&2; exit 1; }
ours() { find / -xdev \( -name '*ibex*' -not -name 'libexec' -o -name '*softhca*' \) -not -path '/packages/*' -not -path '/proc/*' | sort; }

test -z "$(ours)" || fail "this root has files of ibex already: $(ours)"
apt-get install --quiet --yes --no-install-recommends /packages/*.deb libfabric-bin openmpi-bin
dpkg --verify ibex-tools ibex-libfabric softhca libibex-dev

for component in pml btl; do
    ompi_info --parsable | grep "^mca:$component:ibex:" || fail "ompi_info does not list the $component of ibex"
done
# mpirun of Debian 13 shows its ranks the components of PMIx alone, unless it is told otherwise (README.Debian).
of_pmix=$(mpirun -n 1 env | sed -n 's/^OMPI_MCA_mca_base_component_path=//p')
if [ -n "$of_pmix" ]; then
    of_openmpi=$(ompi_info --all --parsable | sed -n 's/.*param:mca_base_component_path:value:"\([^:"]*\).*/\1/p' | head -n 1)
    export OMPI_MCA_mca_base_component_path="$of_openmpi" PMIX_MCA_mca_base_component_path="$of_pmix"
fi
softhca run -- fi_info -p ibex | grep 'provider: ibex' || fail "libfabric does not list the provider"
bench=$(ls -d /usr/libexec/ibex/openmpi-*)/ibex_mpi_bench
softhca run -- ibex info || fail "ibex info"
softhca run -- ibex trace -o /tmp/run -- mpirun --oversubscribe -n 2 --mca pml ibex --mca btl self,ibex "$bench" --tests latency --sizes 8
ibex explain /tmp/run || fail "ibex explain"
man --version > /dev/null 2>&1 && man ibex-doctor fi_ibex > /dev/null

apt-get install --quiet --yes --no-install-recommends gcc libc6-dev libopenmpi-dev pkg-config
cp /usr/share/doc/libibex-dev/examples/writing_a_tool.c /tmp
# shellcheck disable=SC2046 # flags are words
mpicc /tmp/writing_a_tool.c $(pkg-config --cflags --libs ibex) -o /tmp/tool
softhca run -- mpirun --oversubscribe -n 2 --mca pml ob1 --mca btl self,ibex /tmp/tool

apt-get purge --quiet --yes 'ibex-openmpi-*' ibex-libfabric ibex-tools libibex-dev softhca
rm -r /tmp/run
test -z "$(ours)" || fail "removing the packages leaves $(ours)"
echo "The packages work, and leave nothing behind."
