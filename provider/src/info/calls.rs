// SPDX-License-Identifier: MIT OR Apache-2.0
//! `fi_getinfo` as libfabric calls it. Grade: setup. Threads: any. Tests: below.

use std::ffi::{c_char, c_int};

use ibex::select::device::PortChoice;

use super::{Asked, ONE_SIDED, check, list, refused, registration};
use crate::entry::{Result, done};
use crate::{adapter, sys};

/// The provider's function by which libfabric asks what it offers.
///
/// # Safety
/// F2.
pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    _service: *const c_char,
    flags: u64,
    hints: *const sys::fi_info,
    place: *mut *mut sys::fi_info,
) -> c_int {
    done("fi_getinfo", || {
        // SAFETY: F2.
        let (asked, place) = unsafe { (Asked::of(hints), place.as_mut()) };
        let place = place.ok_or(sys::FI_EINVAL)?;
        let has_node = !node.is_null();
        *place = answer(version, has_node, flags, asked.as_ref(), adapter::choice)?;
        Ok(())
    })
}

/// Returns the answer. Asks for the adapter's port only if the rest fits.
fn answer(
    version: u32,
    has_node: bool,
    flags: u64,
    asked: Option<&Asked<'_>>,
    choice: impl FnOnce() -> Option<&'static PortChoice>,
) -> Result<*mut sys::fi_info> {
    if flags & sys::FI_PROV_ATTR_ONLY != 0 {
        return list::bare();
    }
    if let Some(asked) = asked {
        check(asked).map_err(|why| refused(&why))?;
    }
    let mode = registration(version, asked);
    if asked.is_some_and(|asked| asked.info.caps & ONE_SIDED != 0)
        && let Err(why) = &mode
    {
        return Err(refused(why));
    }
    if has_node {
        return Err(refused("the names of hosts are not addresses of this provider: fi_getname gives those"));
    }
    let choice = choice().ok_or_else(|| refused("there is no port of an RDMA adapter that can be used"))?;
    let wanted = asked.and_then(|asked| asked.names[1]);
    if wanted.is_some_and(|name| name != list::domain_name(choice).as_c_str()) {
        return Err(refused("the domain has another name"));
    }
    list::of(choice, (version, mode.ok()), asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::{COSTLY, KINDS, MR_MODE, OFFERED, ORDER, PRIMARY, RMA_DIRECTIONS};
    use crate::tests::{choice, free};
    use ibex::select::address::compact::CompactAddress;
    use std::ffi::CStr;

    const NEW: u32 = sys::version(1, 17);

    /// Calls with hints that `change` makes. Returns the answer, which a test frees.
    fn ask(change: impl FnOnce(&mut Hints)) -> Result<*mut sys::fi_info> {
        ask_as(NEW, change)
    }

    fn ask_as(version: u32, change: impl FnOnce(&mut Hints)) -> Result<*mut sys::fi_info> {
        let mut hints = Hints::default();
        change(&mut hints);
        hints.info.tx_attr = &raw mut hints.tx;
        hints.info.rx_attr = &raw mut hints.rx;
        hints.info.ep_attr = &raw mut hints.ep;
        hints.info.domain_attr = &raw mut hints.domain;
        hints.info.fabric_attr = &raw mut hints.fabric;
        // SAFETY: F2: the attributes live until the call has returned.
        let asked = unsafe { Asked::of(&raw const hints.info) };
        answer(version, false, hints.flags, asked.as_ref(), || Some(choice()))
    }

    #[derive(Default)]
    struct Hints {
        flags: u64,
        info: sys::fi_info,
        tx: sys::fi_tx_attr,
        rx: sys::fi_rx_attr,
        ep: sys::fi_ep_attr,
        domain: sys::fi_domain_attr,
        fabric: sys::fi_fabric_attr,
    }

    #[test]
    fn without_hints_everything_is_offered() {
        let answer = answer(NEW, false, 0, None, || Some(choice())).expect("an info");
        // SAFETY: a complete info.
        unsafe {
            let info = &*answer;
            assert_eq!((info.caps, info.mode, info.next.is_null()), (OFFERED & !COSTLY, 0, true));
            assert_eq!((*info.ep_attr).type_, sys::FI_EP_RDM);
            assert!((*info.ep_attr).max_order_war_size > 0, "atomic writes behind atomic reads");
            let started = sys::FI_SEND | sys::FI_READ | sys::FI_WRITE | sys::FI_FENCE;
            assert_eq!((*info.tx_attr).caps, sys::FI_MSG | sys::FI_TAGGED | ONE_SIDED | started);
            assert_eq!((*info.tx_attr).msg_order, ORDER);
            let domain = &*info.domain_attr;
            assert_eq!(CStr::from_ptr(domain.name), c"mlx5_0:1");
            assert_eq!((domain.mr_mode, domain.cq_data_size, domain.threading), (MR_MODE, 8, sys::FI_THREAD_SAFE));
            assert!((*info.fabric_attr).prov_name.is_null(), "libfabric fills it in");
            let source = std::slice::from_raw_parts(info.src_addr.cast::<u8>(), info.src_addrlen);
            let refused = CompactAddress::decode(source).expect_err("no endpoint has opened the port");
            assert!(refused.to_string().contains("key"), "{refused}");
            assert_eq!(source[2..4], choice().lid.to_le_bytes());
            free(answer);
        }
    }

    #[test]
    fn an_answer_has_what_is_asked_and_not_more_primary_capabilities() {
        let answer = ask(|hints| {
            hints.info.caps = sys::FI_TAGGED | sys::FI_SEND;
            hints.domain.mr_mode = sys::FI_MR_LOCAL | sys::FI_MR_VIRT_ADDR;
            hints.domain.threading = sys::FI_THREAD_DOMAIN;
            hints.domain.av_type = sys::FI_AV_MAP;
            hints.tx.op_flags = sys::FI_COMPLETION;
            hints.tx.msg_order = sys::FI_ORDER_ATOMIC_WAW;
        });
        let answer = answer.expect("an info");
        // SAFETY: a complete info.
        unsafe {
            let (info, domain) = (&*answer, &*(*answer).domain_attr);
            assert_eq!(info.caps & PRIMARY, sys::FI_TAGGED | sys::FI_SEND);
            assert_eq!(info.caps & !PRIMARY, sys::FI_FENCE | sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM);
            assert_eq!(((*info.rx_attr).caps, (*info.tx_attr).op_flags), (0, sys::FI_COMPLETION));
            assert_eq!((*info.tx_attr).msg_order, ORDER);
            assert_eq!((domain.mr_mode, domain.av_type, domain.threading), (0, sys::FI_AV_MAP, sys::FI_THREAD_DOMAIN));
            free(answer);
        }
    }

    #[test]
    fn an_answer_has_each_capability_that_is_asked_for_and_no_other_kind_of_operations() {
        let rma = sys::FI_RMA | RMA_DIRECTIONS;
        for (asked, primary) in [
            (sys::FI_DIRECTED_RECV, sys::FI_DIRECTED_RECV),
            (sys::FI_DIRECTED_RECV | sys::FI_RMA, sys::FI_DIRECTED_RECV | rma),
            (sys::FI_SOURCE | sys::FI_RMA, rma),
            (sys::FI_SOURCE, 0),
        ] {
            let answer = ask(|hints| {
                hints.info.caps = asked;
                hints.domain.mr_mode = MR_MODE;
            });
            let answer = answer.expect("an info");
            // SAFETY: a complete info.
            unsafe {
                let (caps, receives) = ((*answer).caps, (*(*answer).rx_attr).caps);
                assert_eq!((caps & asked, caps & PRIMARY), (asked, primary), "{asked:#x}");
                assert_eq!(receives & sys::FI_DIRECTED_RECV, asked & sys::FI_DIRECTED_RECV, "{asked:#x}");
                free(answer);
            }
        }
    }

    /// Returns the kinds of operations, the way that memory is registered, and the capabilities of the target.
    fn registers(version: u32, change: impl FnOnce(&mut Hints)) -> Result<(u64, i32, u64)> {
        let answer = ask_as(version, change)?;
        // SAFETY: a complete info.
        unsafe {
            let of =
                ((*answer).caps & KINDS, (*(*answer).domain_attr).mr_mode, (*(*answer).rx_attr).caps & RMA_DIRECTIONS);
            free(answer);
            Ok(of)
        }
    }

    #[test]
    fn one_sided_operations_are_offered_to_programs_that_register_memory_with_the_adapter() {
        let (old, basic) = (sys::version(1, 4), sys::MR_BASIC);
        let targets = sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;
        let rma = |mode: i32| {
            move |hints: &mut Hints| {
                hints.info.caps = sys::FI_RMA;
                hints.domain.mr_mode = mode;
            }
        };
        for (version, mode, answer) in
            [(NEW, MR_MODE, MR_MODE), (NEW, !3, MR_MODE), (NEW, basic, basic), (old, 0, basic)]
        {
            assert_eq!(registers(version, rma(mode)), Ok((sys::FI_RMA, answer, targets)), "mode {mode}");
        }
        for (version, mode) in
            [(NEW, 0), (NEW, sys::MR_SCALABLE), (NEW, MR_MODE & !sys::FI_MR_PROV_KEY), (old, sys::MR_SCALABLE)]
        {
            assert_eq!(registers(version, rma(mode)), Err(sys::FI_ENODATA), "mode {mode}");
        }
        // A program that does not ask for them by name gets the rest.
        assert_eq!(registers(NEW, |hints| hints.domain.mr_mode = MR_MODE), Ok((KINDS, MR_MODE, targets)));
        assert_eq!(registers(NEW, |_| {}), Ok((KINDS & !ONE_SIDED, 0, 0)));
        assert_eq!(registers(NEW, |hints| hints.domain.mr_mode = basic), Ok((KINDS, basic, targets)));
        let one_way = |hints: &mut Hints| {
            rma(MR_MODE)(hints);
            hints.info.caps |= sys::FI_WRITE | sys::FI_REMOTE_READ;
        };
        assert_eq!(registers(NEW, one_way), Ok((sys::FI_RMA, MR_MODE, sys::FI_REMOTE_READ)));
        let ordered = |hints: &mut Hints| {
            rma(MR_MODE)(hints);
            hints.tx.msg_order = sys::FI_ORDER_WAR;
        };
        assert_eq!(registers(NEW, ordered), Err(sys::FI_ENODATA), "an adapter may read after a later write");
    }

    #[test]
    fn accesses_of_peers_are_counted_if_the_program_asks_for_it_in_the_regions_that_it_can_name() {
        let counts = sys::FI_RMA_EVENT;
        for (caps, mode, counted, key_size) in [
            (sys::FI_RMA, MR_MODE | sys::FI_MR_RMA_EVENT, (0, MR_MODE), 4),
            (sys::FI_RMA | counts, MR_MODE, (counts, MR_MODE), 8),
            (sys::FI_RMA | counts, MR_MODE | sys::FI_MR_RMA_EVENT, (counts, MR_MODE | sys::FI_MR_RMA_EVENT), 8),
            (sys::FI_ATOMIC | counts, sys::MR_BASIC, (counts, sys::MR_BASIC), 8),
        ] {
            let answer = ask(|hints| {
                hints.info.caps = caps;
                hints.domain.mr_mode = mode;
            });
            let answer = answer.expect("an info");
            // SAFETY: a complete info.
            unsafe {
                let (tx, rx, domain) = (&*(*answer).tx_attr, &*(*answer).rx_attr, &*(*answer).domain_attr);
                assert_eq!((rx.caps & counts, domain.mr_mode), counted, "{caps:#x}, mode {mode:#x}");
                assert_eq!((tx.caps & counts, domain.mr_key_size), (0, key_size), "{caps:#x}, mode {mode:#x}");
                free(answer);
            }
        }
    }

    #[test]
    fn what_is_not_offered_is_refused() {
        let mut other = *b"other\0";
        let name = other.as_mut_ptr().cast();
        let changes: [&dyn Fn(&mut Hints); 16] = [
            &|hints| hints.info.caps = sys::FI_ATOMIC,
            &|hints| hints.info.caps = sys::FI_RMA,
            &|hints| hints.info.addr_format = sys::FI_SOCKADDR_IN,
            &|hints| hints.ep.type_ = sys::FI_EP_MSG,
            &|hints| hints.ep.type_ = sys::FI_EP_DGRAM,
            &|hints| hints.ep.protocol = sys::FI_PROTO_RXM,
            &|hints| hints.ep.max_msg_size = usize::MAX,
            &|hints| hints.ep.rx_ctx_cnt = usize::MAX,
            &|hints| hints.tx.inject_size = 4097,
            &|hints| hints.tx.op_flags = sys::FI_COMMIT_COMPLETE,
            &|hints| hints.rx.iov_limit = 9,
            &|hints| sys::set_data_progress(&mut hints.domain, sys::FI_PROGRESS_AUTO),
            &|hints| hints.domain.cq_data_size = 9,
            &|hints| hints.domain.caps = sys::FI_SHARED_AV,
            &|hints| hints.domain.name = name,
            &|hints| hints.fabric.name = name,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            assert_eq!(ask(change), Err(sys::FI_ENODATA), "change {index}");
        }
        assert_eq!(answer(NEW, true, 0, None, || Some(choice())), Err(sys::FI_ENODATA), "a host's name");
        assert_eq!(answer(NEW, false, 0, None, || None), Err(sys::FI_ENODATA), "no adapter");
    }

    #[test]
    fn hints_that_others_refuse_for_are_checked_before_the_adapter_is_asked_for() {
        let only_attributes = answer(NEW, false, sys::FI_PROV_ATTR_ONLY, None, || panic!("asks for the adapter"));
        // SAFETY: a complete info.
        unsafe { free(only_attributes.expect("an info")) };
        let ep = sys::fi_ep_attr { type_: sys::FI_EP_MSG, ..Default::default() };
        let hints = sys::fi_info { ep_attr: (&raw const ep).cast_mut(), ..Default::default() };
        // SAFETY: F2.
        let asked = unsafe { Asked::of(&raw const hints) };
        let refused = answer(NEW, false, 0, asked.as_ref(), || panic!("asks for the adapter"));
        assert_eq!(refused, Err(sys::FI_ENODATA));
    }
}
