// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_context`: an opened device as programs hold it. It knows none of the objects that are made on it; which verbs
//! it offers is written in `open`. Grade: setup. Threads: any.

use std::fs::File;
use std::mem::offset_of;
use std::sync::Arc;

use crate::engine::{DeviceSpec, Hca};
use crate::sys::{ibv_context, verbs_context};

/// An opened device as programs hold it: their pointer is to `verbs.context`.
#[repr(C)]
pub(crate) struct SoftContext {
    /// What a program can ask of it.
    pub(super) verbs: verbs_context,
    hca: Arc<Hca>,
    /// Programs may duplicate and watch the descriptor of commands; here it is a real one that says nothing.
    _commands: File,
}

impl SoftContext {
    /// An opened device that has no verbs yet.
    pub(super) fn new(hca: Arc<Hca>, commands: File) -> Box<SoftContext> {
        let verbs = verbs_context::default();
        Box::new(SoftContext { verbs, hca, _commands: commands })
    }

    /// The program's pointer to it.
    pub(super) fn hand_out(self: Box<Self>) -> *mut ibv_context {
        let opened = Box::into_raw(self);
        // SAFETY: just made by Box, so valid to point into.
        unsafe { &raw mut (*opened).verbs.context }
    }

    /// Takes it back.
    ///
    /// # Safety
    /// `context` is from [`Self::hand_out`], and given up.
    pub(super) unsafe fn take_back(context: *mut ibv_context) {
        // SAFETY: made by Box in `hand_out`, at this offset; the caller gives up the pointer.
        drop(unsafe { Box::from_raw(context.byte_sub(offset_of!(verbs_context, context)).cast::<SoftContext>()) });
    }

    /// The context behind a program's pointer.
    ///
    /// # Safety
    /// `context` is from `ibv_open_device` and not closed.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a SoftContext {
        // SAFETY: every ibv_context this library gives out is `verbs.context` of a SoftContext, which lives until
        // closed.
        unsafe { &*context.byte_sub(offset_of!(verbs_context, context)).cast::<SoftContext>() }
    }

    /// The engine's adapter.
    pub(crate) fn hca(&self) -> &Arc<Hca> {
        &self.hca
    }

    /// Its description.
    pub(crate) fn spec(&self) -> &DeviceSpec {
        self.hca.spec()
    }
}
