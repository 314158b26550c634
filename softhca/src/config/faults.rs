// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[fault]]`: scripted faults as the file has them, made into the engine's rules. A rule says what happens
//! (`action`), to which packets or requests (`device`, `port`, `qp_type`, `from_lid`, `to_lid`), and to how many (`nth`
//! and `count`, or a seeded `fraction`). It refuses unused keys. A fault given by command (`softhca ctl`) has the same
//! actions, keys and checks. Grade: setup. Times are nanoseconds. Tests: below, and config/tests.rs.

use serde::Deserialize;
use toml::Table;

use crate::config::Config;
use crate::config::values::{GidRow, LAST_LID, within};
use crate::engine::codes::{event, gid_kind, link_layer};
use crate::engine::faults::{FaultAction, FaultRule};
use crate::engine::{Change, DeviceSpec, Gid};

/// `[[fault]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    action: Action,
    delay_ns: Option<u64>,
    status: Option<String>,
    errno: Option<String>,
    event: Option<String>,
    at_ns: Option<u64>,
    for_ns: Option<u64>,
    lid: Option<u16>,
    sm_lid: Option<u16>,
    gid: Option<GidRow>,
    gid_index: Option<u8>,
    pkey: Option<u16>,
    pkey_index: Option<u16>,
    device: Option<String>,
    port: Option<u8>,
    qp_type: Option<String>,
    from_lid: Option<u16>,
    to_lid: Option<u16>,
    nth: Option<u64>,
    count: Option<u64>,
    fraction: Option<f64>,
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Action {
    Drop,
    Delay,
    Duplicate,
    Rnr,
    Status,
    PostSendError,
    RegistrationError,
    CqOverrun,
    LinkDown,
    LinkUp,
    Event,
}

const MOST_NS: u64 = 365 * 24 * 3_600_000_000_000;
const MOST_DELAY_NS: u64 = 60_000_000_000;
const MOST_COUNT: u64 = u32::MAX as u64;

/// Makes a table of constants of verbs.h by their names.
macro_rules! by_name {
    ($($name:ident)+) => { &[$((stringify!($name), crate::sys::$name)),+] };
}

pub(super) const STATUSES: &[(&str, u32)] = by_name![
    IBV_WC_LOC_LEN_ERR IBV_WC_LOC_QP_OP_ERR IBV_WC_LOC_EEC_OP_ERR IBV_WC_LOC_PROT_ERR
    IBV_WC_WR_FLUSH_ERR IBV_WC_MW_BIND_ERR IBV_WC_BAD_RESP_ERR IBV_WC_LOC_ACCESS_ERR
    IBV_WC_REM_INV_REQ_ERR IBV_WC_REM_ACCESS_ERR IBV_WC_REM_OP_ERR IBV_WC_RETRY_EXC_ERR
    IBV_WC_RNR_RETRY_EXC_ERR IBV_WC_LOC_RDD_VIOL_ERR IBV_WC_REM_INV_RD_REQ_ERR IBV_WC_REM_ABORT_ERR
    IBV_WC_INV_EECN_ERR IBV_WC_INV_EEC_STATE_ERR IBV_WC_FATAL_ERR IBV_WC_RESP_TIMEOUT_ERR
    IBV_WC_GENERAL_ERR IBV_WC_TM_ERR IBV_WC_TM_RNDV_INCOMPLETE
];

/// Events of ports and of the device, and of objects that fail.
const EVENTS: &[(&str, u32)] = by_name![
    IBV_EVENT_QP_FATAL IBV_EVENT_CQ_ERR IBV_EVENT_SRQ_ERR IBV_EVENT_DEVICE_FATAL
    IBV_EVENT_PORT_ACTIVE IBV_EVENT_PORT_ERR IBV_EVENT_LID_CHANGE IBV_EVENT_PKEY_CHANGE
    IBV_EVENT_SM_CHANGE IBV_EVENT_CLIENT_REREGISTER IBV_EVENT_GID_CHANGE
];

const QP_TYPES: &[(&str, u32)] = by_name![IBV_QPT_RC IBV_QPT_UC IBV_QPT_UD IBV_QPT_XRC_SEND];

