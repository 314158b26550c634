// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two ways in which stock Open MPI 4.1.4 ends a job wrongly on a busy machine, over any transport, about once in a
//! hundred short jobs and after all results are printed. `hw-tests/mpi/README.md` tells the cause of each.
//!
//! A test that met one is done once more, and the end of its output says so: the device tests, and those of softhca
//! with programs of others. Setup grade.

/// The line of a job's output by which Open MPI's runtime is known to have ended it wrongly; none where it did not.
#[must_use]
pub fn of(output: &str) -> Option<&str> {
    let said = |words: &str| output.lines().find(|line| line.contains(words)).map(str::trim);
    // A thread of the runtime in a component that was unloaded: there is no code at the address, and so no line of a
    // stack. Neither ibex nor softhca is ever unloaded.
    let unloaded = said("Failing at address:").filter(|_| !output.contains("[ 0] "));
    unloaded.or_else(|| said("exiting improperly"))
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_crash_without_a_stack_is_the_runtimes_and_one_with_a_stack_is_not() {
        let crash = "[node:7] Signal: Segmentation fault (11)\n[node:7] Failing at address: 0x7f00\n";
        assert_eq!(of(crash), Some("[node:7] Failing at address: 0x7f00"));
        assert_eq!(of(&format!("{crash}[node:7] [ 0] /lib/libc.so.6\n")), None);
    }

    #[test]
    fn a_rank_that_got_no_answer_at_its_end_is_the_runtimes() {
        assert_eq!(of("ok\na process is exiting improperly, by"), Some("a process is exiting improperly, by"));
        assert_eq!(of("ok\nMPI_ABORT was invoked on rank 0\n"), None);
    }
}
