// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks which ports two processes connect, and which ports they use at all, on emulated adapters of several networks.
//! The ranks of a job have different adapters, like hosts that were cabled differently. Setup grade; one at a time.

use crate::launch::{Launch, says};
use crate::site::Site;
use crate::test::{INFINIBAND, Test};
use anyhow::{Result, ensure};
use hw_tests::Outcome;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::on_emulated("roce ports of different networks are paired by the subnets of their gids", |site| {
            let roce = |network: &str, host: u8| {
                format!("{ROCE}[[device.port]]\nnetwork = \"{network}\"\ngids = [\"2001:db8:{network}::{host}\"]")
            };
            crosswise(site, &[roce("a", 1), roce("b", 1), roce("b", 2), roce("a", 2)])
        }),
        Test::on_emulated("infiniband fabrics of different prefixes are paired by them", |site| {
            let prefix = |last: u8| {
                format!("[[device.port]]\nnetwork = \"{last}\"\nsubnet_prefix = \"fe80:0000:0000:000{last}\"")
            };
            crosswise(site, &[prefix(1), prefix(2), prefix(2), prefix(1)])
        })
        .needing(INFINIBAND),
        Test::on_emulated(
            "infiniband fabrics of one prefix that are cabled crosswise are paired by the ports that answer",
            |site| {
                for via in ["auto", "ud"] {
                    let launch =
                        crossed(&["ab", "ba"], Launch::of_a_short_exchange()).with("btl_ibex_connect_via", via);
                    let outcome = launch.succeeds(site)?;
                    says(&outcome, &["connected to port 1 of rank", "as its port 0"])?;
                    is_without_detour(&outcome)?;
                }
                Ok(())
            },
        )
        .needing(INFINIBAND),
        Test::on_emulated("messages of all sizes cross fabrics that are cabled crosswise, with four ranks", |site| {
            ["pt2pt_modes", "collectives"].into_iter().try_for_each(|program| {
                crossed(&["ab", "ba", "ab", "ba"], Launch::new(program, 4).scale(0.2)).passes(site)
            })
        })
        .needing(INFINIBAND),
        Test::on_emulated("a port whose fabric a peer does not have is left out for that peer alone", |site| {
            let launch = crossed(&["ab", "ba", "ac"], Launch::new("pt2pt_modes", 3).scale(0.2));
            let words = ["ibex does without a port", "could not be made", "did not arrive, while TCP did"];
            says(&launch.succeeds(site)?, &words)
        })
        .needing(INFINIBAND),
        Test::on_emulated(
            "infiniband fabrics that do not meet at all end the job with all ports that were tried",
            |site| {
                for via in ["auto", "ud"] {
                    let launch =
                        crossed(&["ab", "cd"], Launch::of_a_short_exchange()).with("btl_ibex_connect_via", via);
                    let words = ["could not be made", "its port 0", "its port 1", "btl_ibex_if_include"];
                    launch.with("btl_ibex_connect_timeout", "2").is_refused_with(site, &words)?;
                }
                Ok(())
            },
        )
        .needing(INFINIBAND),
        Test::on_emulated(
            "a port of a gid table beyond 256 entries uses one of the first and reports the others",
            |site| {
                let table = with_gids("\"2001:db8::1\", { gid = \"10.0.0.1\", index = 300 }");
                let launch = Launch::of_a_short_exchange().with("btl_ibex_verbose", "1").on_adapters(table);
                says(&launch.succeeds(site)?, &["gid 0: 2001:db8::1", "above 255"])
            },
        ),
        Test::on_emulated("a port whose gids all lie beyond 256 entries is refused with that reason", |site| {
            let launch = Launch::of_a_short_exchange().on_adapters(with_gids("{ gid = \"10.0.0.1\", index = 300 }"));
            launch.is_refused_with(site, &["entry 300", "beyond entry 255"]).map(drop)
        }),
        Test::on_emulated("a port far slower than another is left out unless it is asked for", slow_port),
        Test::on_emulated(
            "ibex warns a limited member of a partition that others of its kind do not hear it",
            |site| {
                let launch = Launch::of_a_short_exchange().with("btl_ibex_connect_timeout", "1");
                let launch = launch.on_adapters("[[device]]\n[[device.port]]\npkeys = [0x7fff]\n");
                launch.is_refused_with(site, &["limited member of partition 0x7fff", "btl_ibex_pkey_index"]).map(drop)
            },
        ),
        Test::on_emulated("a partition key index beyond the port's table is refused with its size", |site| {
            let launch = Launch::of_a_short_exchange().with("btl_ibex_pkey_index", "3");
            let launch = launch.on_adapters("[[device]]\n[[device.port]]\npkeys = [0xffff, 0x8001]\n");
            launch.is_refused_with(site, &["btl_ibex_pkey_index is 3", "has 2"]).map(drop)
        }),
    ]
}

