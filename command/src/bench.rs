// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex bench`: measures MPI over ibex, the raw adapter, and the other transports of this machine. Finds the adapter,
//! the hosts and the installed benchmark programs, and calls [`ibex_bench`]. Progress goes to standard error, the
//! report to standard output. Grade: setup. Tests: below; with a device, `hw-tests/tests/device/command.rs`.

use crate::answer::{self, Form};
use crate::facts::adapters::{self, Adapter, Adapters, Port};
use crate::installed::OpenMpi;
use crate::parameters::{self, Given};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use ibex_bench::{Extent, Here, Hosts, Kind, Mpi, Report, Transport, Wanted, Where};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{self, Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs};

#[derive(clap::Args)]
#[command(after_help = "What this machine lacks (perftest, UCX, valgrind) is left out and listed. In a Slurm \
                        allocation, the first two hosts are measured.\n\n\
                        Exit status: 0 if all was measured, 1 otherwise.\n\n\
                        Example: a first look at two nodes\n  ibex bench --host node1,node2")]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
    /// Measure between these two hosts; ssh must reach them without a password [default: within this host]
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    host: Vec<String>,
    /// The adapter; it needs the same name on both hosts [default: the first that a job would use]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    wanted: Wanted,
    /// Repeat the experiments of two papers on events: their cost for messages and programs, the time of messages in
    /// two applications, and the detection of injected faults (docs/study.md)
    #[arg(long, conflicts_with_all = ["host", "tests", "transports", "sizes", "rounds"])]
    study: bool,
    /// The folder for report.json
    #[arg(long, value_name = "DIR", default_value = "ibex-bench")]
    out: PathBuf,
    /// The folder of components built without events, for `--study`
    #[arg(long, value_name = "DIR", hide = true)]
    without_events: Option<PathBuf>,
    /// The folder of the benchmark programs [default: libexec/ibex, next to the folder of this command]
    #[arg(long, value_name = "DIR", hide = true)]
    programs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let started = Instant::now();
    let hosts = if arguments.study { None } else { hosts(&arguments.host)? };
    let adapter = Chosen::of(arguments.device.as_deref(), hosts.is_some())?;
    let installed = Installed::look(arguments.programs.as_deref())?;
    let out = path::absolute(&arguments.out)?;
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let place = Where {
        mpi: Mpi::OpenMpi,
        programs: &installed.programs,
        command: &installed.command,
        components: installed.components.as_deref(),
        without_events: arguments.without_events.as_deref(),
        reports: &out,
        device: &adapter.name,
        interface: &adapter.interface,
        kind: adapter.kind,
        processors: if adapter.kind == Kind::SoftHca { ibex_bench::pair() } else { None },
        hosts: hosts.as_ref(),
    };
    if arguments.study {
        return study(arguments, place, started);
    }
    let tools = match &hosts {
        Some(hosts) => Some(hosts.look(&installed.programs.join(PROGRAM), place.device)?),
        None => None,
    };
    let has = |name: &str| tools.as_ref().map_or_else(|| ibex_bench::is_in_path(name), |tools| tools.contains(name));
    let plan = ibex_bench::available(place, &arguments.wanted, Transport::value_variants(), &has)?;
    eprintln!("Measuring on {}: {} values, rounds: {}", place.title(), plan.values(), plan.rounds());
    let report = Report::measured(&Here, place, &plan, None)?;
    told(arguments, &report, &[report.write(&out)?], started)?;
    Ok(if report.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn study(arguments: &Arguments, place: Where, started: Instant) -> Result<ExitCode> {
    let study = ibex_bench::study(&Here, place, Extent::new(arguments.wanted.full))?;
    told(arguments, &study, &study.write(place.reports)?, started)?;
    Ok(if study.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the report, and the path of its file.
fn told(
    arguments: &Arguments,
    report: &(impl Serialize + Display),
    written: &[PathBuf],
    started: Instant,
) -> Result<()> {
    answer::print(&arguments.form, report)?;
    for path in written {
        eprintln!("Wrote {}", path.display());
    }
    eprintln!("Done in {:.0} s.", started.elapsed().as_secs_f64());
    Ok(())
}

/// Returns the named hosts, or those of a Slurm allocation; `None`: measure within this host.
fn hosts(named: &[String]) -> Result<Option<Hosts>> {
    between(named, &ibex_bench::of_allocation()?)
}

fn between(named: &[String], allocated: &[String]) -> Result<Option<Hosts>> {
    let pair = |one: &String, other: &String| [one.clone(), other.clone()];
    match (named, allocated) {
        ([one, other], _) if one == other => bail!("--host names {one} twice; omit --host to measure within this host"),
        ([one, other], _) if allocated.contains(one) && allocated.contains(other) => {
            Ok(Some(Hosts::by_srun(pair(one, other))))
        }
        ([one, other], _) => Ok(Some(Hosts::by_ssh(pair(one, other)))),
        ([], [one, other, ..]) => Ok(Some(Hosts::by_srun(pair(one, other)))),
        ([], []) => Ok(None),
        ([one], _) | ([], [one]) if ibex_bench::is_here(one) => Ok(None),
        ([one], _) => bail!("to measure within {one}, run `ibex bench` there: ssh {one} ibex bench"),
        ([], [one]) => bail!(
            "this allocation has one host, {one}, which is not this host: `srun --nodes=1 --ntasks=1 ibex bench` measures within \
             it; to measure between hosts, ask for two"
        ),
        (more, _) => bail!("--host names {} hosts; a measurement is between two", more.len()),
    }
}

const PROGRAM: &str = "ibex_mpi_bench";

struct Installed {
    /// This command, which has the same path on other hosts.
    command: PathBuf,
    programs: PathBuf,
    /// `None`: Open MPI finds the components by itself.
    components: Option<PathBuf>,
}

impl Installed {
    fn look(programs: Option<&Path>) -> Result<Self> {
        let installed = crate::installed::Installed::here()?;
        let name = installed.name(OpenMpi::of(None).as_ref())?;
        let is_told = env::var_os("OMPI_MCA_mca_base_component_path").is_some();
        let command = env::current_exe().and_then(fs::canonicalize).context("this command cannot find its own path")?;
        Ok(Self { command, ..Self::under(&installed.prefix, name.unwrap_or_default(), programs, is_told)? })
    }

    /// Finds the installation under a prefix, for the Open MPI whose folders have this name (may be empty); `is_told`:
    /// whether Open MPI already has a path of components.
    fn under(prefix: &Path, name: &str, programs: Option<&Path>, is_told: bool) -> Result<Self> {
        let programs = programs.map_or_else(|| prefix.join("libexec/ibex").join(name), Path::to_path_buf);
        let programs = path::absolute(programs)?;
        if !programs.join(PROGRAM).is_file() {
            bail!("{} is missing: `cargo xtask install` installs it", programs.join(PROGRAM).display());
        }
        let components = Some(prefix.join("lib/openmpi"));
        let components = components.filter(|folder| !is_told && folder.join("mca_btl_ibex.so").exists());
        Ok(Self { command: prefix.join("bin/ibex"), programs, components })
    }
}

struct Chosen {
    name: String,
    kind: Kind,
    /// For TCP: an interface, or between two hosts, where names may differ, its subnet.
    interface: String,
}

impl Chosen {
    fn of(named: Option<&str>, between_hosts: bool) -> Result<Self> {
        let adapters = adapters::look(&parameters::of_a_job(&Given::default())?);
        let kernel = |name: &str| Path::new("/sys/class/infiniband").join(name).exists();
        Self::among(&adapters, named, between_hosts, &kernel)
    }

    /// `kernel`: whether the kernel knows an adapter.
    fn among(
        adapters: &Adapters,
        named: Option<&str>,
        between_hosts: bool,
        kernel: &dyn Fn(&str) -> bool,
    ) -> Result<Self> {
        let is_used = |adapter: &&Adapter| adapter.ports.iter().any(|port| port.is_taken);
        let found = match named {
            Some(name) => adapters.each.iter().find(|adapter| adapter.name == name),
            None => adapters.each.iter().find(is_used),
        };
        let Some(adapter) = found else {
            return match named {
                // Only the other hosts may have it; the bench asks them.
                Some(name) if between_hosts => {
                    Ok(Self { name: name.to_owned(), kind: Kind::Adapter, interface: String::new() })
                }
                Some(name) => bail!("this host has no adapter {name}{}", listed(adapters)),
                None if between_hosts => {
                    bail!("this host has no adapter that a job would use; name the hosts' adapter with --device")
                }
                None => bail!("there is nothing to measure: {}", adapters.complaint),
            };
        };
        let kind = match &adapter.facts {
            // Only the emulating library knows it, not the kernel.
            _ if !kernel(&adapter.name) => Kind::SoftHca,
            Some(facts) if facts.is_software => Kind::SoftRoce,
            _ => Kind::Adapter,
        };
        if kind == Kind::SoftHca && between_hosts {
            bail!("{} is an emulated adapter, which works within this host only", adapter.name);
        }
        let port = adapter.ports.iter().find(|port| port.is_taken).or(adapter.ports.first());
        let interface = port.map(|port| network(port, between_hosts)).unwrap_or_default();
        Ok(Self { name: adapter.name.clone(), kind, interface })
    }
}

/// Returns the network for TCP: that of the port's interface; within a host without one, loopback.
fn network(port: &Port, between_hosts: bool) -> String {
    if between_hosts {
        // In Open MPI's notation; an InfiniBand subnet is no IP subnet.
        return if port.subnet.contains('.') { port.subnet.clone() } else { String::new() };
    }
    port.interfaces.first().cloned().unwrap_or_else(|| "lo".to_owned())
}

fn listed(adapters: &Adapters) -> String {
    let names: BTreeSet<&str> = adapters.each.iter().map(|adapter| adapter.name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    if names.is_empty() { ", and no other".to_owned() } else { format!(", but {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::adapters::Facts;

    fn names(hosts: Result<Option<Hosts>>) -> Option<[String; 2]> {
        hosts.unwrap().map(|hosts| hosts.names().clone())
    }

    fn owned<const N: usize>(names: [&str; N]) -> Vec<String> {
        names.map(str::to_owned).into()
    }

    #[test]
    fn the_hosts_are_those_named_or_the_first_two_of_the_allocation_or_this_one() {
        let two = Some(["a", "b"].map(str::to_owned));
        assert_eq!(names(between(&owned(["a", "b"]), &[])), two);
        assert_eq!(names(between(&[], &owned(["a", "b", "c"]))), two);
        assert_eq!(names(between(&[], &[])), None);
        assert_eq!(names(between(&owned(["localhost"]), &owned(["a", "b"]))), None);
    }

    #[test]
    fn other_numbers_of_hosts_are_refused_with_advice() {
        let refused = |named: &[String], allocated: &[String]| between(named, allocated).unwrap_err().to_string();
        assert!(refused(&owned(["a", "a"]), &[]).contains("twice"));
        assert!(refused(&owned(["a", "b", "c"]), &[]).contains("3 hosts"));
        assert!(refused(&owned(["far"]), &[]).contains("ssh far ibex bench"));
        assert!(refused(&[], &owned(["far"])).contains("srun"));
    }

    fn adapters() -> Adapters {
        let port = |is_taken, subnet: &str, interface: &str| Port {
            is_taken,
            subnet: subnet.into(),
            interfaces: vec![interface.into()],
            ..Port::default()
        };
        let adapter = |name: &str, port| Adapter {
            name: name.into(),
            ports: vec![port],
            facts: Some(Facts { is_software: name == "rxe0", ..Facts::default() }),
            ..Adapter::default()
        };
        let each = vec![
            adapter("mlx5_0", port(false, "", "eth0")),
            adapter("mlx5_1", port(true, "10.0.0.0/24", "eth1")),
            adapter("rxe0", port(true, "0xfe80000000000000", "eth2")),
        ];
        Adapters { each, ..Adapters::default() }
    }

    #[test]
    fn the_adapter_is_the_one_named_or_the_first_that_a_job_would_use() {
        let chosen = |named, between_hosts| Chosen::among(&adapters(), named, between_hosts, &|_| true);
        let first = chosen(None, false).unwrap();
        assert_eq!((first.name.as_str(), first.kind, first.interface.as_str()), ("mlx5_1", Kind::Adapter, "eth1"));
        assert_eq!(chosen(None, true).unwrap().interface, "10.0.0.0/24");
        let named = chosen(Some("rxe0"), true).unwrap();
        assert_eq!((named.kind, named.interface.as_str()), (Kind::SoftRoce, ""));
        let error = chosen(Some("mlx4_0"), false).err().unwrap().to_string();
        assert!(error.contains("no adapter mlx4_0, but mlx5_0, mlx5_1, rxe0"), "{error}");
        assert_eq!(chosen(Some("mlx4_0"), true).unwrap().name, "mlx4_0");
    }

    #[test]
    fn an_emulated_adapter_is_known_and_does_not_reach_another_host() {
        let chosen = |between_hosts| Chosen::among(&adapters(), None, between_hosts, &|_| false);
        assert_eq!(chosen(false).unwrap().kind, Kind::SoftHca);
        assert!(chosen(true).err().unwrap().to_string().contains("emulated"));
    }

    #[test]
    fn the_programs_are_beside_the_command_and_their_absence_is_reported_with_advice() {
        let prefix = env::temp_dir().join(format!("ibex-command-bench-{}", std::process::id()));
        let under = |is_told| Installed::under(&prefix, "openmpi-4.1.4", None, is_told);
        let error = under(false).err().unwrap().to_string();
        assert!(
            error.contains("libexec/ibex/openmpi-4.1.4/ibex_mpi_bench") && error.contains("cargo xtask install"),
            "{error}"
        );
        for file in ["libexec/ibex/openmpi-4.1.4/ibex_mpi_bench", "lib/openmpi/mca_btl_ibex.so"] {
            fs::create_dir_all(prefix.join(file).parent().unwrap()).unwrap();
            fs::write(prefix.join(file), "").unwrap();
        }
        let installed = under(false).unwrap();
        assert_eq!(installed.components, Some(prefix.join("lib/openmpi")));
        assert_eq!(under(true).unwrap().components, None);
        fs::remove_dir_all(prefix).unwrap();
    }
}