const ERRNOS: &[(&str, i32)] =
    &[("ENOMEM", libc::ENOMEM), ("EINVAL", libc::EINVAL), ("EIO", libc::EIO), ("EAGAIN", libc::EAGAIN)];

impl Fault {
    pub(super) fn rule(&self, devices: &[DeviceSpec]) -> Result<FaultRule, String> {
        self.refuse_unused()?;
        let position = |name: &String| {
            let found = devices.iter().position(|device| device.name == *name);
            let names = || devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ");
            found.ok_or_else(|| format!("no device is called {name:?}; there are {}", names()))
        };
        let device = self.device.as_ref().map(position).transpose()?;
        self.refuse_nowhere(device, devices)?;
        if let Some(fraction) = self.fraction {
            within("fraction", fraction, 0.0..=1.0)?;
            if self.nth.is_some() || self.count.is_some() {
                return Err("a rule has either nth (and count) or fraction".to_owned());
            }
        }
        within("nth", self.nth.unwrap_or(1), 1..=MOST_COUNT)?;
        within("count", self.count.unwrap_or(0), 0..=MOST_COUNT)?;
        let action = self.engine_action(devices)?;
        let at_ns = if action.has_time() { self.at_ns.ok_or("this action needs at_ns")? } else { 0 };
        Ok(FaultRule {
            action,
            at_ns: within("at_ns", at_ns, 0..=MOST_NS)?,
            device,
            port: self.port,
            qp_type: self
                .qp_type
                .as_deref()
                .map(|name| named("qp_type", "IBV_QPT_", Some(name), QP_TYPES))
                .transpose()?,
            from_lid: self.from_lid,
            to_lid: self.to_lid,
            nth: self.nth,
            count: self.count.unwrap_or(u64::from(self.nth.is_some())),
            fraction: self.fraction,
            seed: self.seed.unwrap_or(1),
        })
    }

    fn engine_action(&self, devices: &[DeviceSpec]) -> Result<FaultAction, String> {
        let errno = || named("errno", "", self.errno.as_deref().or(Some("ENOMEM")), ERRNOS);
        Ok(match self.action {
            Action::Drop => FaultAction::Drop,
            Action::Delay => {
                let delay_ns = self.delay_ns.ok_or("action = \"delay\" needs delay_ns")?;
                FaultAction::Delay(within("delay_ns", delay_ns, 0..=MOST_DELAY_NS)?)
            }
            Action::Duplicate => FaultAction::Duplicate,
            Action::Rnr => FaultAction::Rnr,
            Action::Status => FaultAction::Status(named("status", "IBV_WC_", self.status.as_deref(), STATUSES)?),
            Action::PostSendError => FaultAction::PostSend(errno()?),
            Action::RegistrationError => FaultAction::RegMr(errno()?),
            Action::CqOverrun => FaultAction::CqOverrun,
            Action::LinkDown => FaultAction::LinkDown(within("for_ns", self.for_ns.unwrap_or(0), 0..=MOST_NS)?),
            Action::LinkUp => FaultAction::LinkUp,
            Action::Event => {
                let kind = named("event", "IBV_EVENT_", self.event.as_deref(), EVENTS)?;
                FaultAction::Event(kind, self.change(kind, devices)?)
            }
        })
    }