const ROCE: &str = "link_layer = \"ethernet\"\n";

/// A RoCE adapter with a table of 512 GIDs, of which it has these.
fn with_gids(gids: &str) -> String {
    format!("[[device]]\n{ROCE}[device.limits]\ngid_table_len = 512\n[[device.port]]\ngids = [{gids}]\n")
}

fn adapters(each: &[String]) -> String {
    let device = |(index, lines): (usize, &String)| format!("[[device]]\nname = \"softhca{index}\"\n{lines}\n");
    each.iter().enumerate().map(device).collect()
}

/// Gives each rank an adapter with a port in each of its fabrics, in this order. All fabrics have the default prefix.
fn crossed(ranks: &[&str], launch: Launch) -> Launch {
    let port = |fabric: char| format!("[[device.port]]\nnetwork = \"{fabric}\"\n");
    let ports = |fabrics: &&str| fabrics.chars().map(port).collect::<String>();
    let each: Vec<String> = ranks.iter().map(ports).collect();
    let names: Vec<String> = (0..ranks.len()).map(|rank| format!("softhca{rank}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    launch.with("btl_ibex_verbose", "1").on_adapters(adapters(&each)).each_rank_with("btl_ibex_if_include", &names)
}

/// Checks that every pair of ports in use was connected.
fn is_without_detour(outcome: &Outcome) -> Result<()> {
    let text = format!("{}{}", outcome.stdout, outcome.stderr);
    ensure!(!text.contains("does without a port"), "a pair of ports was not connected: {outcome}");
    Ok(())
}

/// Two ranks with two of four adapters each.
fn crosswise(site: &mut Site, each: &[String; 4]) -> Result<()> {
    let launch = Launch::of_a_short_exchange().with("btl_ibex_verbose", "1").on_adapters(adapters(each));
    let launch = launch.each_rank_with("btl_ibex_if_include", &["softhca0,softhca1", "softhca2,softhca3"]);
    is_without_detour(&launch.succeeds(site)?)
}

fn slow_port(site: &mut Site) -> Result<()> {
    let (fast, slow) = ("[[device.port]]\nspeed = \"hdr\"", "[[device.port]]\nspeed = \"sdr\"");
    let both = adapters(&[fast.into(), slow.into()]);
    let launch = Launch::of_a_short_exchange().with("btl_ibex_verbose", "1").on_adapters(both);
    // The environment of the tests names all devices.
    let by_default = launch.clone().with("btl_ibex_if_exclude", "none");
    says(&by_default.succeeds(site)?, &["softhca1:1 (", "8000 mb/s, and the fastest port has 200000"])?;
    let asked = launch.with("btl_ibex_if_include", "softhca0,softhca1").succeeds(site)?;
    let text = format!("{}{}", asked.stdout, asked.stderr);
    ensure!(!text.contains("the fastest port has"), "a port that was asked for was left out: {asked}");
    Ok(())
}
