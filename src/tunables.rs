// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one table of all parameters: name, default, unit, bounds, help, effect, level.
//!
//! Owns [`TABLE`] and the checked values ([`Tunables`]); what a row consists of is in `tunables/row.rs`, the page made from the
//! table (docs/parameters.md) in `tunables/page.rs`. The plugin registers each row with Open MPI as `btl_ibex_<name>` and hands
//! the values back in the same order to [`Tunables::from_values`]; the rest of the engine reads fields. The parameters that
//! Open MPI itself defines for every BTL (eager limit, flags, ...) are not here.
//!
//! Path: setup; the engine copies what a hot path needs. Threads: read-only after start. Units: each row names its own.
//! Tests: `tunables/tests.rs` (`cargo test -p ibex tunables`; `IBEX_WRITE_DOCS=1` in front rewrites the page).

mod page;
mod row;
#[cfg(test)]
mod tests;

use crate::connect::interfaces;

pub use page::markdown;
pub use row::{Kind, OutOfBounds, Row, Value};

/// Makes [`TABLE`], [`Tunables`] and the reading of one from the other out of one list, so that no row can be without a field.
macro_rules! table {
    (@type Count) => { u64 };
    (@type Text) => { String };
    (@type Flag) => { bool };
    ($( $name:ident: $kind:ident { $($bounds:tt)* }, $unit:literal, level $level:literal, $help:literal, $effect:literal; )*) => {
        /// Every parameter there is, in the order of [`Tunables::from_values`].
        pub static TABLE: &[Row] = &[$(
            Row {
                name: stringify!($name),
                kind: Kind::$kind { $($bounds)* },
                unit: $unit,
                help: $help,
                effect: $effect,
                level: $level,
            },
        )*];

        /// The checked value of every parameter: one field per row of [`TABLE`], in the row's unit.
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub struct Tunables {
            $(
                #[doc = concat!("The checked value of `btl_ibex_", stringify!($name), "`.")]
                pub $name: table!(@type $kind),
            )*
        }

        impl Tunables {
            /// Takes values that were checked to be one per row and of the row's kind.
            fn from_checked(values: &[Value]) -> Option<Tunables> {
                let mut values = values.iter();
                Some(Tunables {
                    $( $name: match values.next()? {
                        Value::$kind(value) => value.clone(),
                        _ => return None,
                    }, )*
                })
            }
        }
    };
}

