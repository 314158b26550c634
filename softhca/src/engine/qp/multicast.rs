// SPDX-License-Identifier: MIT OR Apache-2.0
//! Multicast groups: which UD queue pairs are in which.
//!
//! Owns the groups of the region. Called by: qp (attached, detached, destroyed), datagram (the members of a group).
//! Grade: setup; `members` is hot for who sends to groups. Thread rule: changes hold the region's lock of the tables. A
//! member is the index of its queue pair plus one.

use crate::engine::{Errno, Result, fabric::Fabric, memory::header::Group};

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
    let group = fabric.header().groups.iter().find(|group| group.key() == key);
    group.into_iter().flat_map(|group| &group.members).filter_map(|member| member.seen().checked_sub(1))
}

/// Whether queue pair `index` is in any group.
pub(super) fn is_member(fabric: &Fabric, index: u32) -> bool {
    fabric.header().groups.iter().any(|group| group.members.iter().any(|member| member.get() == index + 1))
}

/// Queue pair `index` joins the group `gid`.
/// # Errors
/// ENOMEM: too many groups or members.
pub(super) fn join(fabric: &Fabric, index: u32, gid: &[u8; 16]) -> Result<()> {
    let key = key_of(gid);
    let header = fabric.header();
    let _tables = header.tables.lock(fabric);
    let is = |group: &&Group| group.key() == key;
    let is_empty = |group: &&Group| group.members.iter().all(|member| member.get() == 0);
    let group =
        header.groups.iter().find(is).or_else(|| header.groups.iter().find(is_empty)).ok_or(Errno(libc::ENOMEM))?;
    let me = index + 1;
    if is(&group) && group.members.iter().any(|member| member.get() == me) {
        return Ok(());
    }
    let place = group.members.iter().find(|member| member.get() == 0).ok_or(Errno(libc::ENOMEM))?;
    group.gid[0].set(key[0]);
    group.gid[1].set(key[1]);
    place.publish(me);
    Ok(())
}

/// Queue pair `index` leaves the group `gid`, or all; whether it was in one.
pub(super) fn leave(fabric: &Fabric, index: u32, gid: Option<&[u8; 16]>) -> bool {
    let header = fabric.header();
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
