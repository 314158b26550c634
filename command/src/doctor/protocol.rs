// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol of the doctor and its agents: lines of JSON, each after a mark that no other program prints. Used by
//! `agent` on a host and by `remote` here. Grade: setup. Tests: below.

use super::watch::Seen;
use crate::facts::Facts;
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The mark at the beginning of each line: shell profiles and launchers print lines too.
const MARK: &str = "ibex-doctor: ";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Open the ports that a job would use, as the host of this number.
    Open { host: u32 },
    /// Store the published addresses of all hosts' ports.
    Know(Vec<Published>),
    /// Connect to the host of this number, by every pair of ports; drop the last connections.
    Meet { host: u32, seconds: f64 },
    /// Report the counters and clocks since the beginning.
    End,
}

/// A host's ports, as a process of a job publishes them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Published {
    pub(super) name: String,
    /// The bytes of the modex.
    pub(super) ports: Vec<u8>,
}

/// An agent's answers, in the order of the requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The host's facts, at the beginning without a request.
    Here(Box<Facts>),
    Opened {
        ports: Vec<u8>,
        /// Reasons why other ports could not be opened.
        failures: Vec<String>,
    },
    Known {
        /// Reasons why published data of hosts is not understood.
        failures: Vec<String>,
    },
    Met(Vec<Link>),
    Ended(Seen),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Link {
    /// Indexes of both ports among the published ports of their hosts.
    pub(super) index: u8,
    pub(super) remote: u8,
    /// For example `mlx5_0:1 (LID 7)`.
    pub(super) port: String,
    pub(super) milliseconds: Option<f64>,
    pub(super) reached: Reached,
    /// Why the next step failed, in the engine's words.
    pub(super) failure: Option<String>,
    /// Its state at the time-out.
    pub(super) silence: Option<String>,
    /// The other's addresses that did not answer over TCP, with the reasons; empty if one did.
    pub(super) unanswered: Vec<String>,
    pub(super) told: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reached {
    #[default]
    Nothing,
    /// Short messages have passed in both directions.
    Short,
    /// Long messages have passed as well.
    Long,
}

pub(super) fn line(said: &impl Serialize) -> Result<String> {
    Ok(format!("{MARK}{}\n", serde_json::to_string(said)?))
}

/// Returns the content of a line; `None` if another program printed it.
pub(super) fn read<T: DeserializeOwned>(line: &str) -> Option<Result<T>> {
    let text = line.split_once(MARK)?.1;
    Some(serde_json::from_str(text.trim_end()).with_context(|| format!("{text:?} is not understood")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_and_foreign_lines_are_skipped() {
        let said = line(&Ask::Meet { host: 3, seconds: 1.5 }).expect("a line");
        let heard = read::<Ask>(&said).expect("ours").expect("understood");
        assert!(matches!(heard, Ask::Meet { host: 3, .. }));
        assert!(read::<Ask>("Welcome to node1\n").is_none());
        assert!(read::<Ask>("ibex-doctor: {\"Sing\":1}\n").expect("ours").is_err());
    }
}