table! {
    // Which ports, and how they are addressed.
    if_include: Text { default: "", choices: &[] }, "", level 1,
        "Use only these ports: comma-separated patterns device[:port], with * and ? (mlx5_*, rxe0:1). Empty: all.",
        "Restricts the search; a port left out is listed with this reason at btl_ibex_verbose 1.";
    if_exclude: Text { default: "", choices: &[] }, "", level 1,
        "Do not use these ports: comma-separated patterns device[:port], with * and ? (mlx5_bond_*, mlx5_1:2). Applied after if_include.",
        "Keeps an adapter free for storage or for another job.";
    ignore_locality: Flag { default: false }, "", level 4,
        "Use ports that are far from where the process runs as well.",
        "More ports per process, and so more bandwidth for one process; each transfer through a far port crosses the link between \
         the processor packages.";
    gid_index: Text { default: "auto", choices: &["auto", "0..=255"] }, "", level 2,
        "Which entry of the port's GID table to use. auto: on Ethernet RoCE v2 with IPv4, then with IPv6, then RoCE v1; on \
         InfiniBand entry 0.",
        "Chooses the IP network (and VLAN) RoCE packets use. Every process must choose the same type of GID.";
    pkey_index: Count { default: 0, min: 0, max: 65535 }, "", level 4,
        "Which entry of the port's partition key table the queue pairs use.",
        "Chooses the InfiniBand partition; both ends must be in it.";
    service_level: Count { default: 0, min: 0, max: 15 }, "", level 4,
        "The service level of all packets on InfiniBand; on Ethernet its low 3 bits are the priority (PCP).",
        "Chooses the virtual lane (or the lossless priority), as the fabric's administrator has set it up.";
    traffic_class: Count { default: 0, min: 0, max: 255 }, "", level 4,
        "The traffic class of packets with a global header (all on RoCE): six bits of DSCP, two of ECN.",
        "Chooses the queue in Ethernet switches that go by DSCP.";
    mtu: Text { default: "auto", choices: &["auto", "256", "512", "1024", "2048", "4096"] }, "bytes", level 4,
        "The largest packet of a connection. auto: the smaller of what both ports have active.",
        "Smaller packets get through a network that is narrower than its ports; they cost bandwidth. A port whose active MTU is \
         smaller is not used.";

    // Queues and slots.
    send_queue_depth: Count { default: 128, min: 16, max: 16384 }, "entries", level 5,
        "How many work requests one connection may have posted.",
        "More keeps more small messages and RDMA pieces in flight to one peer; each costs some 64 to 256 bytes of locked memory \
         per connected peer. What does not fit waits inside ibex, in order.";
    receive_queue_depth: Count { default: 1024, min: 64, max: 32767 }, "entries", level 5,
        "How many receive slots a port keeps posted, shared by all peers.",
        "More takes larger bursts without making senders wait; each costs one slot (btl_ibex_max_send_size) of locked memory.";
    receive_batch: Count { default: 32, min: 1, max: 1024 }, "entries", level 6,
        "How many receive slots are given back to the adapter at once.",
        "More saves doorbells; fewer keeps the shared receive queue fuller. At most half of receive_queue_depth.";
    completion_queue_depth: Count { default: 8192, min: 256, max: 4194303 }, "entries", level 5,
        "How many completions a port's queue holds.",
        "Bounds the sends in flight over all peers of a port (ibex takes credit before it posts, so the queue cannot overflow).";
    max_inline: Count { default: 128, min: 0, max: 1024 }, "bytes", level 4,
        "Up to which size the message is copied into the work request itself; asked of the adapter, which may give less or more.",
        "Saves the adapter a fetch from memory, and so latency, for small messages; makes every send queue entry larger.";
    signal_interval: Count { default: 32, min: 1, max: 1024 }, "sends", level 6,
        "After how many inline sends one asks for a completion.",
        "More makes fewer completions to reap; slots of the send queue come back later. At most half of send_queue_depth.";
    poll_batch: Count { default: 16, min: 1, max: 16 }, "entries", level 6,
        "How many completions one poll takes at most.",
        "More favours bandwidth, fewer the time until a single message is seen.";
    send_slots_grow: Count { default: 64, min: 1, max: 4096 }, "slots", level 6,
        "How many send slots are registered at once when there are none left.",
        "Each slot holds one message of up to btl_ibex_max_send_size bytes; more makes fewer, larger registrations.";
    send_slots_max: Count { default: 4096, min: 0, max: 1048576 }, "slots", level 5,
        "The greatest number of send slots of a port: half as many of each size (320 bytes, eager messages, fragments); 0: as many \
         as memory may be locked.",
        "Bounds locked memory: eager messages beyond it wait in ordinary memory, fragments wait to be cut.";
    zero_copy_min: Count { default: 16384, min: 0, max: 4294967295 }, "bytes", level 4,
        "From which size a contiguous fragment is sent from the user's memory instead of being copied.",
        "Registering memory costs more than copying little; registered memory is cached, so programs that reuse buffers gain from \
         a smaller value.";
    max_rd_atomic: Count { default: 0, min: 0, max: 255 }, "requests", level 6,
        "How many reads and atomics a connection may have in flight, each way; the adapter may permit fewer. 0: 16, but 4 on a \
         software adapter (soft-RoCE).",
        "More hides the latency of get; each takes room in the adapter. What a software adapter reads ahead falls out of the \
         processor's cache before it is copied.";

    // What the adapter does when packets are lost or the receiver is late.
    ack_timeout: Count { default: 0, min: 0, max: 31 }, "exponent", level 5,
        "How long the adapter waits for an acknowledgement before it repeats: 4.096 us * 2^n (14: 67 ms, 16: 268 ms, 18: 1.07 s). \
         0: chosen for each connection by its round trip and link_outage.",
        "What a lost packet costs when nothing follows it, once or up to four times by the adapter's own rounding. Smaller finds it \
         sooner; too small repeats packets that are merely late, and ends a connection sooner: about (retry_count + 1) * this, up \
         to four times as much.";
    link_outage: Count { default: 2000, min: 0, max: 600000 }, "ms", level 5,
        "How long a path may be silent without ending a connection, where ack_timeout is 0: the time-out is chosen so that \
         retry_count + 1 of it are at least that.",
        "More rides out longer interruptions (a link that comes back, a switch that starts anew); less finds a lost packet and a \
         dead peer sooner. A lost packet costs about link_outage / (retry_count + 1).";
    retry_count: Count { default: 7, min: 0, max: 7 }, "tries", level 5,
        "How often the adapter repeats a packet that is not acknowledged before the connection fails. At most 6 on a software \
         adapter: soft-RoCE takes 7 for without end.",
        "More rides out longer interruptions; a dead peer is noticed later.";
    probe_interval: Count { default: 0, min: 0, max: 86400 }, "seconds", level 5,
        "How often peers with whom nothing is under way are asked for an acknowledgement; 0: never.",
        "A rank that only waits for a dead peer is told, where the runtime does not end the job (mpirun --enable-recovery). A peer \
         that left in an orderly way while this process goes on (MPI_Comm_disconnect) would count as dead.";
    // 0.64 ms is a few times what a polling receiver needs to give back a batch, and a small part of what a computing one takes.
    rnr_timer: Count { default: 12, min: 0, max: 31 }, "code", level 6,
        "How long a sender waits when the receiver had no receive slot: code of the InfiniBand specification (table 46): 1 = 0.01 ms, \
         6 = 0.08 ms, 12 = 0.64 ms, 18 = 5.12 ms, 31 = 492 ms, 0 = 655 ms.",
        "Smaller resumes sooner after a burst; too small floods a receiver that computes.";
    rnr_retry: Count { default: 7, min: 0, max: 7 }, "tries", level 6,
        "How often a sender repeats after the receiver had no receive slot; 7: for ever.",
        "Anything below 7 makes a receiver that computes for long an error.";

    // Connecting.
    connect_via: Text { default: "auto", choices: &["auto", "ud", "tcp"] }, "", level 4,
        "What carries the exchange that connects two processes: unreliable datagrams of the fabric (ud), TCP (tcp), or ud first \
         and tcp as well when ud is missing or unanswered (auto).",
        "tcp serves adapters without UD and networks that filter it. With ud alone a peer that computes for longer than \
         connect_timeout cannot be told from a dead one.";
    tcp_if_include: Text { default: "", choices: &[] }, "", level 4,
        "Take handshakes over TCP only at the addresses of these interfaces: comma-separated names (eth0) and networks \
         (10.1.0.0/16), in order of preference. Empty: all addresses that another host may reach. Four are used at most.",
        "Chooses the network that handshakes over TCP use; ibex listens on no other address. Not together with tcp_if_exclude.";
    tcp_if_exclude: Text { default: "", choices: &[] }, "", level 4,
        "Do not take handshakes over TCP at the addresses of these interfaces: comma-separated names and networks, as in \
         tcp_if_include.",
        "Keeps ibex from listening on a network that peers cannot reach, or that others can. Not together with tcp_if_include.";
    connect_retry: Count { default: 50, min: 1, max: 10000 }, "ms", level 6,
        "After which time an unanswered handshake packet is sent again; it doubles with each try, up to 1000 ms.",
        "Smaller connects sooner where packets are lost; larger sends fewer packets to a peer that computes.";
    connect_timeout: Count { default: 60, min: 1, max: 86400 }, "s", level 4,
        "How long a peer may leave the handshake unanswered while no TCP connection to it stands either.",
        "Longer waits for peers that compute behind a network that filters TCP; shorter reports a dead peer sooner.";
    connect_ud_tries: Count { default: 4, min: 1, max: 1000 }, "tries", level 6,
        "After how many unanswered datagrams the handshake is tried over TCP as well (connect_via auto).",
        "Fewer connects sooner where datagrams are filtered; more opens fewer TCP connections to peers that are merely slow.";
    connect_poll_interval: Count { default: 16, min: 1, max: 65536 }, "polls", level 7,
        "How many progress calls pass between two looks at the datagram queue while nothing is being connected.",
        "Fewer answers a first message sooner; more makes the poll cheaper.";
    connect_tcp_interval: Count { default: 1024, min: 1, max: 1048576 }, "polls", level 7,
        "How many progress calls pass between two looks at the TCP listener while nothing is being connected.",
        "A look is a system call, so it is rare; fewer answers a peer that has only TCP sooner.";

    // Events.
    event_buffer: Count { default: 4096, min: 1, max: 1048576 }, "events", level 5,
        "How many events may wait in a registration that is buffered and does not say how many (info key ibex_buffer_events).",
        "More loses none between two looks of the program into MPI; each takes 128 bytes in every such registration.";
    event_buffered: Flag { default: false }, "", level 5,
        "Whether events wait until progress delivers them, in registrations that do not say so (info key ibex_buffered).",
        "Buffered, an event takes less time where it happens and is shown later.";
    event_adapter_clock: Flag { default: true }, "", level 4,
        "Whether what has arrived or is complete is stamped by the adapter's clock, where it has one.",
        "The adapter tells when it happened, and events wait some microseconds so that none overtakes an earlier one; without, \
         callbacks run when MPI sees what happened, and the host's clock tells when that was.";

    // Watching and testing.
    verbose: Count { default: 0, min: 0, max: 100 }, "level", level 1,
        "How much is told on standard error: 0 errors; 1 and above also each port and GID with the reason it was taken or refused, \
         and peers that ibex does not reach.",
        "None on messages.";
    handshake_loss: Count { default: 0, min: 0, max: 100 }, "percent", level 9,
        "Fault injection: this share of handshake packets is dropped instead of sent.",
        "For tests. Messages are not touched.";
    handshake_duplicate: Count { default: 0, min: 0, max: 100 }, "percent", level 9,
        "Fault injection: this share of handshake packets is sent twice.",
        "For tests. Messages are not touched.";
    fault_seed: Count { default: 1, min: 0, max: 18446744073709551615 }, "", level 9,
        "Fault injection: the seed of the choice which packets are dropped or sent twice.",
        "The same seed makes the same choice for the same rank.";
}

