// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one table of all parameters: name, default, unit, bounds, help, effect, level.
//!
//! Owns [`TABLE`], the checked values ([`Tunables`]) and the page made from the table (docs/parameters.md). The plugin registers
//! each row with Open MPI as `btl_ibex_<name>` and hands the values back in the same order to [`Tunables::from_values`]; the
//! rest of the engine reads fields. The parameters that Open MPI itself defines for every BTL (eager limit, flags, ...) are
//! not here.
//!
//! Path: setup; the engine copies what a hot path needs. Threads: read-only after start. Units: each row names its own.
//! Tests: at the end of the file (`cargo test -p ibex tunables`; `IBEX_WRITE_DOCS=1` in front rewrites the page).

use std::fmt::Write as _;

/// What a parameter is, what it is unless set, and what it may be.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A whole number from `min` to `max`, both included.
    Count {
        /// The value unless set.
        default: u64,
        /// The smallest permitted value.
        min: u64,
        /// The greatest permitted value.
        max: u64,
    },
    /// Words.
    Text {
        /// The value unless set.
        default: &'static str,
        /// What it may be; empty: anything. A choice written `a..=b` stands for every whole number from a to b.
        choices: &'static [&'static str],
    },
    /// Yes or no.
    Flag {
        /// The value unless set.
        default: bool,
    },
}

/// One parameter.
#[derive(Copy, Clone, Debug)]
pub struct Row {
    /// Its name; Open MPI shows it as `btl_ibex_<name>`.
    pub name: &'static str,
    /// Its kind, default and bounds.
    pub kind: Kind,
    /// The unit of a count; empty where there is none.
    pub unit: &'static str,
    /// What it sets, in one sentence.
    pub help: &'static str,
    /// What one gets and pays when changing it.
    pub effect: &'static str,
    /// Who needs it: the verbosity level of MPI_T (MPI 4.0, section 15.3.1), 1 = every user ... 9 = developers of ibex.
    pub level: u8,
}

impl Row {
    /// The permitted values in words: `16 to 16384 entries`, `one of auto, ud, tcp`, `any text`, `true or false`.
    #[must_use]
    pub fn permitted(&self) -> String {
        match self.kind {
            Kind::Count { min, max, .. } if self.unit.is_empty() => format!("{min} to {max}"),
            Kind::Count { min, max, .. } => format!("{min} to {max} {}", self.unit),
            Kind::Text { choices: [], .. } => "any text".to_owned(),
            Kind::Text { choices, .. } => {
                let words: Vec<String> = choices.iter().map(|choice| choice.replace("..=", " to ")).collect();
                format!("one of {}", words.join(", "))
            }
            Kind::Flag { .. } => "true or false".to_owned(),
        }
    }

    /// The value unless set.
    #[must_use]
    pub fn default_value(&self) -> Value {
        match self.kind {
            Kind::Count { default, .. } => Value::Count(default),
            Kind::Text { default, .. } => Value::Text(default.to_owned()),
            Kind::Flag { default } => Value::Flag(default),
        }
    }

    /// Checks one value against this row.
    ///
    /// # Errors
    /// [`OutOfBounds`] when the value is of another kind than the row or not permitted.
    pub fn check(&self, value: &Value) -> Result<(), OutOfBounds> {
        let permitted = match (self.kind, value) {
            (Kind::Count { min, max, .. }, Value::Count(given)) => (min..=max).contains(given),
            (Kind::Text { choices, .. }, Value::Text(given)) => {
                choices.is_empty() || choices.iter().any(|choice| admits(choice, given))
            }
            (Kind::Flag { .. }, Value::Flag(_)) => true,
            _ => false,
        };
        if permitted { Ok(()) } else { Err(OutOfBounds::value(self, value)) }
    }
}

/// Whether `given` is the word `choice`, or a whole number in it when it is written `a..=b`.
fn admits(choice: &str, given: &str) -> bool {
    let Some((low, high)) = choice.split_once("..=") else { return choice == given };
    let (Ok(low), Ok(high)) = (low.parse::<u64>(), high.parse::<u64>()) else { return false };
    // `parse` would also take a plus sign, which the users of the value would not.
    let digits = !given.is_empty() && given.bytes().all(|byte| byte.is_ascii_digit());
    digits && given.parse::<u64>().is_ok_and(|number| (low..=high).contains(&number))
}

/// A value of a parameter, as the plugin read it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// Of a [`Kind::Count`].
    Count(u64),
    /// Of a [`Kind::Text`].
    Text(String),
    /// Of a [`Kind::Flag`].
    Flag(bool),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Count(number) => write!(f, "{number}"),
            Value::Text(text) => write!(f, "\"{text}\""),
            Value::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// A parameter has a value it may not have. The text names the parameter, the value, what is permitted, and what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "the parameter btl_ibex_{name} is {given}, but may be {permitted}: set it so \
     (mpirun --mca btl_ibex_{name} VALUE) or leave it out to get {default}"
)]
pub struct OutOfBounds {
    /// The row's name, without `btl_ibex_`.
    pub name: &'static str,
    /// What was given, as text.
    pub given: String,
    /// What is permitted, in words.
    pub permitted: String,
    /// The value unless set, as text.
    pub default: String,
}

