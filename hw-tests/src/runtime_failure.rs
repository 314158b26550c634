// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recognises the faults by which stock Open MPI 4.1.4 ends a job on a busy machine, over any transport.
//! `hw-tests/mpi/README.md` explains each. The device tests, and softhca's tests of third-party programs, repeat such a
//! test once and report it at their end. Setup grade.

/// Returns the line of a job's output that shows that Open MPI's runtime ended it wrongly.
pub fn of(output: &str) -> Option<&str> {
    let said = |words: &str| output.lines().find(|line| line.contains(words)).map(str::trim);
    // A thread of the runtime in an unloaded component: the address has no code, so the stack has no line. Neither ibex
    // nor softhca is ever unloaded.
    let unloaded = said("Failing at address:").filter(|_| !output.contains("[ 0] "));
    unloaded.or_else(|| crash_of_the_launcher(output)).or_else(|| said("exiting improperly"))
}

/// Returns the stack frame of a crash of mpirun or its daemons: only they are PMIx servers, and they load neither ibex
/// nor softhca. Frames that name MPI's library, ibex or softhca mean that a rank crashed too.
fn crash_of_the_launcher(output: &str) -> Option<&str> {
    let frames = || output.lines().filter(|line| line.contains(".so") && line.contains(")[0x")).map(str::trim);
    let of_a_rank = ["libmpi.so", "ibex", "softhca"];
    let is_a_ranks = frames().any(|frame| of_a_rank.iter().any(|name| frame.contains(name)));
    frames().find(|frame| !is_a_ranks && frame.contains("pmix_server_"))
}

#[cfg(test)]
mod tests {
    use super::of;

    const CRASH: &str = "[node:7] Signal: Segmentation fault (11)\n[node:7] Failing at address: 0x7f00\n";

    #[test]
    fn a_crash_without_a_stack_is_the_runtimes_and_one_with_a_stack_is_not() {
        assert_eq!(of(CRASH), Some("[node:7] Failing at address: 0x7f00"));
        assert_eq!(of(&format!("{CRASH}[node:7] [ 0] /lib/libc.so.6(+0x3c050)[0x7f01]\n")), None);
    }

    #[test]
    fn a_crash_in_mpiruns_own_server_is_the_runtimes_unless_a_rank_crashed_too() {
        let frame = "[node:7] [ 4] /lib/libopen-rte.so.40(pmix_server_log_fn+0x317)[0x7f02]";
        let launcher = format!("{CRASH}[node:7] [ 0] /lib/libc.so.6(+0x3c050)[0x7f01]\n{frame}\n");
        assert_eq!(of(&launcher), Some(frame));
        for rank in ["/lib/libmpi.so.40(PMPI_Send+0x1)[0x7f03]", "/lib/mca_pml_ibex.so(+0x12)[0x7f03]"] {
            assert_eq!(of(&format!("{launcher}[node:8] [ 3] {rank}\n")), None);
        }
    }

    #[test]
    fn a_rank_that_got_no_answer_at_its_end_is_the_runtimes() {
        assert_eq!(of("ok\na process is exiting improperly, by"), Some("a process is exiting improperly, by"));
        assert_eq!(of("ok\nMPI_ABORT was invoked on rank 0\n"), None);
    }
}
