// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated queue pairs: their states, the transitions that verbs permit, and the posted requests. Destroying a queue
//! pair discards its completions that were not polled, receives included, as mlx5 and `bnxt_re` do. Called by the
//! transport. Grade: test. Threads: the test's.

use super::{FIRST, Fabric, Memory, Span};
use crate::transport::adapter;
use ibex_ffi::verbs::{Access, LocalSpan, Path, PostError, Reception, Transition, WorkCompletion, Wr};
use std::collections::VecDeque;
use std::io;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QpState {
    Reset,
    Init,
    ReadyToReceive,
    ReadyToSend,
    Error,
    Destroyed,
}

impl QpState {
    /// Whether a queue pair may move from this state to another, as `ibv_modify_qp(3)` does with the transport's
    /// attributes.
    fn may_enter(self, to: QpState) -> bool {
        use QpState::{Destroyed, Error, Init, ReadyToReceive, ReadyToSend, Reset};
        match to {
            Init => matches!(self, Reset | Init),
            ReadyToReceive => self == Init,
            ReadyToSend => self == ReadyToReceive,
            Error => !matches!(self, Reset | Destroyed),
            Reset | Destroyed => self != Destroyed,
        }
    }

    pub(super) fn receives(self) -> bool {
        matches!(self, QpState::ReadyToReceive | QpState::ReadyToSend)
    }
}

/// Remote memory is an address and a key.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    /// A message: the inline bytes, then those of the spans.
    Send {
        inline: Vec<u8>,
        spans: Vec<Span>,
        immediate: u32,
    },
    Write {
        inline: Vec<u8>,
        spans: Vec<Span>,
        remote: (u64, u32),
    },
    Read {
        local: Span,
        remote: (u64, u32),
    },
    /// Adds `operand`, or sets it if the bits are those to `compare`.
    Atomic {
        local: Span,
        remote: (u64, u32),
        compare: Option<u64>,
        operand: u64,
    },
}

