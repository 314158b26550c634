// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cases of the MPI programs of hw-tests/mpi, of which [`super`] makes tests. Setup grade; plain data.

use crate::launch::Parameters;

#[derive(Clone, Copy)]
pub(super) struct Case {
    /// Sentence to which the test's name may append the number of ranks.
    pub(super) sentence: &'static str,
    pub(super) program: &'static str,
    pub(super) ranks: &'static [usize],
    /// The program's words, with spaces between.
    pub(super) arguments: &'static str,
    pub(super) parameters: Parameters,
    /// `[[fault]]` tables. A case with faults runs on emulated adapters only.
    pub(super) faults: &'static str,
    /// Factor of the program's counts of repetitions, for slow emulated processors.
    pub(super) scale: f64,
    /// Time limit in seconds.
    pub(super) limit: u64,
    /// Whether the quick tier runs it, with two ranks if `ranks` has that number.
    pub(super) quick: bool,
}

const fn case(sentence: &'static str, program: &'static str) -> Case {
    let (ranks, parameters): (&[usize], Parameters) = (&[2], &[]);
    let (arguments, faults, scale, limit, quick) = ("", "", 1.0, 180, false);
    Case { sentence, program, ranks, arguments, parameters, faults, scale, limit, quick }
}

impl Case {
    const fn on(self, ranks: &'static [usize]) -> Self {
        Self { ranks, ..self }
    }

    const fn arguments(self, arguments: &'static str) -> Self {
        Self { arguments, ..self }
    }

    const fn with(self, parameters: Parameters) -> Self {
        Self { parameters, ..self }
    }

    const fn faulty(self, faults: &'static str) -> Self {
        Self { faults, ..self }
    }

    const fn scale(self, scale: f64) -> Self {
        Self { scale, ..self }
    }

