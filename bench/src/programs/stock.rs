// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line and environment for each transport of a stock MPI: over `ibex` and `tcp` the stock MPI runs, by
//! libfabric; over `ucx` Debian's MPICH runs. The ranks share no memory, so all messages take the device. Called by
//! [`super::mpi`]. Grade: setup. Tests: below.

use super::mpi::ucx_environment;
use crate::catalogue::implementation::OF_DEBIAN;
use crate::catalogue::{Family, Stock, Transport};
use crate::nodes::Where;
use anyhow::{Result, bail};

/// Returns the launcher, without the ranks, which get the processors of perftest.
pub(super) fn mpiexec(place: Where, stock: Stock, transport: Transport) -> Result<Vec<String>> {
    let launcher = match transport {
        Transport::Ibex | Transport::Tcp => stock.folder.join("bin/mpiexec").display().to_string(),
        Transport::Ucx => OF_DEBIAN[0].to_owned(),
        _ => bail!("there is no {} over {}", stock.family.name(), transport.name()),
    };
    let mut words = vec![launcher];
    if stock.family == Family::Mpich || transport == Transport::Ucx {
        let pair = place.processors.map_or_else(|| "core".to_owned(), |[one, other]| format!("user:{one},{other}"));
        words.extend(["-bind-to".to_owned(), pair]);
    }
    Ok(words)
}

/// Returns the variables that permit a message a single transport.
pub(super) fn environment(place: Where, stock: Stock, transport: Transport) -> Vec<(String, String)> {
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let of_mpich = variable("MPIR_CVAR_NOLOCAL", "1");
    if transport == Transport::Ucx {
        return [of_mpich].into_iter().chain(ucx_environment(place)).collect();
    }
    let name = transport.name();
    let mut variables = vec![variable("FI_PROVIDER", name)];
    match stock.family {
        Family::Mpich => variables.extend([of_mpich, variable("MPIR_CVAR_CH4_NETMOD", "ofi")]),
        Family::Intel => {
            variables.extend([variable("I_MPI_OFI_PROVIDER", name), variable("I_MPI_FABRICS", "ofi")]);
            // Intel MPI polls shared memory even if no rank uses it. At 1, it does so once per poll of libfabric.
            variables.push(variable("I_MPI_SHM_SPIN_RATIO", "1"));
            variables.push(variable("I_MPI_ROOT", &stock.folder.display().to_string()));
            let list = place.processors.map(|pair| pair.map(|processor| processor.to_string()).join(","));
            variables.extend(list.map(|list| variable("I_MPI_PIN_PROCESSOR_LIST", &list)));
        }
    }
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

    fn told(place: Where, transport: Transport) -> String {
        let variables = mpi::environment(place, transport).into_iter();
        variables.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn itself_runs_over_libfabric_and_debians_mpich_runs_its_own_programs_over_ucx() {
        let debian = "mpiexec.mpich -bind-to core -n 2 /t/debian/ibex_mpi_bench --tests latency --sizes 8";
        for (family, bound) in [(Family::Mpich, " -bind-to core"), (Family::Intel, "")] {
            let place = stock_place(family);
            let itself = format!("/t/stock/bin/mpiexec{bound} -n 2 /t/mpi/ibex_mpi_bench --tests latency --sizes 8");
            assert_eq!(
                [Transport::Ibex, Transport::Tcp].map(|one| line(place, one).unwrap()),
                [itself.clone(), itself]
            );
            assert_eq!(line(place, Transport::Ucx).unwrap(), debian);
        }
        let error = line(stock_place(Family::Mpich), Transport::Openib).unwrap_err().to_string();
        assert_eq!(error, "there is no MPICH over openib");
    }

    #[test]
    fn ranks_share_no_memory_and_have_one_transport_on_the_measured_device() {
        for (family, shares_none) in [
            (Family::Mpich, |_| "MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ofi".to_owned()),
            (Family::Intel, |name| {
                format!("I_MPI_OFI_PROVIDER={name} I_MPI_FABRICS=ofi I_MPI_SHM_SPIN_RATIO=1 I_MPI_ROOT=/t/stock")
            }),
        ] as [(Family, fn(&str) -> String); 2]
        {
            let place = stock_place(family);
            let ibex = format!("FI_PROVIDER=ibex {} FI_PROVIDER_PATH=/t/lib/libfabric", shares_none("ibex"));
            let tcp = format!("FI_PROVIDER=tcp {} FI_TCP_IFACE=veth0", shares_none("tcp"));
            assert_eq!([Transport::Ibex, Transport::Tcp].map(|one| told(place, one)), [ibex, tcp]);
            let ucx = told(place, Transport::Ucx);
            assert!(ucx.starts_with("MPIR_CVAR_NOLOCAL=1 UCX_TLS=rc,ud,self UCX_NET_DEVICES=rxe0:1"), "{ucx}");
        }
    }

    #[test]
    fn its_ranks_have_the_processors_of_perftest() {
        let place = |family| Where { processors: Some([0, 2]), ..stock_place(family) };
        assert!(line(place(Family::Mpich), Transport::Ibex).unwrap().contains(" -bind-to user:0,2 -n 2 "));
        assert!(told(place(Family::Intel), Transport::Ibex).contains("I_MPI_PIN_PROCESSOR_LIST=0,2"));
    }
}
