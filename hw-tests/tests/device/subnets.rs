// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which ports of two processes are connected, and which ports are used at all, on emulated adapters of several networks.
//!
//! The ranks of a job are given different adapters, as hosts are that were cabled differently. On other devices each test is
//! skipped, with the reason. Setup grade; one test at a time.

use crate::Test;
use crate::launch::{Launch, says};
use crate::site::Site;
use anyhow::{Result, ensure};

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::on_emulated("roce ports of different networks are paired by the subnets of their gids", |site| {
            let roce = |network: &str, host: u8| {
                format!(
                    "link_layer = \"ethernet\"\n[[device.port]]\nnetwork = \"{network}\"\ngids = [\"2001:db8:{network}::{host}\"]"
                )
            };
            crosswise(&[roce("a", 1), roce("b", 1), roce("b", 2), roce("a", 2)]).passes_over_both(site)
        }),
        Test::on_emulated("infiniband fabrics of different prefixes are paired by them", |site| {
            let prefix = |last: u8| {
                format!("[[device.port]]\nnetwork = \"{last}\"\nsubnet_prefix = \"fe80:0000:0000:000{last}\"")
            };
            crosswise(&[prefix(1), prefix(2), prefix(2), prefix(1)]).passes_over_both(site)
        }),
        Test::on_emulated(
            "infiniband fabrics of one prefix that are paired crosswise are named with what to set",
            |site| {
                let fabric = |name: &str| format!("[[device.port]]\nnetwork = \"{name}\"");
                for via in ["auto", "ud"] {
                    let ports = crosswise(&[fabric("a"), fabric("b"), fabric("b"), fabric("a")]);
                    let launch = ports.launch().with("btl_ibex_connect_via", via).with("btl_ibex_connect_timeout", "2");
                    let words =
                        ["through softhca", "to its port ", " (LID ", "different networks", "btl_ibex_if_include"];
                    launch.is_refused_with(site, &words)?;
                }
                Ok(())
            },
        ),
        Test::on_emulated(
            "a port of a gid table beyond 256 entries uses one of the first and reports the others",
            |site| {
                let table = "link_layer = \"ethernet\"\n[device.limits]\ngid_table_len = 512\n[[device.port]]\ngids = [\"2001:db8::1\", { gid = \"10.0.0.1\", index = 300 }]";
                let launch =
                    Launch::of_a_short_exchange().with("btl_ibex_verbose", "1").on_adapters(adapters(&[table.into()]));
                says(&launch.succeeds(site)?, &["gid 0: 2001:db8::1", "beyond entry 255"])
            },
        ),
        Test::on_emulated("a port whose gids all lie beyond 256 entries is refused with that reason", |site| {
            let table = "link_layer = \"ethernet\"\n[device.limits]\ngid_table_len = 512\n[[device.port]]\ngids = [{ gid = \"10.0.0.1\", index = 300 }]";
            let launch = Launch::of_a_short_exchange().on_adapters(adapters(&[table.into()]));
            launch.is_refused_with(site, &["entry 300", "beyond entry 255"]).map(drop)
        }),
        Test::on_emulated("a port far slower than another is left out unless it is asked for", slow_port),
        Test::on_emulated("a limited member of a partition is told that others of its kind do not hear it", |site| {
            let limited = "[[device.port]]\npkeys = [0x7fff]";
            let launch = Launch::of_a_short_exchange()
                .with("btl_ibex_connect_timeout", "1")
                .on_adapters(adapters(&[limited.into()]));
            launch.is_refused_with(site, &["limited member of partition 0x7fff", "btl_ibex_pkey_index"]).map(drop)
        }),
        Test::on_emulated("a partition key index beyond the port's table is refused with its size", |site| {
            let launch = Launch::of_a_short_exchange().with("btl_ibex_pkey_index", "3");
            let launch = launch.on_adapters(adapters(&["[[device.port]]\npkeys = [0xffff, 0x8001]".into()]));
            launch.is_refused_with(site, &["asks for entry 3", "has 2"]).map(drop)
        }),
    ]
}

/// Adapters `softhca0`, `softhca1`, ... with these lines in each.
fn adapters(each: &[String]) -> String {
    let device = |(index, lines): (usize, &String)| format!("[[device]]\nname = \"softhca{index}\"\n{lines}\n");
    each.iter().enumerate().map(device).collect()
}

/// Two ranks, of which each has two of four adapters.
struct Crosswise(String);

fn crosswise(each: &[String; 4]) -> Crosswise {
    Crosswise(adapters(each))
}

impl Crosswise {
    fn launch(&self) -> Launch {
        let launch = Launch::of_a_short_exchange().with("btl_ibex_verbose", "1").on_adapters(self.0.as_str());
        launch.each_rank_with("btl_ibex_if_include", &["softhca0,softhca1", "softhca2,softhca3"])
    }

    /// Both rails carry what is striped over them.
    fn passes_over_both(&self, site: &mut Site) -> Result<()> {
        let outcome = self.launch().succeeds(site)?;
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        ensure!(!text.contains("does without a port"), "a pair of ports was not connected: {outcome}");
        Ok(())
    }
}

fn slow_port(site: &mut Site) -> Result<()> {
    let (fast, slow) = ("[[device.port]]\nspeed = \"hdr\"", "[[device.port]]\nspeed = \"sdr\"");
    let both = adapters(&[fast.into(), slow.into()]);
    let launch = Launch::of_a_short_exchange().with("btl_ibex_verbose", "1").on_adapters(both);
    // The environment of the tests names all devices.
    let by_default = launch.clone().with("btl_ibex_if_exclude", "none");
    says(&by_default.succeeds(site)?, &["softhca1:1 (infiniband", "8000 mb/s, and the fastest port has 200000"])?;
    let asked = launch.with("btl_ibex_if_include", "softhca0,softhca1").succeeds(site)?;
    let text = format!("{}{}", asked.stdout, asked.stderr);
    ensure!(!text.contains("the fastest port has"), "a port that was asked for was left out: {asked}");
    Ok(())
}