/// What carries the handshake.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum ConnectVia {
    /// Datagrams first, TCP as well when they are missing or unanswered.
    Auto,
    /// Datagrams alone.
    Ud,
    /// TCP alone.
    Tcp,
}

impl Tunables {
    /// Takes the value of every parameter, in the order of [`TABLE`], and checks each and how they go together.
    ///
    /// # Errors
    /// [`OutOfBounds`] for the first value that is not permitted; it names parameter, value and range.
    pub fn from_values(values: &[Value]) -> Result<Tunables, OutOfBounds> {
        for (index, row) in TABLE.iter().enumerate() {
            match values.get(index) {
                Some(value) => row.check(value)?,
                None => return Err(OutOfBounds::new(row, "missing".to_owned(), row.permitted())),
            }
        }
        // Every row has a value of its kind, so this cannot fail; if it ever did, the first row would say so.
        let tunables = Tunables::from_checked(values)
            .ok_or_else(|| OutOfBounds::new(&TABLE[0], "unreadable".to_owned(), TABLE[0].permitted()))?;
        tunables.check_together()?;
        Ok(tunables)
    }

    /// Limits of one parameter that another one sets.
    fn check_together(&self) -> Result<(), OutOfBounds> {
        for (name, list) in [("tcp_if_include", &self.tcp_if_include), ("tcp_if_exclude", &self.tcp_if_exclude)] {
            if let Some(item) = interfaces::malformed(list) {
                return Err(refused(
                    name,
                    item,
                    "a list of interface names (eth0) and networks (10.1.0.0/16)".to_owned(),
                ));
            }
        }
        if !self.tcp_if_include.is_empty() && !self.tcp_if_exclude.is_empty() {
            let permitted = "set only where btl_ibex_tcp_if_include is not".to_owned();
            return Err(refused("tcp_if_exclude", &self.tcp_if_exclude, permitted));
        }
        at_most_half("receive_batch", self.receive_batch, "receive_queue_depth", self.receive_queue_depth)?;
        at_most_half("signal_interval", self.signal_interval, "send_queue_depth", self.send_queue_depth)
    }

