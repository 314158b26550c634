// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex explain --live` of a running process, which is this one: by its trace so far, and by its counts. Takes 1 s.

#[path = "../../messages/tests/simulated/mod.rs"]
mod simulated;

use std::fs::{self, File};
use std::process::{Command, Output};
use std::sync::atomic::Ordering;

use ibex::counters::Counters;
use ibex::flight::{self, PeerFlight, PeerState, Process};
use ibex::peer::PeerName;
use simulated::{WHOLE, Written, envelope};

fn ibex(arguments: &[&str]) -> (bool, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_ibex")).args(arguments).output().expect("it was built");
    (status.success(), String::from_utf8_lossy(&stdout).into(), String::from_utf8_lossy(&stderr).into())
}

/// One test, as the process has one recorder and is one process.
#[test]
fn a_process_that_runs_is_explained_by_its_counts_and_by_the_trace_that_it_writes() {
    let (folder, pid) = (simulated::folder("live"), std::process::id().to_string());
    let place = folder.display().to_string();
    let live = |more: &[&str]| ibex(&[&["explain", "--live", &pid, "--folder", &place], more].concat());
    let (_, _, refused) = live(&[]);
    assert!(refused.contains("does not use ibex"), "{refused}");

    flight::begin(&folder, &Process { job: 9, rank: 0, host: "n1", names_instances: false })
        .expect("a folder of the test's own");
    flight::name_port(0, "mlx5_0:1", [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    let counters = Counters::default();
    counters.copy_sent.store(12, Ordering::Relaxed);
    flight::show(0, &counters, 0);
    flight::show_peer(&PeerFlight {
        peer: PeerName { job: 9, rank: 8 },
        port: 0,
        state: PeerState::Ready,
        queue_pairs: (0x4321, 0x8765),
        posted: 55,
        in_flight: 0,
        waiting: 0,
        asked: 1,
        timeout: 14,
        retries: 7,
        time: 0,
    });
    let (is_done, text, told) = live(&[]);
    assert!(is_done, "{told}");
    for words in ["by its counts", "fe80::1", "0x4321", "0x8765", "ready", "sent copied", "ibex trace -o"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let (_, json, _) = live(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["peers"][0]["requests"], &json["ports"][0]["counts"]["copy_sent"]), (&55.into(), &12.into()));
    let (is_done, _, told) = live(&["--waits"]);
    assert!(!is_done && told.contains("is not recorded"), "{told}");

    let traces = folder.join("trace");
    fs::create_dir(&traces).expect("a folder of the test's own");
    let mut processes = vec![simulated::Process::default(), simulated::Process::default()];
    let request = processes[1].post(0, &envelope(0, 7, 4096));
    processes[0].send(10, &envelope(1, 7, 64));
    processes[1].arrive(20, &envelope(0, 7, 64), Some((request, &envelope(0, 7, 4096))));
    let how = Written { is_finished: false, ..WHOLE };
    let files: Vec<_> =
        (0..).zip(&processes).map(|(rank, process)| simulated::write(&traces, (rank, 2), process, &how)).collect();
    let open = File::open(&files[0]).expect("it was written");
    let (is_done, text, told) = live(&[]);
    assert!(is_done && text.contains("1 messages among 2 ranks"), "{text}{told}");
    assert!(text.contains("the job so far: 2 of 2 files are not finished") && !text.contains("was killed"), "{text}");
    let (is_done, text, _) = live(&["--message", "0:1"]);
    assert!(is_done && text.contains("the message arrives"), "{text}");
    let (is_done, _, told) = live(&["--every", "0"]);
    assert!(!is_done && told.contains("--every 0 is not between"), "{told}");

    // Without the process the trace is that of a job that crashed, or that still runs elsewhere.
    drop(open);
    let (is_done, text, _) = ibex(&["explain", &traces.display().to_string()]);
    assert!(is_done && text.contains("1 messages") && text.contains("was killed, or still runs"), "{text}");
    flight::end();
    fs::remove_dir_all(folder).expect("a folder of the test's own");
}
