// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that nobody here wrote, unmodified, on the emulated adapter: rdma-core's, perftest, UCX's, Open MPI's. Each
//! case runs a shell script under `softhca run`, prints what the programs said, and fails if one of them fails, says
//! nothing of what it should, is not installed, or does not end in time.
//!
//! Debian packages: ibverbs-utils, perftest, ucx-utils, openmpi-bin, libopenmpi-dev (mpicc), python3-pyverbs.
//! `cargo test -p softhca --test programs` runs all; a word after `--` chooses cases by name;
//! `SOFTHCA_COMMAND` names another build of the command (an optimised one) to run them with.

mod cases;

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// One case: its name, the script, and words that its output must contain.
struct Case {
    name: String,
    script: String,
    expects: Vec<String>,
    /// Given to `softhca run --config`, where the default adapter is not enough.
    config: Option<String>,
    limit: Duration,
}

/// Waits until somebody listens on a TCP port: the programs meet by TCP, and a client does not try twice.
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
    let config = case.config.as_ref().map(|text| {
        let path = std::env::temp_dir().join(format!("softhca-{}-{}.toml", std::process::id(), case.name));
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
    command.stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("timeout (coreutils) cannot be run: {error}"))?;
    if let Some(path) = config {
        let _ = std::fs::remove_file(path);
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(124 | 137) => return Err(format!("{said}\nnot finished after {seconds} s")),
        other => return Err(format!("{said}\nended with status {other:?}")),
    }
    match case.expects.iter().find(|word| !said.contains(*word)) {
        Some(word) => Err(format!("{said}\nit did not say {word:?}")),
        None => Ok(said),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let chosen: Vec<Case> = cases::all()
        .into_iter()
        .filter(|case| words.is_empty() || words.iter().any(|word| case.name.contains(word.as_str())))
        .collect();
    if chosen.is_empty() {
        eprintln!("no case is called {words:?}");
        return ExitCode::FAILURE;
    }
    let mut failed = Vec::new();
    for case in &chosen {
        let start = Instant::now();
        println!("== {}: {}", case.name, case.script.lines().next().unwrap_or_default().trim());
        let mut result = run(case);
        // perftest calibrates its clock before it measures, and gives up where other programs disturb that.
        for _ in 0..4 {
            match &result {
                Err(said) if said.contains("Correlation coefficient") => {
                    println!("   perftest could not calibrate its clock; once more");
                    result = run(case);
                }
                _ => break,
            }
        }
        let (verdict, said) = match &result {
            Ok(said) => ("ok", said),
            Err(said) => ("FAILED", said),
        };
        for line in said.lines().filter(|line| !line.trim().is_empty()) {
            println!("   {line}");
        }
        println!("== {}: {verdict} ({:.1} s)\n", case.name, start.elapsed().as_secs_f64());
        if result.is_err() {
            failed.push(&case.name);
        }
    }
    println!("{} of {} cases passed", chosen.len() - failed.len(), chosen.len());
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failed:?}");
    ExitCode::FAILURE
}
