// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user's settings of the BTL: the fields of a module that Open MPI registers as variables, but does not check, and
//! ibex's own parameters; also the latencies of ports. Called by `component`: settings are written when it is
//! registered and opened, and read when it is initialised. Grade: setup. Threads: one. Tests: below.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;

use engine::tunables::Tunables;
use ibex_ffi::openmpi::release::LARGEST_OB1_HEADER;
use ibex_ffi::openmpi::{sys, variable};
use parking_lot::Mutex;

/// Fields of a module as the user has set them. Open MPI keeps pointers into it.
struct Template(UnsafeCell<MaybeUninit<sys::mca_btl_base_module_t>>);

// SAFETY: Open MPI writes it while it registers the component, which reads it when opened and initialised: all in the
// one thread that initialises MPI (or MPI_T, under MPI_T's lock).
unsafe impl Sync for Template {}

static TEMPLATE: Template = Template(UnsafeCell::new(MaybeUninit::uninit()));

static TUNABLES: Mutex<Option<Tunables>> = Mutex::new(None);

/// Makes Open MPI register the fields of a module that every BTL has, with `template` as their defaults.
///
/// # Safety
/// `version` belongs to the component that is being registered.
pub(crate) unsafe fn register(version: *mut sys::mca_base_component_t, template: &sys::mca_btl_base_module_t) -> c_int {
    let base = TEMPLATE.0.get().cast::<sys::mca_btl_base_module_t>();
    // SAFETY: only this thread uses the static now (see `Template`).
    unsafe { base.write(*template) };
    // SAFETY: the caller's component is being registered; Open MPI keeps pointers into both statics until it is closed.
    unsafe { sys::mca_btl_base_param_register(version, base) }
}

pub(crate) fn module() -> sys::mca_btl_base_module_t {
    // SAFETY: `register` has written it, which Open MPI calls before it opens the component.
    unsafe { TEMPLATE.0.get().cast::<sys::mca_btl_base_module_t>().read() }
}

/// Adjusts the limits that the user has not set to those that he has. `defaults` is the registered template.
///
/// # Safety
/// The component is being opened.
pub(crate) unsafe fn follow(defaults: &sys::mca_btl_base_module_t) -> Limits {
    let module = module();
    let set = |name, value| variable::is_set(c"btl", Some(c"ibex"), Some(name)).then_some(value);
    let set = [
        set(c"max_send_size", module.btl_max_send_size),
        set(c"eager_limit", module.btl_eager_limit),
        set(c"rndv_eager_limit", module.btl_rndv_eager_limit),
    ];
    let limits = Limits {
        max_send_size: defaults.btl_max_send_size,
        eager_limit: defaults.btl_eager_limit,
        rndv_eager_limit: defaults.btl_rndv_eager_limit,
        rdma_pipeline_frag_size: module.btl_rdma_pipeline_frag_size,
    }
    .following(set);
    // SAFETY: `register` has filled it; the component is being opened, so only this thread uses it (see `Template`).
    let base = unsafe { &mut *TEMPLATE.0.get().cast::<sys::mca_btl_base_module_t>() };
    base.btl_max_send_size = limits.max_send_size;
    base.btl_eager_limit = limits.eager_limit;
    base.btl_rndv_eager_limit = limits.rndv_eager_limit;
    limits
}

pub(crate) fn set_tunables(tunables: Option<Tunables>) {
    *TUNABLES.lock() = tunables;
}

pub(crate) fn tunables() -> Option<Tunables> {
    TUNABLES.lock().clone()
}

/// Limits that Open MPI registers for every BTL, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Limits {
    /// Size of the largest message of send and receive.
    pub(crate) max_send_size: usize,
    pub(crate) eager_limit: usize,
    /// Size of the first fragment of a larger one.
    pub(crate) rndv_eager_limit: usize,
    /// Size of a put in the pipeline protocol.
    pub(crate) rdma_pipeline_frag_size: usize,
}

impl Limits {
    /// Returns limits in which those that the user has not set (`None`) are adjusted to those that he has, so that only
    /// two values of his own can conflict. `self` are the defaults; `set` are `max_send_size` and the eager limits.
    fn following(self, set: [Option<usize>; 3]) -> Limits {
        let [max_set, eager_set, rndv_set] = set;
        let largest_set = eager_set.max(rndv_set).unwrap_or_default();
        let max_send_size = max_set.unwrap_or(self.max_send_size.max(largest_set).min(LARGEST));
        let eager_limit = self.eager_limit.max(rndv_set.unwrap_or_default()).min(max_send_size);
        let eager_limit = eager_set.unwrap_or(eager_limit);
        let rndv_eager_limit = rndv_set.unwrap_or(self.rndv_eager_limit.min(eager_limit));
        Limits { max_send_size, eager_limit, rndv_eager_limit, ..self }
    }
}

/// Size in bytes of the largest receive slot.
const LARGEST: usize = 1 << 20;