    fn change(&self, kind: u32, devices: &[DeviceSpec]) -> Result<Option<Change>, String> {
        let device = self.device.as_ref().and_then(|name| devices.iter().find(|device| device.name == *name));
        let device = device.unwrap_or(&devices[0]);
        let port = device.ports.get(usize::from(self.port.unwrap_or(1)) - 1);
        let is_ib = device.link_layer == link_layer::INFINIBAND;
        let given = [
            ("lid", self.lid.is_some(), kind == event::LID_CHANGE && is_ib),
            ("sm_lid", self.sm_lid.is_some(), matches!(kind, event::SM_CHANGE | event::CLIENT_REREGISTER) && is_ib),
            ("gid", self.gid.is_some(), kind == event::GID_CHANGE),
            ("gid_index", self.gid_index.is_some(), self.gid.is_some()),
            ("pkey", self.pkey.is_some(), kind == event::PKEY_CHANGE),
            ("pkey_index", self.pkey_index.is_some(), self.pkey.is_some()),
        ];
        if let Some((key, ..)) = given.into_iter().find(|(_, is_given, is_used)| *is_given && !is_used) {
            return Err(format!("{key} has no meaning with this event of this device"));
        }
        let lid = |key, lid: Option<u16>| lid.map(|lid| within(key, lid, 1..=LAST_LID)).transpose();
        if let Some(lid) = lid("lid", self.lid)? {
            return Ok(Some(Change::Lid(lid)));
        }
        if let Some(lid) = lid("sm_lid", self.sm_lid)? {
            return Ok(Some(Change::SmLid(lid)));
        }
        if let Some(row) = self.gid {
            let index = self.gid_index.unwrap_or(0);
            let rows = device.limits.gid_table_len;
            if rows != 0 && u32::from(index) >= rows {
                return Err(format!("gid_index = {index}: 0 to {}", rows - 1));
            }
            let usual = if is_ib { gid_kind::IB } else { gid_kind::ROCE_V2 };
            let gid = Gid { raw: row.gid.0, kind: row.kind.map_or(usual, |kind| kind.0) };
            return Ok(Some(Change::Gid(index, if gid.is_empty() { Gid::default() } else { gid })));
        }
        let Some(key) = self.pkey else { return Ok(None) };
        let last = port.map_or(0, |port| port.pkeys.len() as u16 - 1);
        let index = within("pkey_index", self.pkey_index.unwrap_or(0), 0..=last)?;
        Ok(Some(Change::Pkey(index, key)))
    }

    /// Refuses a port or an address that does not exist, for which the rule would never apply.
    fn refuse_nowhere(&self, device: Option<usize>, devices: &[DeviceSpec]) -> Result<(), String> {
        let concerned = |index: usize| device.is_none_or(|only| only == index);
        let ports =
            devices.iter().enumerate().filter(|(index, _)| concerned(*index)).map(|(_, device)| device.ports.len());
        if let Some(port) = self.port {
            within("port", usize::from(port), 1..=ports.max().unwrap_or(0))?;
        }
        let has = |lid: u16| devices.iter().flat_map(|device| &device.ports).any(|port| port.lid == lid);
        for (key, lid) in [("from_lid", self.from_lid), ("to_lid", self.to_lid)] {
            if let Some(lid) = lid.filter(|lid| !has(*lid)) {
                return Err(format!("{key} = {lid}: no port has this lid"));
            }
        }
        Ok(())
    }

    fn refuse_unused(&self) -> Result<(), String> {
        let timed = matches!(self.action, Action::LinkDown | Action::LinkUp | Action::Event);
        let packet = matches!(self.action, Action::Drop | Action::Delay | Action::Duplicate | Action::Rnr);
        let errno = matches!(self.action, Action::PostSendError | Action::RegistrationError);
        let lids = self.from_lid.is_some() || self.to_lid.is_some();
        let selects = self.nth.is_some() || self.count.is_some() || self.fraction.is_some() || self.seed.is_some();
        for (key, given, used) in [
            ("delay_ns", self.delay_ns.is_some(), self.action == Action::Delay),
            ("status", self.status.is_some(), self.action == Action::Status),
            ("errno", self.errno.is_some(), errno),
            ("event", self.event.is_some(), self.action == Action::Event),
            ("at_ns", self.at_ns.is_some(), timed),
            ("for_ns", self.for_ns.is_some(), self.action == Action::LinkDown),
            ("lid or sm_lid", self.lid.is_some() || self.sm_lid.is_some(), self.action == Action::Event),
            ("gid", self.gid.is_some() || self.gid_index.is_some(), self.action == Action::Event),
            ("pkey", self.pkey.is_some() || self.pkey_index.is_some(), self.action == Action::Event),
            ("from_lid or to_lid", lids, packet || self.action == Action::Status),
            ("qp_type", self.qp_type.is_some(), !timed && self.action != Action::RegistrationError),
            ("nth, count, fraction or seed", selects, !timed),
        ] {
            if given && !used {
                return Err(format!("{key} has no meaning with this action"));
            }
        }
        Ok(())
    }
}

