// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work completions: the adapter's report of a finished work request. The provider writes them as a whole (`cq.rs`) or
//! by fields (`stamped.rs`), the engine reads them. Hot; plain values. Tests: below, and device tests in `hw-tests`.

use crate::verbs::{Status, sys};

pub(super) struct Start {
    pub(super) wr_id: u64,
    pub(super) status: u32,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
}

/// One work completion (`struct ibv_wc`). The status stays an integer, as the adapter wrote it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct WorkCompletion(sys::ibv_wc);

impl WorkCompletion {
    /// Makes a completion like an adapter's, for the stand-ins in tests. `immediate` is in host byte order.
    pub fn scripted(id: u64, status: Status, len: u32, immediate: Option<u32>, qp_num: u32) -> Self {
        let start = Start { wr_id: id, status: status.0, vendor_err: 0, byte_len: len };
        let flags = if immediate.is_some() { sys::ibv_wc_flags::IBV_WC_WITH_IMM.0 } else { 0 };
        let mut completion = WorkCompletion::blank();
        completion.set_start(&start);
        completion.set_rest(immediate.unwrap_or(0).to_be(), qp_num, flags);
        completion
    }

    /// An empty completion, for a place that the provider has not written yet.
    pub(super) fn blank() -> Self {
        WorkCompletion(sys::ibv_wc::default())
    }

    /// Writes the first fields of `struct ibv_wc` that ibex reads.
    #[inline(always)]
    pub(super) fn set_start(&mut self, start: &Start) {
        let Start { wr_id, status, vendor_err, byte_len } = *start;
        let wc = &mut self.0;
        (wc.wr_id, wc.status, wc.vendor_err, wc.byte_len) = (wr_id, status, vendor_err, byte_len);
    }

    /// Writes the other fields that ibex reads.
    #[inline(always)]
    pub(super) fn set_rest(&mut self, imm_data: u32, qp_num: u32, flags: u32) {
        let wc = &mut self.0;
        wc.__bindgen_anon_1.imm_data = imm_data;
        (wc.qp_num, wc.wc_flags) = (qp_num, flags);
    }

    /// The identifier given when the work request was posted.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// Whether it succeeded.
    #[inline]
    pub fn succeeded(&self) -> bool {
        self.0.status == Status::SUCCESS.0
    }

    /// The status, and the vendor's error code.
    pub fn status(&self) -> (Status, u32) {
        let vendor = if self.succeeded() { 0 } else { self.0.vendor_err };
        (Status(self.0.status), vendor)
    }

    /// Bytes received; of a UD datagram including the 40 bytes of the GRH.
    #[inline]
    pub fn len(&self) -> u32 {
        self.0.byte_len
    }

    /// Whether no byte was received.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The immediate data in host order, if the message carried any.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        let has_immediate = self.succeeded() && self.0.wc_flags & sys::ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        // SAFETY: both members of the union are integers of 32 bits.
        has_immediate.then(|| u32::from_be(unsafe { self.0.__bindgen_anon_1.imm_data }))
    }

    /// The number of the local queue pair it belongs to.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }
}

impl std::fmt::Debug for WorkCompletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "id 0x{:x}, QP 0x{:06x}, {:?}", self.id(), self.qp_num(), self.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_has_the_fields_that_were_written() {
        let completion = WorkCompletion::scripted(7, Status::SUCCESS, 48, Some(0x0102_0304), 0x1234);
        assert_eq!((completion.id(), completion.len(), completion.qp_num()), (7, 48, 0x1234));
        assert!(completion.succeeded() && completion.immediate() == Some(0x0102_0304));
        let failed = WorkCompletion::scripted(8, Status::FLUSHED, 0, None, 0x1234);
        assert!(!failed.succeeded() && failed.immediate().is_none() && failed.is_empty());
        assert_eq!(failed.status(), (Status::FLUSHED, 0));
    }
}
