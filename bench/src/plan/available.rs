// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this machine, or both hosts, can measure: the rest is left out, and said.
//!
//! What is asked for by name and is not there is an error. Grade: setup. Called by `ibex bench` and `cargo xtask bench`. Tests: at the end of
//! this file.

use super::openmpi::OpenMpi;
use super::wanted::Wanted;
use super::{LeftOut, Plan, brief};
use crate::catalogue::By;
use crate::catalogue::device_kind::Kind;
use crate::catalogue::transport::Transport;
use crate::nodes::here::is_in_path;
use crate::nodes::place::Where;
use crate::programs::mpi;
use anyhow::{Result, bail};
use clap::ValueEnum;

/// Plans what is asked for, of what is there. `has` says whether there is a program of that name where it is to run.
///
/// # Errors
/// Something that was asked for by name is not there, or nothing is left.
pub fn available(place: Where, wanted: &Wanted, has: &dyn Fn(&str) -> bool) -> Result<Plan> {
    let open_mpi = OpenMpi::here(&mpi::environment(place, Transport::Ibex))?;
    of_machine(place, wanted, has, &open_mpi)
}

/// The same before ibex and the programs are built from the source.
///
/// # Errors
/// Those of [`available`].
pub fn available_beside_ibex(kind: Kind, wanted: &Wanted) -> Result<Plan> {
    let open_mpi = OpenMpi::here(&[])?;
    if wanted.events {
        return Plan::chosen(kind, wanted);
    }
    let candidates = if wanted.full { kind.transports() } else { kind.few_transports() };
    let (left, left_out) = those_of(
        kind,
        &candidates,
        wanted,
        &|transport| match transport {
            Transport::Ibex | Transport::IbexBtl => None,
            other => missing(other, &is_in_path, &open_mpi),
        },
        &open_mpi,
    )?;
    planned(kind, wanted, left, left_out)
}

/// The plan for what is there.
fn planned(kind: Kind, wanted: &Wanted, left: Vec<Transport>, left_out: Vec<LeftOut>) -> Result<Plan> {
    let plan = Plan::chosen(kind, &Wanted { transports: left, ..wanted.clone() })?;
    let brief = brief::left_out(kind, &plan, wanted);
    Ok(Plan { brief, left_out, ..plan })
}

/// Of the transports that are asked for, or of the candidates where none is, those that can be measured and why the
/// others cannot.
fn those_of(
    kind: Kind,
    candidates: &[Transport],
    wanted: &Wanted,
    missing: &dyn Fn(Transport) -> Option<String>,
    open_mpi: &OpenMpi,
) -> Result<(Vec<Transport>, Vec<LeftOut>)> {
    let is_asked = !wanted.transports.is_empty();
    let transports = if is_asked { &wanted.transports[..] } else { candidates };
    let (mut left, mut left_out) = (Vec::new(), Vec::new());
    for &transport in transports {
        let unfit = || unfit(transport, kind, open_mpi).filter(|_| !is_asked).map(str::to_owned);
        match missing(transport).or_else(unfit) {
            None => left.push(transport),
            Some(reason) if is_asked => bail!("{} cannot be measured, as {reason}", transport.name()),
            Some(reason) => left_out.push(LeftOut { what: transport.name().to_owned(), reason }),
        }
    }
    Ok((left, left_out))
}

/// Why a transport that is there is not measured unless it is asked for.
fn unfit(transport: Transport, kind: Kind, open_mpi: &OpenMpi) -> Option<&'static str> {
    // Debian 12's libfabric, which is of the time of 4.1, has no connections without rdma_cm either, and its datagrams
    // crash.
    (transport.is_ofi() && kind == Kind::SoftHca && open_mpi.major() < 5)
        .then_some("libfabric is measured on emulated adapters from Open MPI 5 on, or when it is asked for by name")
}

fn of_machine(place: Where, wanted: &Wanted, has: &dyn Fn(&str) -> bool, open_mpi: &OpenMpi) -> Result<Plan> {
    let missing = |transport| missing(transport, has, open_mpi);
    let candidates = if wanted.full { Transport::value_variants().to_vec() } else { place.kind.few_transports() };
    let (left, mut left_out) = those_of(place.kind, &candidates, wanted, &missing, open_mpi)?;
    if !left.iter().any(|transport| transport.is_ibex()) {
        let reason = left_out.first().map_or_else(String::new, |left_out| left_out.reason.clone());
        if wanted.transports.is_empty() {
            bail!("ibex cannot be measured, as {reason}");
        }
    }
    let mut plan = planned(place.kind, wanted, left, Vec::new())?;
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
    if !place.programs.join("host_memory_ratios").is_file() {
        without("the host's memory", |by| by == By::HostMemory, "its program is part of the source alone")?;
    }
    plan.left_out = left_out;
    Ok(plan)
}

