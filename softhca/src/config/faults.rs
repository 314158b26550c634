// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[[fault]]`: the scripted faults as they are written, and the rules the engine is given. A rule says what happens
//! (`action`), to which packets or requests (`device`, `port`, `qp_type`, `from_lid`, `to_lid`), and to how many of them (`nth`
//! and `count`, or a seeded `fraction`). Keys that an action does not use are refused, so that no rule is silently half
//! read. Grade: setup. Times are nanoseconds. Tests: config.rs.

use serde::Deserialize;

use super::values::{GidRow, LAST_LID, within};
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

/// What a scripted time may be: a year. Times of a fabric are nanoseconds in 64 bits.
const MOST_NS: u64 = 365 * 24 * 3_600_000_000_000;
/// What a packet may be delayed by, as by a link.
const MOST_DELAY_NS: u64 = 60_000_000_000;
/// As far as a rule counts what it fits.
const MOST_COUNT: u64 = u32::MAX as u64;

/// Constants of verbs.h by their names, less what all of them begin with.
macro_rules! by_name {
    ($($name:ident)+) => { &[$((stringify!($name), crate::sys::$name)),+] };
}

/// Every `ibv_wc_status` but success.
const STATUSES: &[(&str, u32)] = by_name![
    IBV_WC_LOC_LEN_ERR IBV_WC_LOC_QP_OP_ERR IBV_WC_LOC_EEC_OP_ERR IBV_WC_LOC_PROT_ERR
    IBV_WC_WR_FLUSH_ERR IBV_WC_MW_BIND_ERR IBV_WC_BAD_RESP_ERR IBV_WC_LOC_ACCESS_ERR
    IBV_WC_REM_INV_REQ_ERR IBV_WC_REM_ACCESS_ERR IBV_WC_REM_OP_ERR IBV_WC_RETRY_EXC_ERR
    IBV_WC_RNR_RETRY_EXC_ERR IBV_WC_LOC_RDD_VIOL_ERR IBV_WC_REM_INV_RD_REQ_ERR IBV_WC_REM_ABORT_ERR
    IBV_WC_INV_EECN_ERR IBV_WC_INV_EEC_STATE_ERR IBV_WC_FATAL_ERR IBV_WC_RESP_TIMEOUT_ERR
    IBV_WC_GENERAL_ERR IBV_WC_TM_ERR IBV_WC_TM_RNDV_INCOMPLETE
];

/// Of `ibv_event_type` those of a port or the device, and those of objects that fail.
const EVENTS: &[(&str, u32)] = by_name![
    IBV_EVENT_QP_FATAL IBV_EVENT_CQ_ERR IBV_EVENT_SRQ_ERR IBV_EVENT_DEVICE_FATAL
    IBV_EVENT_PORT_ACTIVE IBV_EVENT_PORT_ERR IBV_EVENT_LID_CHANGE IBV_EVENT_PKEY_CHANGE
    IBV_EVENT_SM_CHANGE IBV_EVENT_CLIENT_REREGISTER IBV_EVENT_GID_CHANGE
];

/// Of `ibv_qp_type` those that send.
const QP_TYPES: &[(&str, u32)] = by_name![IBV_QPT_RC IBV_QPT_UC IBV_QPT_UD IBV_QPT_XRC_SEND];

/// What `post_send` and registering memory may fail with.
const ERRNOS: &[(&str, i32)] =
    &[("ENOMEM", libc::ENOMEM), ("EINVAL", libc::EINVAL), ("EIO", libc::EIO), ("EAGAIN", libc::EAGAIN)];

impl Fault {
    /// The rule, or what is wrong with it.
    pub(super) fn rule(&self, devices: &[DeviceSpec]) -> Result<FaultRule, String> {
        self.refuse_unused()?;
        let device = match &self.device {
            None => None,
            Some(name) => Some(
                devices
                    .iter()
                    .position(|device| device.name == *name)
                    .ok_or_else(|| format!("no device is called {name:?}; there are {}", names(devices)))?,
            ),
        };
        self.refuse_nowhere(device, devices)?;
        if let Some(fraction) = self.fraction {
            within("fraction", fraction, 0.0..=1.0)?;
            if self.nth.is_some() || self.count.is_some() {
                return Err("a rule has either nth (and count) or fraction".to_owned());
            }
        }
        within("nth", self.nth.unwrap_or(1), 1..=MOST_COUNT)?;
        within("count", self.count.unwrap_or(0), 0..=MOST_COUNT)?;
        Ok(FaultRule {
            action: self.engine_action(devices)?,
            device,
            port: self.port,
            qp_type: self.sender()?,
            from_lid: self.from_lid,
            to_lid: self.to_lid,
            nth: self.nth,
            count: self.count.unwrap_or(u64::from(self.nth.is_some())),
            fraction: self.fraction,
            seed: self.seed.unwrap_or(1),
        })
    }

