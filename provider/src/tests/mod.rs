// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the objects through libfabric's interface, without an adapter: opening, binding, and closing in any order.
//! Threads: any.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::{Arc, LazyLock};

use ibex::libfabric::fi;
use ibex::select::address::compact::CompactAddress;
use ibex::select::device::PortChoice;

use crate::domain::Domain;
use crate::fabric::Fabric;
use crate::{fi_prov_ini, info, sys};

static CHOICE: LazyLock<PortChoice> = LazyLock::new(|| PortChoice {
    device: "mlx5_0".to_owned(),
    port: 1,
    link_layer: 1,
    lid: 7,
    gid_index: 0,
    gid: [1; 16],
    subnet_length: 0,
    gid_type: 0,
    mtu: 5,
});

pub(crate) fn choice() -> &'static PortChoice {
    &CHOICE
}

pub(crate) fn domain() -> Arc<Domain> {
    Arc::new(Domain::new(Arc::new(Fabric), sys::FI_THREAD_SAFE, None))
}

/// The address of a port whose instance has this number.
pub(crate) fn address(instance: u64) -> CompactAddress {
    use ibex::select::address::{PortAddress, PortEntry};
    use ibex::select::key::Key;
    let address = PortAddress { instance, ud_qpn: 5, ..choice().address() };
    CompactAddress { entry: PortEntry { address, key: Key::from_bytes([3; 16]) }, rank: 0 }
}

#[test]
fn the_constants_of_the_engine_are_those_of_the_headers() {
    macro_rules! of_headers {
        ($($name:ident)*) => { [$((stringify!($name), sys::$name)),*] };
    }
    let flags = of_headers! {
        FI_MSG FI_TAGGED FI_RECV FI_SEND FI_REMOTE_READ FI_REMOTE_WRITE FI_MULTI_RECV FI_REMOTE_CQ_DATA FI_PEEK FI_COMPLETION FI_INJECT
        FI_DELIVERY_COMPLETE FI_MATCH_COMPLETE FI_DISCARD FI_CLAIM
    };
    assert_eq!(fi::FLAGS, flags);
    assert_eq!(fi::ERRORS, of_headers! { FI_EIO FI_EINVAL FI_ENOMSG FI_ECANCELED FI_EBADFLAGS FI_ETRUNC });
    assert_eq!((fi::FI_ADDR_UNSPEC, fi::FI_ADDR_NOTAVAIL), (sys::FI_ADDR_UNSPEC, sys::FI_ADDR_NOTAVAIL));
}

/// Frees an info as `fi_freeinfo` does.
///
/// # Safety
/// A complete info, which nobody uses any more.
pub(crate) unsafe fn free(info: *mut sys::fi_info) {
    // SAFETY: as the caller says; each part is a block of its own.
    unsafe {
        let sys::fi_info { tx_attr, rx_attr, ep_attr, domain_attr, fabric_attr, src_addr, dest_addr, .. } = *info;
        let names = [(*domain_attr).name, (*fabric_attr).name];
        for name in names {
            libc::free(name.cast());
        }
        let parts: [*mut c_void; 8] = [
            tx_attr.cast(),
            rx_attr.cast(),
            ep_attr.cast(),
            domain_attr.cast(),
            fabric_attr.cast(),
            src_addr,
            dest_addr,
            info.cast(),
        ];
        for part in parts {
            libc::free(part);
        }
    }
}

/// Objects as a program opens them.
#[derive(Clone, Copy)]
struct Opened {
    fabric: *mut sys::fid_fabric,
    domain: *mut sys::fid_domain,
    av: *mut sys::fid_av,
    cq: *mut sys::fid_cq,
    cntr: *mut sys::fid_cntr,
    eq: *mut sys::fid_eq,
    ep: *mut sys::fid_ep,
}

impl Opened {
    fn close(self) {
        let Opened { fabric, domain, av, cq, cntr, eq, ep } = self;
        let users = [ep.cast(), eq.cast(), cntr.cast(), cq.cast(), av.cast(), domain.cast(), fabric.cast::<c_void>()];
        assert_eq!(users.map(close), [0; 7]);
    }
}

