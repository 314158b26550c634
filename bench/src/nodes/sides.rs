// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program with a server and a client: the command lines of both, and the script that runs them on one node. Made by
//! the file of perftest; [`super::hosts`] runs them on two hosts. Grade: setup. Tests: below.

use super::job::Job;

/// Two sides of a program, which meet at a port.
pub(crate) struct Sides {
    /// Command line of the server; for the client the server's host is added.
    pub(crate) line: String,
    /// Port of the server. A later run needs another one, because this is not free at once.
    pub(crate) port: u16,
}

impl Sides {
    /// Returns the job that starts the server, waits until it listens, and runs the client; each on a processor of its
    /// own if two are given. Standard output has the client's output, and behind it the server's if the client failed.
    /// Otherwise the server's goes to standard error: in a bidirectional run perftest's client reports the server's
    /// values, too. A server in the background gets no interrupt from the keyboard, so the script ends it.
    pub(crate) fn on_one_node(&self, processors: Option<[usize; 2]>) -> Job {
        let Self { line, port } = self;
        let on = |side: usize| processors.map_or(String::new(), |pair| format!("taskset -c {} ", pair[side]));
        let (client, server) = (on(0), on(1));
        let script = format!(
            "log=$(mktemp)\n\
             {server}{line} >$log 2>&1 & server=$!\n\
             trap 'kill $server 2>/dev/null; rm -f $log; exit 130' INT TERM HUP\n\
             until grep -q ':{port:04X} [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6 2>/dev/null; do\n\
                 kill -0 $server 2>/dev/null || {{ cat $log; exit 1; }}\n\
                 sleep 0.02\n\
             done\n\
             {client}{line} 127.0.0.1; status=$?\n\
             if [ $status != 0 ]; then kill $server; echo 'the server said:'; cat $log; fi\n\
             wait $server; [ $status != 0 ] || cat $log >&2; rm -f $log\n\
             exit $status\n"
        );
        Job::new(["sh", "-c", &script])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::nodes::{Here, job};
    use std::net::TcpListener;

    /// A port with a listener, until it is dropped.
    pub(crate) fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[test]
    fn the_client_gets_the_servers_address_and_its_failure_has_the_servers_output() {
        let (_listener, port) = listener();
        let file = std::env::temp_dir().join(format!("ibex-bench-sides-{}", std::process::id()));
        let run = |status: u32| {
            let up = file.display();
            let client = format!("until test -s {up}; do sleep 0.01; done; echo its $1; exit {status}");
            let line = format!("sh -c 'if test $1; then {client}; fi; echo server; echo up >{up}' sh");
            let outcome = job::run(&Here, &Sides { line, port }.on_one_node(None)).unwrap();
            std::fs::remove_file(&file).unwrap();
            outcome
        };
        let (good, bad) = (run(0), run(3));
        assert_eq!((good.success(), good.stdout.as_str(), good.stderr.as_str()), (true, "its 127.0.0.1\n", "server\n"));
        assert_eq!((bad.success(), bad.stdout.as_str()), (false, "its 127.0.0.1\nthe server said:\nserver\n"));
    }
}