/// Checks the limits. The error is the refusal of the first one that is out of bounds.
pub(crate) fn check(limits: &Limits) -> Result<(), String> {
    let within = |name: &str, value: usize, min: usize, max: usize, reason: &str| {
        if (min..=max).contains(&value) {
            return Ok(());
        }
        Err(format!(
            "the parameter btl_ibex_{name} is {value}, but may be {min} to {max} bytes ({reason}): set it so \
             (mpirun --mca btl_ibex_{name} VALUE) or leave it out"
        ))
    };
    within("max_send_size", limits.max_send_size, 4096, LARGEST, "every receive slot is that large")?;
    within("eager_limit", limits.eager_limit, LARGEST_OB1_HEADER, limits.max_send_size, "up to max_send_size")?;
    within(
        "rndv_eager_limit",
        limits.rndv_eager_limit,
        LARGEST_OB1_HEADER,
        limits.eager_limit,
        "up to eager_limit and max_send_size",
    )?;
    within("rdma_pipeline_frag_size", limits.rdma_pipeline_frag_size, 4096, 1 << 31, "one put of the pipeline protocol")
}

/// Returns the latencies of ports by their data rates, for Open MPI: how many microseconds longer an eager message
/// takes than on the fastest port. ob1 sends small messages in turn over the ports with the least latency. So ports of
/// one class share them (all of 100 Gb/s and more are one class), and a slower port gets none beside a faster one.
/// osc/rdma uses for a window the BTL with the least latency of those that reach all its ranks. The shared-memory BTL
/// of 4.1 has latency 1, and crashes in a compare-and-swap; so the fastest port has 0.
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

    fn following(max_send_size: usize, eager_limit: usize, rndv_eager_limit: usize) -> [usize; 3] {
        let set = |value: usize| (value > 0).then_some(value);
        let limits = LIMITS.following([max_send_size, eager_limit, rndv_eager_limit].map(set));
        [limits.max_send_size, limits.eager_limit, limits.rndv_eager_limit]
    }

    #[test]
    fn a_limit_that_the_user_has_not_set_follows_those_that_he_has() {
        assert_eq!(following(0, 0, 0), [32768, 12288, 12288]);
        assert_eq!(following(4096, 0, 0), [4096, 4096, 4096]);
        assert_eq!(following(1 << 20, 0, 0), [1 << 20, 12288, 12288]);
        assert_eq!(following(0, 100, 0), [32768, 100, 100]);
        assert_eq!(following(0, 1 << 20, 0), [1 << 20, 1 << 20, 12288]);
        assert_eq!(following(0, 0, 100), [32768, 12288, 100]);
        assert_eq!(following(0, 0, 40000), [40000, 40000, 40000]);
        assert_eq!(following(0, 20000, 16000), [32768, 20000, 16000]);
        assert_eq!(following(8192, 4096, 0), [8192, 4096, 4096]);
    }

    #[test]
    fn check_refuses_only_values_that_the_user_has_set() {
        let refusal = |[max_send_size, eager_limit, rndv_eager_limit]: [usize; 3]| {
            let limits = Limits { max_send_size, eager_limit, rndv_eager_limit, ..LIMITS };
            check(&limits).expect_err("at odds").split(' ').nth(2).map(str::to_owned)
        };
        assert_eq!(refusal(following(0, (1 << 20) + 1, 0)).as_deref(), Some("btl_ibex_eager_limit"));
        assert_eq!(refusal(following(0, 0, (1 << 20) + 1)).as_deref(), Some("btl_ibex_rndv_eager_limit"));
        assert_eq!(refusal(following(4095, 0, 0)).as_deref(), Some("btl_ibex_max_send_size"));
        assert_eq!(refusal(following(0, LARGEST_OB1_HEADER - 1, 0)).as_deref(), Some("btl_ibex_eager_limit"));
        assert_eq!(refusal(following(0, 4096, 8192)).as_deref(), Some("btl_ibex_rndv_eager_limit"));
        assert_eq!(refusal(following(8192, 0, 12288)).as_deref(), Some("btl_ibex_rndv_eager_limit"));
        assert_eq!(refusal(following(8192, 12288, 0)).as_deref(), Some("btl_ibex_eager_limit"));
    }

    #[test]
    fn limits_out_of_bounds_name_parameter_value_and_range() {
        assert_eq!(check(&LIMITS), Ok(()));
        let least = LARGEST_OB1_HEADER;
        let too_small = least - 1;
        let cases = [
            (Limits { max_send_size: 4095, ..LIMITS }, "max_send_size is 4095, but may be 4096 to 1048576".to_owned()),
            (Limits { max_send_size: (1 << 20) + 1, ..LIMITS }, "max_send_size is 1048577".to_owned()),
            (Limits { eager_limit: 32769, ..LIMITS }, format!("eager_limit is 32769, but may be {least} to 32768")),
            (
                Limits { eager_limit: too_small, rndv_eager_limit: too_small, ..LIMITS },
                format!("eager_limit is {too_small}, but may be {least} to 32768"),
            ),
            (
                Limits { rndv_eager_limit: 12289, ..LIMITS },
                format!("rndv_eager_limit is 12289, but may be {least} to 12288"),
            ),
            (Limits { rdma_pipeline_frag_size: 0, ..LIMITS }, "rdma_pipeline_frag_size is 0".to_owned()),
        ];
        for (limits, expected) in cases {
            let text = check(&limits).expect_err(&expected);
            assert!(text.contains(&format!("btl_ibex_{expected}")), "{text}");
        }
    }
}
