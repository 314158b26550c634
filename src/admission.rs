// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is let in: which hellos begin or continue a connection, and what is said of those that do not.
//!
//! Called by `connecting.rs` for what the carriers bring. The carriers have seen to the seal (`connect/key.rs`): only processes of
//! the job can make it, so no stranger gets as far as the modex, which may have to ask another host. Setup grade; one thread at
//! a time (`&mut Port`). Tests: the engine's device tests in `hw-tests`.

use crate::connect::Refusal;
use crate::connect::hello::Hello;
use crate::connector::Refusals;
use crate::counters::add;
use crate::event::EndpointId;
use crate::port::Port;
use crate::select::address::PortEntry;
use std::time::Duration;

/// After the modex was asked in vain, how long it is not asked for another name. A peer repeats its hello.
const LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// Why a sealed hello is not taken.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Stranger {
    /// The modex knows no such port of no such process.
    NotInJob,
    /// The modex knows another life of that port.
    OtherInstance,
    /// The modex was asked in vain a moment ago.
    NotNow,
    /// Its connection has failed before.
    Failed,
}

impl Port {
    /// The endpoint of a hello whose port has none, or has no connection, and what the modex says of that port.
    pub(crate) fn admit(&mut self, hello: &Hello) -> Result<(EndpointId, PortEntry), Stranger> {
        let source = hello.source;
        let known = self.connector.known(source.name, source.port);
        if known.is_some_and(|known| self.failure(known).is_some()) {
            return Err(Stranger::Failed);
        }
        let now = self.connector.now();
        if now < self.connector.next_lookup {
            return Err(Stranger::NotNow);
        }
        let entry = self.directory.entry(source.name, source.port);
        let found = match entry {
            None => Err(Stranger::NotInJob),
            Some(entry) if entry.address.instance != source.address.instance => Err(Stranger::OtherInstance),
            Some(entry) => Ok(entry),
        };
        if found.is_err() {
            // Measured from now on: the lookup may have taken long.
            self.connector.next_lookup = self.connector.now() + LOOKUP_PAUSE;
        }
        let entry = found?;
        Ok((known.unwrap_or_else(|| self.peer(source.name, source.port)), entry))
    }

    /// Notes a sealed hello that is not taken.
    pub(crate) fn turn_away(&mut self, hello: &Hello, why: Stranger) {
        add(&self.counters.handshakes_dropped, 1);
        let (once, reason) = match why {
            Stranger::NotInJob => (Refusals::NOT_IN_JOB, "which has published no such port"),
            Stranger::OtherInstance => (Refusals::OTHER_INSTANCE, "which has published another life of that port"),
            Stranger::NotNow | Stranger::Failed => return,
        };
        let source = hello.source;
        self.tell_once(once, || {
            format!(
                "a handshake packet that is sealed with this port's key names port {} of rank {} ({}), {reason}: refused",
                source.port, source.name.rank, source.name
            )
        });
    }

    /// Notes bytes that are no hello for this port.
    pub(crate) fn refuse(&mut self, refusal: &Refusal) {
        add(&self.counters.handshakes_dropped, 1);
        let from = refusal.from.map_or_else(|| "as a datagram".to_owned(), |from| format!("over TCP from {from}"));
        self.tell_once(Refusals::UNREADABLE, || format!("refused what came {from}: {}", refusal.why));
    }

    /// Says a line to those who asked for it, once for each kind of it.
    pub(crate) fn tell_once(&mut self, once: Refusals, line: impl FnOnce() -> String) {
        if self.tunables.verbose == 0 || self.connector.told.contains(once) {
            return;
        }
        self.connector.told.insert(once);
        self.directory.tell(&format!("{}: {} (said once; btl_ibex_verbose)", self.attributes.place(), line()));
    }
}
