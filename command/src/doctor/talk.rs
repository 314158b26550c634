// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the doctor and its agents on the hosts say to each other: a line of JSON each, behind a word that no shell
//! prints by itself.
//!
//! Written and read by `agent` on a host and by `remote` here. Grade: setup. Plain data. Tests: below.

use super::watch::Seen;
use crate::facts::Facts;
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The word before each line: profiles of shells, and programs that start others, print lines too.
const MARK: &str = "ibex-doctor: ";

/// What an agent is asked. It ends when nobody asks any more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Open the ports that a job would use, as the host of this number.
    Open { host: u32 },
    /// Know what the ports of all hosts have published.
    Know(Vec<Published>),
    /// Connect to the host of this number, by every pair of ports; the last connections are given up.
    Meet { host: u32, seconds: f64 },
    /// Say what was seen since the beginning.
    End,
}

/// A host's ports, as a process of a job publishes them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Published {
    pub(super) name: String,
    /// The bytes of the modex, in hexadecimal digits.
    pub(super) ports: String,
}

/// What an agent answers, in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// At the beginning, unasked.
    Here(Box<Facts>),
    Opened {
        ports: String,
        /// Why others could not be opened.
        failures: Vec<String>,
    },
    Known {
        /// Whose ports were not understood.
        failures: Vec<String>,
    },
    Met(Vec<Link>),
    Ended(Seen),
}

/// What became of a connection between a port of this host and one of the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Link {
    /// Its place among the ports that this host publishes, and that of the other's.
    pub(super) index: u8,
    pub(super) remote: u8,
    /// As `mlx5_0:1 (LID 7)`.
    pub(super) port: String,
    /// How long it took until both had a message of the other.
    pub(super) milliseconds: Option<f64>,
    /// How far it came.
    pub(super) reached: Reached,
    /// Why not further, in the engine's words.
    pub(super) failure: Option<String>,
    /// How it stood when nobody waited any longer.
    pub(super) silence: Option<String>,
    /// Addresses of the other at which nobody answered over TCP, with the reasons; empty where one did.
    pub(super) unanswered: Vec<String>,
    /// What the engine told meanwhile.
    pub(super) told: Vec<String>,
}

/// How far a connection came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reached {
    #[default]
    Nothing,
    /// A short message has come and gone.
    Short,
    /// Long ones, too.
    Long,
}

/// A line that says this.
///
/// # Errors
/// It cannot be written as JSON.
pub(super) fn line(said: &impl Serialize) -> Result<String> {
    Ok(format!("{MARK}{}\n", serde_json::to_string(said)?))
}

/// What a line says; none where it is somebody else's.
pub(super) fn read<T: DeserializeOwned>(line: &str) -> Option<Result<T>> {
    let text = line.split_once(MARK)?.1;
    Some(serde_json::from_str(text.trim_end()).with_context(|| format!("{text:?} is not understood")))
}

/// Bytes as hexadecimal digits.
pub(super) fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |digits, byte| digits + &format!("{byte:02x}"))
}

/// The bytes of hexadecimal digits; none where there are others.
pub(super) fn bytes(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_what_others_print_is_not_taken_for_it() {
        let said = line(&Ask::Meet { host: 3, seconds: 1.5 }).expect("a line");
        let heard = read::<Ask>(&said).expect("ours").expect("understood");
        assert!(matches!(heard, Ask::Meet { host: 3, .. }));
        assert!(read::<Ask>("Welcome to node1\n").is_none());
        assert!(read::<Ask>("ibex-doctor: {\"Sing\":1}\n").expect("ours").is_err());
    }

    #[test]
    fn bytes_survive_as_digits() {
        assert_eq!(bytes(&digits(&[0, 0xab, 255])).expect("digits"), [0, 0xab, 255]);
        assert!(bytes("abc").is_none() && bytes("zz").is_none() && bytes("\u{e9}").is_none());
    }
}
