// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fabric in a temporary folder, connected queue pairs, and other processes, for tests/engine*.rs, behaviour*.rs and
//! others. The folder is removed with the `Adapter`.

#![allow(dead_code, unreachable_pub, unused_imports, missing_docs, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use prelude::*;

pub mod unmapped;

pub mod prelude {
    pub use std::sync::Arc;
    pub use std::time::{Duration, Instant};

    pub use hw_tests::Folder;
    pub use softhca::behaviour::{
        AtomicAccess, Behaviour, CreateErrno, Events, InlineGrant, Lost, OptionalAccess, Purge, Refusal, SendBeforeRts,
        SrcQp,
    };
    pub use softhca::config::Config;
    pub use softhca::engine::codes::{
        access, attr_mask as m, event, gid_kind, port_state, qp_state, qp_type, send_flags, wc_flags, wc_opcode,
        wc_status, wr_opcode,
    };
    pub use softhca::engine::faults::{CommandError, FaultAction, FaultRule};
    pub use softhca::engine::{
        Ah, AhAttr, AsyncEvent, Change, Channel, Cq, DeviceSpec, Errno, Fabric, FabricSpec, Gid, Hca, Mr, Mw, Pd,
        PortSpec, Qp, QpAttr, QpCap, QpInit, RecvWr, SendWr, Sge, Srq, TIMESTAMP_RAW, TIMESTAMP_WALL, Wc, Xrcd,
        XrcdOpen,
    };
    pub use softhca::fabric_folder;
    pub use softhca::limits::Atomics;

    pub use super::{
        Adapter, Process, QKEY, RIGHTS, Settings, Side, adapter, behaves, connected, described, event_groups, global,
        init, init_with, join, joined, lid, new_folder, none, pair, queue_pair, ready, spec, to_rtr, wait,
    };
}

pub const RIGHTS: u32 = access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC;

pub const QKEY: u32 = 0x11;

/// A new folder in memory.
pub fn new_folder() -> Folder {
    Folder::within(Path::new("/dev/shm"), "softhca-test").expect("a folder can be made in /dev/shm")
}

pub struct Adapter {
    hca: Arc<Hca>,
    pub folder: Folder,
}

impl std::ops::Deref for Adapter {
    type Target = Arc<Hca>;

    fn deref(&self) -> &Arc<Hca> {
        &self.hca
    }
}

impl Adapter {
    pub fn counter(&self, name: &str) -> u64 {
        let files = self.folder.path().join("sysfs/class/infiniband/softhca0/ports/1/hw_counters");
        std::fs::read_to_string(files.join(name)).unwrap().trim().parse().unwrap()
    }
}

pub fn adapter() -> Adapter {
    described(|_| ())
}

/// The first adapter of the usual fabric, as changed by `tell`.
pub fn described(tell: impl FnOnce(&mut FabricSpec)) -> Adapter {
    let folder = new_folder();
    let mut spec = spec(folder.path());
    tell(&mut spec);
    let fabric = Fabric::join(spec).expect("the fabric can be joined");
    Adapter { hca: fabric.open(0).expect("the adapter exists"), folder }
}

/// The usual adapter with a behaviour as changed by `tell`.
pub fn behaves(tell: impl FnOnce(&mut Behaviour)) -> Adapter {
    described(|spec| tell(&mut spec.devices[0].behaviour))
}

/// Groups of events, by their names in the configuration.
pub fn event_groups(list: &str) -> Events {
    toml::from_str::<BTreeMap<String, Events>>(&format!("of = {list}")).unwrap()["of"]
}

pub fn join(folder: &Path) -> Arc<Hca> {
    Fabric::join(spec(folder)).expect("the fabric can be joined").open(0).expect("the adapter exists")
}

pub fn spec(folder: &Path) -> FabricSpec {
    Config::of_profile(None).fabric_in(folder.to_owned())
}