impl OutOfBounds {
    fn new(row: &Row, given: String, permitted: String) -> OutOfBounds {
        OutOfBounds { name: row.name, given, permitted, default: row.default_value().to_string() }
    }

    fn value(row: &Row, given: &Value) -> OutOfBounds {
        OutOfBounds::new(row, given.to_string(), row.permitted())
    }
}

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
    send_slots_max: Count { default: 0, min: 0, max: 1048576 }, "slots", level 5,
        "The greatest number of send slots of a port, half of them for eager messages and half for fragments; 0: as many as \
         memory may be locked.",
        "Bounds locked memory; sends beyond it wait. Control messages get a slot all the same.";
    zero_copy_min: Count { default: 16384, min: 0, max: 4294967295 }, "bytes", level 4,
        "From which size a contiguous fragment is sent from the user's memory instead of being copied.",
        "Registering memory costs more than copying little; registered memory is cached, so programs that reuse buffers gain from \
         a smaller value.";
    max_rd_atomic: Count { default: 0, min: 0, max: 255 }, "requests", level 6,
        "How many reads and atomics a connection may have in flight, each way; the adapter may permit fewer. 0: 16, but 1 on a \
         software adapter (soft-RoCE).",
        "More hides the latency of get; each takes room in the adapter. What a software adapter reads ahead falls out of the \
         processor's cache before it is copied.";

    // What the adapter does when packets are lost or the receiver is late.
    ack_timeout: Count { default: 18, min: 0, max: 31 }, "exponent", level 5,
        "How long the adapter waits for an acknowledgement: 4.096 us * 2^n (14: 67 ms, 18: 1.07 s); 0: for ever.",
        "Smaller finds lost packets sooner; too small repeats packets that are merely late. With retry_count it sets how soon a \
         dead peer is an error: about (retry_count + 1) * 4 * this. 0 never notices a dead peer.";
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
    let default =
        TABLE.iter().find(|row| row.name == name).map_or(String::new(), |row| row.default_value().to_string());
    let permitted = format!("at most {} (half of btl_ibex_{other}, which is {depth})", depth / 2);
    Err(OutOfBounds { name, given: value.to_string(), permitted, default })
}

impl Default for Tunables {
    /// The defaults of [`TABLE`].
    fn default() -> Tunables {
        let values: Vec<Value> = TABLE.iter().map(Row::default_value).collect();
        Tunables::from_values(&values).expect("the defaults are inside their bounds: a unit test asserts it")
    }
}

/// The table as a Markdown page: the text of docs/parameters.md.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(
        "# Parameters\n\n\
         Each is set as `mpirun --mca btl_ibex_NAME VALUE`, as `OMPI_MCA_btl_ibex_NAME=VALUE` in the environment, or in\n\
         `~/.openmpi/mca-params.conf`. A value that is not permitted is refused at start, with the permitted range.\n\
         `ompi_info --param btl ibex --level 9` shows these and the ones Open MPI has for every BTL. The level says who needs\n\
         it: 1 to 3 users, 4 to 6 who tunes, 7 to 9 who develops.\n\n\
         This page is made from the table in src/tunables.rs: `IBEX_WRITE_DOCS=1 cargo test -p ibex tunables` rewrites it.\n\n\
         | name | default | permitted | level | what it sets | effect |\n|---|---|---|---|---|---|\n",
    );
    for row in TABLE {
        let default = match row.default_value() {
            Value::Text(text) if text.is_empty() => "(empty)".to_owned(),
            Value::Text(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        };
        let cells = [&format!("`{}`", row.name), &default, &row.permitted(), &row.level.to_string()]
            .map(|cell| cell.replace('|', "\\|"))
            .join(" | ");
        let _ = writeln!(page, "| {cells} | {} | {} |", escape(row.help), escape(row.effect));
    }
    page
}

