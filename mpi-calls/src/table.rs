// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls, by their number of arguments. `mpi_3`: those of MPI 3.1, which every MPI has. `mpi_4`: those that MPI 4
//! has added, of which many MPIs lack some. A library that overrides them seems to have them, to programs that look
//! for them. `outside`: calls within which nothing is a wait of the application. Grade: plain data. Tests: below.

/// Hands the table to a macro, behind its first words.
#[doc(hidden)]
#[macro_export]
macro_rules! table {
    ([$($macro:tt)*] $($first:tt)*) => { $($macro)*! { $($first)*
        mpi_3 (a) [
            Barrier Comm_free Comm_disconnect Win_free Win_complete Win_wait Win_unlock_all Win_flush_all
            Win_flush_local_all File_close File_sync
        ]
        mpi_3 (a b) [
            Buffer_detach Wait Comm_dup Comm_join Win_fence Win_lock_all Win_unlock Win_flush Win_flush_local
            File_set_size
        ]
        mpi_3 (a b c) [
            Waitall Comm_dup_with_info Comm_create Intercomm_merge Cart_sub Win_create_dynamic Win_start Win_post
        ]
        mpi_3 (a b c d) [Waitany Probe Comm_create_group Comm_split Win_lock]
        mpi_3 (a b c d e) [
            Waitsome Mprobe Mrecv Bcast Comm_split_type Comm_accept Comm_connect File_open File_read_all
            File_read_ordered File_write_all File_write_ordered
        ]
        mpi_3 (a b c d e f) [
            Send Ssend Rsend Bsend Allreduce Reduce_scatter Reduce_scatter_block Scan Exscan Intercomm_create
            Cart_create Graph_create Win_create Win_allocate Win_allocate_shared File_set_view File_read_at_all
            File_write_at_all
        ]
        mpi_3 (a b c d e f g) [Recv Reduce Allgather Alltoall Neighbor_allgather Neighbor_alltoall]
        mpi_3 (a b c d e f g h) [Gather Scatter Allgatherv Neighbor_allgatherv Comm_spawn]
        mpi_3 (a b c d e f g h i) [
            Sendrecv_replace Gatherv Scatterv Alltoallv Alltoallw Neighbor_alltoallv Neighbor_alltoallw
            Dist_graph_create Comm_spawn_multiple
        ]
        mpi_3 (a b c d e f g h i j) [Dist_graph_create_adjacent]
        mpi_3 (a b c d e f g h i j k l) [Sendrecv]

        mpi_4 (a b) [Buffer_detach_c]
        mpi_4 (a b c d e) [
            Mrecv_c Bcast_c Comm_create_from_group File_read_all_c File_read_ordered_c File_write_all_c
            File_write_ordered_c
        ]
        mpi_4 (a b c d e f) [
            Send_c Ssend_c Rsend_c Bsend_c Allreduce_c Reduce_scatter_c Reduce_scatter_block_c Scan_c Exscan_c
            Win_create_c Win_allocate_c Win_allocate_shared_c File_read_at_all_c File_write_at_all_c
        ]
        mpi_4 (a b c d e f g) [Recv_c Reduce_c Allgather_c Alltoall_c Neighbor_allgather_c Neighbor_alltoall_c]
        mpi_4 (a b c d e f g h) [
            Gather_c Scatter_c Allgatherv_c Neighbor_allgatherv_c Intercomm_create_from_groups
        ]
        mpi_4 (a b c d e f g h i) [
            Sendrecv_replace_c Gatherv_c Scatterv_c Alltoallv_c Alltoallw_c Neighbor_alltoallv_c Neighbor_alltoallw_c
        ]
        mpi_4 (a b c d e f g h i j k l) [Sendrecv_c]

        outside () [Finalize]
        outside (a) [Session_finalize]
        outside (a b) [Init Abort]
        outside (a b c) [Session_init]
        outside (a b c d) [Init_thread]
    } };
}

macro_rules! names {
    ($( $part:ident $arguments:tt [$($name:ident)*] )*) => {
        /// A call of the table.
        #[allow(non_camel_case_types, missing_docs, reason = "the standard's names")]
        #[derive(Clone, Copy, Debug)]
        pub enum Call { $( $( $name, )* )* }

        /// The names of the calls, by their numbers in the events.
        pub const NAMES: &[&str] = &[ $( $( concat!("MPI_", stringify!($name)), )* )* ];

        #[cfg(test)]
        const ARGUMENTS: &[(&str, &str)] =
            &[ $( $( (concat!("MPI_", stringify!($name)), stringify!($arguments)), )* )* ];
    };
}

crate::table! { [names] }

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::process::Command;

    /// Returns the numbers of arguments of the functions that the installed `mpi.h` declares.
    fn declared() -> HashMap<String, usize> {
        let script = "echo '#include <mpi.h>' | cc -E -P $(${MPICC:-mpicc} -showme:compile) -xc -";
        let output = Command::new("sh").args(["-c", script]).output().expect("sh");
        let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        let functions = text.split("int MPI_").skip(1).filter_map(|rest| rest.split_once(')')?.0.split_once('('));
        functions.map(|(name, of)| (format!("MPI_{name}"), arguments(of))).collect()
    }

    fn arguments(text: &str) -> usize {
        if text == "void" { 0 } else { text.split(',').count() }
    }

    #[test]
    fn each_call_has_the_arguments_that_mpi_h_declares() {
        let (declared, known): (_, HashMap<_, _>) = (declared(), ARGUMENTS.iter().copied().collect());
        assert_eq!(known.len(), NAMES.len(), "a name stands twice");
        let count = |name: &str| known[name].matches(char::is_alphabetic).count();
        for name in NAMES {
            let of_large = name.strip_suffix("_c");
            let is_new = ["Session", "from_group"].iter().any(|word| name.contains(word));
            match (declared.get(*name), of_large) {
                (Some(wanted), _) => assert_eq!(count(name), *wanted, "{name}"),
                (None, Some(small)) => assert_eq!(count(name), count(small), "{name}"),
                (None, None) => assert!(is_new, "mpi.h lacks {name}"),
            }
        }
    }
}
