// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line and environment of a stock MPI, by transport: itself over ibex' provider and over libfabric's TCP,
//! and Debian's MPICH over UCX. The ranks share no memory, so that all messages take the device. Called by
//! [`super::mpi`]. Grade: setup. Tests: below.

use super::mpi::ucx_environment;
use crate::catalogue::implementation::OF_DEBIAN;
use crate::catalogue::{Stock, Transport};
use crate::nodes::Where;
use anyhow::{Result, bail};

/// Returns the launcher, without the ranks, which it binds to the processors that perftest gets.
pub(super) fn mpiexec(place: Where, stock: Stock, transport: Transport) -> Result<Vec<String>> {
    let launcher = match transport {
        Transport::Ibex | Transport::Tcp => stock.folder.join("bin/mpiexec").display().to_string(),
        Transport::Ucx => OF_DEBIAN[0].to_owned(),
        _ => bail!("there is no {} over {}", stock.name, transport.name()),
    };
    let processors = place.processors.map_or_else(|| "core".to_owned(), |[one, other]| format!("user:{one},{other}"));
    Ok(vec![launcher, "-bind-to".to_owned(), processors])
}

/// Returns the variables that permit a message a single transport.
pub(super) fn environment(place: Where, stock: Stock, transport: Transport) -> Vec<(String, String)> {
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut variables = vec![variable("MPIR_CVAR_NOLOCAL", "1")];
    if transport == Transport::Ucx {
        variables.extend(ucx_environment(place));
        return variables;
    }
    variables.extend([variable("MPIR_CVAR_CH4_NETMOD", "ofi"), variable("FI_PROVIDER", transport.name())]);
    if transport == Transport::Ibex {
        variables.push(variable("FI_PROVIDER_PATH", &stock.provider.display().to_string()));
    } else if !place.interface.is_empty() {
        variables.push(variable("FI_TCP_IFACE", place.interface));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::nodes::place::tests::stock_place;
    use crate::programs::mpi;

    fn line(place: Where, transport: Transport) -> Result<String> {
        let tests = [catalogue::test("latency").unwrap()];
        Ok(mpi::command(place, transport, &tests, &[8])?.join(" "))
    }

    fn told(transport: Transport) -> String {
        let variables = mpi::environment(stock_place(), transport).into_iter();
        variables.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn itself_runs_over_libfabric_and_debians_mpich_runs_its_own_programs_over_ucx() {
        let itself = "/t/mpich/bin/mpiexec -bind-to core -n 2 /t/mpi/ibex_mpi_bench --tests latency --sizes 8";
        for transport in [Transport::Ibex, Transport::Tcp] {
            assert_eq!(line(stock_place(), transport).unwrap(), itself);
        }
        let debian = "mpiexec.mpich -bind-to core -n 2 /t/debian/ibex_mpi_bench --tests latency --sizes 8";
        assert_eq!(line(stock_place(), Transport::Ucx).unwrap(), debian);
        let error = line(stock_place(), Transport::Openib).unwrap_err().to_string();
        assert_eq!(error, "there is no MPICH over openib");
    }

    #[test]
    fn ranks_share_no_memory_and_have_one_transport_on_the_measured_device() {
        let shared = "MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=";
        assert_eq!(told(Transport::Ibex), format!("{shared}ibex FI_PROVIDER_PATH=/t/lib/libfabric"));
        assert_eq!(told(Transport::Tcp), format!("{shared}tcp FI_TCP_IFACE=veth0"));
        assert!(told(Transport::Ucx).starts_with("MPIR_CVAR_NOLOCAL=1 UCX_TLS=rc,ud,self UCX_NET_DEVICES=rxe0:1"));
    }

    #[test]
    fn its_ranks_have_the_processors_of_perftest() {
        let place = Where { processors: Some([0, 2]), ..stock_place() };
        assert!(line(place, Transport::Ibex).unwrap().contains(" -bind-to user:0,2 -n 2 "));
    }
}
