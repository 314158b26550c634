// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bad input: for each kind ibex prints a message that says what to do, and the job goes on another way or ends in
//! time. Tests that take the device away or change its node run in virtual machines, or on emulated adapters configured
//! for that. Setup grade; one test at a time.

use crate::launch::{Launch, says, says_one_of};
use crate::site::Site;
use crate::test::Test;
use anyhow::{Result, bail, ensure};
use hw_tests::Outcome;
use std::time::Duration;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("ports that are all excluded end a job that has no other way", |site| {
            Launch::of_a_short_exchange()
                .with("btl_ibex_if_exclude", "*")
                .is_refused_with(site, &["ibex", "if_exclude"])?;
            Ok(())
        })
        .quick(),
        Test::new("ports that are all excluded leave a job its other ways", |site| {
            let launch = Launch::of_a_short_exchange().with("btl_ibex_if_exclude", "*").with("btl", "self,sm,ibex");
            launch.succeeds(site).map(drop)
        })
        .quick(),
        Test::new("a device name that does not exist is named and the devices there are listed", |site| {
            let device = site.fabric(1)?.device_name().to_owned();
            let launch = Launch::of_a_short_exchange().with("btl_ibex_if_include", "mlx9_7");
            launch.is_refused_with(site, &["mlx9_7", &device]).map(drop)
        })
        .quick(),
        Test::new("a rank that alone finds no port says why, whichever rank it is", |site| {
            let device = site.fabric(1)?.device_name().to_owned();
            for values in [[device.as_str(), "mlx9_7"], ["mlx9_7", device.as_str()]] {
                let launch = Launch::of_a_short_exchange().each_rank_with("btl_ibex_if_include", &values).limit(60);
                launch.is_refused_with(site, &["found no port it can use", "mlx9_7"])?;
            }
            Ok(())
        }),
        Test::new("a host prints a finding that all of its ranks share once", |site| {
            let launch = Launch::new("init_finalize", 4).with("btl_ibex_if_include", "mlx9_7").limit(60);
            let outcome = launch.is_refused_with(site, &[])?;
            let said = outcome.stderr.matches("found no port it can use").count();
            ensure!(said == 1, "said {said} times: {outcome}");
            Ok(())
        }),
        Test::new("ibex reports too little locked memory with the limit and how to raise it", locked_memory),
        Test::on_emulated("ibex reports too little address space as that, with the limit", address_space),
        Test::on_emulated("ibex reports too many open files as that, with the limit", open_files),
        Test::new("ibex names a device that it may not open, with its file", permission),
        Test::new("the job reaches a peer without ibex another way", |site| {
            let launch = Launch::of_a_short_exchange().each_rank_with("btl", &["self,tcp,ibex", "self,tcp"]);
            launch.with("osc", "pt2pt").succeeds(site).map(drop)
        }),
        Test::new("a peer without ibex and without another way ends the job", |site| {
            let launch = Launch::of_a_short_exchange().each_rank_with("btl", &["self,ibex", "self,tcp"]).limit(60);
            // The words are Open MPI's own. 4.1 sometimes frees the buffer of a rank's text before mpirun reads it;
            // then mpirun prints that instead (orte/util/show_help.c).
            says_one_of(
                &launch.is_refused_with(site, &[])?,
                &["unable to reach each other", "unreachable", "show_help.c"],
            )
        }),
        Test::new("two ranks with different mtu settings talk", |site| {
            Launch::of_a_short_exchange().each_rank_with("btl_ibex_mtu", &["1024", "4096"]).succeeds(site).map(drop)
        })
        .quick(),
        Test::new("an mtu that the port does not have ends the job with both values", mtu_above_the_port),
        Test::new("a port that is down is named as down", port_down),
        Test::new("a machine without any device lets the job go on without ibex", no_device),
        Test::new("an open mpi of another version is refused and both versions are named", another_open_mpi)
            .device_independent()
            .quick(),
        Test::new("the component is listed with every parameter and its bounds", listed).device_independent().quick(),
    ]
}

/// In this shell script ibex alone refuses a job with these words, and the job succeeds if it has another way.
fn needs_another_way(site: &mut Site, script: &str, words: &[&str]) -> Result<Outcome> {
    let launch = Launch::of_a_short_exchange().inside(script);
    launch.clone().limit(60).is_refused_with(site, words)?;
    launch.with("btl", "self,sm,ibex").succeeds(site)
}

fn locked_memory(site: &mut Site) -> Result<()> {
    // Root may lock any amount of memory unless it gives up that right.
    let script = "setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock sh -c 'ulimit -l 64; exec \"$@\"' sh \"$@\"";
    says(&needs_another_way(site, script, &["ulimit -l", "64"])?, &["ulimit -l"])
}

fn address_space(site: &mut Site) -> Result<()> {
    // Enough for Open MPI, but not for an adapter's queues and memory.
    let launch = Launch::new("init_finalize", 2).ranks_inside("ulimit -v 400000; exec \"$@\"").limit(60);
    let outcome = launch.is_refused_with(site, &["Cannot allocate memory", "ulimit -v", "400000 KiB"])?;
    ensure!(!outcome.stderr.contains("ulimit -l"), "locked memory is blamed: {outcome}");
    Ok(())
}

