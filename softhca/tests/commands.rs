// SPDX-License-Identifier: MIT OR Apache-2.0
//! `softhca ctl`: its commands are in force, when it returns, in every process of the fabric and in those that come
//! later; wrong commands get an error. The programs are this test program's own processes.

mod engine_support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use engine_support::prelude::*;
use rustix::process::{Pid, Signal, kill_process};

const FABRIC: &str = "SOFTHCA_FABRIC";
const CONFIG: &str = "SOFTHCA_CONFIG";
const TWO_ADAPTERS: &str = "[[device]]\n[[device]]\n[[device.port]]\nstate = \"down\"\n[[device.port]]\n";

fn fabric(text: &str) -> Folder {
    let folder = new_folder();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(configuration(folder.path()), text).unwrap();
    folder
}

fn configuration(folder: &Path) -> PathBuf {
    folder.join("adapters.toml")
}

fn ctl(fabric: &Path, folder: &Folder, words: &str) -> Output {
    let mut ctl = Command::new(env!("CARGO_BIN_EXE_softhca"));
    ctl.env(FABRIC, fabric).env(CONFIG, configuration(folder.path()));
    ctl.arg("ctl").args(words.split(' ')).output().unwrap()
}

fn obeyed(folder: &Folder, words: &str) -> String {
    let output = ctl(folder.path(), folder, words);
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(folder: &Folder, words: &str) -> String {
    let output = ctl(folder.path(), folder, words);
    assert!(!output.status.success(), "{words} was done");
    String::from_utf8(output.stderr).unwrap()
}

struct Program(Process);

impl Program {
    fn start(folder: &Folder) -> Program {
        let file = configuration(folder.path());
        let variables = [(FABRIC, folder.path().as_os_str()), (CONFIG, file.as_os_str())];
        let program = Process::start("answers_questions", variables);
        assert_eq!(program.hear(), "ready");
        Program(program)
    }

    fn ask(&mut self, question: &str) -> u32 {
        self.0.tell(question);
        self.0.hear().parse().unwrap()
    }
}

#[test]
#[ignore = "started by the other tests of this file, as their programs"]
fn answers_questions() {
    let config = fabric_folder::config().unwrap();
    let (folder, _) = fabric_folder::place(&config).unwrap();
    let fabric = Fabric::join(config.fabric_in(folder)).unwrap();
    let adapters: Vec<_> = (0..fabric.devices().len()).map(|device| fabric.open(device).unwrap()).collect();
    println!("say: ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (question, of) = line.split_once(' ').unwrap();
        let adapter = &adapters[of.parse::<usize>().unwrap()];
        println!(
            "say: {}",
            match question {
                "state" => adapter.port_state(1).unwrap(),
                "lid" => u32::from(adapter.port(1).unwrap().lid),
                _ => adapter.read_async_event().unwrap().kind,
            }
        );
    }
}

#[test]
fn every_program_sees_a_link_go_down_and_come_up_by_command() {
    let folder = fabric("[[device]]\n");
    let mut programs = [Program::start(&folder), Program::start(&folder)];
    for (command, state, told) in [
        ("link-down softhca0", port_state::DOWN, event::PORT_ERR),
        ("link-up softhca0:1", port_state::ACTIVE, event::PORT_ACTIVE),
        ("link-down softhca0:1", port_state::DOWN, event::PORT_ERR),
        ("link-up softhca0", port_state::ACTIVE, event::PORT_ACTIVE),
    ] {
        obeyed(&folder, command);
        for program in &mut programs {
            assert_eq!(program.ask("state 0"), state, "{command}");
            assert_eq!(program.ask("event 0"), told, "{command}");
        }
    }
    // The link is down for a time, and programs get both events.
    obeyed(&folder, "link-down softhca0 for_ns=1000000");
    for program in &mut programs {
        assert_eq!([program.ask("event 0"), program.ask("event 0")], [event::PORT_ERR, event::PORT_ACTIVE]);
    }
}

#[test]
fn a_command_raises_events_and_changes_ports() {
    let folder = fabric(TWO_ADAPTERS);
    let mut program = Program::start(&folder);
    obeyed(&folder, "event softhca0 LID_CHANGE lid=99");
    assert_eq!([program.ask("lid 0"), program.ask("event 0")], [99, event::LID_CHANGE]);
    obeyed(&folder, "event softhca1 IBV_EVENT_DEVICE_FATAL");
    assert_eq!(program.ask("event 1"), event::DEVICE_FATAL);
    assert_eq!(program.ask("state 1"), port_state::DOWN, "by the configuration");
    obeyed(&folder, "link-up softhca1");
    assert_eq!([program.ask("state 1"), program.ask("event 1")], [port_state::ACTIVE, event::PORT_ACTIVE]);
}

#[test]
fn a_process_that_joins_later_finds_the_commanded_state() {
    let folder = fabric(TWO_ADAPTERS);
    for command in ["link-down softhca0", "event softhca0 LID_CHANGE lid=99", "link-up softhca1"] {
        obeyed(&folder, command);
    }
    let mut program = Program::start(&folder);
    let pipes = std::fs::read_dir(folder.path()).unwrap().filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("pipe-")
    });
    assert_eq!(pipes.count(), 3, "its own and those of two adapters: a command leaves no pipe");
    let found = ["state 0", "lid 0", "state 1"].map(|question| program.ask(question));
    assert_eq!(found, [port_state::DOWN, 99, port_state::ACTIVE]);
    obeyed(&folder, "link-up softhca0");
    assert_eq!(program.ask("state 0"), port_state::ACTIVE);
}

