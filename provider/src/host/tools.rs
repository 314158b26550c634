// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the messenger asks of an endpoint about tools: nobody listens to it. Grade: hot. Threads: the one that has
//! entered the endpoint.

use std::convert::Infallible;

use ibex::messenger::events::Event;
use ibex::messenger::host::Tools;
use ibex::messenger::matching::FiTag;
use ibex::messenger::path_taken::PathTaken;

use super::request::Handle;
use super::{Kind, State};

impl Tools for State {
    type Listeners = Infallible;
    type Spec = ();

    #[inline(always)]
    fn listeners(&mut self, _: Kind) -> Option<Infallible> {
        None
    }

    #[inline(always)]
    fn listeners_of(&mut self, _: Handle) -> Option<Infallible> {
        None
    }

    fn wants(nobody: Infallible, _: Event) -> bool {
        match nobody {}
    }

    fn numbers(&mut self, _: u64) -> u64 {
        0
    }

    fn spec(&mut self, _: Kind, _: (u64, FiTag), _: usize) {}

    fn of_spec((): &()) -> ((u64, FiTag), usize) {
        ((0, FiTag { tag: 0, ignore: 0, data: None }), 0)
    }

    fn raise(&mut self, nobody: Infallible, _: Event, _: u64, _: Handle) {
        match nobody {}
    }

    fn raise_of_message(&mut self, nobody: Infallible, _: Event, _: u64, (): &mut ()) {
        match nobody {}
    }

    fn raise_path(&mut self, nobody: Infallible, _: Handle, _: (u64, usize), _: PathTaken) {
        match nobody {}
    }

    fn raise_path_of_message(&mut self, nobody: Infallible, _: u64, (): &(), _: PathTaken) {
        match nobody {}
    }

    fn rank_in_job(&mut self, _: Kind, _: u64) -> u32 {
        u32::MAX
    }
}
