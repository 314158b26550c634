// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a plan without the tests and transports that this machine, or both hosts, cannot measure. Names these, and
//! those that a first table leaves out. A missing test or transport is an error if the user has asked for it by name.
//! Called by `ibex bench` and `cargo xtask bench`. Grade: setup. Tests: below.

use super::wanted::Wanted;
use super::{LeftOut, Plan};
use crate::catalogue::implementation::OF_DEBIAN;
use crate::catalogue::{By, Family, Kind, Mpi, TESTS, Transport};
use crate::nodes::Where;
use crate::programs::{libfabric, mpi};
use anyhow::{Context, Result, bail};
use std::process::Command;

/// Plans the measurements asked for that are possible here: with `--full` over `all` transports, unless some are named.
/// `has` says whether the nodes have a program of that name.
///
/// # Errors
/// Something that was asked for by name is missing, or nothing is left.
pub fn available(place: Where, wanted: &Wanted, all: &[Transport], has: &dyn Fn(&str) -> bool) -> Result<Plan> {
    let offers = Offers::here(place.mpi, &mpi::environment(place, Transport::Ibex))?;
    of_machine(place, wanted, all, has, &offers)
}

/// Refuses transports that were asked for by name and that this machine cannot measure; not those over ibex, which may
/// be built afterwards.
///
/// # Errors
/// One of them is missing.
pub fn refuse_missing(mpi: Mpi, wanted: &Wanted, has: &dyn Fn(&str) -> bool) -> Result<()> {
    let others: Vec<Transport> = wanted.transports.iter().copied().filter(|transport| !transport.is_ibex()).collect();
    if others.is_empty() { Ok(()) } else { all_there(&others, has, &Offers::here(mpi, &[])?) }
}

fn all_there(transports: &[Transport], has: &dyn Fn(&str) -> bool, offers: &Offers) -> Result<()> {
    transports.iter().try_for_each(|transport| match missing(*transport, has, offers) {
        Some(reason) => bail!("{} cannot be measured, as {reason}", transport.name()),
        None => Ok(()),
    })
}

/// Names the default measurements that a first table leaves out, in one line.
fn left_out_of_first_table(kind: Kind, mpi: Mpi, plan: &Plan, wanted: &Wanted) -> Option<String> {
    let tests = TESTS.iter().filter(|test| mpi.has(kind, test) && !plan.tests.iter().any(|one| one.name == test.name));
    let tests: Vec<&str> = tests.map(|test| test.name).collect();
    let few = mpi.few_transports(kind);
    let transports = mpi.transports(kind).into_iter().filter(|transport| !few.contains(transport));
    let transports: Vec<&str> = transports.map(Transport::name).collect();
    let parts = [
        wanted.tests.is_empty().then(|| format!("the tests {}", tests.join(", "))),
        (wanted.transports.is_empty() && !transports.is_empty())
            .then(|| format!("the transports {}", transports.join(", "))),
        wanted.sizes.is_empty().then(|| "the sizes between these".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty() && !wanted.full).then(|| format!("Left out, and measured with --full: {}.", parts.join("; ")))
}

/// Returns why an installed transport is measured only if the user asks for it.
fn unfit(transport: Transport, kind: Kind, offers: &Offers) -> Option<&'static str> {
    // Debian 12's libfabric, of the time of 4.1, has no connections without rdma_cm either, and its datagrams crash.
    (transport.is_ofi() && kind == Kind::SoftHca && offers.major() < 5)
        .then_some("libfabric is measured on emulated adapters from Open MPI 5 on, or when it is asked for by name")
}

