// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cases: each program, its arguments, and the output that it must print. They judge perftest by its status and the
//! rows of its table, never by the figures there: to turn cycles into time perftest measures the processor's clock,
//! which fails on a busy machine. With `-F` that is a warning, and the run goes on; its times then mean nothing.

use hw_tests::openmpi::Series;
use std::net::TcpListener;
use std::time::Duration;

use super::case::{Case, Judge};
use super::pyverbs::pyverbs;

/// Programs that poll wait for their turn where processors are few or busy; on a quiet machine all take seconds.
const LIMIT: Duration = Duration::from_mins(20);

fn case(name: &str, script: &str, expects: &[&str]) -> Case {
    Case {
        name: name.to_owned(),
        script: script.to_owned(),
        judge: Judge::Says(expects.iter().map(|&word| word.to_owned()).collect()),
        config: None,
        limit: LIMIT,
    }
}

/// TCP ports below the kernel's range for clients (`ip_local_port_range`) at which nobody listens now. Two runs at one
/// time have different ones, unless their process numbers are apart by a multiple of 177.
fn ports() -> impl Iterator<Item = u16> {
    let first = 10_000 + 128 * (std::process::id() % 177) as u16;
    (first..).filter(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok())
}

/// A server and a client that meet at the port, and differ in the host name at the end.
fn pair(name: &str, port: u16, command: &str, expects: &[&str]) -> Case {
    case(name, &format!("pair {port} '{command} -p {port}' '{command} -p {port} localhost'"), expects)
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut ports = ports();
    cases.extend(devices());
    cases.extend(pingpongs(&mut ports));
    cases.extend(perftest(&mut ports));
    cases.extend(ucx(&mut ports));
    cases.extend(openmpi());
    cases.push(pyverbs());
    cases
}

fn devices() -> Vec<Case> {
    let mut two = case("ibv_devinfo_two_kinds", "ibv_devinfo -v", &["fabric_a", "fabric_b", "Ethernet", "RoCE v2"]);
    two.config = Some(
        "[[device]]\nname = \"fabric_a\"\n[[device.port]]\n[[device.port]]\nmtu = 1024\n[[device]]\nname = \"fabric_b\"\nlink_layer = \"ethernet\"\n"
            .to_owned(),
    );
    vec![
        case("ibv_devices", "ibv_devices", &["softhca0"]),
        case("ibv_devinfo", "ibv_devinfo -v", &["PORT_ACTIVE", "link_layer:\t\tInfiniBand", "port_lid:\t\t1"]),
        two,
    ]
}

fn pingpongs(ports: &mut impl Iterator<Item = u16>) -> Vec<Case> {
    let said = &["1000 iters"][..];
    let cases = [
        ("ibv_rc_pingpong", "ibv_rc_pingpong -c", said),
        ("ibv_rc_pingpong_events", "ibv_rc_pingpong -e -c", said),
        ("ibv_rc_pingpong_timestamps", "ibv_rc_pingpong -t", said),
        ("ibv_rc_pingpong_new_send", "ibv_rc_pingpong -N -c", said),
        ("ibv_rc_pingpong_gid", "ibv_rc_pingpong -g 0 -c", said),
        ("ibv_uc_pingpong", "ibv_uc_pingpong", said),
        ("ibv_ud_pingpong", "ibv_ud_pingpong", said),
        ("ibv_ud_pingpong_events_gid", "ibv_ud_pingpong -e -g 0", said),
        ("ibv_srq_pingpong", "ibv_srq_pingpong -c", &["iters"][..]),
        ("ibv_srq_pingpong_events", "ibv_srq_pingpong -e", &["iters"][..]),
        ("ibv_xsrq_pingpong", "ibv_xsrq_pingpong", &["success"][..]),
        ("ibv_xsrq_pingpong_events", "ibv_xsrq_pingpong -e", &["success"][..]),
    ];
    cases.into_iter().zip(ports).map(|((name, command, expects), port)| pair(name, port, command, expects)).collect()
}

/// Sizes of perftest's `-a`: all powers of two from 2 bytes to 8 MiB, over datagrams to one packet of 4 KiB.
const ALL_SIZES: usize = 23;
const ALL_SIZES_OF_A_DATAGRAM: usize = 12;

