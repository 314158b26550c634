// SPDX-License-Identifier: MIT OR Apache-2.0
//! All texts that the components show to a user: the failure, the peer or port, and the remedy. Called by the other
//! files. One process of a host prints a message that may concern several of them (another Open MPI, a parameter, no
//! port). Each process prints a message about its peer once. Grade: setup. Threads: any. Tests: below.

use std::env;
use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::flight::{self, Entry, Kind, NO_PORT, NOBODY};
use engine::limits;
use engine::peer::PeerName;
use ibex_ffi::openmpi::messages as channel;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::version;
use ibex_ffi::verbs::Status;

use super::libmpi;

/// Prints a message that may concern other processes of the host, too: only the first of them prints it.
fn of_host(text: &str) {
    if !channel::first_to_say(text) {
        return;
    }
    match Process::me() {
        Some(me) => channel::banner(&format!(
            "{text}\n(Rank {} prints this once for its host; other processes of the host may be affected, too.)",
            me.name().rank
        )),
        None => channel::banner(text),
    }
}

/// This is not the Open MPI that ibex was built for; the component is skipped.
pub(crate) fn other_openmpi(refusal: &str) {
    if version::is_of_series() {
        of_host(refusal);
    } else {
        // A type of another series may have another layout, so the name of this process is not read either.
        channel::banner(refusal);
    }
}

/// Another libibex.so is in the process; the component is skipped, or a tool's call is refused.
pub(crate) fn another_ibex(refusal: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        of_host(refusal);
    }
}

pub(crate) fn parameter(error: &dyn Display) {
    of_host(&format!(
        "ibex: {error}.\nibex takes no part in this job; the job goes on with its other transports, if it has any."
    ));
}

pub(crate) fn parameter_of_pml(error: &dyn Display) {
    of_host(&format!(
        "ibex: {error}.\nibex' PML takes no part in this job; the job goes on with another PML that it may use."
    ));
}

pub(crate) fn written_parameter(error: &dyn Display, used: u64) {
    of_host(&format!("ibex: {error}.\nA tool has written that (MPI_T_cvar_write); ibex uses {used} instead."));
}

pub(crate) fn no_port(complaint: &str) {
    of_host(&format!("ibex found no port it can use, and takes no part in this job.\n{complaint}"));
}

pub(crate) fn port_not_opened(host: &str, error: &dyn Display) {
    of_host(&format!("ibex cannot use a port of host {host}.\n{error}.\nThe job goes on without this port."));
}

/// A port was opened with a restriction that the user may not want. Once per process: its ports share the parameters.
pub(crate) fn port_warning(host: &str, port: &str, warning: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        of_host(&format!("ibex on host {host}, port {port}: {warning}."));
    }
}

pub(crate) fn not_fork_safe(why: &dyn Display) {
    of_host(&format!(
        "ibex: {why}.\nbtl_ibex_fork_support is \"yes\", so ibex takes no part in this job; the job goes on with its other\n\
         transports, if it has any."
    ));
}

/// A chosen port may not reach other hosts.
pub(crate) fn of_survey(host: &str, warning: &str) {
    of_host(&format!("ibex on host {host}: {warning}."));
}

pub(crate) fn no_cache() {
    of_host(
        "ibex needs Open MPI's registration cache (the component grdma of the framework rcache) and did not get it; ibex takes\n\
         no part in this job. Check that ompi_info lists \"MCA rcache: grdma\", and that --mca rcache does not exclude it.",
    );
}

/// A tool's callback did not return success, which ends the job (PERUSE 2.0, section 5.1.2).
pub(crate) fn callback_failed(event: &str, code: i32) {
    channel::banner(&format!(
        "ibex: a tool's PERUSE callback for {event} returned {code} instead of MPI_SUCCESS (0). That ends the job.\n\
         Return MPI_SUCCESS from the callback to let the job go on."
    ));
}

pub(crate) fn not_published(code: i32) {
    of_host(&format!(
        "ibex could not publish its ports to the other processes (Open MPI's code {code}), and takes no part in this job.\n\
         The process manager (PMIx) did not take them: check that mpirun is of the same Open MPI as the program."
    ));
}

