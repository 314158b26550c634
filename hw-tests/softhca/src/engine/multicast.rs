// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multicast groups: which UD queue pairs are in which.
//!
//! Owns the groups of the region. Called by: the C side (attach, detach), datagram (whom a group has), qp (leaving at
//! the end). Grade: setup; `members` is hot for who sends to groups. Thread rule: changes hold the region's lock of the
//! tables. A member is the index of its queue pair plus one.

use super::{Errno, Qp, Result, codes::qp_type::UD, fabric::Fabric, region::Group};

impl Group {
    fn key(&self) -> [u64; 2] {
        [self.gid[0].get(), self.gid[1].get()]
    }
}

/// A group's address as two words.
fn key_of(gid: &[u8; 16]) -> [u64; 2] {
    let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| gid[at + i]));
    [half(0), half(8)]
}

/// The indices of the queue pairs that are in the group `gid`.
pub(crate) fn members(fabric: &Fabric, gid: &[u8; 16]) -> impl Iterator<Item = u32> {
    let key = key_of(gid);
    let group = fabric.region().header().groups.iter().find(|group| group.key() == key);
    group.into_iter().flat_map(|group| &group.members).filter_map(|member| member.seen().checked_sub(1))
}

/// Whether queue pair `index` is in any group.
pub(crate) fn is_member(fabric: &Fabric, index: u32) -> bool {
    fabric.region().header().groups.iter().any(|group| group.members.iter().any(|member| member.get() == index + 1))
}

/// Queue pair `index` leaves the group `gid`, or all; whether it was in one.
pub(crate) fn leave(fabric: &Fabric, index: u32, gid: Option<&[u8; 16]>) -> bool {
    let header = fabric.region().header();
    let key = gid.map(key_of);
    let _tables = header.tables.lock(fabric);
    let mut left = false;
    for group in header.groups.iter().filter(|group| key.is_none_or(|key| key == group.key())) {
        for member in group.members.iter().filter(|member| member.get() == index + 1) {
            member.set(0);
            left = true;
        }
    }
    left
}

impl Qp {
    /// Joins a multicast group.
    /// # Errors
    /// EINVAL (not UD, not a multicast address), ENOMEM (too many groups or members).
    pub fn attach_mcast(&self, gid: &[u8; 16], _lid: u16) -> Result<()> {
        if self.shared.kind.get() != UD || gid[0] != 0xff {
            return Err(Errno(libc::EINVAL));
        }
        let fabric = &*self.hca.fabric;
        let key = key_of(gid);
        let header = fabric.region().header();
        let _tables = header.tables.lock(fabric);
        let is = |group: &&Group| group.key() == key;
        let is_empty = |group: &&Group| group.members.iter().all(|member| member.get() == 0);
        let group =
            header.groups.iter().find(is).or_else(|| header.groups.iter().find(is_empty)).ok_or(Errno(libc::ENOMEM))?;
        let me = self.shared.index() + 1;
        if is(&group) && group.members.iter().any(|member| member.get() == me) {
            return Ok(());
        }
        let place = group.members.iter().find(|member| member.get() == 0).ok_or(Errno(libc::ENOMEM))?;
        group.gid[0].set(key[0]);
        group.gid[1].set(key[1]);
        place.publish(me);
        Ok(())
    }

    /// Leaves a multicast group.
    /// # Errors
    /// EINVAL: it is not a member.
    pub fn detach_mcast(&self, gid: &[u8; 16], _lid: u16) -> Result<()> {
        if leave(&self.hca.fabric, self.shared.index(), Some(gid)) { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }
}