    /// The type of the queue pairs it applies to.
    fn sender(&self) -> Result<Option<u32>, String> {
        let name = self.qp_type.as_deref();
        name.map(|_| named("qp_type", "IBV_QPT_", name, QP_TYPES)).transpose()
    }

    fn engine_action(&self, devices: &[DeviceSpec]) -> Result<FaultAction, String> {
        let at_ns = || {
            let at_ns = self.at_ns.ok_or("this action needs at_ns")?;
            within("at_ns", at_ns, 0..=MOST_NS)
        };
        let for_ns = || within("for_ns", self.for_ns.unwrap_or(0), 0..=MOST_NS);
        Ok(match self.action {
            Action::Drop => FaultAction::Drop,
            Action::Delay => {
                let delay_ns = self.delay_ns.ok_or("action = \"delay\" needs delay_ns")?;
                FaultAction::Delay(within("delay_ns", delay_ns, 0..=MOST_DELAY_NS)?)
            }
            Action::Duplicate => FaultAction::Duplicate,
            Action::Rnr => FaultAction::Rnr,
            Action::Status => FaultAction::Status(named("status", "IBV_WC_", self.status.as_deref(), STATUSES)?),
            Action::PostSendError => {
                FaultAction::PostSend(named("errno", "", self.errno.as_deref().or(Some("ENOMEM")), ERRNOS)?)
            }
            Action::RegistrationError => {
                FaultAction::RegMr(named("errno", "", self.errno.as_deref().or(Some("ENOMEM")), ERRNOS)?)
            }
            Action::CqOverrun => FaultAction::CqOverrun,
            Action::LinkDown => FaultAction::LinkDown { at_ns: at_ns()?, for_ns: for_ns()? },
            Action::LinkUp => FaultAction::LinkUp { at_ns: at_ns()? },
            Action::Event => {
                let kind = named("event", "IBV_EVENT_", self.event.as_deref(), EVENTS)?;
                let at_ns = at_ns()?;
                match self.change(kind, devices)? {
                    Some(change) => FaultAction::Change { kind, at_ns, change },
                    None => FaultAction::Async { kind, at_ns },
                }
            }
        })
    }

    /// What of the port changes when the event is raised, if anything does.
    fn change(&self, kind: u32, devices: &[DeviceSpec]) -> Result<Option<Change>, String> {
        let device = self.device.as_ref().and_then(|name| devices.iter().find(|device| device.name == *name));
        let device = device.unwrap_or(&devices[0]);
        let port = device.ports.get(usize::from(self.port.unwrap_or(1)) - 1);
        let is_infiniband = device.link_layer == link_layer::INFINIBAND;
        let given = [
            ("lid", self.lid.is_some(), kind == event::LID_CHANGE && is_infiniband),
            (
                "sm_lid",
                self.sm_lid.is_some(),
                matches!(kind, event::SM_CHANGE | event::CLIENT_REREGISTER) && is_infiniband,
            ),
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
            let usual = if is_infiniband { gid_kind::IB } else { gid_kind::ROCE_V2 };
            let gid = Gid { raw: row.gid.0, kind: row.kind.map_or(usual, |kind| kind.0) };
            return Ok(Some(Change::Gid(index, if gid.is_empty() { Gid::default() } else { gid })));
        }
        let Some(key) = self.pkey else { return Ok(None) };
        let last = port.map_or(0, |port| port.pkeys.len() as u16 - 1);
        let index = within("pkey_index", self.pkey_index.unwrap_or(0), 0..=last)?;
        Ok(Some(Change::Pkey(index, key)))
    }

    /// A rule about a port or an address that is not there would never apply.
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
            (
                "from_lid or to_lid",
                self.from_lid.is_some() || self.to_lid.is_some(),
                packet || self.action == Action::Status,
            ),
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

fn names(devices: &[DeviceSpec]) -> String {
    devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// What stands in `table` under a name, which may be written without `prefix`, and in small letters.
fn named<T: Copy>(key: &str, prefix: &str, given: Option<&str>, table: &[(&str, T)]) -> Result<T, String> {
    let rows = || table.iter().map(|(name, value)| (name.strip_prefix(prefix).unwrap_or(name), *value));
    let names = || rows().map(|row| row.0).collect::<Vec<_>>().join(", ");
    let given = given.ok_or_else(|| format!("this action needs {key}, one of {}", names()))?;
    let upper = given.to_ascii_uppercase();
    let short = upper.strip_prefix(prefix).unwrap_or(&upper);
    let found = rows().find(|(name, _)| *name == short);
    found.map(|row| row.1).ok_or_else(|| format!("{key} = {given:?} is unknown; one of {}", names()))
}
