// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of all parameters: [`TABLE`], and the type of the checked values, [`Tunables`], whose methods are in
//! `mod.rs`. Grade: setup. Threads: read-only after start. Units: each row names its own. Tests: `tests.rs`.

table! {
    /// Every parameter, in the order of [`Tunables::from_values`].
    TABLE;
    /// The checked value of every parameter: one field per row of [`TABLE`], in the row's unit.
    Tunables;

    // The choice of ports, and their addresses.
    if_include [Both]: Text { default: "", choices: &[] }, "", level 1, Local UntilInit,
        "The only ports to use: comma-separated patterns device[:port], with * and ? (mlx5_*, rxe0:1). Empty: all.",
        "ibex ignores all other ports; btl_ibex_verbose 1 lists them with this reason.";
    if_exclude [Both]: Text { default: "", choices: &[] }, "", level 1, Local UntilInit,
        "Ports not to use: comma-separated patterns device[:port], with * and ? (mlx5_bond_*, mlx5_1:2). Applied after \
         if_include.",
        "Keeps an adapter free for storage or for another job.";
    ignore_locality [Both]: Flag { default: false }, "", level 9, Local UntilInit,
        "Whether to use all active ports, not only those nearest the process (by NUMA distance).",
        "true: more ports, and so more bandwidth for one process; each transfer through a far port crosses the link between \
         the processor packages.";
    min_rate [Both]: Count { default: 25, min: 0, max: 100 }, "percent", level 4, Local UntilInit,
        "The least data rate of a port that is used beside a faster one, as a share of the fastest port's. Ports are used \
         whatever their rate where if_include is set.",
        "A larger value keeps slow ports (for management, say) from taking their turns of messages; 0 uses all.";
    gid_index [Both]: Text { default: "auto", choices: &["auto", "0..=255"] }, "", level 2, All UntilInit,
        "The entry of the port's GID table to use. auto: on Ethernet RoCE v2 with IPv4, then RoCE v2 with IPv6, then RoCE \
         v1; on InfiniBand entry 0.",
        "Chooses the IP network (and VLAN) of RoCE packets. Every process must choose the same type of GID.";
    pkey_index [Both]: Count { default: 0, min: 0, max: 65535 }, "", level 4, All UntilInit,
        "The entry of the port's partition key table that the queue pairs use.",
        "Chooses the InfiniBand partition; both ends must be members of it, and one of them a full member (key 0x8000 or more).";
    service_level [Both]: Count { default: 0, min: 0, max: 15 }, "", level 4, Local UntilInit,
        "The service level of all packets, handshakes included, on InfiniBand; on Ethernet its low 3 bits are the priority (PCP) \
         of packets with a VLAN tag.",
        "Chooses the virtual lane (or the lossless priority) that the fabric's administrator has set up. Switches that sort RoCE \
         v2 by DSCP go by traffic_class instead.";
    traffic_class [Both]: Count { default: 0, min: 0, max: 255 }, "", level 4, Local UntilInit,
        "The traffic class of packets with a global header (on RoCE all packets, handshakes included; on InfiniBand those to other \
         subnets): six bits of DSCP, two of ECN, so DSCP 26 is 104.",
        "Chooses the queue, and with it the lossless priority, in Ethernet switches that sort packets by DSCP. Some drivers let the \
         administrator's setting of the port go before it.";
    mtu [Both]: Text { default: "auto", choices: &["auto", "256", "512", "1024", "2048", "4096"] }, "bytes", level 4, Local UntilInit,
        "The path MTU of a connection. auto: the smaller of the two ports' active MTUs.",
        "A smaller value gets through a network whose MTU is smaller than that of its ports, and costs bandwidth. ibex \
         refuses a port whose active MTU is below this.";

    // Queues and slots.
    send_queue_depth [Both]: Count { default: 128, min: 16, max: 16384 }, "entries", level 5, Local UntilInit,
        "The number of work requests that one connection may have posted.",
        "A larger value keeps more small messages and RDMA operations in flight to one peer; each entry takes some 64 to \
         256 bytes of locked memory per connected peer. What does not fit waits inside ibex, in order.";
    receive_queue_depth [Both]: Count { default: 1024, min: 64, max: 32767 }, "entries", level 5, Local UntilInit,
        "The number of receive slots that a process keeps posted, shared by all peers; its ports have equal shares, of at least \
         128 where this is more.",
        "A larger value takes larger bursts before senders wait; each slot locks btl_ibex_max_send_size bytes.";
    completion_queue_depth [Both]: Count { default: 8192, min: 256, max: 4194303 }, "entries", level 9, Local UntilInit,
        "The number of completions that a port's completion queue holds.",
        "Bounds the work requests in flight over all peers of a port: ibex takes a credit before it posts, so the queue \
         cannot overflow.";
    max_inline [Both]: Count { default: 128, min: 0, max: 1024 }, "bytes", level 4, Local UntilInit,
        "The largest message, in bytes, that ibex copies into the work request itself. The adapter may grant less.",
        "Inline messages save the adapter a read of host memory, and so latency; a larger value makes every entry of the \
         send queue larger.";
    send_slots_max [Both]: Count { default: 4096, min: 0, max: 1048576 }, "slots", level 9, Local UntilInit,
        "The bound of a port's send slots: each of the three sizes (320 bytes, eager limit, btl_ibex_max_send_size) may \
         have half this number. 0: as many as memory may be locked.",
        "Bounds locked memory. Beyond it eager messages wait in ordinary memory, and fragments of long messages wait until \
         a slot is free.";
    zero_copy_min [Btl]: Count { default: 16384, min: 0, max: 4294967295 }, "bytes", level 9, Local UntilInit,
        "The smallest contiguous fragment, in bytes, that ibex sends from the user's memory instead of copying it.",
        "Registering memory costs more than copying a little. Registrations are cached, so programs that reuse buffers gain \
         from a smaller value.";

    fork_support [Both]: Text { default: "auto", choices: &["auto", "yes", "no"] }, "", level 4, Local UntilInit,
        "Whether a process may fork after MPI_Init although the kernel does not copy memory that an adapter uses (before \
         Linux 5.12). auto: if libibverbs can keep such memory out of children. yes: ibex takes no part if it cannot. no: \
         ibex does not ask it to.",
        "None where the kernel copies. Elsewhere each registration takes a call of madvise, and children must not touch \
         registered pages.";

    // Like UCX: explicit huge pages first, then transparent ones, for the buffers into which messages are received.
    huge_pages [Both]: Text { default: "auto", choices: &["auto", "explicit", "transparent", "no"] }, "", level 5, Local UntilInit,
        "The pages of receive slots and send slots. auto: explicit huge pages of 2 MiB (vm.nr_hugepages) where slots fill them \
         but for an eighth, each process of the job on the host could take as many and leave half of them, and a quarter stays \
         free; else transparent ones. explicit: the same as long as there are any. transparent: explicit ones never. no: what \
         the kernel gives to those who do not ask.",
        "With huge pages, adapter and processor look up fewer translations of addresses. A port's receive slots take 17 explicit \
         ones (34 MiB, of which the limit of locked memory counts all).";
    // On, as the kernel registers its own memory like that on every processor (mlx5), and ibex, too, waits only for
    // completions. An adapter that gains nothing ignores it.
    relaxed_ordering [Both]: Flag { default: true }, "", level 9, Local UntilInit,
        "Whether the adapter may write to memory in any order (IBV_ACCESS_RELAXED_ORDERING) where only a completion says what has \
         arrived: to slots and to the user's memory of messages. Never to windows of one-sided communication, which a processor \
         may poll, nor to the target of atomics.",
        "true: more bandwidth on some processors (AMD EPYC, Intel Emerald Rapids, Fujitsu A64FX); none on adapters that ignore it. \
         If messages take longer with it, try false.";

    // The adapter's behaviour after a lost packet or with a late receiver.
    ack_timeout [Both]: Count { default: 0, min: 0, max: 31 }, "exponent", level 5, Local UntilInit,
        "The time that the adapter waits for an acknowledgement before it repeats a packet: 4.096 us * 2^n (14: 67 ms, 16: \
         268 ms, 18: 1.07 s). 0: ibex chooses it for each connection by round trip and link_outage.",
        "A lost packet that no other follows costs this time, and up to four times as much on adapters that round it. A \
         smaller value finds the loss sooner. Too small a value repeats packets that are merely late, and ends a connection \
         after a shorter outage: after about eight times this, up to 32 times.";
    link_outage [Both]: Count { default: 2000, min: 0, max: 600000 }, "ms", level 5, Local UntilInit,
        "The time that a path may be silent without ending a connection, where ack_timeout is 0: ibex chooses a time-out of \
         which eight last at least this long.",
        "A larger value survives longer outages (a link that comes back, a switch that restarts); a smaller one finds a \
         lost packet and a dead peer sooner. A lost packet costs about an eighth of this.";
    probe_interval [Both]: Count { default: 0, min: 0, max: 86400 }, "seconds", level 5, Local UntilInit,
        "The time between probes of idle peers: ibex asks each for an acknowledgement. 0: never.",
        "A rank that only waits for a dead peer gets an error, where the runtime does not end the job (mpirun \
         --enable-recovery). Over ob1 a peer that disconnected in order (MPI_Comm_disconnect) while this process goes on \
         counts as dead.";

    // Connecting.
    connect_via [Both]: Text { default: "auto", choices: &["auto", "ud", "tcp"] }, "", level 4, All UntilInit,
        "What carries the handshake of two processes: unreliable datagrams of the fabric (ud), TCP (tcp), or ud first, and \
         tcp as well when ud is missing or unanswered (auto).",
        "tcp serves adapters without UD and networks that filter it, but does not tell InfiniBand fabrics of one prefix apart. \
         With ud alone, ibex cannot tell a peer that computes for longer than connect_timeout from a dead one.";
    tcp_if_include [Both]: Text { default: "", choices: &[] }, "", level 4, Local UntilInit,
        "The only interfaces on which to take handshakes over TCP: comma-separated names (eth0) and networks (10.1.0.0/16), \
         in order of preference. Empty: all addresses that another host may reach. ibex uses at most four.",
        "Chooses the network of handshakes over TCP; ibex listens on no other address. Not together with tcp_if_exclude.";
    tcp_if_exclude [Both]: Text { default: "", choices: &[] }, "", level 4, Local UntilInit,
        "Interfaces on which not to take handshakes over TCP: comma-separated names and networks, as in tcp_if_include.",
        "Keeps ibex from listening on a network that peers cannot reach, or that others can. Not together with tcp_if_include.";
    connect_timeout [Both]: Count { default: 60, min: 1, max: 86400 }, "s", level 4, Local UntilInit,
        "The time that a peer may leave the handshake unanswered while no TCP connection to it stands either.",
        "A larger value waits for peers that compute behind a network that filters TCP; a smaller one reports a dead peer \
         sooner.";

    // Events.
    event_buffer [Both]: Count { default: 4096, min: 1, max: 1048576 }, "events", level 9, Local Always,
        "The number of events that a buffered registration holds, unless its info key ibex_buffer_events says otherwise.",
        "A larger value loses fewer events between two calls of MPI that make progress; each event takes 128 bytes in every \
         such registration.";
    event_buffered [Both]: Flag { default: false }, "", level 9, Local Always,
        "Whether events wait in a buffer until progress delivers them, unless the info key ibex_buffered of the \
         registration says otherwise.",
        "A buffered event takes less time where it happens, and its callback runs later.";
    event_adapter_clock [Both]: Flag { default: true }, "", level 9, Local UntilInit,
        "Whether the adapter's clock stamps arrivals and completions, where the adapter can.",
        "true: the timestamp says when the adapter did it, and ibex holds events for some microseconds to deliver them in \
         order. false: the host stamps an event when MPI sees it, and its callback runs then.";

    // Diagnostics.
    flight_recorder [Both]: Text { default: "/dev/shm", choices: &[] }, "", level 4, Local UntilInit,
        "The folder in which each process keeps, while it runs, a file with what it did last (ibex flight) and with its \
         counts (ibex top), of 300 KiB. no: none.",
        "None on messages that need no waiting. The file is removed when the process ends well. Of files that dead processes \
         have left the newest 64 are kept. In a folder that is not in memory, writing may take long.";
    verbose [Both]: Count { default: 0, min: 0, max: 100 }, "level", level 1, Local Always,
        "What ibex prints on standard error: 0 errors; 1 also each port and GID with the reason why it was taken or \
         refused, and peers that ibex does not reach; 2 also round trip and time-out of each connection.",
        "None on messages.";

    // Messages of the PML.
    // Higher than ucx's with a device it knows (51).
    priority [Pml]: Count { default: 60, min: 0, max: 2147483647 }, "", level 5, All UntilInit,
        "The priority of ibex' PML: of the PMLs that can run, Open MPI uses the one with the highest.",
        "None on messages.";
    // No measurement supports the default yet. The minimum: a message that is only a header.
    eager_limit [Pml]: Count { default: 12288, min: 64, max: 1048576 }, "bytes", level 5, Local Always,
        "The longest message, with its header, that is sent at once; at most what a receive slot holds. While MPI runs it is at most \
         what it was when MPI was initialised.",
        "A longer one is announced, and read by its receiver. One that fits into the work request goes at once whatever this is.";
    read_size [Pml]: Count { default: 4194304, min: 4096, max: 1073741824 }, "bytes", level 5, Local UntilInit,
        "The longest read of a message. A longer message is read in several reads, four of them at a time.",
        "Short reads of several messages share a port fairly, and tools see a long message advance; each read costs a work request. \
         A software adapter reads 32 KiB at most, which stay in the processor's cache.";
    unexpected_memory [Pml]: Count { default: 4194304, min: 0, max: 1099511627776 }, "bytes", level 5, Local UntilInit,
        "Memory that a process keeps messages in for which it has posted no receive.",
        "Beyond it the senders are held back: they announce also short messages, which stay in the user's buffers until they are \
         received. Beyond it also come what the receive slots hold, what was sent before a sender heard of it, and a header for each \
         message announced.";
}