/// Why a transport cannot be measured.
fn missing(transport: Transport, has: &dyn Fn(&str) -> bool, open_mpi: &OpenMpi) -> Option<String> {
    let program =
        |name: &str, package: &str| (!has(name)).then(|| format!("there is no {name} in PATH (Debian: {package})"));
    let component = |component: &str| {
        let name = component.trim_start_matches("mca:").trim_end_matches(':').replace(':', "/");
        (!open_mpi.has(component)).then(|| format!("this Open MPI has no component {name}"))
    };
    match transport {
        Transport::Raw => program("ib_send_lat", "perftest"),
        Transport::UcxPerftest => program("ucx_perftest", "ucx-utils"),
        Transport::Ibex => component("mca:pml:ibex:").map(|reason| reason + ": `ibex doctor` says why"),
        Transport::IbexBtl => component("mca:btl:ibex:").map(|reason| reason + ": `ibex doctor` says why"),
        other => other.component().and_then(component),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::place::tests::place;

    const LISTING: &str = "mca:pml:ibex:version\nmca:btl:ibex:version\nmca:btl:tcp:version\nmca:pml:ucx:version\n";

    fn plan(wanted: &Wanted, tools: &[&str]) -> Result<Plan> {
        let place = Where { kind: Kind::SoftHca, ..place() };
        of_machine(place, wanted, &|name| tools.contains(&name), &OpenMpi::from(LISTING))
    }

    fn wanted(transports: &[Transport], tests: &[&str]) -> Wanted {
        let tests = tests.iter().map(|test| (*test).to_owned()).collect();
        Wanted { transports: transports.to_vec(), tests, ..Wanted::default() }
    }

    #[test]
    fn what_is_not_there_is_left_out_and_said() {
        let plan = plan(&Wanted { full: true, ..Wanted::default() }, &["ib_send_lat"]).unwrap();
        let names: Vec<&str> = plan.transports().iter().map(|transport| transport.name()).collect();
        assert_eq!(names, ["ibex", "ibex-btl", "raw", "ucx", "tcp"]);
        let left_out: Vec<&str> = plan.left_out.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(left_out, ["openib", "ofi", "ofi-btl", "ucx_perftest", "instructions", "the host's memory"]);
        assert!(plan.left_out[0].reason.contains("btl/openib") && plan.left_out[3].reason.contains("ucx-utils"));
        assert!(!plan.tests.iter().any(|test| matches!(test.by, By::InstructionCounter(_) | By::HostMemory)));
    }

    #[test]
    fn what_is_asked_for_by_name_is_not_left_out() {
        let refused = |wanted: &Wanted| plan(wanted, &[]).unwrap_err().to_string();
        assert!(refused(&wanted(&[Transport::Raw], &[])).contains("perftest"));
        assert!(refused(&wanted(&[Transport::Ibex], &["instructions"])).contains("valgrind"));
        assert!(plan(&wanted(&[Transport::Ibex, Transport::Tcp], &["latency"]), &[]).unwrap().left_out.is_empty());
        assert!(plan(&wanted(&[Transport::Ibex], &["instructions"]), &["valgrind"]).is_ok());
    }

    #[test]
    fn libfabric_is_measured_where_open_mpi_has_it_and_on_emulated_adapters_from_5_on() {
        let has_ofi = |release: &str, kind, transports: &[Transport]| {
            let listing = format!("ompi:version:full:{release}\n{LISTING}mca:mtl:ofi:version\nmca:btl:ofi:version\n");
            let place = Where { kind, ..place() };
            let plan = of_machine(
                place,
                &Wanted { full: true, ..wanted(transports, &[]) },
                &|_| true,
                &OpenMpi::from(listing.as_str()),
            )
            .unwrap();
            plan.transports().contains(&Transport::Ofi)
        };
        assert!(has_ofi("5.0.7", Kind::SoftHca, &[]) && has_ofi("4.1.4", Kind::Adapter, &[]));
        assert!(!has_ofi("4.1.4", Kind::SoftHca, &[]) && has_ofi("4.1.4", Kind::SoftHca, &[Transport::Ofi]));
    }

    #[test]
    fn without_ibex_there_is_nothing_to_compare() {
        let error = of_machine(place(), &Wanted::default(), &|_| true, &"mca:btl:tcp:version\n".into()).unwrap_err();
        assert!(error.to_string().contains("ibex doctor"), "{error}");
    }
}