/// Opens an object by a function of a table.
macro_rules! open {
    ($fid:expr, $table:ident.$function:ident($argument:expr)) => {{
        let mut place = null_mut();
        // SAFETY: F1.
        let function = unsafe { (*(*$fid).$table).$function }.expect("it is there");
        // SAFETY: F1, F2.
        let code = unsafe { function($fid, $argument, &raw mut place, null_mut()) };
        assert_eq!(code, 0);
        place
    }};
}

fn close<T>(fid: *mut T) -> i32 {
    let fid = fid.cast::<sys::fid>();
    // SAFETY: F1.
    unsafe { ((*(*fid).ops).close.expect("it is there"))(fid) }
}

fn bind<T>(endpoint: *mut sys::fid_ep, other: *mut T, flags: u64) -> i32 {
    let fid = endpoint.cast::<sys::fid>();
    // SAFETY: F1.
    unsafe { ((*(*fid).ops).bind.expect("it is there"))(fid, other.cast(), flags) }
}

fn enable(endpoint: *mut sys::fid_ep) -> i32 {
    let fid = endpoint.cast::<sys::fid>();
    // SAFETY: F1.
    unsafe { ((*(*fid).ops).control.expect("it is there"))(fid, sys::FI_ENABLE as i32, null_mut()) }
}

fn opened() -> Opened {
    let mut fabric = null_mut();
    let mut attributes = sys::fi_fabric_attr::default();
    // SAFETY: F2.
    let code = unsafe {
        let provider = &*fi_prov_ini();
        (provider.fabric.expect("it is there"))(&raw mut attributes, &raw mut fabric, null_mut())
    };
    assert_eq!(code, 0);
    let mut info = sys::fi_info::default();
    let domain = open!(fabric, ops.domain(&raw mut info));
    let mut vector = sys::fi_av_attr::default();
    let av = open!(domain, ops.av_open(&raw mut vector));
    assert_eq!(vector.type_, sys::FI_AV_TABLE);
    Opened {
        fabric,
        domain,
        av,
        cq: open!(domain, ops.cq_open(null_mut())),
        cntr: open!(domain, ops.cntr_open(null_mut())),
        eq: open!(fabric, ops.eq_open(null_mut())),
        ep: open!(domain, ops.endpoint(&raw mut info)),
    }
}

const BUSY: i32 = -(sys::FI_EBUSY as i32);

#[test]
fn an_object_in_use_is_busy_until_its_users_are_closed() {
    let Opened { fabric, domain, av, cq, cntr, eq, ep } = opened();
    assert_eq!(bind(ep, av, 0), 0);
    assert_eq!(bind(ep, cq, sys::FI_SEND | sys::FI_RECV), 0);
    assert_eq!(bind(ep, cntr, sys::FI_SEND), 0);
    assert_eq!(bind(ep, eq, 0), 0);
    for busy in [close(fabric), close(domain), close(av), close(cq), close(cntr), close(eq)] {
        assert_eq!(busy, BUSY);
    }
    assert_eq!([close(ep), close(eq), close(cq), close(domain), close(cntr), close(av)], [0, 0, 0, BUSY, 0, 0]);
    assert_eq!([close(fabric), close(domain), close(fabric)], [BUSY, 0, 0]);
}

#[test]
fn an_endpoint_is_bound_once_to_each_and_enabled_when_it_has_what_it_needs() {
    let all @ Opened { domain, av, cq, ep, .. } = opened();
    let invalid = -(sys::FI_EINVAL as i32);
    assert_eq!(enable(ep), -(sys::FI_ENOCQ as i32));
    assert_eq!([bind(ep, cq, 0), bind(ep, cq, sys::FI_SEND | sys::FI_MORE), bind(ep, domain, 0)], [invalid; 3]);
    assert_eq!(bind(ep, cq, sys::FI_TRANSMIT | sys::FI_SELECTIVE_COMPLETION), 0);
    assert_eq!(bind(ep, cq, sys::FI_SEND), invalid, "sends have a queue");
    assert_eq!(bind(ep, cq, sys::FI_RECV), 0);
    assert_eq!(enable(ep), -(sys::FI_ENOAV as i32));
    assert_eq!([bind(ep, av, 0), bind(ep, av, 0)], [0, invalid]);
    let mut length = 64;
    // SAFETY: F1, F2.
    let code = unsafe { ((*(*ep).cm).getname.expect("it is there"))(ep.cast(), null_mut(), &raw mut length) };
    assert_eq!(code, -(sys::FI_EOPBADSTATE as i32), "it is not enabled");
    all.close();
}