fn of_machine(
    place: Where,
    wanted: &Wanted,
    all: &[Transport],
    has: &dyn Fn(&str) -> bool,
    offers: &Offers,
) -> Result<Plan> {
    let (kind, mpi, is_asked) = (place.kind, place.mpi, !wanted.transports.is_empty());
    let transports = match wanted {
        Wanted { events: true, .. } => return Plan::chosen(kind, mpi, wanted),
        _ if is_asked => wanted.transports.clone(),
        Wanted { full: true, .. } => all.to_vec(),
        _ => mpi.few_transports(kind),
    };
    all_there(&wanted.transports, has, offers)?;
    let (mut left, mut left_out) = (Vec::new(), Vec::new());
    for transport in transports {
        let unfit = || unfit(transport, kind, offers).filter(|_| !is_asked).map(str::to_owned);
        match missing(transport, has, offers).or_else(unfit) {
            None => left.push(transport),
            Some(reason) => left_out.push(LeftOut { what: transport.name().to_owned(), reason }),
        }
    }
    if !is_asked && !left.iter().any(|transport| transport.is_ibex()) {
        bail!("ibex cannot be measured, as {}", left_out.first().map_or("", |left_out| &left_out.reason));
    }
    let mut plan = Plan::chosen(kind, mpi, &Wanted { transports: left, ..wanted.clone() })?;
    plan.brief = left_out_of_first_table(kind, mpi, &plan, wanted);
    let mut without = |what: &str, of_test: fn(By) -> bool, reason: &str| {
        if !plan.tests.iter().any(|test| of_test(test.by)) {
            return Ok(());
        }
        if !wanted.tests.is_empty() {
            bail!("{what} cannot be measured, as {reason}");
        }
        plan.tests.retain(|test| !of_test(test.by));
        left_out.push(LeftOut { what: what.to_owned(), reason: reason.to_owned() });
        Ok(())
    };
    if !has("valgrind") {
        let counts = |by| matches!(by, By::InstructionCounter(_));
        without("instructions", counts, "valgrind, which counts them, is not in PATH (Debian: valgrind)")?;
    }
    let has_provider = place.provider().is_some_and(|folder| folder.join("libibex-fi.so").is_file());
    if !has_provider || !place.programs.join(libfabric::PROGRAM).is_file() {
        without("libfabric's calls", By::is_of_libfabric, "their programs are part of the source alone")?;
    }
    if !place.programs.join("host_memory_ratios").is_file() {
        without("the host's memory", |by| by == By::HostMemory, "its program is part of the source alone")?;
    }
    plan.left_out = left_out;
    Ok(plan)
}

fn missing(transport: Transport, has: &dyn Fn(&str) -> bool, offers: &Offers) -> Option<String> {
    if transport == Transport::Raw {
        return (!has("ib_send_lat")).then(|| "there is no ib_send_lat in PATH (Debian: perftest)".to_owned());
    }
    let listing = match offers {
        Offers::OpenMpi(listing) => listing,
        Offers::Stock(_) if [Transport::Ibex, Transport::Tcp].contains(&transport) => return None,
        Offers::Stock(_) if transport == Transport::Ucx => {
            let lacks = OF_DEBIAN.into_iter().find(|program| !has(program));
            return lacks.map(|lacks| format!("there is no {lacks} in PATH (Debian: mpich, libmpich-dev)"));
        }
        Offers::Stock(family) => return Some(format!("{} has no such transport", family.name())),
    };
    let component = |component: &str| {
        let name = component.trim_start_matches("mca:").trim_end_matches(':').replace(':', "/");
        let has = listing.lines().any(|line| line.starts_with(component));
        (!has).then(|| format!("this Open MPI has no component {name}"))
    };
    match transport {
        Transport::Ibex => component("mca:pml:ibex:").map(|reason| reason + ": `ibex doctor` says why"),
        Transport::IbexBtl => component("mca:btl:ibex:").map(|reason| reason + ": `ibex doctor` says why"),
        other => other.component().and_then(component),
    }
}

/// What an MPI has.
enum Offers {
    /// The Open MPI in `PATH`, as its `ompi_info --parsable` lists it: `mca:btl:tcp:` begins the line of a component.
    OpenMpi(String),
    Stock(Family),
}

