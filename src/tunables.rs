// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of all parameters: name, default, unit, bounds, help, effect, level.
//!
//! Owns [`TABLE`] and the checked values ([`Tunables`]); the PML's own are in `tunables/pml.rs`, what a row consists of
//! in `row.rs`, what makes a table of rows in `table.rs`, the page made from both tables (docs/parameters.md) in
//! `page.rs`. The plugin registers each row with Open MPI as `btl_ibex_<name>` and hands the values back in the same
//! order to [`Tunables::from_values`]; the rest of the engine reads fields. The parameters that Open MPI itself defines
//! for every BTL (eager limit, flags, ...) are not here.
//!
//! Path: setup; the engine copies what a hot path needs. Threads: read-only after start. Units: each row names its own.
//! Tests: `tunables/tests.rs` (`cargo test -p ibex tunables`; `IBEX_WRITE_DOCS=1` in front rewrites the page).

#[macro_use]
mod table;
mod page;
pub mod pml;
mod row;
#[cfg(test)]
mod tests;

use crate::interfaces;
use ibex_ffi::verbs::HugePages;
use std::path::Path;

pub use page::markdown;
pub use row::{Kind, OutOfBounds, Row, Value};

table! {
    /// Every parameter of the BTL and of the ports, in the order of [`Tunables::from_values`].
    TABLE;
    /// The checked value of every parameter: one field per row of [`TABLE`], in the row's unit.
    Tunables;
    "btl_ibex_";

    // Which ports, and how they are addressed.
    if_include: Text { default: "", choices: &[] }, "", level 1,
        "The only ports to use: comma-separated patterns device[:port], with * and ? (mlx5_*, rxe0:1). Empty: all.",
        "ibex ignores all other ports; btl_ibex_verbose 1 lists them with this reason.";
    if_exclude: Text { default: "", choices: &[] }, "", level 1,
        "Ports not to use: comma-separated patterns device[:port], with * and ? (mlx5_bond_*, mlx5_1:2). Applied after \
         if_include.",
        "Keeps an adapter free for storage or for another job.";
    ignore_locality: Flag { default: false }, "", level 4,
        "Whether to use all active ports, not only those nearest the process (by NUMA distance).",
        "true: more ports, and so more bandwidth for one process; each transfer through a far port crosses the link between \
         the processor packages.";
    min_rate: Count { default: 25, min: 0, max: 100 }, "percent", level 4,
        "The least data rate of a port that is used beside a faster one, as a share of the fastest port's. Ports are used \
         whatever their rate where if_include is set.",
        "A larger value keeps slow ports (for management, say) from taking their turns of messages; 0 uses all.";
    gid_index: Text { default: "auto", choices: &["auto", "0..=255"] }, "", level 2,
        "The entry of the port's GID table to use. auto: on Ethernet RoCE v2 with IPv4, then RoCE v2 with IPv6, then RoCE \
         v1; on InfiniBand entry 0.",
        "Chooses the IP network (and VLAN) of RoCE packets. Every process must choose the same type of GID.";
    pkey_index: Count { default: 0, min: 0, max: 65535 }, "", level 4,
        "The entry of the port's partition key table that the queue pairs use.",
        "Chooses the InfiniBand partition; both ends must be members of it, and one of them a full member (key 0x8000 or more).";
    service_level: Count { default: 0, min: 0, max: 15 }, "", level 4,
        "The service level of all packets, handshakes included, on InfiniBand; on Ethernet its low 3 bits are the priority (PCP) \
         of packets with a VLAN tag.",
        "Chooses the virtual lane (or the lossless priority) that the fabric's administrator has set up. Switches that sort RoCE \
         v2 by DSCP go by traffic_class instead.";
    traffic_class: Count { default: 0, min: 0, max: 255 }, "", level 4,
        "The traffic class of packets with a global header (on RoCE all packets, handshakes included; on InfiniBand those to other \
         subnets): six bits of DSCP, two of ECN, so DSCP 26 is 104.",
        "Chooses the queue, and with it the lossless priority, in Ethernet switches that sort packets by DSCP. Some drivers let the \
         administrator's setting of the port go before it.";
    mtu: Text { default: "auto", choices: &["auto", "256", "512", "1024", "2048", "4096"] }, "bytes", level 4,
        "The path MTU of a connection. auto: the smaller of the two ports' active MTUs.",
        "A smaller value gets through a network whose MTU is smaller than that of its ports, and costs bandwidth. ibex \
         refuses a port whose active MTU is below this.";

    // Queues and slots.
    send_queue_depth: Count { default: 128, min: 16, max: 16384 }, "entries", level 5,
        "The number of work requests that one connection may have posted.",
        "A larger value keeps more small messages and RDMA operations in flight to one peer; each entry takes some 64 to \
         256 bytes of locked memory per connected peer. What does not fit waits inside ibex, in order.";
    receive_queue_depth: Count { default: 1024, min: 64, max: 32767 }, "entries", level 5,
        "The number of receive slots that a process keeps posted, shared by all peers; its ports have equal shares, of at least \
         128 where this is more.",
        "A larger value takes larger bursts before senders wait; each slot locks btl_ibex_max_send_size bytes.";
    receive_batch: Count { default: 32, min: 1, max: 1024 }, "entries", level 6,
        "The number of receive slots that ibex posts again at once.",
        "A larger value rings fewer doorbells; a smaller one keeps the shared receive queue fuller. At most half of \
         receive_queue_depth.";
    completion_queue_depth: Count { default: 8192, min: 256, max: 4194303 }, "entries", level 5,
        "The number of completions that a port's completion queue holds.",
        "Bounds the work requests in flight over all peers of a port: ibex takes a credit before it posts, so the queue \
         cannot overflow.";
    max_inline: Count { default: 128, min: 0, max: 1024 }, "bytes", level 4,
        "The largest message, in bytes, that ibex copies into the work request itself. The adapter may grant less.",
        "Inline messages save the adapter a read of host memory, and so latency; a larger value makes every entry of the \
         send queue larger.";
    signal_interval: Count { default: 0, min: 0, max: 1024 }, "sends", level 6,
        "One of this many inline sends asks for a completion; at most half of send_queue_depth. 0: 32, or that half where it is \
         less.",
        "A larger value makes fewer completions to poll, and frees send queue entries later.";
    poll_batch: Count { default: 16, min: 1, max: 16 }, "entries", level 6,
        "The most completions that ibex takes in one poll.",
        "A larger value favours bandwidth; a smaller one shows a single message sooner.";
    send_slots_grow: Count { default: 64, min: 1, max: 4096 }, "slots", level 6,
        "The number of send slots that ibex registers at once when none is free.",
        "A larger value makes fewer, larger registrations. A slot holds one message: 320 bytes, the eager limit, or \
         btl_ibex_max_send_size.";
    send_slots_max: Count { default: 4096, min: 0, max: 1048576 }, "slots", level 5,
        "The bound of a port's send slots: each of the three sizes (320 bytes, eager limit, btl_ibex_max_send_size) may \
         have half this number. 0: as many as memory may be locked.",
        "Bounds locked memory. Beyond it eager messages wait in ordinary memory, and fragments of long messages wait until \
         a slot is free.";
    zero_copy_min: Count { default: 16384, min: 0, max: 4294967295 }, "bytes", level 4,
        "The smallest contiguous fragment, in bytes, that ibex sends from the user's memory instead of copying it.",
        "Registering memory costs more than copying a little. Registrations are cached, so programs that reuse buffers gain \
         from a smaller value.";
    max_rd_atomic: Count { default: 0, min: 0, max: 255 }, "requests", level 6,
        "The number of RDMA reads and atomics that a connection may have in flight, each way; the adapter may permit fewer. \
         0: 16, on a software adapter (soft-RoCE) 4.",
        "A larger value hides the latency of reads, and takes room in the adapter. On a software adapter, what is read \
         ahead falls out of the processor's cache before it is copied.";

    fork_support: Text { default: "auto", choices: &["auto", "yes", "no"] }, "", level 4,
        "Whether a process may fork after MPI_Init although the kernel does not copy memory that an adapter uses (before \
         Linux 5.12). auto: if libibverbs can keep such memory out of children. yes: ibex takes no part if it cannot. no: \
         ibex does not ask it to.",
        "None where the kernel copies. Elsewhere each registration takes a call of madvise, and children must not touch \
         registered pages.";

    // UCX, too, takes explicit huge pages first and transparent ones then for the buffers it receives into.
    huge_pages: Text { default: "auto", choices: &["auto", "explicit", "transparent", "no"] }, "", level 5,
        "The pages of receive slots and send slots. auto: explicit huge pages of 2 MiB (vm.nr_hugepages) where slots fill them \
         but for an eighth, each process of the job on the host could take as many and leave half of them, and a quarter stays \
         free; else transparent ones. explicit: the same as long as there are any. transparent: explicit ones never. no: what \
         the kernel gives to those who do not ask.",
        "With huge pages, adapter and processor look up fewer translations of addresses. A port's receive slots take 17 explicit \
         ones (34 MiB, of which the limit of locked memory counts all).";
    // On: the adapter's drivers register the kernel's own memory so on every processor (mlx5), what ibex waits for are
    // completions, as there, and an adapter that gains nothing by it ignores it.
    relaxed_ordering: Flag { default: true }, "", level 5,
        "Whether the adapter may write to memory in any order (IBV_ACCESS_RELAXED_ORDERING) where only a completion says what has \
         arrived: to slots and to the user's memory of messages. Never to windows of one-sided communication, which a processor \
         may poll, nor to the target of atomics.",
        "true: more bandwidth on some processors (AMD EPYC, Intel Emerald Rapids, Fujitsu A64FX); none on adapters that ignore it. \
         If messages take longer with it, try false.";

    // What the adapter does when packets are lost or the receiver is late.
    ack_timeout: Count { default: 0, min: 0, max: 31 }, "exponent", level 5,
        "The time that the adapter waits for an acknowledgement before it repeats a packet: 4.096 us * 2^n (14: 67 ms, 16: \
         268 ms, 18: 1.07 s). 0: ibex chooses it for each connection by round trip and link_outage.",
        "A lost packet that no other follows costs this time, and up to four times as much on adapters that round it. A \
         smaller value finds the loss sooner. Too small a value repeats packets that are merely late, and ends a connection \
         after a shorter outage: after about (retry_count + 1) * this, up to four times as much.";
    link_outage: Count { default: 2000, min: 0, max: 600000 }, "ms", level 5,
        "The time that a path may be silent without ending a connection, where ack_timeout is 0: ibex chooses a time-out of \
         which retry_count + 1 last at least this long.",
        "A larger value survives longer outages (a link that comes back, a switch that restarts); a smaller one finds a \
         lost packet and a dead peer sooner. A lost packet costs about link_outage / (retry_count + 1).";
    retry_count: Count { default: 7, min: 0, max: 7 }, "tries", level 5,
        "The number of times that the adapter repeats an unacknowledged packet before the connection fails. At most 6 on a \
         software adapter: soft-RoCE repeats for ever at 7.",
        "A larger value survives longer outages; a smaller one reports a dead peer sooner.";
    probe_interval: Count { default: 0, min: 0, max: 86400 }, "seconds", level 5,
        "The time between probes of idle peers: ibex asks each for an acknowledgement. 0: never.",
        "A rank that only waits for a dead peer gets an error, where the runtime does not end the job (mpirun \
         --enable-recovery). Over ob1 a peer that disconnected in order (MPI_Comm_disconnect) while this process goes on \
         counts as dead.";
    rnr_timer: Text { default: "auto", choices: &["auto", "0..=31"] }, "", level 6,
        "The time that a sender waits when the receiver had no receive slot, as a code of the InfiniBand specification \
         (table 46): 1 = 0.01 ms, 6 = 0.08 ms, 12 = 0.64 ms, 18 = 5.12 ms, 24 = 41 ms, 31 = 492 ms, 0 = 655 ms. auto: the \
         receiver chooses it for each connection, 0.64 ms for its first three, then 0.2 ms times the connections that it has, at \
         most 41 ms.",
        "A shorter time resumes sooner after a burst; too short a time floods a receiver that computes, as each sender tries \
         again so often.";
    rnr_retry: Count { default: 7, min: 0, max: 7 }, "tries", level 6,
        "The number of times that a sender repeats after the receiver had no receive slot; 7: for ever.",
        "Anything below 7 turns a receiver that computes for long into an error.";

    // Connecting.
    connect_via: Text { default: "auto", choices: &["auto", "ud", "tcp"] }, "", level 4,
        "What carries the handshake of two processes: unreliable datagrams of the fabric (ud), TCP (tcp), or ud first, and \
         tcp as well when ud is missing or unanswered (auto).",
        "tcp serves adapters without UD and networks that filter it, but does not tell InfiniBand fabrics of one prefix apart. \
         With ud alone, ibex cannot tell a peer that computes for longer than connect_timeout from a dead one.";
    tcp_if_include: Text { default: "", choices: &[] }, "", level 4,
        "The only interfaces on which to take handshakes over TCP: comma-separated names (eth0) and networks (10.1.0.0/16), \
         in order of preference. Empty: all addresses that another host may reach. ibex uses at most four.",
        "Chooses the network of handshakes over TCP; ibex listens on no other address. Not together with tcp_if_exclude.";
    tcp_if_exclude: Text { default: "", choices: &[] }, "", level 4,
        "Interfaces on which not to take handshakes over TCP: comma-separated names and networks, as in tcp_if_include.",
        "Keeps ibex from listening on a network that peers cannot reach, or that others can. Not together with tcp_if_include.";
    connect_retry: Count { default: 50, min: 1, max: 10000 }, "ms", level 6,
        "The time after which ibex repeats an unanswered handshake packet; it doubles with each try, up to 1000 ms.",
        "A smaller value connects sooner where packets are lost; a larger one sends fewer packets to a peer that computes.";
    connect_timeout: Count { default: 60, min: 1, max: 86400 }, "s", level 4,
        "The time that a peer may leave the handshake unanswered while no TCP connection to it stands either.",
        "A larger value waits for peers that compute behind a network that filters TCP; a smaller one reports a dead peer \
         sooner.";
    connect_ud_tries: Count { default: 4, min: 1, max: 1000 }, "tries", level 6,
        "The number of unanswered datagrams after which ibex tries the handshake over TCP as well (connect_via auto).",
        "A smaller value connects sooner where datagrams are filtered; a larger one opens fewer TCP connections to peers \
         that are merely slow.";
    connect_poll_interval: Count { default: 16, min: 1, max: 65536 }, "polls", level 7,
        "ibex looks at the datagram queue in one of this many progress calls while it connects nobody; calls that find \
         messages count as a sixteenth.",
        "A smaller value answers a first message sooner; a larger one makes progress cheaper.";
    connect_tcp_interval: Count { default: 1024, min: 1, max: 1048576 }, "polls", level 7,
        "ibex looks at the TCP listener in one of this many progress calls while it connects nobody.",
        "Each look is a system call. A smaller value answers sooner a peer that has only TCP.";

    // Events.
    event_buffer: Count { default: 4096, min: 1, max: 1048576 }, "events", level 5,
        "The number of events that a buffered registration holds, unless its info key ibex_buffer_events says otherwise.",
        "A larger value loses fewer events between two calls of MPI that make progress; each event takes 128 bytes in every \
         such registration.";
    event_buffered: Flag { default: false }, "", level 5,
        "Whether events wait in a buffer until progress delivers them, unless the info key ibex_buffered of the \
         registration says otherwise.",
        "A buffered event takes less time where it happens, and its callback runs later.";
    event_adapter_clock: Flag { default: true }, "", level 4,
        "Whether the adapter's clock stamps arrivals and completions, where the adapter can.",
        "true: the timestamp says when the adapter did it, and ibex holds events for some microseconds to deliver them in \
         order. false: the host stamps an event when MPI sees it, and its callback runs then.";

    // Watching and testing.
    flight_recorder: Text { default: "/dev/shm", choices: &[] }, "", level 4,
        "The folder in which each process keeps, while it runs, a file with what it did last (ibex flight) and with its \
         counts (ibex top), of 300 KiB. no: none.",
        "None on messages that need no waiting. The file is removed when the process ends well. Of files that dead processes \
         have left the newest 64 are kept. In a folder that is not in memory, writing may take long.";
    verbose: Count { default: 0, min: 0, max: 100 }, "level", level 1,
        "What ibex prints on standard error: 0 errors; 1 also each port and GID with the reason why it was taken or \
         refused, and peers that ibex does not reach; 2 also round trip and time-out of each connection.",
        "None on messages.";
    handshake_loss: Count { default: 0, min: 0, max: 100 }, "percent", level 9,
        "Fault injection: ibex drops this share of handshake packets instead of sending them.",
        "For tests. Messages are not touched.";
    handshake_duplicate: Count { default: 0, min: 0, max: 100 }, "percent", level 9,
        "Fault injection: ibex sends this share of handshake packets twice.",
        "For tests. Messages are not touched.";
    fault_seed: Count { default: 1, min: 0, max: 18446744073709551615 }, "", level 9,
        "Fault injection: the seed by which ibex chooses the packets to drop or to send twice.",
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

/// Whether memory that adapters use must be kept out of child processes.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum ForkSupport {
    /// Where that can be.
    Auto,
    /// Without fail.
    Yes,
    /// Not by ibex.
    No,
}

