// SPDX-License-Identifier: MIT OR Apache-2.0
//! The MPI calls that the recorder wraps, and their rows for the macro in src/calls.rs, with the arguments from the
//! installed `mpi.h`.

use std::fmt::Write;

/// Calls in which a process can wait for others, without `MPI_`. Those that this MPI lacks are left out.
pub(crate) const CALLS: &str = "
    Send Ssend Rsend Bsend Recv Sendrecv Sendrecv_replace Buffer_detach
    Wait Waitall Waitany Waitsome
    Probe Mprobe Mrecv
    Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv Alltoallw
    Reduce Allreduce Reduce_scatter Reduce_scatter_block Scan Exscan
    Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv Neighbor_alltoallw
    Comm_dup Comm_dup_with_info Comm_create Comm_create_group Comm_split Comm_split_type Comm_free
    Intercomm_create Intercomm_merge Cart_create Cart_sub Graph_create Dist_graph_create Dist_graph_create_adjacent
    Comm_accept Comm_connect Comm_disconnect Comm_join Comm_spawn Comm_spawn_multiple
    Win_create Win_create_dynamic Win_allocate Win_allocate_shared Win_free
    Win_fence Win_start Win_complete Win_post Win_wait Win_lock Win_lock_all Win_unlock Win_unlock_all
    Win_flush Win_flush_all Win_flush_local Win_flush_local_all
    File_open File_close File_set_view File_set_size File_sync File_read_all File_read_at_all File_read_ordered
    File_write_all File_write_at_all File_write_ordered
";

/// Returns the names of the bound calls, in the order of the table, and a row for each from bindgen's declarations.
pub(crate) fn rows(bound: &str) -> String {
    let (mut names, mut rows) = (String::new(), String::new());
    let bound: Vec<_> = CALLS.split_whitespace().filter_map(|name| Some((name, arguments(bound, name)?))).collect();
    for (number, (name, arguments)) in bound.iter().enumerate() {
        let _ = write!(names, "\"MPI_{name}\", ");
        for name in [format!("MPI_{name}"), format!("PMPI_{name}")] {
            let _ = writeln!(rows, "    {number}: fn {name} = c\"{name}\" ({arguments});");
        }
    }
    format!("pub(crate) const NAMES: [&str; {}] = [{names}];\nwrappers! {{\n{rows}}}\n", bound.len())
}

/// Returns the arguments with their types, from a declaration that returns an error code.
fn arguments(bound: &str, name: &str) -> Option<String> {
    let (_, rest) = bound.split_once(&format!("pub fn MPI_{name}("))?;
    let (arguments, rest) = rest.split_once(')')?;
    rest.starts_with(" -> ::std::os::raw::c_int;").then(|| arguments.split_whitespace().collect::<Vec<_>>().join(" "))
}
