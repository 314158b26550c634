// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports of the test host, whose messages and reads a test takes from queues. Grade: test. Threads: one.

use super::*;

impl<E: WireEnvelope> Ports for SmallHost<E> {
    type Fragment = (Header<E>, Vec<u8>);

    fn home(&mut self, (): &(), route: Route) -> Route {
        route
    }
    fn account(&mut self, (): &(), route: Route) -> Account {
        // Endpoints of one number lead to one process.
        Account(if route.rail() < 4 { Route::new(0, route.to()) } else { route })
    }
    fn routes_of(&mut self, (): &(), Account(route): Account) -> Vec<Route> {
        vec![route]
    }
    fn has_room(&mut self, (): &(), _route: Route) -> bool {
        self.sent.len() < self.room
    }
    fn queue_turn(&mut self, (): &(), _route: Route) {}
    fn begin_turn(&mut self, (): &(), _route: Route) {}
    fn end_turn(&mut self, (): &(), _route: Route) {}
    fn send_whole(&mut self, (): &(), send: usize, header: &Header<E>, _finishes: bool) -> Transmitted {
        if self.sent.len() >= self.room {
            return Transmitted::NoRoom;
        }
        self.sent.push_back((*header, self.cores[send].data.clone()));
        Transmitted::Posted
    }
    fn control(&mut self, (): &(), _route: Route, header: &Header<E>) {
        self.sent.push_back((*header, Vec::new()));
    }
    fn control_with_keys(&mut self, (): &(), _route: Route, header: &Header<E>, keys: &[PortKey]) {
        self.sent.push_back((*header, PortKey::encode(keys)));
    }
    fn pack_fragment(
        &mut self,
        (): &(),
        send: usize,
        receiver: TransferId,
        offset: u64,
    ) -> Result<((Header<E>, Vec<u8>), u64), NotPacked> {
        self.free_buffers = self.free_buffers.checked_sub(1).ok_or(NotPacked::NoBuffer)?;
        let rest = &self.cores[send].data[offset as usize..];
        let bytes = &rest[..rest.len().min(FRAGMENT)];
        Ok(((Header::Fragment { receive: receiver.0, offset }, bytes.into()), bytes.len() as u64))
    }
    fn post_fragment(&mut self, (): &(), send: usize, fragment: (Header<E>, Vec<u8>)) -> Posted {
        self.sent.push_back(fragment);
        self.in_flight.push_back(send);
        Posted::InFlight
    }
    fn has_free_buffer(&mut self) -> bool {
        self.free_buffers > 0
    }
    fn expose(&mut self, (): &(), send: usize) -> Result<Exposed<()>, Reason> {
        let Core { ref data, route, .. } = self.cores[send];
        if !self.can_register {
            return Err(Reason::NotRegistered);
        }
        self.registered.push(route.rail());
        let key = u32::from_le_bytes(*data.first_chunk().expect("a number"));
        Ok(Exposed { address: 4096, key, registered: Some(()), others: self.others.clone(), ..Exposed::default() })
    }
    fn readable_by(&mut self, (): &(), _from: Route, keys: &[PortKey], _wanted: u64) -> Vec<(Route, u32)> {
        keys.iter().map(|key| (by_rail(key.port as usize), key.key)).collect()
    }
    fn register(&mut self, (): &(), _receive: usize, route: Route, _wanted: u64) -> Option<ReadTarget<()>> {
        if !self.can_register {
            return None;
        }
        self.registered.push(route.rail());
        Some(ReadTarget { registered: (), mbps: 100, longest: READ })
    }
    fn post_read(&mut self, (): &(), receive: usize, by: &ReadRail<()>, part: Part) -> bool {
        let is_up = self.is_down != Some(by.route.rail());
        if is_up {
            self.reads.push_back((receive, by.route.rail(), by.key, part));
        }
        is_up
    }
    fn fails_over(&mut self, (): &(), route: Route) -> bool {
        self.is_down = Some(route.rail());
        true
    }
}