#[test]
fn an_endpoint_is_bound_to_objects_of_its_domain() {
    let (one, other) = (opened(), opened());
    let flags = sys::FI_SEND | sys::FI_RECV;
    let codes = [bind(one.ep, other.av, 0), bind(one.ep, other.cq, flags), bind(one.ep, other.cntr, sys::FI_SEND)];
    assert_eq!(codes, [-(sys::FI_EDOMAIN as i32); 3]);
    one.close();
    other.close();
}

#[test]
fn an_operation_that_is_not_there_is_a_function_that_says_so() {
    let all @ Opened { av, ep, .. } = opened();
    let absent = -(sys::FI_ENOSYS as isize);
    // SAFETY: F1; the functions refuse whatever they get.
    unsafe {
        let barrier = (*(*ep).collective).barrier.expect("it is there");
        assert_eq!(barrier(ep, 0, null_mut()), absent);
        let service = (*(*av).ops).insertsvc.expect("it is there");
        assert_eq!(service(av, null(), null(), null_mut(), 0, null_mut()), absent as i32);
    }
    all.close();
}

#[test]
fn addresses_are_inserted_looked_up_and_removed_through_c() {
    let all @ Opened { av, .. } = opened();
    let mut bytes = [address(1).encode(), address(2).encode(), address(3).encode()];
    bytes[1][0] = 77;
    let (mut places, mut errors) = ([9_u64; 3], [9_i32; 3]);
    let mut found = [0_u8; 64];
    let mut length = 60;
    // SAFETY: F1, F2.
    unsafe {
        let ops = &*(*av).ops;
        let insert = ops.insert.expect("it is there");
        let (from, context) = ((&raw const bytes).cast(), (&raw mut errors).cast());
        assert_eq!(insert(av, from, 3, (&raw mut places).cast(), sys::FI_SYNC_ERR, context), 2);
        assert_eq!((places, errors), ([0, sys::FI_ADDR_NOTAVAIL, 1], [0, sys::FI_EINVAL as i32, 0]));
        let lookup = ops.lookup.expect("it is there");
        assert_eq!(lookup(av, 1, (&raw mut found).cast(), &raw mut length), 0);
        assert_eq!((length, &found[..60], &found[60..]), (64, &bytes[2][..60], &[0; 4][..]));
        let remove = ops.remove.expect("it is there");
        assert_eq!(remove(av, (&raw mut places[2]).cast(), 1, 0), 0);
        assert_eq!(lookup(av, 1, (&raw mut found).cast(), &raw mut length), -(sys::FI_EINVAL as i32));
        let mut text = [1_u8; 12];
        let mut room = text.len();
        let straddr = ops.straddr.expect("it is there");
        let told = straddr(av, (&raw const bytes[0]).cast(), (&raw mut text).cast(), &raw mut room);
        assert_eq!((told.addr(), &text), ((&raw const text).addr(), b"ibex://LID \0"));
        assert_eq!(room, "ibex://LID 7 instance 1".len() + 1);
    }
    all.close();
}

#[test]
fn an_endpoint_refuses_what_was_not_offered() {
    let mut info = sys::fi_info { caps: sys::FI_COLLECTIVE, ..Default::default() };
    // SAFETY: F2.
    let asked = unsafe { info::Asked::of(&raw mut info) }.expect("not null");
    assert!(info::check(&asked).is_err());
}

