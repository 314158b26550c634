// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which async events an adapter raises: a set of groups, written as a list of their names.
//!
//! Called by: `behaviour`; the engine asks before it raises one. Grade: setup.

use serde::{Deserialize, Deserializer, de::Error};

use crate::engine::codes::event;

/// A set of groups of async events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events(u16);

/// The groups: a name, and the events of it.
const GROUPS: [(&str, &[u32]); 9] = [
    ("port", &[event::PORT_ACTIVE, event::PORT_ERR]),
    ("gid", &[event::GID_CHANGE]),
    ("subnet", &[event::LID_CHANGE, event::PKEY_CHANGE, event::SM_CHANGE, event::CLIENT_REREGISTER]),
    ("qp", &[event::QP_FATAL, event::QP_REQ_ERR, event::QP_ACCESS_ERR, event::SQ_DRAINED]),
    ("comm-est", &[event::COMM_EST]),
    ("last-wqe", &[event::QP_LAST_WQE_REACHED]),
    ("cq", &[event::CQ_ERR]),
    ("srq", &[event::SRQ_LIMIT_REACHED, event::SRQ_ERR]),
    ("device", &[event::DEVICE_FATAL]),
];

impl Events {
    /// All events.
    pub const ALL: Events = Events::of(&[
        Group::Port,
        Group::Gid,
        Group::Subnet,
        Group::Qp,
        Group::CommEst,
        Group::LastWqe,
        Group::Cq,
        Group::Srq,
        Group::Device,
    ]);

    /// The groups of these names, which are known; for the tables of profiles.
    pub(crate) const fn of(bits: &[Group]) -> Events {
        let (mut set, mut at) = (0, 0);
        while at < bits.len() {
            set |= 1 << bits[at] as u16;
            at += 1;
        }
        Events(set)
    }

    /// Whether `event` (`codes::event`) is raised.
    #[must_use]
    pub fn raises(self, event: u32) -> bool {
        GROUPS.iter().enumerate().any(|(group, (_, events))| self.0 & (1 << group) != 0 && events.contains(&event))
    }
}

/// A group, by its place in the table.
#[derive(Clone, Copy, Debug)]
#[repr(u16)]
pub(crate) enum Group {
    Port,
    Gid,
    Subnet,
    Qp,
    CommEst,
    LastWqe,
    Cq,
    Srq,
    Device,
}

impl<'de> Deserialize<'de> for Events {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut set = 0;
        for given in Vec::<String>::deserialize(deserializer)? {
            let Some(group) = GROUPS.iter().position(|(name, _)| *name == given) else {
                let names = GROUPS.map(|(name, _)| name).join(", ");
                return Err(D::Error::custom(format!("{given:?} is no group of async events: one of {names}")));
            };
            set |= 1 << group;
        }
        Ok(Events(set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_in_one_group_and_groups_are_numbered_as_the_table_lists_them() {
        for event in 0..=event::GID_CHANGE {
            let groups = GROUPS.iter().filter(|(_, events)| events.contains(&event)).count();
            // PATH_MIG and PATH_MIG_ERR are not emulated.
            assert_eq!(groups, usize::from(!matches!(event, 6 | 7)), "event {event}");
        }
        let some = Events::of(&[Group::Gid, Group::Device]);
        assert!(some.raises(event::GID_CHANGE) && some.raises(event::DEVICE_FATAL));
        assert!(!some.raises(event::PORT_ERR) && !some.raises(event::SRQ_ERR));
        assert!((0..=event::GID_CHANGE).all(|event| Events::ALL.raises(event) != matches!(event, 6 | 7)));
    }
}