impl Offers {
    fn here(mpi: Mpi, environment: &[(String, String)]) -> Result<Self> {
        if let Mpi::Stock(stock) = mpi {
            return Ok(Self::Stock(stock.family));
        }
        let info = Command::new("ompi_info").arg("--parsable").envs(environment.iter().cloned()).output();
        let info = info.context("Open MPI's ompi_info cannot be started: is it in PATH?")?;
        if !info.status.success() {
            bail!("`ompi_info --parsable` failed ({}): {}", info.status, String::from_utf8_lossy(&info.stderr).trim());
        }
        Ok(Self::OpenMpi(String::from_utf8_lossy(&info.stdout).into_owned()))
    }

    /// Returns the first number of Open MPI's release; 0 if unknown.
    fn major(&self) -> u32 {
        let Self::OpenMpi(listing) = self else { return 0 };
        let full = listing.lines().find_map(|line| line.strip_prefix("ompi:version:full:"));
        full.and_then(|full| full.split('.').next()?.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::place::tests::{place, stock_place};
    use clap::ValueEnum;

    impl From<&str> for Offers {
        fn from(listing: &str) -> Self {
            Self::OpenMpi(listing.to_owned())
        }
    }

    const LISTING: &str = "mca:pml:ibex:version\nmca:btl:ibex:version\nmca:btl:tcp:version\nmca:pml:ucx:version\n";

    fn plan(wanted: &Wanted, tools: &[&str]) -> Result<Plan> {
        let place = Where { kind: Kind::SoftHca, ..place() };
        of_machine(place, wanted, Transport::value_variants(), &|name| tools.contains(&name), &Offers::from(LISTING))
    }

    fn wanted(transports: &[Transport], tests: &[&str]) -> Wanted {
        let tests = tests.iter().map(|test| (*test).to_owned()).collect();
        Wanted { transports: transports.to_vec(), tests, ..Wanted::default() }
    }

    #[test]
    fn missing_tests_and_transports_are_left_out_and_reported() {
        let plan = plan(&Wanted { full: true, ..Wanted::default() }, &["ib_send_lat"]).unwrap();
        let names: Vec<&str> = plan.transports.iter().map(|transport| transport.name()).collect();
        assert_eq!(names, ["ibex", "ibex-btl", "raw", "ucx", "tcp"]);
        let left_out: Vec<&str> = plan.left_out.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(left_out, ["openib", "ofi", "ofi-btl", "instructions", "libfabric's calls", "the host's memory"]);
        assert!(plan.left_out[0].reason.contains("btl/openib"));
        assert!(!plan.tests.iter().any(|test| matches!(test.by, By::InstructionCounter(_) | By::HostMemory)));
    }

    #[test]
    fn a_test_or_transport_asked_for_by_name_is_not_left_out() {
        let refused = |wanted: &Wanted| plan(wanted, &[]).unwrap_err().to_string();
        assert!(refused(&wanted(&[Transport::Raw], &[])).contains("perftest"));
        assert!(refused(&wanted(&[Transport::Ibex], &["instructions"])).contains("valgrind"));
        assert!(plan(&wanted(&[Transport::Ibex, Transport::Tcp], &["latency"]), &[]).unwrap().left_out.is_empty());
        assert!(plan(&wanted(&[Transport::Ibex], &["instructions"]), &["valgrind"]).is_ok());
    }

    #[test]
    fn before_a_build_ibex_is_not_missing() {
        assert!(refuse_missing(Mpi::OpenMpi, &wanted(&[Transport::Ibex, Transport::IbexBtl], &[]), &|_| false).is_ok());
    }

    #[test]
    fn libfabric_is_measured_where_open_mpi_has_it_and_on_emulated_adapters_from_5_on() {
        let has_ofi = |release: &str, kind, transports: &[Transport]| {
            let listing = format!("ompi:version:full:{release}\n{LISTING}mca:mtl:ofi:version\nmca:btl:ofi:version\n");
            let place = Where { kind, ..place() };
            let plan = of_machine(
                place,
                &Wanted { full: true, ..wanted(transports, &[]) },
                Transport::value_variants(),
                &|_| true,
                &Offers::from(listing.as_str()),
            )
            .unwrap();
            plan.transports.contains(&Transport::Ofi)
        };
        assert!(has_ofi("5.0.7", Kind::SoftHca, &[]) && has_ofi("4.1.4", Kind::Adapter, &[]));
        assert!(!has_ofi("4.1.4", Kind::SoftHca, &[]) && has_ofi("4.1.4", Kind::SoftHca, &[Transport::Ofi]));
    }

    #[test]
    fn without_ibex_there_is_nothing_to_compare() {
        let error =
            of_machine(place(), &Wanted::default(), &[], &|_| true, &"mca:btl:tcp:version\n".into()).unwrap_err();
        assert!(error.to_string().contains("ibex doctor"), "{error}");
    }

    #[test]
    fn a_stock_mpi_is_measured_over_its_own_transports_and_debians_mpich_is_left_out_where_it_is_missing() {
        let place = Where { kind: Kind::SoftHca, ..stock_place(Family::Mpich) };
        let plan = |wanted: &Wanted, tools: &[&str]| {
            let all = place.mpi.transports(place.kind);
            of_machine(place, wanted, &all, &|name| tools.contains(&name), &Offers::here(place.mpi, &[])?)
        };
        let tools = ["ib_send_lat", "mpiexec.mpich", "mpicc.mpich", "valgrind"];
        let first = plan(&Wanted::default(), &tools).unwrap();
        assert_eq!(first.transports, [Transport::Ibex, Transport::Raw, Transport::Ucx, Transport::Tcp]);
        assert_eq!(first.tests.len(), 4);
        let brief = first.brief.unwrap();
        assert!(brief.contains("put_latency") && !brief.contains("transports") && !brief.contains("pieces"), "{brief}");
        let full = plan(&Wanted { full: true, ..Wanted::default() }, &["mpiexec.mpich"]).unwrap();
        assert_eq!(full.transports, [Transport::Ibex, Transport::Tcp]);
        assert!(full.left_out[1].reason.contains("no mpicc.mpich in PATH (Debian: mpich"), "{:?}", full.left_out);
        assert!(!full.tests.iter().any(|test| matches!(test.by, By::Reads | By::HostMemory)));
        let refused = |wanted: &Wanted| plan(wanted, &[]).unwrap_err().to_string();
        assert!(refused(&wanted(&[Transport::Ucx], &[])).contains("no mpiexec.mpich"));
        assert!(refused(&wanted(&[Transport::Openib], &[])).contains("MPICH has no such transport"));
        assert!(refused(&wanted(&[], &["pieces"])).contains("needs Open MPI"));
    }

    fn said(wanted: &Wanted) -> String {
        let (kind, mpi) = (Kind::SoftHca, Mpi::OpenMpi);
        left_out_of_first_table(kind, mpi, &Plan::chosen(kind, mpi, wanted).unwrap(), wanted).unwrap_or_default()
    }

    #[test]
    fn a_first_table_says_which_tests_and_transports_it_leaves_out_and_nothing_of_what_is_named() {
        let first = said(&Wanted::default());
        assert!(first.contains("bidirectional_bandwidth, put_latency") && !first.contains(" latency,"), "{first}");
        assert!(first.contains("ibex-btl, ofi") && !first.contains("openib") && first.contains("sizes"), "{first}");
        let named = Wanted { tests: vec!["latency".to_owned()], sizes: vec![8], ..Wanted::default() };
        assert!(!said(&named).contains("tests") && !said(&named).contains("sizes"), "{}", said(&named));
        assert!(said(&named).contains("transports"));
        assert_eq!(said(&Wanted { transports: vec![Transport::Ibex], ..named }), "");
    }
}
