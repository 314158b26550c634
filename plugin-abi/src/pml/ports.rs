// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports that the PML lends to the messenger's rails (`engine::messenger::rails`), and the processes of this host,
//! which it reaches by Open MPI's shared-memory BTL.
//!
//! `memory` has the memory that the adapters access, and the tokens; `rails` the routes to other processes; `local`
//! what shared memory receives and sends, over the BTL of `shared_memory`. Called by the messenger. Grade: hot.
//! Threads: any. Tests: `pml/tests.rs`.

use engine::messenger::header::MAX_SIZE;
use engine::messenger::host::{Process, Rail, Types};
use engine::messenger::route::Route;

use super::instance::{Pml, State};
use super::request::Handle;
use crate::runtime::device::{Adapter, Port};
use crate::runtime::exclusive::Entered;
use crate::runtime::memory::Registered;
use crate::runtime::token::Tag;
use crate::runtime::variables::now;

pub(super) mod local;
pub(super) mod memory;
pub(super) mod rails;
pub(super) mod shared_memory;

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

    fn eager_limit(&self, route: Route) -> usize {
        if route.as_local().is_some() {
            return self.shared_memory().map_or(0, |shared| shared.eager_limit);
        }
        let rail = if route == Route::LOOPBACK { 0 } else { route.rail() };
        self.rail(rail).map_or(0, |rail| now::eager_limit(rail.copy_size) - MAX_SIZE)
    }

    #[inline]
    fn enter_port(&self, rail: usize) -> Option<Entered<'_, Port>> {
        self.rails().get(rail)?.enter()
    }
}