    const fn limit(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    const fn quick(self) -> Self {
        Self { quick: true, ..self }
    }
}

/// Queues so short that all resources run out continually.
pub(crate) const STARVED: Parameters = &[
    ("btl_ibex_send_queue_depth", "16"),
    ("btl_ibex_receive_queue_depth", "64"),
    ("btl_ibex_completion_queue_depth", "256"),
    ("btl_ibex_send_slots_max", "8"),
];

/// Almost no memory for unexpected messages, so that senders are held back.
pub(crate) const HELD_BACK: Parameters = &[("pml_ibex_unexpected_memory", "1024")];

/// The flight recorder copies state now and then, which is not part of a message's path.
const WITHOUT_FLIGHT_RECORDER: Parameters = &[("btl_ibex_flight_recorder", "no")];

/// No zero-copy, and no inline sends.
pub(crate) const COPIED: Parameters = &[("btl_ibex_zero_copy_min", "4294967295"), ("btl_ibex_max_inline", "0")];

/// Loses 40 % of the datagrams, which carry only handshakes, and duplicates 40 % of the others.
const FAULTY_HANDSHAKE: &str = "[[fault]]\naction = \"drop\"\nqp_type = \"ud\"\nfraction = 0.4\nseed = 1\n\
                                [[fault]]\naction = \"duplicate\"\nqp_type = \"ud\"\nfraction = 0.4\nseed = 2\n";

/// No RDMA reads, so ob1's receiver tells the sender where to write, in fragments.
pub(crate) const WRITTEN: Parameters =
    &[("btl_ibex_flags", "send,put,inplace"), ("btl_ibex_min_rdma_pipeline_size", "65536")];

/// Least growth of performance variables in each rank.
const GROWING: &str = "inline_sent=200 inline_bytes=1600 copy_sent=1 received=200 get=5 put=20 \
                       atomic=1 connections=1 registrations=1 polls=200 completions=200";

pub(super) static CASES: &[Case] = &[
    case("a job without traffic starts and ends", "init_finalize").on(&[1, 2, 8]).quick(),
    case("every send mode delivers at every size", "pt2pt_modes").on(&[1, 2, 3]).quick(),
    case("every send mode delivers when nothing is inline or zero-copy", "pt2pt_modes").with(COPIED),
    case("every send mode delivers when all queues are short", "pt2pt_modes").with(STARVED).scale(0.5),
    case("messages reach the receive they match", "pt2pt_matching").on(&[1, 2, 4]).quick(),
    case("random traffic is matched as MPI says", "traffic").on(&[1, 2, 3, 4]).quick(),
    case("random traffic of several threads is matched as MPI says", "traffic").arguments("--threads 3 --seed 100"),
    case("random traffic is matched as MPI says when all queues are short", "traffic")
        .arguments("--seed 200")
        .with(STARVED)
        .scale(0.3),
    case("random traffic is matched as MPI says when messages are written by their senders", "traffic")
        .arguments("--seed 300")
        .with(WRITTEN)
        .scale(0.3),
    case("many long messages with gaps to several ranks at once all arrive", "strided_sends")
        .on(&[2, 3, 4])
        .scale(4.0)
        .quick(),
    case("receives that are cancelled, probed for or left in a freed communicator end as MPI says", "pending_receives")
        .on(&[2, 3])
        .quick(),
    case("messages with gaps arrive in their places", "pt2pt_datatypes").on(&[2, 3]).quick(),
    case("thousands of requests complete", "pt2pt_requests").on(&[2, 4]).quick(),
    case("thousands of requests complete when all queues are short", "pt2pt_requests").with(STARVED).scale(0.3),
    case("floods of unexpected messages arrive in order", "pt2pt_flood").on(&[2, 4]).quick(),
    case("floods of unexpected messages arrive in order when all queues are short", "pt2pt_flood")
        .with(STARVED)
        .scale(0.2),
    case("very many sends outstanding arrive in order and lock no more memory", "outstanding").on(&[2, 4]).quick(),
    case("messages of a rank to itself arrive with gaps and without, and none goes by ibex", "self_messages")
        .on(&[1, 2])
        .arguments("--by self")
        .quick(),
    case("messages of a rank to itself arrive with gaps and without, where ibex alone is enabled", "self_messages")
        .on(&[1, 2])
        .with(&[("btl", "ibex")]),
    case("a first blocking send has left when it returns", "first_contact")
        .on(&[2, 4, 8])
        .arguments("blocking")
        .quick(),
    case("a first blocking send has left when it returns, over tcp", "first_contact")
        .on(&[8])
        .arguments("blocking")
        .with(&[("btl_ibex_connect_via", "tcp")]),
    case("a first blocking send has left when it returns although handshake packets are lost", "first_contact")
        .on(&[4])
        .arguments("blocking")
        .faulty(FAULTY_HANDSHAKE),
    case("collective operations give exact results", "collectives").on(&[2, 3, 4]).quick(),
    case("collective operations give exact results", "collectives").on(&[8]).scale(0.2).limit(300),
    case("communicators come and go", "communicators").on(&[2, 4]).quick(),
    case("twenty thousand communicators at once carry messages and are freed", "communicators")
        .on(&[1])
        .arguments("--many")
        .quick(),
    case("communicators of sessions carry messages", "communicators").arguments("--sessions").quick(),
    case("threads send and receive at once", "threads").quick(),
    case("threads send and receive at once when all queues are short", "threads").with(STARVED).scale(0.3),
    case("one-sided transfers land where they should", "rma_transfer").on(&[2, 3]).quick(),
    case("one-sided atomic operations count exactly", "rma_atomics").on(&[2, 4]).quick(),
    case("a list grows in memory that ranks attach while others read it", "linked_list").on(&[2, 4, 8]).quick(),
    case("a list grows in memory that was attached in any order", "linked_list")
        .arguments("--downwards --attached-first"),
    case("ranks that all send at the same moment connect", "first_contact").on(&[2, 4, 8]).quick(),
    case("a rank that starts late joins a handshake in the middle", "first_contact").arguments("--delay-us 300"),
    case("ranks connect although handshake packets are lost and repeated", "first_contact")
        .on(&[2, 4])
        .faulty(FAULTY_HANDSHAKE),
    case("ranks that all send at the same moment connect over tcp", "first_contact")
        .on(&[2, 4])
        .with(&[("btl_ibex_connect_via", "tcp")]),
    case("the adapter keeps registered memory while ranks fork and their children exec or live on", "fork_exec")
        .on(&[2, 3])
        .quick(),
    case("no registration outlives its memory", "freed_memory").quick(),
    case(
        "no registration outlives its memory where UCX has patched the system's calls before Open MPI",
        "freed_memory",
    )
    .arguments("--ucx before"),
    case("no registration outlives its memory where UCX patches the system's calls after Open MPI", "freed_memory")
        .arguments("--ucx after"),
    case("no registration outlives its memory where a component of Open MPI tells UCX of frees", "freed_memory")
        .with(&[("osc", "rdma,ucx")]),
    case("connections are made and taken down many times", "connect_cycles").quick(),
    case("a short message in steady state allocates nothing", "allocations").quick(),
    case("the performance variables count the messages that ranks send", "pvars").arguments(GROWING).quick(),
    case("a message over 2 GiB arrives whole", "message_over_2gib").limit(420),
];

/// Cases over ibex's PML alone: only it raises events of messages, and ob1 writes beyond receives that are too short.
pub(super) static OF_PML: &[Case] = &[
    case("the events of a job match its messages", "events").on(&[2, 4]).quick(),
    case("the events of a job match its messages when all queues are short", "events").with(STARVED).scale(0.3),
    case("the events of a job match its messages when nothing is inline or zero-copy", "events").with(COPIED),
    case("the events of a job match its messages when only the host's clock gives times", "events")
        .arguments("--adapter none")
        .with(&[("btl_ibex_event_adapter_clock", "0")]),
    case("the events that a tool gets and those reported as dropped are all events", "events_lost").on(&[2, 3]).quick(),
    case("tools see the same, whatever their callbacks do", "events_tools").quick(),
    case("tools see the same of several threads, whatever their callbacks do", "events_tools").arguments("--threads 3"),
    case("a message too long for its receive is cut and no byte beyond is touched", "pt2pt_truncation")
        .on(&[2])
        .quick(),
    case("a message too long for its receive is cut when nothing is inline", "pt2pt_truncation").with(COPIED),
    case("messages of a rank to itself arrive and are cut where they are too long, in each mode", "self_messages")
        .on(&[1, 2])
        .arguments("--cut"),
    case("one-sided transfers made of messages land where they should", "rma_transfer").with(&[("osc", "pt2pt")]),
    case("one-sided atomic operations made of messages count exactly", "rma_atomics")
        .on(&[2, 4])
        .with(&[("osc", "pt2pt")]),
    case("mpi ends though requests are pending", "init_finalize").on(&[1, 2, 4]).arguments("--pending").quick(),
    case("a flood of unexpected messages takes bounded memory and arrives in order", "unexpected_memory")
        .scale(0.25)
        .limit(300),
    case(
        "a flood of unexpected messages from several ranks takes bounded memory and arrives in order",
        "unexpected_memory",
    )
    .on(&[4])
    .limit(300),
    case("a flood arrives in order when there is next to no memory for it", "unexpected_memory")
        .arguments("--messages 30000")
        .with(&[("pml_ibex_unexpected_memory", "4096")])
        .scale(0.1)
        .quick(),
    case("a flood from several ranks arrives in order when there is next to no memory for it", "unexpected_memory")
        .on(&[3])
        .with(&[("pml_ibex_unexpected_memory", "4096")])
        .scale(0.2),
    case(
        "a flood arrives in order when there is next to no memory for it and all queues are short",
        "unexpected_memory",
    )
    .arguments("--messages 6000")
    .with(HELD_BACK_AND_STARVED)
    .limit(300),
    case("random traffic is matched as MPI says when senders are held back", "traffic")
        .on(&[2, 3])
        .arguments("--seed 400")
        .with(HELD_BACK)
        .quick(),
    case("random traffic is matched as MPI says when nothing unexpected may be kept", "traffic")
        .on(&[2, 3])
        .arguments("--seed 450")
        .with(&[("pml_ibex_unexpected_memory", "0")]),
    case("random traffic of several threads is matched as MPI says when senders are held back", "traffic")
        .arguments("--threads 4 --seed 500")
        .with(HELD_BACK),
    case("eight threads send and receive at once", "threads").arguments("--threads 8"),
    case("threads send and receive at once when senders are held back", "threads")
        .arguments("--threads 6")
        .with(HELD_BACK),
    case("no short message executes a locked instruction", "locked_instructions").with(WITHOUT_FLIGHT_RECORDER).quick(),
    case("short messages execute locked instructions where several threads may call", "locked_instructions")
        .arguments("--threads")
        .with(WITHOUT_FLIGHT_RECORDER),
    case("collectives are right when senders are held back", "collectives")
        .on(&[3])
        .with(&[("pml_ibex_unexpected_memory", "1")]),
];

static HELD_BACK_AND_STARVED: Parameters = &[
    ("pml_ibex_unexpected_memory", "4096"),
    ("btl_ibex_send_queue_depth", "16"),
    ("btl_ibex_receive_queue_depth", "64"),
    ("btl_ibex_completion_queue_depth", "256"),
    ("btl_ibex_send_slots_max", "8"),
];