fn perftest(ports: &mut impl Iterator<Item = u16>) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &str, command: &str, rows: usize| {
        let port = ports.next().expect("there are ports");
        let mut case = pair(name, port, &format!("{command} -F -d softhca0"), &[]);
        case.judge = Judge::Rows(rows);
        cases.push(case);
    };
    for (tool, connections) in [("send", "RC UC UD"), ("write", "RC UC"), ("read", "RC")] {
        for connection in connections.split(' ') {
            let name = |what: &str| format!("ib_{tool}_{what}_{}", connection.to_lowercase());
            let all = if connection == "UD" { ALL_SIZES_OF_A_DATAGRAM } else { ALL_SIZES };
            add(&name("lat"), &format!("ib_{tool}_lat -c {connection} -a -n 50"), all);
            add(&name("bw"), &format!("ib_{tool}_bw -c {connection} -a -n 500"), all);
            add(&name("bw_bidirectional"), &format!("ib_{tool}_bw -c {connection} -b -n 2000"), 1);
        }
    }
    for (kind, name) in [("FETCH_AND_ADD", "add"), ("CMP_AND_SWAP", "swap")] {
        add(&format!("ib_atomic_lat_{name}"), &format!("ib_atomic_lat -A {kind}"), 1);
        add(&format!("ib_atomic_bw_{name}"), &format!("ib_atomic_bw -A {kind}"), 1);
    }
    add("ib_send_lat_events", "ib_send_lat -e -n 500", 1);
    add("ib_send_bw_events", "ib_send_bw -e -n 500", 1);
    add("ib_send_bw_srq", "ib_send_bw -r 256 --use-srq -n 2000", 1);
    add("ib_write_bw_many_pairs", "ib_write_bw -q 8 -n 500", 1);
    add("ib_send_lat_gid", "ib_send_lat -x 0", 1);
    cases
}

/// The option by which a `ucx_perftest` that is built with MPI, as Debian 13's, does without; others refuse it.
const WITHOUT_MPI: &str = "$(ucx_perftest -h 2>&1 | grep -q -e '-P <' && echo -P 0)";

/// `ucx_perftest` waits for its client on a TCP port; the client ends the test. Some releases need the device twice.
fn ucx(ports: &mut impl Iterator<Item = u16>) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, environment: &str, test: &str| {
        let port = ports.next().expect("there are ports");
        let server = format!("{environment} ucx_perftest {WITHOUT_MPI} -p {port} {test}");
        let client = format!("{environment} ucx_perftest {WITHOUT_MPI} localhost -p {port} {test}");
        cases.push(case(&name, &format!("pair {port} \"{server}\" \"{client}\""), &["Final:"]));
    };
    for (transport, tests) in [
        ("rc_verbs", &["am_lat", "am_bw", "put_lat", "put_bw", "get", "add_lat", "fadd", "cswap"][..]),
        ("ud_verbs", &["am_lat", "am_bw"][..]),
    ] {
        for test in tests {
            // UCX reads by RDMA only above 64 bytes; its atomics are of 8. It has no swap over verbs.
            let size = if matches!(*test, "add_lat" | "fadd" | "cswap") { 8 } else { 128 };
            let options = format!("-t {test} -x {transport} -d softhca0:1 -n 10000 -w 100 -s {size}");
            let options = if *test == "get" { format!("{options} -D zcopy") } else { options };
            add(format!("ucx_{transport}_{test}"), "", &options);
        }
    }
    for transport in ["rc_v", "ud_v"] {
        let environment = format!("UCX_TLS={transport} UCX_NET_DEVICES=softhca0:1");
        add(format!("ucx_{transport}_tag_lat"), &environment, "-t tag_lat -n 10000 -w 100 -s 8");
        add(format!("ucx_{transport}_tag_bw"), &environment, "-t tag_bw -n 500 -w 10 -s 1000000");
    }
    cases
}

/// openib polls the queue of its connections' messages, then arms it, and sends the last message only once. It never
/// sees a message that comes in between, and the job hangs, unless the adapter gives an event then, as `ConnectX`.
const OPENIB_NEEDS: &str = "[[device]]\n[device.behaviour]\narm_tells_of_unread = true\n";

/// Two MPI programs of this repository's own tests stand for the many that run on Open MPI.
fn openmpi() -> Vec<Case> {
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/../hw-tests/mpi");
    let build = |program: &str| {
        format!("mpi=$(mktemp -d) && mpicc -O1 -o $mpi/{program} {programs}/{program}.c -lm -lpthread && ")
    };
    // Where there is no Open MPI at all the cases exist, and fail.
    let series = Series::here().unwrap_or(Series::V4_1);
    let mpirun = format!("mpirun --allow-run-as-root {} --tag-output", series.oversubscribed(false).join(" "));
    let openib = "--mca pml ob1 --mca btl self,openib --mca btl_openib_allow_ib 1 --mca btl_openib_warn_no_device_params_found 0";
    let ucx = "--mca pml ucx --mca osc ucx -x UCX_TLS=rc_v,ud_v,self -x UCX_NET_DEVICES=softhca0:1";
    let mut cases = Vec::new();
    let mut ways = vec![("ucx_pml", ucx, None)];
    if series.has_openib() {
        ways.push(("openib", openib, Some(OPENIB_NEEDS)));
    } else {
        println!("skip openib: this Open MPI has no such BTL");
    }
    for (name, options, config) in ways {
        for ranks in [2, 4] {
            for program in ["pt2pt_modes", "collectives"] {
                let script = format!(
                    "{}{mpirun} -n {ranks} {options} $mpi/{program}; status=$?; rm -rf $mpi; exit $status",
                    build(program)
                );
                let mut case = case(&format!("openmpi_{name}_{program}_{ranks}_ranks"), &script, &["ok"]);
                case.config = config.map(str::to_owned);
                cases.push(case);
            }
        }
    }
    cases
}