impl Work {
    fn of(work: adapter::Work<'_>, memory: &dyn Memory) -> Self {
        let named = |span: &LocalSpan| (span.addr(), span.len(), span.lkey());
        match work {
            adapter::Work::Send { spans, immediate } => {
                Work::Send { inline: Vec::new(), spans: spans.iter().map(named).collect(), immediate }
            }
            adapter::Work::SendInline { header, payload, immediate } => {
                let inline = [memory.inline(header), memory.inline(payload)].concat();
                Work::Send { inline, spans: Vec::new(), immediate }
            }
            adapter::Work::Write { local, remote } => {
                let spans = if local.len() == 0 { Vec::new() } else { vec![named(&local)] };
                Work::Write { inline: Vec::new(), spans, remote: (remote.addr, remote.rkey) }
            }
            adapter::Work::WriteInline { bytes, remote } => {
                let (inline, spans) = (memory.inline(bytes), Vec::new());
                Work::Write { inline, spans, remote: (remote.addr, remote.rkey) }
            }
            adapter::Work::Read { local, remote } => {
                Work::Read { local: named(&local), remote: (remote.addr, remote.rkey) }
            }
            adapter::Work::FetchAdd { local, remote, operand } => {
                Work::Atomic { local: named(&local), remote: (remote.addr, remote.rkey), compare: None, operand }
            }
            adapter::Work::CompareSwap { local, remote, compare, swap } => {
                let (remote, compare) = ((remote.addr, remote.rkey), Some(compare));
                Work::Atomic { local: named(&local), remote, compare, operand: swap }
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) signalled: bool,
    pub(crate) work: Work,
}

pub(crate) struct Qp {
    pub(super) port: usize,
    pub(crate) number: u32,
    pub(crate) state: QpState,
    pub(crate) access: Access,
    /// Code of the "receiver not ready" timer that its peer gets.
    pub(crate) rnr_timer: u8,
    /// Number of the peer's queue pair.
    pub(super) peer: u32,
    pub(crate) posted: VecDeque<Request>,
    /// Whether a message was posted to it.
    has_sent: bool,
    /// Number of posted requests that were carried and not yet completed, from the front.
    pub(super) carried: usize,
}

pub struct QueuePair {
    fabric: Fabric,
    index: usize,
}

impl QueuePair {
    pub(super) fn new(fabric: &Fabric, port: usize) -> io::Result<Self> {
        let mut state = fabric.state();
        if let Some(errno) = state.ports[port].refused_qp.take() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let index = state.qps.len();
        state.qps.push(Qp {
            port,
            number: FIRST + index as u32,
            state: QpState::Reset,
            access: Access::empty(),
            rnr_timer: 0,
            peer: FIRST,
            posted: VecDeque::new(),
            has_sent: false,
            carried: 0,
        });
        Ok(QueuePair { fabric: fabric.clone(), index })
    }

    fn enter(&self, to: QpState, note: impl FnOnce(&mut Qp)) -> io::Result<()> {
        let qp = &mut self.fabric.state().qps[self.index];
        if !qp.state.may_enter(to) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        qp.state = to;
        note(qp);
        Ok(())
    }
}

impl adapter::QueuePair for QueuePair {
    fn number(&self) -> u32 {
        FIRST + self.index as u32
    }

    fn max_inline(&self) -> u32 {
        u32::MAX
    }

    fn post(&mut self, wr: Wr, work: adapter::Work<'_>) -> Result<(), PostError> {
        let state = &mut *self.fabric.state();
        let qp = &mut state.qps[self.index];
        if let Some(Some(errno)) = state.ports[qp.port].answers.pop_front() {
            // The transport gives the connection up, and does not know which unsignalled messages have arrived.
            state.has_lost_message |= errno != libc::ENOMEM && qp.has_sent;
            return Err(PostError(errno));
        }
        // The transport posts one request more to a queue pair in error, its end marker.
        let most = if qp.state == QpState::Error { usize::MAX } else { state.ports[qp.port].depth as usize };
        assert!(most == 0 || qp.posted.len() < most, "a queue pair takes {most} requests");
        let work = Work::of(work, &*state.memory);
        let is_message = matches!(work, Work::Send { .. });
        qp.has_sent |= is_message;
        state.has_lost_message |= qp.state == QpState::Error && is_message;
        qp.posted.push_back(Request { id: wr.id, signalled: wr.signalled, work });
        Ok(())
    }

    fn initialise(&mut self, _port: u8, _pkey_index: u16, access: Access) -> io::Result<()> {
        self.enter(QpState::Init, |qp| qp.access = access)
    }

    fn ready_to_receive(&mut self, path: &Path, to: &Reception) -> io::Result<()> {
        let state = self.fabric.state();
        let Qp { port, access, .. } = state.qps[self.index];
        if state.ports[port].is_without_atomics && access.contains(Access::REMOTE_ATOMIC) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        drop(state);
        self.enter(QpState::ReadyToReceive, |qp| (qp.peer, qp.rnr_timer) = (path.qp_num, to.rnr_timer))
    }

    fn ready_to_send(&mut self, _to: &Transition) -> io::Result<()> {
        self.enter(QpState::ReadyToSend, |_| ())
    }

    fn reset(&mut self) -> io::Result<()> {
        self.enter(QpState::Reset, |qp| {
            qp.posted.clear();
            qp.carried = 0;
        })
    }

    fn fail(&mut self) -> io::Result<()> {
        self.fabric.state().note_lost(self.index);
        self.enter(QpState::Error, |_| ())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let state = &mut *self.fabric.state();
        let qp = &mut state.qps[self.index];
        let is_unpolled = |completion: &WorkCompletion| completion.qp_num() == qp.number;
        let is_flushed = qp.posted.is_empty() && !state.ports[qp.port].completions.iter().any(is_unpolled);
        // The adapter has not flushed it in time: the transport does not know which unsignalled messages have arrived.
        state.has_lost_message |= qp.state == QpState::Error && qp.has_sent && !is_flushed;
        qp.state = QpState::Destroyed;
        qp.posted.clear();
        // The receives of the dropped completions are lost.
        state.ports[qp.port].completions.retain(|completion| completion.qp_num() != qp.number);
    }
}