impl Tunables {
    /// Takes the value of every parameter, in the order of [`TABLE`], and checks each and how they go together.
    ///
    /// # Errors
    /// [`OutOfBounds`] for the first value that is not permitted; it names parameter, value and range.
    pub fn from_values(values: &[Value]) -> Result<Tunables, OutOfBounds> {
        let tunables = Tunables::from_rows(values)?;
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

    /// One of how many inline sends asks for a completion, where a queue pair takes `depth` requests: at most half as
    /// many, also where the adapter's queue is shorter than the parameter, so that a queue that is full has asked for one.
    #[must_use]
    pub fn signal_interval_of(&self, depth: u32) -> u32 {
        let wanted = if self.signal_interval == 0 { SIGNAL_INTERVAL } else { self.signal_interval as u32 };
        wanted.min(depth / 2).max(1)
    }

    /// The GID table entry asked for; `None`: choose by type.
    #[must_use]
    pub fn forced_gid_index(&self) -> Option<u32> {
        self.gid_index.parse().ok()
    }

    /// The code of the "receiver not ready" timer asked for; `None`: choose by the number of connections.
    #[must_use]
    pub fn forced_rnr_timer(&self) -> Option<u8> {
        self.rnr_timer.parse().ok()
    }

    /// The MTU asked for, in bytes; `None`: what the ports have active.
    #[must_use]
    pub fn forced_mtu(&self) -> Option<u32> {
        self.mtu.parse().ok()
    }

    /// Whether memory that adapters use must be kept out of child processes.
    #[must_use]
    pub fn forks(&self) -> ForkSupport {
        match self.fork_support.as_str() {
            "yes" => ForkSupport::Yes,
            "no" => ForkSupport::No,
            _ => ForkSupport::Auto,
        }
    }

    /// Which huge pages slots may have, in one of so many processes of the job on this host.
    #[must_use]
    pub fn pages(&self, processes: u32) -> HugePages {
        match self.huge_pages.as_str() {
            "explicit" => HugePages::Explicit,
            "transparent" => HugePages::Transparent,
            "no" => HugePages::No,
            _ => HugePages::Shared { processes },
        }
    }

    /// Where the flight recorder has its file; `None`: nowhere.
    #[must_use]
    pub fn flight_folder(&self) -> Option<&Path> {
        let is_wanted = !["", "no"].contains(&self.flight_recorder.as_str());
        is_wanted.then(|| Path::new(&self.flight_recorder))
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

/// One of how many inline sends asks for a completion, where nobody says otherwise and the queue is long enough.
const SIGNAL_INTERVAL: u32 = 32;

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
    let row = TABLE.iter().find(|row| row.name == name).unwrap_or(&TABLE[0]);
    OutOfBounds::new(row, given.to_owned(), permitted)
}

impl Default for Tunables {
    /// The defaults of [`TABLE`].
    fn default() -> Tunables {
        let values: Vec<Value> = TABLE.iter().map(Row::default_value).collect();
        Tunables::from_values(&values).expect("the defaults are inside their bounds: a unit test asserts it")
    }
}
