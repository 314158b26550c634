// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of the configuration file that are more than a number or a word. Each is a newtype that serde reads, so that
//! an error names its place. GUIDs are host-order numbers, GIDs 16 bytes as on the wire. Grade: setup. Tests: below.

use std::fmt::Display;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The last LID of a port; those above are of multicast groups.
pub(super) const LAST_LID: u16 = 0xbfff;

/// Returns `given` if `of` contains it. NaN is in no range.
pub(super) fn within<T: Copy + PartialOrd + Display>(key: &str, given: T, of: RangeInclusive<T>) -> Result<T, String> {
    if of.contains(&given) { Ok(given) } else { Err(format!("{key} = {given}: {} to {}", of.start(), of.end())) }
}

/// A GUID: `"0x0002c90300a1b2c3"` or `"0002:c903:00a1:b2c3"`; or a subnet's prefix, the upper half of a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guid(pub(super) u64);

impl<'de> Deserialize<'de> for Guid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_guid(&text).map(Guid).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is no GUID or subnet prefix: write 16 hexadecimal digits, as \"0x5e00000000000001\" or \"5e00:0000:0000:0001\""
            ))
        })
    }
}

fn parse_guid(text: &str) -> Option<u64> {
    let is_grouped = || text.len() == 19 && text.split(':').all(|group| group.len() == 4);
    let digits = text.strip_prefix("0x").map(str::to_owned).or_else(|| is_grouped().then(|| text.replace(':', "")))?;
    let is_number = digits.len() <= 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_number.then(|| u64::from_str_radix(&digits, 16).ok())?
}

/// A GID, written as an IPv6 address (`"fe80::1"`), or an IPv4 address for its mapped form (`"10.0.0.1"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GidBytes(pub(super) [u8; 16]);

impl<'de> Deserialize<'de> for GidBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        GidBytes::read(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl GidBytes {
    fn read(text: &str) -> Result<GidBytes, String> {
        let address = text
            .parse::<Ipv6Addr>()
            .or_else(|error| text.parse::<std::net::Ipv4Addr>().map(|v4| v4.to_ipv6_mapped()).map_err(|_| error));
        address
            .map(|address| GidBytes(address.octets()))
            .map_err(|_| format!("{text:?} is no GID: write it as an IPv6 address (\"fe80::1\") or an IPv4 address"))
    }
}

/// A row of a port's table of GIDs: a GID, for the next row, or `{ gid = "10.0.0.1", index = 300, type = "RoCE v1" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GidRow {
    pub(super) gid: GidBytes,
    pub(super) index: Option<u32>,
    pub(super) kind: Option<GidKind>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GidTable {
    gid: GidBytes,
    index: Option<u32>,
    r#type: Option<GidKind>,
}

impl<'de> Deserialize<'de> for GidRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GidVisitor)
    }
}

struct GidVisitor;

impl<'de> Visitor<'de> for GidVisitor {
    type Value = GidRow;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a GID, or a table of a GID, its index and its type")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<GidRow, E> {
        GidBytes::read(text).map(|gid| GidRow { gid, index: None, kind: None }).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<GidRow, A::Error> {
        let GidTable { gid, index, r#type: kind } = Deserialize::deserialize(MapAccessDeserializer::new(map))?;
        Ok(GidRow { gid, index, kind })
    }
}

macro_rules! listed {
    ($(#[$doc:meta])* $name:ident, $from:ty, $kind:literal: $($value:literal => $code:literal),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $name(pub(super) u8);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let given = <$from>::deserialize(deserializer)?;
                $(if given == $value { return Ok($name($code)); })+
                let known = [$(format!("{:?}", $value)),+].join(", ");
                Err(D::Error::custom(format!("{given:?} is no {}: one of {known}", $kind)))
            }
        }
    };
}

listed! {
    /// A path MTU in bytes, as `IBV_MTU_*`.
    Mtu, u32, "MTU": 256 => 1, 512 => 2, 1024 => 3, 2048 => 4, 4096 => 5
}
listed! {
    /// The lanes of a link, as `ibv_port_attr.active_width` codes them.
    Width, String, "link width": "1x" => 1, "2x" => 16, "4x" => 2, "8x" => 4, "12x" => 8
}
listed! {
    /// The speed of a lane, as `ibv_port_attr.active_speed` codes it.
    Speed, String, "lane speed": "sdr" => 1, "ddr" => 2, "qdr" => 4, "fdr10" => 8, "fdr" => 16, "edr" => 32, "hdr" => 64, "ndr" => 128
}
listed! {
    State, String, "port state": "down" => 1, "init" => 2, "armed" => 3, "active" => 4
}
listed! {
    /// The type of a GID on Ethernet, by the kernel's words, as `codes::gid_kind`.
    GidKind, String, "GID type": "RoCE v1" => 1, "RoCE v2" => 2
}
listed! {
    LinkLayer, String, "link layer": "infiniband" => 1, "ethernet" => 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_has_two_forms_and_nothing_else_is_one() {
        for text in ["0x5e00000000000001", "5e00:0000:0000:0001"] {
            assert_eq!(parse_guid(text), Some(0x5e00_0000_0000_0001));
        }
        for text in ["5e00:0:0:1", "0x15e00000000000001", "guid", "0x+5", "+e00:0000:0000:0001", "0x"] {
            assert_eq!(parse_guid(text), None, "{text}");
        }
    }
}