fn open_files(site: &mut Site) -> Result<()> {
    let mut told = 0;
    // With fewer files Open MPI itself does not start; more files are enough.
    for files in 14..=20 {
        let script = format!("ulimit -n {files}; exec \"$@\"");
        let outcome = Launch::new("init_finalize", 2).ranks_inside(script).limit(60).run(site)?;
        let said = outcome.stderr.split("------").find(|text| text.contains("ibex found no port"));
        ensure!(!outcome.stderr.contains("No such process"), "a process is taken for dead: {outcome}");
        if let Some(text) = said {
            ensure!(text.contains("Too many open files") && text.contains("ulimit -n"), "{outcome}");
            told += 1;
        }
    }
    ensure!(told > 0, "ibex had files enough each time, or was not asked");
    Ok(())
}

fn permission(site: &mut Site) -> Result<()> {
    if !site.is_disposable() {
        site.skip("a device that may not be opened", "the machine's own device is left alone");
        return Ok(());
    }
    let script = "chmod 600 /dev/infiniband/uverbs0; trap 'chmod 666 /dev/infiniband/uverbs0' EXIT; mkdir -p -m 777 /tmp/nobody; \
                  HOME=/tmp/nobody TMPDIR=/tmp/nobody setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";
    needs_another_way(site, script, &["/dev/infiniband/uverbs0", "permission"]).map(drop)
}

fn mtu_above_the_port(site: &mut Site) -> Result<()> {
    if site.device().is_emulated() {
        let small = "[[device]]\n[[device.port]]\nmtu = 1024\n";
        let launch = Launch::of_a_short_exchange().with("btl_ibex_mtu", "4096").limit(60).on_adapters(small);
        return launch.is_refused_with(site, &["4096", "1024", "mtu"]).map(drop);
    }
    if !site.is_disposable() {
        site.skip("an mtu that the port does not have", "the machine's own interface is left alone");
        return Ok(());
    }
    let interface = site.fabric(1)?.interface().to_owned();
    let script = format!("ip link set {interface} mtu 1500; trap 'ip link set {interface} mtu 9000' EXIT; \"$@\"");
    let launch = Launch::of_a_short_exchange().inside(script).with("btl_ibex_mtu", "4096").limit(60);
    launch.is_refused_with(site, &["4096", "1024", "mtu"]).map(drop)
}

fn port_down(site: &mut Site) -> Result<()> {
    if site.device().is_emulated() {
        let down = "[[device]]\n[[device.port]]\nstate = \"down\"\n";
        let launch = Launch::of_a_short_exchange().limit(60).on_adapters(down);
        launch.is_refused_with(site, &["softhca0:1", "down"])?;
        return launch.with("btl", "self,sm,ibex").succeeds(site).map(drop);
    }
    if !site.is_disposable() {
        site.skip("a port that is down", "the machine's own interface is left alone");
        return Ok(());
    }
    let interface = site.fabric(1)?.interface().to_owned();
    // The IPv6 addresses disappear with the link; the IPv4 address stays.
    let script = format!("ip link set {interface} down; trap 'ip link set {interface} up' EXIT; \"$@\"");
    needs_another_way(site, &script, &["down"]).map(drop)
}

fn no_device(site: &mut Site) -> Result<()> {
    if !site.is_disposable() {
        site.skip("a machine without any device", "the machine's own device is left alone");
        return Ok(());
    }
    let (device, interface) = (site.fabric(1)?.device_name().to_owned(), site.fabric(1)?.interface().to_owned());
    let script =
        format!("rdma link delete {device}; trap 'rdma link add {device} type rxe netdev {interface}' EXIT; \"$@\"");
    needs_another_way(site, &script, &["ibex", "no RDMA device"]).map(drop)
}

/// The version that a process sees is a symbol of Open MPI's, which a preloaded library can replace.
fn another_open_mpi(site: &mut Site) -> Result<()> {
    let script = "cd \"$(mktemp -d)\" && echo 'const char opal_version_string[] = \"4.0.9\";' >version.c && \
                  cc -shared -fPIC -o version.so version.c && LD_PRELOAD=$PWD/version.so \"$@\"";
    let words = ["ibex was built for Open MPI", "this is Open MPI 4.0.9", "cargo xtask install"];
    says(&needs_another_way(site, script, &words)?, &words)
}

fn listed(site: &mut Site) -> Result<()> {
    let job = site.job(["ompi_info", "--param", "btl", "ibex", "--level", "9"]).limit(Duration::from_mins(1));
    let outcome = site.fabric(1)?.run(&job)?.checked()?;
    let parameters = outcome.stdout.lines().filter(|line| line.contains("\"btl_ibex_")).count();
    if parameters < 20 {
        bail!("ompi_info lists {parameters} parameters and variables of ibex: {outcome}");
    }
    says(&outcome, &["btl_ibex_send_queue_depth", "16 to 16384", "btl_ibex_if_include", "performance \"btl_ibex_"])
}
