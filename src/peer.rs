// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name of a peer: a process of a job, by Open MPI's numbers, in host byte order. The plugin makes it, the
//! handshake carries it, every error names it. Grade: setup. Threads: plain data. Tests: at the end of the file.

use std::fmt;

/// Open MPI's name of a process (`opal_process_name_t`): unique among the processes that can reach each other. A
/// process restarted under an old name has another [`crate::select::address::PortAddress::instance`].
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash, Ord, PartialOrd)]
pub struct PeerName {
    /// The job (`jobid`): its high half is the `mpirun`, its low half the job within it.
    pub job: u32,
    /// The rank in the job's `MPI_COMM_WORLD` (`vpid`).
    pub rank: u32,
}

/// Printed as Open MPI prints it: `[[family,job],rank]`.
impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[[{},{}],{}]", self.job >> 16, self.job & 0xffff, self.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_eight_bytes_and_printed_as_open_mpi_prints_it() {
        let name = PeerName { job: (41987 << 16) | 1, rank: 3 };
        assert_eq!((size_of_val(&name), name.to_string().as_str()), (8, "[[41987,1],3]"));
    }
}
