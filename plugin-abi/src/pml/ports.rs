// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports that the PML lends to the messenger's rails (`engine::messenger::rails`), and the processes of this host,
//! which it reaches by Open MPI's shared-memory BTL.
//!
//! `memory` has the memory that the adapters access, and the tokens; `rails` the routes to other processes; `local`
//! what shared memory receives and sends, over the BTL of `runtime/ports/shared_memory.rs`. Called by the messenger. Grade:
//! hot. Threads: any. Tests: `pml/tests.rs`.

use engine::messenger::host::{Process, Rail, Types};

use super::instance::{Pml, State};
use super::request::Handle;
use crate::runtime::device::{Adapter, Port};
use crate::runtime::exclusive::Entered;
use crate::runtime::memory::Registered;
use crate::runtime::token::Tag;

pub(super) mod local;
pub(super) mod memory;
pub(super) mod rails;

impl Types for State {
    type Handle = Handle;
    type Process = Pml;
    type Registration = Registered;
}

impl Process for Pml {
    const TAG: u8 = Tag::PML.0;

    type Adapter = Adapter;
    type Entered<'a> = Entered<'a, Port>;

    #[inline]
    fn rail_count(&self) -> usize {
        self.rails().len()
    }

    #[inline]
    fn rail(&self, rail: usize) -> Option<&Rail> {
        self.rails().get(rail).map(|rail| &rail.properties)
    }

    #[inline]
    fn enter_port(&self, rail: usize) -> Option<Entered<'_, Port>> {
        self.rails().get(rail)?.enter()
    }
}
