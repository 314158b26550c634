// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands on folders with damaged, truncated, foreign and future traces: each shows the readable data, and reports
//! the rest by file and place; none panics. Seeded. Some seconds.

#[path = "../../messages/tests/damaged/mod.rs"]
mod damaged;
#[path = "../../messages/tests/simulated/mod.rs"]
mod simulated;

use std::fs;
use std::process::Command;

use damaged::{ALL, Damage};

/// Runs a command, which has to end by itself: returns whether it succeeded, and its output.
fn said(arguments: &[&str], what: (Damage, u64)) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ibex")).args(arguments).output().expect("it was built");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let is_an_end = matches!(output.status.code(), Some(0 | 1));
    assert!(is_an_end && !text.contains("panicked"), "{what:?}: {arguments:?}: {}: {text}", output.status);
    (output.status.success(), text)
}

#[test]
fn each_command_shows_the_readable_part_and_reports_the_rest() {
    for damage in ALL {
        for seed in 100..103 {
            let (folder, what) = (simulated::folder("damaged"), (damage, seed));
            let name = damaged::make(&folder, damage, seed);
            let (trace, out) = (folder.display().to_string(), folder.join("out"));
            let out = out.display().to_string();
            let page = folder.join("page.html").display().to_string();
            let format = ["csv", "perfetto", "paraver", "parquet"][(seed as usize + damage as usize) % 4];
            for arguments in [
                &["explain", &trace][..],
                &["explain", &trace, "--waits", "--json"],
                &["view", &trace, "-o", &page],
                &["export", &trace, "--to", format, "-o", &out],
            ] {
                let (is_done, text) = said(arguments, what);
                assert!(is_done, "{what:?}: {arguments:?}: {text}");
                let is_named = text.contains(&name) || text.contains("another.ibex");
                let is_told = is_named || arguments[0] == "view" && text.contains(" faults, which the page lists");
                assert!(is_told || !damage.is_told(), "{what:?}: {arguments:?}: {text}");
            }
            said(&["explain", &trace, "--message", "1:3"], what);
            fs::remove_dir_all(&folder).expect("a folder of the test's own");
        }
    }
}

#[test]
fn a_folder_of_which_nothing_can_be_read_is_refused_with_the_file_and_the_reason() {
    let folder = simulated::folder("damaged-all");
    let trace = folder.display().to_string();
    fs::write(folder.join("a.ibex"), "what another program has written").expect("a folder of the test's own");
    let out = folder.join("out").display().to_string();
    for arguments in [&["explain", &trace][..], &["view", &trace], &["export", &trace, "--to", "csv", "-o", &out]] {
        let (is_done, text) = said(arguments, (Damage::Foreign, 0));
        assert!(!is_done && text.contains("a.ibex is no trace of ibex"), "{arguments:?}: {text}");
    }
    fs::remove_dir_all(folder).expect("a folder of the test's own");
}
