// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cases: which program, how it is called, and what it must say.

use std::time::Duration;

use super::Case;

const LIMIT: Duration = Duration::from_mins(2);

fn case(name: &str, script: &str, expects: &[&str]) -> Case {
    Case {
        name: name.to_owned(),
        script: script.to_owned(),
        expects: expects.iter().map(|&word| word.to_owned()).collect(),
        config: None,
        limit: LIMIT,
    }
}

/// A server and a client that differ in the host name at the end.
fn pair(name: &str, port: u16, command: &str, expects: &[&str]) -> Case {
    case(name, &format!("pair {port} '{command}' '{command} localhost'"), expects)
}

/// All cases, the simplest first.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(devices());
    cases.extend(pingpongs());
    cases.extend(perftest());
    cases.extend(ucx());
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

fn pingpongs() -> Vec<Case> {
    let said = &["1000 iters"];
    vec![
        pair("ibv_rc_pingpong", 18601, "ibv_rc_pingpong -p 18601 -c", said),
        pair("ibv_rc_pingpong_events", 18602, "ibv_rc_pingpong -p 18602 -e -c", said),
        pair("ibv_rc_pingpong_timestamps", 18603, "ibv_rc_pingpong -p 18603 -t", said),
        pair("ibv_rc_pingpong_new_send", 18604, "ibv_rc_pingpong -p 18604 -N -c", said),
        pair("ibv_rc_pingpong_gid", 18605, "ibv_rc_pingpong -p 18605 -g 0 -c", said),
        pair("ibv_uc_pingpong", 18606, "ibv_uc_pingpong -p 18606", said),
        pair("ibv_ud_pingpong", 18607, "ibv_ud_pingpong -p 18607", said),
        pair("ibv_ud_pingpong_events_gid", 18608, "ibv_ud_pingpong -p 18608 -e -g 0", said),
        pair("ibv_srq_pingpong", 18609, "ibv_srq_pingpong -p 18609 -c", &["iters"]),
        pair("ibv_srq_pingpong_events", 18610, "ibv_srq_pingpong -p 18610 -e", &["iters"]),
    ]
}

fn perftest() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut port = 18620;
    let mut add = |name: &str, command: &str, expects: &[&str]| {
        port += 1;
        cases.push(pair(name, port, &format!("{command} -d softhca0 -p {port}"), expects));
    };
    let latency = &["t_typical"][..];
    let bandwidth = &["BW average"][..];
    for (tool, connections) in [("send", "RC UC UD"), ("write", "RC UC"), ("read", "RC")] {
        for connection in connections.split(' ') {
            let name = |what: &str| format!("ib_{tool}_{what}_{}", connection.to_lowercase());
            add(&name("lat"), &format!("ib_{tool}_lat -c {connection} -a -n 200"), latency);
            add(&name("bw"), &format!("ib_{tool}_bw -c {connection} -a -n 500"), bandwidth);
            add(&name("bw_bidirectional"), &format!("ib_{tool}_bw -c {connection} -b -n 2000"), bandwidth);
        }
    }
    for (kind, name) in [("FETCH_AND_ADD", "add"), ("CMP_AND_SWAP", "swap")] {
        add(&format!("ib_atomic_lat_{name}"), &format!("ib_atomic_lat -A {kind}"), latency);
        add(&format!("ib_atomic_bw_{name}"), &format!("ib_atomic_bw -A {kind}"), bandwidth);
    }
    add("ib_send_lat_events", "ib_send_lat -e -n 500", latency);
    add("ib_send_bw_events", "ib_send_bw -e -n 500", bandwidth);
    add("ib_send_bw_srq", "ib_send_bw -r 256 --use-srq -n 2000", bandwidth);
    add("ib_write_bw_many_pairs", "ib_write_bw -q 8 -n 500", bandwidth);
    add("ib_send_lat_gid", "ib_send_lat -x 0", latency);
    cases
}

/// `ucx_perftest` waits for its client on a TCP port; the client ends the test.
fn ucx() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut port = 18700;
    let mut add = |name: String, environment: &str, test: &str| {
        port += 1;
        let server = format!("{environment} ucx_perftest -p {port}");
        let client = format!("{environment} ucx_perftest localhost -p {port} {test}");
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

/// Two MPI programs of this repository's own tests stand for the many that run on Open MPI.
fn openmpi() -> Vec<Case> {
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/../mpi");
    let build = |program: &str| {
        format!("mpi=$(mktemp -d) && mpicc -O1 -o $mpi/{program} {programs}/{program}.c -lm -lpthread && ")
    };
    let mpirun = "mpirun --allow-run-as-root --oversubscribe --tag-output";
    let openib = "--mca pml ob1 --mca btl self,openib --mca btl_openib_allow_ib 1 --mca btl_openib_warn_no_device_params_found 0";
    let ucx = "--mca pml ucx --mca osc ucx -x UCX_TLS=rc_v,ud_v,self -x UCX_NET_DEVICES=softhca0:1";
    let mut cases = Vec::new();
    for (name, options) in [("openib", openib), ("ucx_pml", ucx)] {
        for ranks in [2, 4] {
            for program in ["pt2pt_modes", "collectives"] {
                let script = format!(
                    "{}{mpirun} -n {ranks} {options} $mpi/{program}; status=$?; rm -rf $mpi; exit $status",
                    build(program)
                );
                cases.push(case(&format!("openmpi_{name}_{program}_{ranks}_ranks"), &script, &["ok"]));
            }
        }
    }
    cases
}

/// rdma-core's own test suite, which Debian ships with its Python binding as documentation, packed. What it skips, it says:
/// other vendors' features, XRC, device memory, memory windows, on-demand paging, raw packets, connection manager.
fn pyverbs() -> Case {
    case(
        "pyverbs",
        "suite=$(mktemp -d) && cp -r /usr/share/doc/rdma-core/tests $suite/ && cd $suite/tests && \
         find . -name '*.gz' -exec gunzip {} + && /usr/bin/python3 run_tests.py -v --dev softhca0; \
         status=$?; rm -rf $suite; exit $status",
        &["test_rc_traffic", "OK (skipped="],
    )
}
