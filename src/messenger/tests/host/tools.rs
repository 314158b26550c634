// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tools of the test host, which keep the events. Grade: test. Threads: one.

use super::*;

impl<E: WireEnvelope> Tools for SmallHost<E> {
    /// Whether they hear of paths.
    type Listeners = bool;
    type Spec = ((E::Peer, E::Tag), usize);

    fn listeners(&mut self, (): ()) -> Option<bool> {
        self.hears
    }
    fn listeners_of(&mut self, _request: usize) -> Option<bool> {
        self.hears
    }
    fn wants(hears_paths: bool, event: Event) -> bool {
        hears_paths || event != Event::Protocol
    }
    fn numbers(&mut self, count: u64) -> u64 {
        self.next_number += 2 * count;
        self.next_number - 2 * count
    }
    fn spec(&mut self, (): (), wanted: (E::Peer, E::Tag), length: usize) -> Self::Spec {
        (wanted, length)
    }
    fn of_spec(spec: &Self::Spec) -> Self::Spec {
        *spec
    }
    fn raise(&mut self, _: bool, event: Event, _id: u64, request: usize) {
        let step = match event {
            Event::XferBegin => 'B',
            Event::XferContinue => 'C',
            Event::XferEnd => 'E',
            Event::InsertPosted => 'P',
            Event::SearchUnexpectedBegin => '(',
            Event::SearchUnexpectedEnd => ')',
            _ => return,
        };
        self.raised.push((step, request, (0, 0)));
    }
    fn raise_of_message(&mut self, _: bool, event: Event, id: u64, _: &mut Self::Spec) {
        let step = match event {
            Event::Activate => 'A',
            Event::XferBegin => 'B',
            Event::XferEnd => 'E',
            Event::Complete => 'c',
            Event::Notify => 'n',
            Event::Arrived => 'a',
            Event::InsertUnexpected => 'i',
            Event::RemoveUnexpected => 'r',
            _ => return,
        };
        self.raised.push((step, id as usize, (0, 0)));
    }
    fn raise_path(&mut self, _: bool, _request: usize, _message: (u64, usize), path: PathTaken) {
        self.paths.push(path);
    }
    fn raise_path_of_message(&mut self, _: bool, id: u64, _: &Self::Spec, _path: PathTaken) {
        self.raised.push(('p', id as usize, (0, 0)));
    }
    fn rank_in_job(&mut self, (): (), _rank: E::Peer) -> u32 {
        0
    }
    fn wants_step(&mut self, _step: TypeId) -> bool {
        true
    }
    fn step(&mut self, _step: TypeId, elements: XferBegin, _by: Option<Completed>) {
        self.raised.last_mut().expect("its request's event comes first").2 = (elements.offset, elements.bytes);
    }
}
