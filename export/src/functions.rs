// SPDX-License-Identifier: MIT OR Apache-2.0
//! The role of each MPI function, by its name, for formats that draw kinds of calls differently. Called by the formats.
//! Path: setup, once for each function of a job. Threads: plain data. Tests: below.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Send,
    Receive,
    SendReceive,
    Wait,
    Probe,
    Barrier,
    OneToAll,
    AllToOne,
    AllToAll,
    OtherCollective,
    /// Makes or frees communicators; called by all of their members.
    Communicator,
    OneSided,
    File,
    Other,
}

pub(crate) fn role(name: &str) -> Role {
    let name = name.strip_prefix("MPI_").unwrap_or(name);
    match name {
        "Send" | "Ssend" | "Rsend" | "Bsend" => Role::Send,
        "Recv" | "Mrecv" => Role::Receive,
        "Sendrecv" | "Sendrecv_replace" => Role::SendReceive,
        "Wait" | "Waitall" | "Waitany" | "Waitsome" => Role::Wait,
        "Probe" | "Mprobe" => Role::Probe,
        "Barrier" => Role::Barrier,
        "Bcast" | "Scatter" | "Scatterv" => Role::OneToAll,
        "Gather" | "Gatherv" | "Reduce" => Role::AllToOne,
        "Allgather"
        | "Allgatherv"
        | "Alltoall"
        | "Alltoallv"
        | "Alltoallw"
        | "Allreduce"
        | "Reduce_scatter"
        | "Reduce_scatter_block" => Role::AllToAll,
        "Scan" | "Exscan" => Role::OtherCollective,
        _ => match name.split('_').next() {
            Some("Neighbor") => Role::OtherCollective,
            Some("Comm" | "Intercomm" | "Cart" | "Graph" | "Dist") => Role::Communicator,
            Some("Win") => Role::OneSided,
            Some("File") => Role::File,
            _ => Role::Other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_their_names_and_others_are_something_else() {
        for (name, wanted) in [
            ("MPI_Ssend", Role::Send),
            ("MPI_Waitsome", Role::Wait),
            ("MPI_Reduce", Role::AllToOne),
            ("MPI_Reduce_scatter_block", Role::AllToAll),
            ("MPI_Neighbor_alltoallw", Role::OtherCollective),
            ("MPI_Dist_graph_create", Role::Communicator),
            ("MPI_Win_flush_local_all", Role::OneSided),
            ("MPI_File_write_ordered", Role::File),
            ("MPI_Buffer_detach", Role::Other),
            ("MPI call", Role::Other),
        ] {
            assert_eq!(role(name), wanted, "{name}");
        }
    }
}
