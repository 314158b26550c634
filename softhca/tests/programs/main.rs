// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of others, unmodified, on the emulated adapter: rdma-core's, perftest, UCX's, Open MPI's. Each case runs a
//! shell script under `softhca run`, and fails if one of its programs fails, does not print the expected output, is not
//! installed, or does not end in time. Its output follows, in short where it passed.
//!
//! Debian packages: ibverbs-utils, perftest, ucx-utils, openmpi-bin, libopenmpi-dev (mpicc), python3-pyverbs. The cases
//! run by `cargo test -p softhca --test programs`; words after `--` choose cases by name, `--nocapture` shows their
//! whole output; `SOFTHCA_COMMAND` names another build of the command (an optimised one) to run them with.

mod case;
mod cases;
mod pyverbs;

use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use case::{Case, Judge};
use hw_tests::{Folder, runtime_failure};
use pyverbs::Results;

/// Waits until a program listens on a TCP port: the programs meet by TCP, and a client does not try twice.
const SHELL: &str = r#"
set -u
listening() {
    line=$(printf ':%04X [0-9A-F]*:0000 0A' "$1")
    until grep -q "$line" /proc/net/tcp /proc/net/tcp6; do
        kill -0 "$server" 2>/dev/null || { echo "the server ended before it listened"; return 1; }
        sleep 0.02
    done
}
# pair PORT SERVER-COMMAND CLIENT-COMMAND: both must succeed; their outputs follow one another.
pair() {
    out=$(mktemp) || exit 1
    sh -c "$2" >"$out" 2>&1 & server=$!
    listening "$1"
    status=0
    sh -c "$3" || { status=$?; echo "client: exit status $status"; kill $server 2>/dev/null; }
    wait $server || { status=$?; echo "server: exit status $status"; }
    echo "--- the server:"; cat "$out"; rm -f "$out"
    return $status
}
"#;

fn run(case: &Case) -> Result<String, String> {
    // For the temporary files of this case alone: in a shared folder Open MPI removes those of other jobs with its own.
    let folder = Folder::new("softhca-programs").map_err(|error| format!("{error:#}"))?;
    let config = case.config.as_ref().map(|text| {
        let path = folder.file("adapters.toml");
        std::fs::write(&path, text).expect("the folder for temporary files can be written to");
        path
    });
    let seconds = case.limit.as_secs().to_string();
    let mut command = Command::new("timeout");
    let softhca = std::env::var("SOFTHCA_COMMAND").unwrap_or_else(|_| env!("CARGO_BIN_EXE_softhca").to_owned());
    command.args(["--kill-after=2", &seconds, &softhca, "run"]);
    if let Some(path) = &config {
        command.arg("--config").arg(path);
    }
    command.args(["--", "sh", "-c", &format!("{SHELL}\n{{ {}; }} 2>&1", case.script)]);
    command.env("TMPDIR", folder.path()).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("timeout (coreutils) cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(124 | 137) => return Err(format!("{said}\nnot finished after {seconds} s")),
        other => return Err(format!("{said}\nended with status {other:?}")),
    }
    match case.judge.verdict(&said) {
        Ok(()) => Ok(said),
        Err(what) => Err(format!("{said}\n{what}")),
    }
}

/// Runs a case and prints its output, in short where it is right and not wanted whole; returns the reasons for the
/// skipped parts, or `None` if it failed.
fn report(case: &Case, all_output: bool) -> Option<Vec<String>> {
    let start = Instant::now();
    let mut result = run(case);
    let mut skips = Vec::new();
    if let Err(said) = &result
        && let Some(line) = runtime_failure::of(said)
    {
        skips.push(format!("flaky {}: Open MPI's runtime had failed: {line}", case.name));
        result = run(case);
    }
    println!("== {}: {}", case.name, case.script.lines().next().unwrap_or_default().trim());
    let said = match &result {
        Ok(said) if !all_output => case.judge.in_short(said),
        Ok(said) | Err(said) => said.clone(),
    };
    said.lines().filter(|line| !line.trim().is_empty()).for_each(|line| println!("   {line}"));
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    println!("   ({:.1} s)\ntest {} ... {verdict}", start.elapsed().as_secs_f64(), case.name);
    if matches!(case.judge, Judge::Suite) {
        skips.extend(Results::read(result.as_ref().ok()?).skips());
    }
    result.ok().map(|_| skips)
}

fn main() -> ExitCode {
    let (options, words): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.starts_with('-'));
    let chosen: Vec<Case> = cases::all()
        .into_iter()
        .filter(|case| words.is_empty() || words.iter().any(|word| case.name.contains(word.as_str())))
        .collect();
    if chosen.is_empty() {
        eprintln!("no case is called {words:?}");
        return ExitCode::FAILURE;
    }
    let all_output = options.iter().any(|option| option == "--nocapture");
    let start = Instant::now();
    let (mut skips, mut passed) = (Vec::new(), 0);
    for skipped in chosen.iter().filter_map(|case| report(case, all_output)) {
        skips.extend(skipped);
        passed += 1;
    }
    println!();
    for skip in &skips {
        println!("{skip}");
    }
    let is_good = passed == chosen.len();
    println!(
        "test result: {}. {passed} passed; {} failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s",
        if is_good { "ok" } else { "FAILED" },
        chosen.len() - passed,
        cases::all().len() - chosen.len(),
        start.elapsed().as_secs_f64()
    );
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