#[test]
fn a_one_sided_operation_of_an_endpoint_that_is_not_enabled_and_a_wrong_one_are_refused() {
    let all @ Opened { domain, ep, .. } = opened();
    let [invalid, flags] = [sys::FI_EINVAL, sys::FI_EBADFLAGS].map(|error| -(error as i32));
    let byte = (&raw const CHOICE).cast::<c_void>();
    let mut region = null_mut();
    // SAFETY: F1, F2.
    unsafe {
        let rma = &*(*ep).rma;
        let (read, write) = (rma.read.expect("there"), rma.writemsg.expect("there"));
        assert_eq!(read(ep, null_mut(), 0, null_mut(), 0, 0, 0, null_mut()), -(sys::FI_EOPBADSTATE as isize));
        let message = sys::fi_msg_rma { rma_iov_count: info::MOST_PIECES + 1, ..Default::default() };
        assert_eq!([write(ep, null(), 0), write(ep, &raw const message, 0)], [invalid as isize; 2]);
        assert_eq!(write(ep, &raw const message, sys::FI_PEEK), flags as isize);
        let register = (*(*domain).mr).reg.expect("there");
        let mut asked = |length, access, offset, flags| {
            register(domain.cast(), byte, length, access, offset, 0, flags, &raw mut region, null_mut())
        };
        assert_eq!([asked(0, sys::FI_SEND, 0, 0), asked(1, sys::FI_SEND, 1, 0), asked(1, 1, 0, 0)], [invalid; 3]);
        assert_eq!(asked(1, sys::FI_SEND, 0, sys::FI_MORE), flags);
    }
    all.close();
}

#[test]
fn a_counter_is_added_to_and_set_and_has_errors_of_its_own() {
    let all @ Opened { cntr, .. } = opened();
    // SAFETY: F1.
    unsafe {
        let ops = &*(*cntr).ops;
        let [add, set, adderr, seterr] =
            [ops.add, ops.set, ops.adderr, ops.seterr].map(|change| change.expect("there"));
        assert_eq!([add(cntr, 2), add(cntr, 3), adderr(cntr, 1), adderr(cntr, 1)], [0; 4]);
        let [read, readerr] = [ops.read, ops.readerr].map(|read| read.expect("there"));
        assert_eq!([read(cntr), readerr(cntr)], [5, 2]);
        assert_eq!([set(cntr, 9), seterr(cntr, 0)], [0; 2]);
        assert_eq!([read(cntr), readerr(cntr)], [9, 0]);
    }
    all.close();
}

#[test]
fn an_event_that_is_written_is_read_once_after_it_was_looked_at() {
    let all @ Opened { eq, .. } = opened();
    let (mut event, mut bytes) = (0, [0_u8; 4]);
    let buffer = (&raw mut bytes).cast();
    let again = -(sys::FI_EAGAIN as isize);
    // SAFETY: F1, F2.
    unsafe {
        let ops = &*(*eq).ops;
        let (read, write) = (ops.read.expect("there"), ops.write.expect("there"));
        assert_eq!(read(eq, &raw mut event, buffer, 4, 0), again);
        assert_eq!(write(eq, 77, b"abc".as_ptr().cast(), 3, 0), 3);
        assert_eq!(read(eq, &raw mut event, buffer, 2, 0), -(sys::FI_ETOOSMALL as isize));
        assert_eq!(read(eq, &raw mut event, buffer, 4, sys::FI_PEEK), 3);
        assert_eq!((event, &bytes), (77, b"abc\0"));
        assert_eq!(read(eq, &raw mut event, buffer, 4, 0), 3);
        assert_eq!(read(eq, &raw mut event, buffer, 4, 0), again);
        assert_eq!(ops.readerr.expect("there")(eq, null_mut(), 0), again);
    }
    all.close();
}

#[test]
fn an_endpoint_keeps_the_room_of_a_buffer_for_several_messages() {
    let all @ Opened { ep, .. } = opened();
    let (option, level) = (sys::FI_OPT_MIN_MULTI_RECV as i32, sys::FI_OPT_ENDPOINT as i32);
    let (mut room, mut length) = (16384_usize, size_of::<usize>());
    let value = (&raw mut room).cast::<c_void>();
    // SAFETY: F1, F2.
    unsafe {
        let ops = &*(*ep).ops;
        let (get, set) = (ops.getopt.expect("there"), ops.setopt.expect("there"));
        assert_eq!(set(ep.cast(), level, option, value, length), 0);
        assert_eq!(set(ep.cast(), level, option, value, 4), -(sys::FI_EINVAL as i32));
        assert_eq!(set(ep.cast(), level, option + 1, value, length), -(sys::FI_ENOPROTOOPT as i32));
        room = 0;
        assert_eq!(get(ep.cast(), level, option, (&raw mut room).cast(), &raw mut length), 0);
    }
    assert_eq!((room, length), (16384, size_of::<usize>()));
    all.close();
}