#[test]
fn a_run_takes_commands_from_within() {
    let script = "\"$0\" ctl link-down softhca0 && \"$0\" ctl link-up softhca0 && \"$0\" ctl faults";
    let softhca = env!("CARGO_BIN_EXE_softhca");
    let output = Command::new(softhca).args(["run", "--", "sh", "-c", script, softhca]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_error_of_a_command_names_the_fault() {
    let folder = fabric("[[device]]\nname = \"rail\"\n");
    for (command, words) in [("link-down softhca0", "there are rail"), ("event rail PORT_GONE", "PORT_ERR")] {
        let said = refused(&folder, command);
        assert!(said.contains(words), "{command}: {said}");
    }
    let said = String::from_utf8(ctl(&folder.file("not-there"), &folder, "link-down rail").stderr).unwrap();
    assert!(said.contains("softhca run") && said.contains("not-there"), "{said}");
}

fn all_threads_are_stopped(pid: u32) -> bool {
    let mut threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.all(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap().contains(") T "))
}

impl Program {
    fn while_stopped<T>(&self, act: impl FnOnce() -> T) -> T {
        let pid = self.0.child.id();
        let signal = |signal| kill_process(Pid::from_child(&self.0.child), signal).unwrap();
        signal(Signal::STOP);
        while !all_threads_are_stopped(pid) {
            std::thread::yield_now();
        }
        let done = act();
        signal(Signal::CONT);
        done
    }
}

fn fabric_with_program() -> (Folder, Program, Config, Arc<Fabric>) {
    let folder = fabric("[[device]]\n");
    let program = Program::start(&folder);
    let config = Config::read(&configuration(folder.path()), None).unwrap();
    let fabric = Fabric::join(config.clone().fabric_in(folder.path().to_owned())).unwrap();
    (folder, program, config, fabric)
}

#[test]
fn the_error_of_a_command_names_a_process_that_does_not_obey() {
    let (_folder, mut program, config, fabric) = fabric_with_program();
    let rule = config.command("link-down", "softhca0", &[]).unwrap();
    let given = program.while_stopped(|| fabric.command(&rule, Duration::from_millis(300)));
    let Err(CommandError::Unanswered { mut pids, .. }) = given else { panic!("it obeys") };
    // This process has to obey as well, and may need longer.
    pids.retain(|pid| *pid != std::process::id());
    assert_eq!(pids, [program.0.child.id()]);
    assert_eq!(program.ask("event 0"), event::PORT_ERR, "it is carried out when the process goes on");
    // Dead processes need not answer.
    drop(program);
    fabric.command(&rule, Duration::from_mins(1)).unwrap();
}

#[test]
fn a_process_that_slept_while_a_link_was_down_gets_both_events() {
    let (_folder, mut program, config, fabric) = fabric_with_program();
    let rule = config.command("link-down", "softhca0", &["for_ns=1000".to_owned()]).unwrap();
    let given = program.while_stopped(|| fabric.command(&rule, Duration::from_millis(1)));
    assert!(matches!(given, Err(CommandError::Unanswered { .. })), "{given:?}");
    assert_eq!([program.ask("event 0"), program.ask("event 0")], [event::PORT_ERR, event::PORT_ACTIVE]);
    assert_eq!(program.ask("state 0"), port_state::ACTIVE);
}

#[test]
fn a_command_prints_how_often_each_fault_applied() {
    let rules = "[[device]]\n[[fault]]\naction = \"duplicate\"\nqp_type = \"rc\"\nnth = 2\ncount = 2\n\
                 [[fault]]\naction = \"drop\"\nnth = 1000\n[[fault]]\naction = \"link-up\"\nat_ns = 0\n";
    let folder = fabric(rules);
    let config = Config::read(&configuration(folder.path()), None).unwrap();
    let adapter = Fabric::join(config.fabric_in(folder.path().to_owned())).unwrap().open(0).unwrap();
    let (a, b) = pair(&adapter, 4096, &Settings::default());
    for i in 0..4 {
        b.recv(i, 0, 64);
        a.send(i, 0, 64);
        assert_eq!(wait(&a.send_cq).status, 0);
    }
    let told = obeyed(&folder, "faults");
    assert_eq!(told, "1 duplicate applied 2 of 4\n2 drop applied 0 of 4\n3 link-up applied 1 of 1\n");
}