pub(crate) fn unreadable_peer(peer: PeerName, host: &str, error: &dyn Display) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        channel::banner(&format!(
            "rank {} on host {host} runs an ibex that this one cannot talk to: {error}\n\
             The two use other transports, if there are any. Install the same ibex on every host of the job.",
            peer.rank
        ));
    }
}

/// No port reaches the receiver of a message. The PML then ends the job.
pub(crate) fn no_way(peer: PeerName, host: &str, why: &str) {
    channel::banner(&format!(
        "ibex has no way to rank {} on host {host}: {why}.\n\
         Use --mca pml ob1 for this job, whose transports may reach it.",
        peer.rank
    ));
}

/// A process of the job has chosen another PML. The PML then ends the job.
pub(crate) fn other_pml(peer: PeerName, host: &str) {
    let me = Process::me();
    let (rank, here) = me.map_or((0, String::new()), |me| (me.name().rank, me.host()));
    channel::banner(&format!(
        "ibex: rank {rank} on host {here} sends its messages by the PML ibex, and rank {} on host {host} by another, so\n\
         they cannot reach each other. There mca_pml_ibex.so is not installed, or found no port that it can use, or OMPI_MCA_pml\n\
         is another. Give all ranks the same: --mca pml ob1 for this job, or --mca pml ibex, with which a rank reports the reason.",
        peer.rank
    ));
}

pub(crate) fn cannot_register(size: usize, port: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        return;
    }
    // `None`: the driver may have asked for more than the memory itself, so the number of bytes is unknown.
    let error = io::Error::from_raw_os_error(libc::ENOMEM);
    let advice = limits::advice(&error, None).unwrap_or_default();
    channel::banner(&format!(
        "ibex could not register {size} bytes with {port}: {error}. ibex copies messages instead, which is slower;\n\
         a window (MPI_Win_create, MPI_Win_allocate) needs the registration and fails.\n\
         {advice}.\n\
         Do this on every host, also for the service that starts the processes."
    ));
}

/// A connection failed. The caller then notifies Open MPI, which ends the job.
pub(crate) fn peer_failed(failure: &str) {
    let is_probed = libmpi::is_set(c"btl", Some(c"ibex"), Some(c"probe_interval"));
    let advice = if is_probed || ends_with_its_ranks(|name| env::var(name).ok()) { "" } else { UNPROBED };
    with_flight(&format!("ibex lost a peer: {failure}{advice}"));
}

/// Advice about ranks that wait for a lost peer without sending to it, and so never notice the loss.
const UNPROBED: &str = "\nIf the job goes on without this peer, a rank that only waits for it does not notice the loss, and waits for ever.\n\
                        With --mca btl_ibex_probe_interval 10 ibex probes idle peers every 10 s, and reports such a loss.";

/// Returns whether the launcher is known to end a job when one of its ranks has died: mpirun of Open MPI 4.1 without
/// `--enable-recovery`. It sets these variables in its ranks.
fn ends_with_its_ranks(variable: impl Fn(&str) -> Option<String>) -> bool {
    let recovers = variable("OMPI_MCA_orte_enable_recovery").is_some_and(|value| value != "0");
    variable("OMPI_MCA_orte_launch").is_some() && !recovers
}

fn with_flight(text: &str) {
    match flight::keep(text) {
        Some(path) => channel::banner(&format!(
            "{text}\nThe last events of this process are in {0}: ibex flight {0}\n\
             (with the folder instead of the file: also those of other processes of this host that have failed)",
            path.display()
        )),
        None => channel::banner(text),
    }
}

/// A request failed on a connection that did not fail. The caller then notifies Open MPI.
pub(crate) fn request_failed(endpoint: &str, status: Status) {
    flight::record((Kind::RequestFailed, 0), NO_PORT, NOBODY, [status.0.into(), 0, 0, 0]);
    with_flight(&format!(
        "ibex: a request to {endpoint} ended with {status}, because the peer closed its connection or began a new one."
    ));
}