/// Keeps the patterns of a help text from being read as Markdown.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*").replace('_', "\\_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn defaults() -> Vec<Value> {
        TABLE.iter().map(Row::default_value).collect()
    }

    fn with(name: &str, value: Value) -> Result<Tunables, OutOfBounds> {
        let mut values = defaults();
        let index = TABLE.iter().position(|row| row.name == name).expect("a row of that name");
        values[index] = value;
        Tunables::from_values(&values)
    }

    #[test]
    fn every_name_occurs_once_and_is_a_plain_word() {
        let names: HashSet<_> = TABLE.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), TABLE.len());
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')));
    }

    #[test]
    fn every_default_is_inside_its_bounds_and_every_row_says_what_it_is_for() {
        for row in TABLE {
            row.check(&row.default_value()).expect(row.name);
            assert!(row.help.ends_with('.') && row.effect.ends_with('.'), "{}", row.name);
            assert!((1..=9).contains(&row.level), "{}", row.name);
        }
        let _ = Tunables::default();
    }

    #[test]
    fn every_field_reads_back_the_value_of_its_own_row() {
        // Each row in turn gets a value that differs from its default; exactly that must show, under its name, in Debug.
        let before = format!("{:#?}", Tunables::default());
        for row in TABLE {
            let (value, shown) = match row.kind {
                Kind::Count { default, min, .. } if default > min => {
                    (Value::Count(default - 1), (default - 1).to_string())
                }
                Kind::Count { default, .. } => (Value::Count(default + 1), (default + 1).to_string()),
                Kind::Text { choices: [], .. } => (Value::Text("probe".to_owned()), "\"probe\"".to_owned()),
                Kind::Text { choices, .. } => {
                    let other = choices[1].split("..=").next().expect("a first part");
                    (Value::Text(other.to_owned()), format!("\"{other}\""))
                }
                Kind::Flag { default } => (Value::Flag(!default), (!default).to_string()),
            };
            let after = format!("{:#?}", with(row.name, value).expect(row.name));
            let changed: Vec<_> = before.lines().zip(after.lines()).filter(|(old, new)| old != new).collect();
            assert_eq!(changed.len(), 1, "{}", row.name);
            assert_eq!(changed[0].1.trim(), format!("{}: {shown},", row.name));
        }
    }

    #[test]
    fn both_bounds_of_every_count_are_permitted_and_one_beyond_is_refused() {
        for row in TABLE {
            let Kind::Count { min, max, .. } = row.kind else { continue };
            row.check(&Value::Count(min)).expect(row.name);
            row.check(&Value::Count(max)).expect(row.name);
            for beyond in [min.checked_sub(1), max.checked_add(1)].into_iter().flatten() {
                let refusal = row.check(&Value::Count(beyond)).expect_err(row.name).to_string();
                for part in [format!("btl_ibex_{}", row.name), beyond.to_string(), min.to_string(), max.to_string()] {
                    assert!(refusal.contains(&part), "{refusal:?} lacks {part}");
                }
            }
        }
    }

    #[test]
    fn a_refusal_names_parameter_value_and_range_and_says_what_to_do() {
        let refusal = with("retry_count", Value::Count(8)).expect_err("8 is too many").to_string();
        assert_eq!(
            refusal,
            "the parameter btl_ibex_retry_count is 8, but may be 0 to 7 tries: set it so \
             (mpirun --mca btl_ibex_retry_count VALUE) or leave it out to get 7"
        );
    }

    #[test]
    fn a_text_with_choices_refuses_anything_else() {
        assert_eq!(with("connect_via", Value::Text("tcp".to_owned())).expect("a choice").via(), ConnectVia::Tcp);
        let refusal = with("connect_via", Value::Text("rdmacm".to_owned())).expect_err("no choice").to_string();
        assert!(refusal.contains("\"rdmacm\", but may be one of auto, ud, tcp"), "{refusal}");
    }

    #[test]
    fn a_gid_index_is_auto_or_a_number_up_to_255() {
        let index =
            |text: &str| with("gid_index", Value::Text(text.to_owned())).map(|tunables| tunables.forced_gid_index());
        assert_eq!(index("auto"), Ok(None));
        assert_eq!(index("0"), Ok(Some(0)));
        assert_eq!(index("255"), Ok(Some(255)));
        for bad in ["256", "-1", "+1", "", "1 ", "99999999999999999999999"] {
            index(bad).expect_err(bad);
        }
    }

    #[test]
    fn a_batch_larger_than_half_its_queue_is_refused() {
        let refusal = with("receive_batch", Value::Count(1024)).expect_err("the queue has 1024").to_string();
        assert!(
            refusal.contains("btl_ibex_receive_batch is 1024") && refusal.contains("btl_ibex_receive_queue_depth"),
            "{refusal}"
        );
        with("signal_interval", Value::Count(64)).expect("half of 128");
        with("signal_interval", Value::Count(65)).expect_err("more than half of 128");
    }

    #[test]
    fn a_missing_value_and_one_of_another_kind_are_refused() {
        let mut values = defaults();
        values[2] = Value::Count(1);
        assert_eq!(Tunables::from_values(&values).expect_err("a count for a flag").name, TABLE[2].name);
        values.truncate(2);
        assert_eq!(Tunables::from_values(&values).expect_err("two values").given, "missing");
    }

    #[test]
    fn the_committed_page_is_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/parameters.md");
        if std::env::var_os("IBEX_WRITE_DOCS").is_some() {
            std::fs::write(path, markdown()).expect("docs/ can be written");
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == markdown(),
            "docs/parameters.md is out of date: run IBEX_WRITE_DOCS=1 cargo test -p ibex tunables"
        );
    }
}
