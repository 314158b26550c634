// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex top` on a pseudo-terminal, which `vt100` shows as a person would see it: it draws, redraws, follows another
//! size and keys, and restores the terminal, also after the watched process (this one) has ended. A second or two.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::Ordering;

use ibex::counters::Counters;
use ibex::flight::{self, PeerFlight, PeerState, Process};
use ibex::peer::PeerName;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{self, OpenptFlags};
use rustix::termios::{self, Termios, Winsize};

struct Terminal {
    person: File,
    program: File,
    shown: vt100::Parser,
}

impl Terminal {
    fn open() -> Terminal {
        let person = pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("Linux has pseudo-terminals");
        pty::grantpt(&person).expect("it is ours");
        pty::unlockpt(&person).expect("it is ours");
        let name = pty::ptsname(&person, Vec::new()).expect("it has a name");
        let program = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("it is ours");
        let mut terminal =
            Terminal { person: person.into(), program: program.into(), shown: vt100::Parser::new(24, 240, 0) };
        terminal.resize(24, 240);
        terminal
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        termios::tcsetwinsize(&self.person, size).expect("it is ours");
        self.shown.screen_mut().set_size(rows, columns);
    }

    fn settings(&self) -> Termios {
        termios::tcgetattr(&self.program).expect("it is ours")
    }

    fn start(&self, arguments: &[&str]) -> Child {
        let side = || self.program.try_clone().expect("a further number for a file");
        // As under a shell, the pseudo-terminal is the program's controlling terminal, so that it gets SIGWINCH.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg("--wait").arg(env!("CARGO_BIN_EXE_ibex")).args(arguments).env("TERM", "xterm");
        command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("util-linux is there")
    }

    fn press(&mut self, key: &str) {
        self.person.write_all(key.as_bytes()).expect("the other side is open");
    }

    /// Reads until the screen satisfies `is_it`.
    fn until(&mut self, what: &str, is_it: impl Fn(&vt100::Screen) -> bool) {
        let mut bytes = [0; 4096];
        for _ in 0..2000 {
            if is_it(self.shown.screen()) {
                return;
            }
            let count = self.person.read(&mut bytes).expect("the other side is open");
            self.shown.process(&bytes[..count]);
        }
        panic!("{what}: {}", self.shown.screen().contents());
    }
}

fn row(screen: &vt100::Screen, number: usize) -> String {
    let (_, columns) = screen.size();
    screen.rows(0, columns).nth(number).unwrap_or_default()
}

fn scratch() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ibex-top-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder of the test's own");
    folder
}

#[test]
fn top_draws_refreshes_resizes_turns_quits_and_gives_the_terminal_back() {
    let folder = scratch();
    flight::begin(&folder, &Process { job: 9, rank: 3, host: "n1", names_instances: false })
        .expect("a folder of the test's own");
    flight::name_port(0, "mlx5_0:1", [0; 16]);
    let counters = Counters::default();
    let count = |connections: u64| {
        counters.connections.store(connections, Ordering::Relaxed);
        flight::show(0, &counters, 0);
    };
    count(17);
    flight::show_peer(&PeerFlight {
        peer: PeerName { job: 9, rank: 8 },
        port: 0,
        state: PeerState::Ready,
        queue_pairs: (0x4321, 1),
        posted: 5,
        in_flight: 0,
        waiting: 0,
        asked: 1,
        timeout: 14,
        retries: 7,
        time: 0,
    });
    let mut terminal = Terminal::open();
    let before = terminal.settings();
    let mut top = terminal.start(&["top", "--interval", "0.1", "--folder", &folder.display().to_string()]);
    terminal.until("it draws", |screen| {
        screen.alternate_screen() && row(screen, 0).contains("RANK") && row(screen, 1).contains(" 17 ")
    });
    assert!(terminal.shown.screen().hide_cursor());
    count(23);
    terminal.until("it draws anew", |screen| row(screen, 1).contains(" 23 ") && row(screen, 1).contains("mlx5_0:1"));
    terminal.press("p");
    terminal.until("it shows peers", |screen| row(screen, 0).contains("PEER") && row(screen, 1).contains("0x4321"));
    terminal.resize(10, 50);
    // Text drawn for the larger width goes over the end of a line.
    terminal.until("it follows another size", |screen| {
        row(screen, 0).contains("RANK") && row(screen, 1).contains("mlx5_0:1") && row(screen, 2).is_empty()
    });
    flight::end();
    terminal.until("what it watches has ended", |screen| row(screen, 0).contains("No matching process"));
    assert!(top.try_wait().expect("a child").is_none(), "it goes on");
    terminal.press("q");
    terminal.until("it leaves its screen", |screen| !screen.alternate_screen() && !screen.hide_cursor());
    assert!(top.wait().expect("a child").success());
    let after = terminal.settings();
    assert_eq!(format!("{before:?}"), format!("{after:?}"), "the terminal is as it was");
    fs::remove_dir_all(folder).expect("a folder of the test's own");
}