    /// The GID table entry asked for; `None`: choose by type.
    #[must_use]
    pub fn forced_gid_index(&self) -> Option<u32> {
        self.gid_index.parse().ok()
    }

    /// The MTU asked for, in bytes; `None`: what the ports have active.
    #[must_use]
    pub fn forced_mtu(&self) -> Option<u32> {
        self.mtu.parse().ok()
    }

    /// What carries the handshake.
    #[must_use]
    pub fn via(&self) -> ConnectVia {
        match self.connect_via.as_str() {
            "ud" => ConnectVia::Ud,
            "tcp" => ConnectVia::Tcp,
            _ => ConnectVia::Auto,
        }
    }
}

/// `name` must be at most half of `other`: with more, the queue could run dry before a batch is full.
fn at_most_half(name: &'static str, value: u64, other: &str, depth: u64) -> Result<(), OutOfBounds> {
    if value <= depth / 2 {
        return Ok(());
    }
    let permitted = format!("at most {} (half of btl_ibex_{other}, which is {depth})", depth / 2);
    Err(refused(name, &value.to_string(), permitted))
}

/// The refusal of what only a look at several parameters, or into a text, shows.
fn refused(name: &'static str, given: &str, permitted: String) -> OutOfBounds {
    let default =
        TABLE.iter().find(|row| row.name == name).map_or(String::new(), |row| row.default_value().to_string());
    OutOfBounds { name, given: given.to_owned(), permitted, default }
}

impl Default for Tunables {
    /// The defaults of [`TABLE`].
    fn default() -> Tunables {
        let values: Vec<Value> = TABLE.iter().map(Row::default_value).collect();
        Tunables::from_values(&values).expect("the defaults are inside their bounds: a unit test asserts it")
    }
}