/// Returns the text for [`operation_failed`] after the target of an atomic by message has refused it.
pub(crate) fn atomic_refused(target: &str, address: u64, length: usize) -> String {
    format!(
        "an atomic operation on {length} bytes at {address:#x} of {target} was not done: the target cannot register this\n\
         memory. It is not in a window (see the displacement), or no more memory may be locked there (ulimit -l)"
    )
}

/// Returns the text for [`operation_failed`] if the origin of an atomic by message cannot get an answer.
pub(crate) fn atomic_unanswered(asker: &str, address: u64, length: usize, is_done: bool) -> String {
    let was = if is_done { "was done" } else { "was not done" };
    format!(
        "an atomic operation on {length} bytes at {address:#x} of this process {was}, and the answer cannot\n\
         be sent to the process that waits for it: {asker}"
    )
}

pub(crate) fn cannot_pack(length: usize) -> String {
    format!(
        "the data of a message of {length} bytes cannot be packed: Open MPI's convertor refuses its datatype, or there is no\n\
         memory for a convertor"
    )
}

pub(crate) fn asked_for(wanted: u64, length: u64) -> String {
    format!(
        "the receiver of a message of {length} bytes asks for {wanted} bytes of it: it runs another ibex, or has a defect.\n\
         Install the same ibex on every host of the job"
    )
}

/// An operation of this process failed for a reason that no port has reported. The caller ends the job.
pub(crate) fn operation_failed(text: &str) {
    let rank = Process::me().map_or(0, |me| me.name().rank);
    with_flight(&format!("ibex: rank {rank}: {text}."));
}

/// A port has no link, and the process has others. Every rank of the host notices it.
pub(crate) fn rail_down(place: &str) {
    of_host(&format!(
        "ibex: {place} has lost its link (IBV_EVENT_PORT_ERR). New messages use the other ports until the link is back;\n\
         posted requests wait for the link, and fail when the adapter gives up."
    ));
}

pub(crate) fn rail_back(place: &str) {
    of_host(&format!("ibex: {place} has a link again; messages use it as before."));
}

/// A port cannot be connected to a peer that another port reaches.
pub(crate) fn rail_unusable(failure: &dyn Display, other: &str) {
    with_flight(&format!("ibex does without a port: {failure}\nMessages to this peer go by {other}."));
}

pub(crate) fn defect(what: &str, cause: &str) {
    flight::record((Kind::Defect, 0), NO_PORT, NOBODY, Entry::text(cause));
    with_flight(&format!(
        "ibex has a defect: {what} failed with \"{cause}\". The job cannot go on through ibex.\n\
         Run with --mca btl ^ibex to do without it, and report this text."
    ));
}

pub(crate) fn verbose(text: &str) {
    channel::line(&format!("ibex: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_failed_operations_contain_their_numbers() {
        assert!(cannot_pack(71).contains("71 bytes cannot be packed"));
        assert!(asked_for(101, 100).contains("100 bytes asks for 101 bytes"));
        let not_done = atomic_refused("rank 1", 0x1000, 8);
        assert!(not_done.contains("8 bytes at 0x1000 of rank 1 was not done"), "{not_done}");
        let places = [false, true].map(|is_done| atomic_unanswered("rank 1", 0x1000, 8, is_done));
        assert!(places[0].contains("was not done") && places[1].contains("was done"), "{places:?}");
    }

    #[test]
    fn only_mpirun_of_4_1_without_recovery_ends_a_job_with_its_ranks() {
        let ends = |given: &[(&str, &str)]| {
            ends_with_its_ranks(|name| given.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned()))
        };
        let launch = ("OMPI_MCA_orte_launch", "1");
        assert!(ends(&[launch]) && ends(&[launch, ("OMPI_MCA_orte_enable_recovery", "0")]));
        assert!(!ends(&[launch, ("OMPI_MCA_orte_enable_recovery", "1")]) && !ends(&[]));
    }
}