/// Looks a name up in `table`; it may be written without `prefix`, and in small letters.
fn named<T: Copy>(key: &str, prefix: &str, given: Option<&str>, table: &[(&str, T)]) -> Result<T, String> {
    let rows = || table.iter().map(|(name, value)| (name.strip_prefix(prefix).unwrap_or(name), *value));
    let names = || rows().map(|row| row.0).collect::<Vec<_>>().join(", ");
    let given = given.ok_or_else(|| format!("this action needs {key}, one of {}", names()))?;
    let upper = given.to_ascii_uppercase();
    let short = upper.strip_prefix(prefix).unwrap_or(&upper);
    let found = rows().find(|(name, _)| *name == short);
    found.map(|row| row.1).ok_or_else(|| format!("{key} = {given:?} is unknown; one of {}", names()))
}

impl Config {
    /// Makes the rule of `action` for a port (`DEVICE` or `DEVICE:PORT`), with further keys, each as `KEY=VALUE`.
    /// Errors: a key, a value or the place is wrong.
    pub fn command(&self, action: &str, place: &str, keys: &[String]) -> Result<FaultRule, String> {
        let (device, port) = place.split_once(':').unwrap_or((place, "1"));
        let port: u8 = port.parse().map_err(|_| format!("{place:?} is no port: write DEVICE or DEVICE:PORT"))?;
        let mut table = Table::new();
        table.insert("action".to_owned(), action.into());
        table.insert("device".to_owned(), device.into());
        table.insert("port".to_owned(), i64::from(port).into());
        table.insert("at_ns".to_owned(), 0.into());
        for given in keys {
            let (key, value) = given.split_once('=').ok_or_else(|| format!("{given:?} is no KEY=VALUE"))?;
            // A number or table as TOML has it, or else a word.
            let read = format!("value = {value}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
            if table.insert(key.to_owned(), read.unwrap_or_else(|| value.into())).is_some() {
                return Err(format!("{key} is given already: a command is for one port, now"));
            }
        }
        Fault::deserialize(table).map_err(|error| error.message().trim_end().to_owned())?.rule(&self.devices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(action: &str, place: &str, keys: &[&str]) -> Result<FaultRule, String> {
        let config = Config::parse("[[device]]\n[[device]]\n[[device.port]]\n[[device.port]]\n").unwrap();
        config.command(action, place, &keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_is_a_rule_that_is_due() {
        let rule =
            |device, port, action| FaultRule { device: Some(device), port: Some(port), ..FaultRule::always(action) };
        let down = FaultAction::LinkDown(5);
        assert_eq!(command("link-down", "softhca1:2", &["for_ns=5"]), Ok(rule(1, 2, down)));
        assert_eq!(command("link-up", "softhca0", &[]), Ok(rule(0, 1, FaultAction::LinkUp)));
        let (kind, change) = (event::PKEY_CHANGE, Change::Pkey(0, 0x8001));
        let keys = ["event=PKEY_CHANGE", "pkey=0x8001"];
        let change = FaultAction::Event(kind, Some(change));
        assert_eq!(command("event", "softhca0", &keys), Ok(rule(0, 1, change)));
        let gid = command("event", "softhca0:1", &["event=GID_CHANGE", "gid=fe80::9"]).unwrap();
        assert!(matches!(gid.action, FaultAction::Event(_, Some(Change::Gid(0, gid))) if gid.raw[15] == 9));
    }

    #[test]
    fn the_error_of_a_command_names_the_fault() {
        for (action, place, keys, words) in [
            ("link-down", "softhca7", &[][..], "softhca0, softhca1"),
            ("link-down", "softhca0:x", &[], "DEVICE:PORT"),
            ("link-up", "softhca0", &["for_ns=3"], "for_ns"),
            ("link-up", "softhca0", &["at_ns=3"], "now"),
            ("link-up", "softhca0", &["soon"], "KEY=VALUE"),
            ("link-up", "softhca0", &["color=3"], "color"),
            ("event", "softhca0", &["event=LID_CHANGED"], "LID_CHANGE"),
        ] {
            let error = command(action, place, keys).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
