// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits that Open MPI gives every BTL, and which values of them are refused; the latencies that ports are given.
//!
//! Open MPI registers them as variables and checks none. Called by `component` when it is opened, and by `init`. Pure
//! functions over plain values. Grade: setup. Threads: one. Tests: below.

use std::fmt;

use crate::runtime::memory::HANDLE_SIZE;

/// The limits of a BTL that Open MPI registers itself, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The largest message of send and receive.
    pub(crate) max_send_size: usize,
    /// The largest message sent at once.
    pub(crate) eager_limit: usize,
    /// The first piece of a larger one.
    pub(crate) rndv_eager_limit: usize,
    /// One put of the pipeline protocol.
    pub(crate) rdma_pipeline_frag_size: usize,
}

/// One of the parameters that Open MPI gives every BTL is out of its range.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct LimitOutOfBounds {
    name: &'static str,
    value: usize,
    min: usize,
    max: usize,
    reason: &'static str,
}

impl fmt::Display for LimitOutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the parameter btl_ibex_{} is {}, but may be {} to {} bytes ({}): set it so (mpirun --mca btl_ibex_{} VALUE) or leave it out",
            self.name, self.value, self.min, self.max, self.reason, self.name
        )
    }
}

/// The smallest first fragment: ob1's largest header (PUT, 56 bytes) with a registration handle behind it.
const SMALLEST: usize = 56 + HANDLE_SIZE;

/// Checks the limits that `mca_btl_base_param_register` let the user set; Open MPI itself checks none of them.
pub(crate) fn check(limits: &Limits) -> Result<(), LimitOutOfBounds> {
    let within = |name, value, min, max, reason| {
        if (min..=max).contains(&value) { Ok(()) } else { Err(LimitOutOfBounds { name, value, min, max, reason }) }
    };
    within("max_send_size", limits.max_send_size, 4096, 1 << 20, "every receive slot is that large")?;
    within("eager_limit", limits.eager_limit, SMALLEST, limits.max_send_size, "up to max_send_size")?;
    within("rndv_eager_limit", limits.rndv_eager_limit, SMALLEST, limits.eager_limit, "up to eager_limit")?;
    within("rdma_pipeline_frag_size", limits.rdma_pipeline_frag_size, 4096, 1 << 31, "one put of the pipeline protocol")
}

/// The latencies that Open MPI is told of a process' ports, by their data rates: by how many microseconds an eager
/// message takes longer on the link than on that of the fastest.
///
/// ob1 sends small messages by turns over the ports of the least latency. So ports of one class share them (all of 100
/// Gb/s and more are one), and a slower one has none while a faster one is there. osc/rdma takes for a window the BTL of
/// the least latency of those that reach all of its ranks. 4.1's shared-memory BTL says 1, and crashes in a
/// compare-and-swap; so the fastest port says 0.
pub(crate) fn latencies(mbps: &[u32]) -> Vec<u32> {
    const EAGER_BITS: u32 = 12 << 13;
    let on_the_link: Vec<u32> = mbps.iter().map(|mbps| EAGER_BITS / (*mbps).max(1)).collect();
    let least = on_the_link.iter().min().copied().unwrap_or_default();
    on_the_link.into_iter().map(|latency| latency - least).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { max_send_size: 32768, eager_limit: 12288, rndv_eager_limit: 12288, rdma_pipeline_frag_size: 1 << 20 };

    #[test]
    fn ports_of_a_class_have_one_latency_and_slower_ports_a_greater_one() {
        assert_eq!(latencies(&[400_000, 200_000, 100_000]), [0, 0, 0]);
        assert_eq!(latencies(&[100_000, 56_000, 40_000, 25_000, 10_000, 1_000]), [0, 1, 2, 3, 9, 98]);
        assert_eq!(latencies(&[0, 400_000]), [98304, 0]);
    }

    #[test]
    fn the_fastest_port_has_a_latency_below_that_of_shared_memory() {
        for mbps in [400_000, 56_000, 10_000, 0] {
            assert_eq!(latencies(&[mbps, mbps]), [0, 0]);
        }
        assert_eq!(latencies(&[10_000, 25_000]), [6, 0]);
        assert!(latencies(&[]).is_empty());
    }

    #[test]
    fn limits_out_of_bounds_name_parameter_value_and_range() {
        assert_eq!(check(&LIMITS), Ok(()));
        let cases = [
            (Limits { max_send_size: 4095, ..LIMITS }, "btl_ibex_max_send_size is 4095, but may be 4096 to 1048576"),
            (Limits { max_send_size: (1 << 20) + 1, ..LIMITS }, "btl_ibex_max_send_size is 1048577"),
            (Limits { eager_limit: 32769, ..LIMITS }, "btl_ibex_eager_limit is 32769, but may be 64 to 32768"),
            (Limits { eager_limit: 63, rndv_eager_limit: 63, ..LIMITS }, "btl_ibex_eager_limit is 63"),
            (
                Limits { rndv_eager_limit: 12289, ..LIMITS },
                "btl_ibex_rndv_eager_limit is 12289, but may be 64 to 12288",
            ),
            (Limits { rdma_pipeline_frag_size: 0, ..LIMITS }, "btl_ibex_rdma_pipeline_frag_size is 0"),
        ];
        for (limits, expected) in cases {
            let text = check(&limits).expect_err(expected).to_string();
            assert!(text.contains(expected), "{text}");
        }
    }
}
