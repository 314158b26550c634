// SPDX-License-Identifier: MIT OR Apache-2.0
//! The endpoints of a domain whose memory regions count peers' accesses (`FI_RMA_EVENT`). Peers tell one of these
//! endpoints of an access, so a counter of a region makes all of them progress, and all of them wake those who sleep on
//! it.
//!
//! An endpoint joins when it is enabled, and leaves when it is closed. Called by `endpoint`, `mr` and `cntr`. Grade:
//! setup; progress hot. Threads: any; the endpoints belong to the one inside the domain. Tests:
//! `hw-tests/libfabric/accesses.c`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ibex_ffi::verbs::CompletionChannel;
use rustix::event::epoll;

use crate::endpoint::members::Members;
use crate::entry::Result;
use crate::sys;
use crate::wait;

pub(crate) struct Targets {
    /// Whether all regions count, or only those that are registered with the flag `FI_RMA_EVENT`: a program that knows
    /// `FI_MR_RMA_EVENT` gives it.
    pub(crate) all_regions: bool,
    pub(crate) endpoints: Members,
    /// Readable while one of the endpoints' channels is.
    channels: OwnedFd,
}

impl Targets {
    /// `mode`: the `mr_mode` of the domain.
    pub(crate) fn new(mode: i32) -> Result<Self> {
        let channels = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(wait::number)?;
        Ok(Targets { all_regions: mode & sys::FI_MR_RMA_EVENT == 0, endpoints: Members::default(), channels })
    }

    /// Adds what wakes when an endpoint has something to do.
    pub(crate) fn add(&self, channel: &CompletionChannel) -> Result<()> {
        wait::add(&self.channels, channel)
    }

    pub(crate) fn remove(&self, channel: &CompletionChannel) {
        wait::remove(&self.channels, channel);
    }

    pub(crate) fn channels(&self) -> BorrowedFd<'_> {
        self.channels.as_fd()
    }
}
