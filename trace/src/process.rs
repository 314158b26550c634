// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a trace says of the process that writes it, from the environment that its launcher has made. Called by the
//! recorders (event-log, provider). Grade: setup. Threads: any. Tests: below.

use crate::head::Head;

impl Head {
    /// Describes this process, without event types and sources. `ibex`: the version of ibex.
    pub fn of_this_process(ibex: &str) -> Head {
        Head {
            ibex: ibex.to_owned(),
            job: job(),
            rank: launched_rank(),
            ranks: launched_ranks(&variable),
            host: host(),
            clock: clock(),
            pid: std::process::id(),
            program: std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned(),
            ..Head::default()
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the rank that the launcher gave this process; `None` for one that MPICH or Intel MPI has spawned: their
/// launcher, Hydra, gives such processes ranks from 0 again, and no number of their world.
pub fn launched_rank() -> Option<u32> {
    launched(&variable)
}

fn launched(variable: &impl Fn(&str) -> Option<String>) -> Option<u32> {
    let names = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
    if is_spawned_by_hydra(variable) { None } else { number(variable, &names) }
}

/// Returns the number of processes that have such ranks.
fn launched_ranks(variable: &impl Fn(&str) -> Option<String>) -> Option<u32> {
    let names = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];
    if is_spawned_by_hydra(variable) { None } else { number(variable, &names) }
}

fn is_spawned_by_hydra(variable: &impl Fn(&str) -> Option<String>) -> bool {
    variable("PMI_SPAWNED").is_some_and(|value| value != "0")
}

fn number(variable: &impl Fn(&str) -> Option<String>, names: &[&str]) -> Option<u32> {
    names.iter().find_map(|name| variable(name)?.parse().ok())
}

/// Returns the job's name: that of the batch system, or else of the launcher; empty: neither is known.
pub fn job() -> String {
    job_of(variable)
}

fn job_of(variable: impl Fn(&str) -> Option<String>) -> String {
    let site = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"].iter().find_map(|name| variable(name));
    let launcher = || Some((variable("PMIX_NAMESPACE")?.parse::<u32>().ok()? >> 16).to_string());
    site.or_else(launcher).unwrap_or_default()
}

/// Returns the number of the `MPI_COMM_WORLD`: 0, or for spawned processes Open MPI's number, by the name in PMIx.
pub fn world(namespace: Option<&str>, is_spawned: bool) -> u32 {
    let number = |name: &str| match name.rsplit_once('@') {
        // Open MPI 5: `prterun-host-77@2`.
        Some((_, number)) => number.parse().ok(),
        // Open MPI 4: the job in the upper half, the world in the lower.
        None => name.parse::<u32>().ok().map(|name| name & 0xffff),
    };
    if is_spawned { namespace.and_then(number).unwrap_or(1).max(1) } else { 0 }
}

/// Returns the name of this host.
pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Returns an identifier of this process' monotonic clock: processes of the same boot and time namespace share one.
pub fn clock() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let times = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    format!("{} {}", boot.trim(), times.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_world_has_its_own_number_and_the_first_has_0() {
        assert_eq!(world(Some("1431502849"), false), 0);
        assert_eq!(world(Some("1431502850"), true), 2);
        assert_eq!((world(Some("prterun-n1-77@2"), true), world(Some("prterun-n1-77@1"), false)), (2, 0));
        assert_eq!((world(None, true), world(Some("slurm.pmix.5.0"), true), world(None, false)), (1, 1, 0));
    }

    fn value(given: &[(&str, &str)], name: &str) -> Option<String> {
        given.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn a_job_has_the_sites_name_or_the_launchers() {
        let of = |given: &[(&str, &str)]| job_of(|name| value(given, name));
        assert_eq!(of(&[("PMIX_NAMESPACE", "1431502849"), ("SLURM_JOB_ID", "12")]), "12");
        assert_eq!(of(&[("PMIX_NAMESPACE", "1431502849")]), (1431502849_u32 >> 16).to_string());
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn a_rank_is_known_from_the_launcher() {
        let launched_with = |given: &[(&str, &str)]| launched(&|name: &str| value(given, name));
        assert_eq!(launched_with(&[("PMIX_RANK", "3")]), Some(3));
        assert_eq!(launched_with(&[("PMIX_RANK", "x"), ("OMPI_COMM_WORLD_RANK", "0")]), Some(0));
        assert_eq!(launched_with(&[]), None);
        assert_eq!(launched_with(&[("PMI_RANK", "5"), ("SLURM_PROCID", "0")]), Some(5));
    }

    #[test]
    fn the_ranks_of_a_world_that_hydra_has_spawned_are_not_those_of_the_job() {
        let of = |spawned| {
            let given = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMI_SPAWNED", spawned)];
            let variable = |name: &str| value(&given, name);
            (launched(&variable), launched_ranks(&variable))
        };
        assert_eq!((of("0"), of("1")), ((Some(1), Some(2)), (None, None)));
    }
}