pub struct Side {
    pub hca: Arc<Hca>,
    pub pd: Pd,
    pub send_cq: Cq,
    pub recv_cq: Cq,
    pub srq: Option<Srq>,
    pub qp: Qp,
    pub mr: Mr,
    pub memory: Box<[u8]>,
}

pub struct Settings {
    pub kind: u32,
    pub wr: u32,
    pub cqe: u32,
    pub srq: bool,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub timeout: u8,
    pub min_rnr_timer: u8,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            kind: qp_type::RC,
            wr: 64,
            cqe: 256,
            srq: false,
            retry_cnt: 7,
            rnr_retry: 7,
            timeout: 14,
            min_rnr_timer: 1,
        }
    }
}

impl Side {
    /// Waits until the queue pair is in error: an event is raised before all queue pairs that it stops are stopped.
    pub fn stops(&self) {
        let until = Instant::now() + Duration::from_mins(2);
        while self.qp.state() != qp_state::ERR {
            assert!(Instant::now() < until, "the queue pair goes on");
            std::thread::yield_now();
        }
    }

    pub fn new(hca: &Arc<Hca>, bytes: usize, settings: &Settings) -> Side {
        let pd = hca.alloc_pd();
        let send_cq = hca.create_cq(settings.cqe, None, 1, 0).unwrap();
        let recv_cq = hca.create_cq(settings.cqe, None, 2, 0).unwrap();
        let srq = settings.srq.then(|| hca.create_srq(&pd, settings.wr, 1, 3, None).unwrap());
        let (wr, kind) = (settings.wr, settings.kind);
        let cap = QpCap { max_send_wr: wr, max_recv_wr: wr, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 64 };
        let qp = queue_pair(hca, &pd, kind, (&send_cq, &recv_cq), srq.as_ref(), cap).unwrap();
        let memory = vec![0_u8; bytes].into_boxed_slice();
        let addr = memory.as_ptr() as u64;
        let mr = pd.reg_mr(addr, bytes as u64, addr, RIGHTS).unwrap();
        Side { hca: Arc::clone(hca), pd, send_cq, recv_cq, srq, qp, mr, memory }
    }

    /// Replaces the queue pair by another one, which completes to these queues (sends, receives).
    pub fn replace(&mut self, cqs: (&Cq, &Cq), srq: Option<&Srq>) {
        self.qp = queue_pair(&self.hca, &self.pd, qp_type::RC, cqs, srq, self.qp.cap()).unwrap();
    }

