// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of two hosts: the launchers are scripts that run the commands on this machine.

use super::*;
use crate::nodes::sides::tests::listener;
use std::sync::atomic::{AtomicU32, Ordering};

struct Made(PathBuf);

impl Made {
    /// In `script`, `$1` is the host and `$2` a line for its shell, as with ssh.
    fn new(script: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("ibex-bench-hosts-{}-{number}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let made = Self(folder);
        made.program("launcher", script);
        made.program("ibex mpi's bench", "true");
        made
    }

    fn program(&self, name: &str, script: &str) {
        // A shell writes it: a program that another test starts would inherit the open file, and it could not run.
        let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#;
        let file = self.0.join(name);
        let written = std::process::Command::new("sh").args(["-c", write, "sh"]).arg(file).arg(script).status();
        assert!(written.unwrap().success());
    }

    fn launcher(&self) -> String {
        self.0.join("launcher").display().to_string()
    }

    fn hosts(&self) -> Hosts {
        let names = ["far-a", "far-b"].map(str::to_owned);
        Hosts { names, launcher: Launcher::Remote(vec![self.launcher()]) }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sides(line: &str, port: u16) -> Sides {
    Sides { line: line.to_owned(), port }
}

/// As ssh does: the words behind the host are one line for a shell.
const SSH: &str = "host=$1; shift; HOST=$host exec sh -c \"$*\"";

#[test]
fn a_word_reaches_the_other_shell_as_it_is() {
    let made = Made::new(SSH);
    let word = "a 'b' \"c\" $HOME `d` \\e";
    let job = made.hosts().job(1, &format!("printf '%s %s\\n' $HOST {}", quoted(word)));
    assert_eq!(run(&Here, &job).unwrap().stdout, format!("far-b {word}\n"));
}

#[test]
fn a_step_of_an_allocation_is_on_one_host_alone_and_this_host_needs_no_launcher() {
    let hosts = Hosts::by_srun([here(), "far".to_owned()]);
    assert_eq!(hosts.words(0, "true"), ["sh", "-c", "true"]);
    let words = hosts.words(1, "a b");
    assert_eq!(words[0], "srun");
    assert_eq!(words[words.len() - 4..], ["--nodelist=far", "sh", "-c", "a b"]);
    assert!(hosts.mpirun().contains(&format!("{}:1,far:1", here())));
}

#[test]
fn the_client_starts_when_the_server_listens_and_learns_where() {
    let made = Made::new(SSH);
    let (_listener, port) = listener();
    let outcome = made.hosts().both_sides(&sides("sh -c 'echo $HOST $1' sh", port)).unwrap();
    assert!(outcome.success() && outcome.stdout.starts_with("far-b far-a"), "{outcome}");
    assert!(outcome.stderr.contains("far-a\n"), "what the server said is missing: {outcome:?}");
}

#[test]
fn no_server_is_left_when_its_client_fails() {
    let made = Made::new(SSH);
    let (_listener, port) = listener();
    let file = made.0.join("server");
    let file_name = file.display();
    let client = format!("until test -s {file_name}; do sleep 0.01; done; exit 7");
    let line = format!("sh -c 'if test $HOST = far-b; then {client}; fi; echo $$ >{file_name}; exec sleep 1000'");
    let outcome = made.hosts().both_sides(&sides(&line, port)).unwrap();
    assert!(!outcome.success() && outcome.stderr.contains("the server:"), "{outcome}");
    let server = fs::read_to_string(file).unwrap();
    let state = fs::read_to_string(format!("/proc/{}/stat", server.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[test]
fn a_server_that_ends_at_once_says_why() {
    let made = Made::new(SSH);
    // The kernel gives nobody port 1, at which nobody listens.
    let error = made.hosts().both_sides(&sides("echo no adapter >&2; exit 3;", 1)).unwrap_err();
    assert!(error.to_string().contains("far-a") && error.to_string().contains("no adapter"), "{error:#}");
}

#[test]
fn a_host_that_asks_for_a_password_is_refused_with_what_to_do() {
    let made = Made::new("echo 'Permission denied (publickey).' >&2; exit 255");
    let error = made.hosts().look(Path::new("/x"), "mlx5_0").unwrap_err().to_string();
    assert!(error.contains("Permission denied") && error.contains("ssh-copy-id far-a"), "{error}");
}

#[test]
fn a_host_without_the_programs_or_with_another_open_mpi_is_refused() {
    let made = Made::new(SSH);
    let error = made.hosts().look(Path::new("/no/program"), "x").unwrap_err().to_string();
    assert!(error.contains("far-a has no /no/program"), "{error}");
    let made =
        Made::new("if [ $1 = far-b ]; then echo program; echo version other; exit; fi; echo program; echo tool orted");
    let error = made.hosts().look(Path::new("/x"), "x").unwrap_err().to_string();
    assert!(error.contains("same on both") || error.contains("no Open MPI"), "{error}");
}

#[test]
fn only_programs_that_both_hosts_have_are_found() {
    let answers = "echo program; echo device mlx5_0; echo tool orted; echo version mpirun 4; \
                   if [ $1 = far-a ]; then echo tool ib_send_lat; fi";
    let made = Made::new(answers);
    let both = made.hosts().look(Path::new("/x"), "mlx5_0").unwrap();
    assert_eq!(both.iter().map(String::as_str).collect::<Vec<_>>(), ["orted"]);
    let error = made.hosts().look(Path::new("/x"), "mlx4_0").unwrap_err().to_string();
    assert!(error.contains("no adapter mlx4_0, but mlx5_0"), "{error}");
}

#[test]
fn a_host_is_asked_for_a_program_whose_name_needs_quotes() {
    let made = Made::new(SSH);
    let it = made.hosts().ask(0, &made.0.join("ibex mpi's bench"), "x");
    assert!(it.is_ok() || it.as_ref().is_err_and(|error| !error.to_string().contains("mpi's bench")), "{it:?}");
}

#[test]
fn scontrol_lists_the_hosts_of_an_allocation() {
    let made = Made::new("[ \"$1 $2 $3\" = 'show hostnames n[1-2]' ] && printf 'n1\\nn2\\n'");
    assert_eq!(hosts_of(&made.launcher(), "n[1-2]").unwrap(), ["n1", "n2"]);
    let error = format!("{:#}", hosts_of(&made.launcher(), "x").unwrap_err());
    assert!(error.contains("--host"), "{error}");
}

#[test]
fn this_host_is_known_by_its_name_with_and_without_a_domain() {
    let name = here();
    assert!(is_here(&name) && is_here("localhost") && !is_here("no-such-host-of-ibex"));
    let short = name.split('.').next().unwrap();
    assert!(is_here(short));
}