    pub fn addr(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    pub fn sge(&self, at: usize, len: usize) -> Sge {
        Sge { addr: self.addr() + at as u64, length: len as u32, lkey: self.mr.key() }
    }

    pub fn byte(&self, at: usize) -> u8 {
        // SAFETY: inside the buffer; volatile, because the adapter writes it behind the compiler's back.
        unsafe { std::ptr::from_ref(&self.memory[at]).read_volatile() }
    }

    pub fn fill(&mut self, at: usize, len: usize, seed: u8) {
        for (i, byte) in self.memory[at..at + len].iter_mut().enumerate() {
            *byte = seed.wrapping_add(i as u8);
        }
    }

    pub fn recv(&self, wr_id: u64, at: usize, len: usize) {
        let wr = RecvWr { wr_id, sge: &[self.sge(at, len)] };
        match &self.srq {
            Some(srq) => srq.post_recv([wr]).unwrap(),
            None => self.qp.post_recv(&wr).unwrap(),
        }
    }

    /// Posts receives of so many bytes, numbered from 0.
    pub fn recvs(&self, count: u64, len: usize) {
        (0..count).for_each(|wr_id| self.recv(wr_id, 0, len));
    }

    pub fn send(&self, wr_id: u64, at: usize, len: usize) {
        let wr = SendWr { wr_id, flags: send_flags::SIGNALED, sge: &[self.sge(at, len)], ..SendWr::empty() };
        self.qp.post_send(&wr).unwrap();
    }

    /// Sends a datagram of 8 bytes to a queue pair with the usual key.
    pub fn datagram(&self, ah: &Ah, remote_qpn: u32) {
        self.datagram_with(ah, remote_qpn, QKEY, 8);
    }

    pub fn datagram_with(&self, ah: &Ah, remote_qpn: u32, remote_qkey: u32, len: usize) {
        let (sge, flags) = ([self.sge(0, len)], send_flags::SIGNALED);
        let wr = SendWr { flags, sge: &sge, ah: Some(ah), remote_qpn, remote_qkey, ..SendWr::empty() };
        self.qp.post_send(&wr).unwrap();
    }

    /// Does RDMA, or an atomic that adds 1, with the memory at `at`.
    pub fn rdma(&self, opcode: u32, at: usize, len: usize, remote_addr: u64, rkey: u32) {
        let (sge, flags) = ([self.sge(at, len)], send_flags::SIGNALED);
        let wr = SendWr { opcode, flags, sge: &sge, remote_addr, rkey, compare_add: 1, ..SendWr::empty() };
        self.qp.post_send(&wr).unwrap();
    }

    pub fn to(&self, state: u32) {
        self.qp.modify(&QpAttr { qp_state: state, ..QpAttr::default() }, m::STATE).unwrap();
    }

    pub fn connect(&self, peer: u32, settings: &Settings) {
        self.init(settings);
        self.ready(peer, settings);
    }

    pub fn meet(&self, other: &Side, settings: &Settings) {
        self.connect(other.qp.number(), settings);
        other.connect(self.qp.number(), settings);
    }

    pub fn init(&self, settings: &Settings) {
        init(&self.qp, settings);
    }

    pub fn ready(&self, peer: u32, settings: &Settings) {
        self.ready_towards(peer, settings, lid(1));
    }

    pub fn ready_towards(&self, peer: u32, settings: &Settings, address: AhAttr) {
        ready(&self.qp, peer, settings, address);
    }
}

pub fn init(qp: &Qp, settings: &Settings) {
    init_with(qp, settings.kind, RIGHTS).unwrap();
}

pub fn init_with(qp: &Qp, kind: u32, qp_access_flags: u32) -> softhca::engine::Result<()> {
    let attr = QpAttr { qp_state: qp_state::INIT, port_num: 1, qp_access_flags, qkey: QKEY, ..QpAttr::default() };
    let last = if kind == qp_type::UD { m::QKEY } else { m::ACCESS_FLAGS };
    qp.modify(&attr, m::STATE | m::PKEY_INDEX | m::PORT | last)
}

/// Moves from INIT to RTR, with the peer at this address.
pub fn to_rtr(qp: &Qp, peer: u32, settings: &Settings, ah_attr: AhAttr) -> softhca::engine::Result<()> {
    let attr = QpAttr {
        qp_state: qp_state::RTR,
        path_mtu: 5,
        dest_qp_num: peer,
        rq_psn: 7,
        max_dest_rd_atomic: 4,
        min_rnr_timer: settings.min_rnr_timer,
        ah_attr,
        ..QpAttr::default()
    };
    let path = m::AV | m::PATH_MTU | m::DEST_QPN | m::RQ_PSN;
    let mask = match settings.kind {
        qp_type::RC | qp_type::XRC_RECV => path | m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER,
        qp_type::UC | qp_type::XRC_SEND => path,
        _ => 0,
    };
    qp.modify(&attr, m::STATE | mask)
}

/// Moves from INIT to RTS, with the peer at this address.
pub fn ready(qp: &Qp, peer: u32, settings: &Settings, address: AhAttr) {
    to_rtr(qp, peer, settings, address).unwrap();
    let attr = QpAttr {
        qp_state: qp_state::RTS,
        sq_psn: 7,
        timeout: settings.timeout,
        retry_cnt: settings.retry_cnt,
        rnr_retry: settings.rnr_retry,
        max_rd_atomic: 4,
        ..QpAttr::default()
    };
    let mask = match settings.kind {
        qp_type::RC | qp_type::XRC_SEND => m::TIMEOUT | m::RETRY_CNT | m::RNR_RETRY | m::MAX_QP_RD_ATOMIC,
        qp_type::XRC_RECV => m::TIMEOUT,
        _ => 0,
    };
    qp.modify(&attr, m::STATE | m::SQ_PSN | mask).unwrap();
}

pub fn queue_pair(
    hca: &Arc<Hca>,
    pd: &Pd,
    kind: u32,
    (send_cq, recv_cq): (&Cq, &Cq),
    srq: Option<&Srq>,
    cap: QpCap,
) -> softhca::engine::Result<Qp> {
    hca.create_qp(&QpInit { kind, pd, send_cq, recv_cq, srq, cap, sq_sig_all: false, cookie: 4 })
}

pub fn lid(dlid: u16) -> AhAttr {
    AhAttr { dlid, port_num: 1, ..AhAttr::default() }
}

/// The address of a GID, and of a LID for ports that go by that.
pub fn global(raw: [u8; 16], dlid: u16) -> AhAttr {
    let mut address = AhAttr { is_global: 1, ..lid(dlid) };
    address.grh.dgid.raw = raw;
    address
}

pub fn wait(cq: &Cq) -> Wc {
    // However busy the machine is.
    let deadline = Instant::now() + Duration::from_mins(2);
    let mut out = [Wc::default()];
    while cq.poll(&mut out) == 0 {
        assert!(Instant::now() < deadline, "no completion within two minutes");
    }
    out[0]
}

pub fn none(cq: &Cq) -> bool {
    cq.poll(&mut [Wc::default()]) == 0
}

pub fn pair(hca: &Arc<Hca>, bytes: usize, settings: &Settings) -> (Side, Side) {
    let (a, b) = (Side::new(hca, bytes, settings), Side::new(hca, bytes, settings));
    a.meet(&b, settings);
    (a, b)
}

/// A pair on the usual adapter.
pub fn connected(bytes: usize, settings: &Settings) -> (Adapter, Side, Side) {
    let hca = adapter();
    let (a, b) = pair(&hca, bytes, settings);
    (hca, a, b)
}

/// Another process of this test program: it runs an ignored test, and the two exchange lines by its standard streams.
pub struct Process {
    pub child: Child,
    input: Option<ChildStdin>,
    said: Receiver<String>,
}

const FOLDER: &str = "SOFTHCA_TEST_FOLDER";

/// In a process of `Process::start_in`: its folder, joined.
pub fn joined() -> Arc<Hca> {
    join(Path::new(&std::env::var_os(FOLDER).expect("started by another test")))
}

impl Process {
    pub fn start_in(test: &str, folder: &Folder) -> Process {
        Process::start(test, [(FOLDER, folder.path().as_os_str())])
    }

    pub fn start<'a>(test: &str, variables: impl IntoIterator<Item = (&'a str, &'a OsStr)>) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", test])
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(std::io::Result::ok);
        let (say, said) = channel();
        std::thread::spawn(move || {
            // The test harness writes other lines; the receiver is gone when the test has ended.
            let words = lines.filter_map(|line| Some(line.split_once("say:")?.1.trim().to_owned()));
            words.map_while(|words| say.send(words).ok()).for_each(drop);
        });
        Process { child, input, said }
    }

    pub fn hear(&self) -> String {
        self.said.recv_timeout(Duration::from_mins(2)).expect("the process lives, and says it within two minutes")
    }

    pub fn tell(&mut self, words: impl Display) {
        writeln!(self.input.as_ref().unwrap(), "{words}").unwrap();
    }

    /// Closes its input; returns whether it ends well.
    pub fn ends(&mut self) -> bool {
        self.input = None;
        self.child.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
