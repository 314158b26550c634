// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address vectors (`fi_av(3)`): the peers that a program has named. An `fi_addr_t` is an index into the vector, of
//! either type (map or table).
//!
//! `calls.rs` has what C calls. Insertion checks an address and does not look whether its owner is there. An address
//! that is inserted twice has two indexes, and the first is the source of its messages. Grade: setup; [`name`] and
//! [`address`] pending. Threads: any. Tests: below.
//!
//! [`name`]: AddressVector::name
//! [`address`]: AddressVector::address

mod calls;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ibex::peer::PeerName;
use ibex::select::address::PortEntry;
use ibex::select::address::compact::CompactAddress;
use parking_lot::RwLock;

use crate::domain::Domain;
use crate::endpoint::members::Members;
use crate::entry::Result;
use crate::fid::Class;
use crate::sys;

pub(crate) use calls::{open, put};

#[derive(Default)]
struct Inserted {
    /// By index; `None`: removed.
    addresses: Vec<Option<CompactAddress>>,
    /// The indexes that are free.
    removed: BTreeSet<usize>,
    /// The first index of each.
    by_name: HashMap<PeerName, usize>,
}

/// An address vector.
pub(crate) struct AddressVector {
    inserted: RwLock<Inserted>,
    /// The endpoints that use it.
    pub(crate) endpoints: Members,
    pub(crate) domain: Arc<Domain>,
}

impl Class for AddressVector {
    type Fid = sys::fid_av;

    const NUMBER: u32 = sys::FI_CLASS_AV;
}

impl AddressVector {
    /// Makes an empty vector.
    pub(crate) fn new(domain: Arc<Domain>) -> Self {
        AddressVector { inserted: RwLock::default(), endpoints: Members::default(), domain }
    }

    /// Inserts an address. Returns its index, the lowest that is free.
    fn insert(&self, address: CompactAddress) -> sys::fi_addr_t {
        let mut inserted = self.inserted.write();
        let index = inserted.removed.pop_first().unwrap_or_else(|| {
            inserted.addresses.push(None);
            inserted.addresses.len() - 1
        });
        inserted.addresses[index] = Some(address);
        inserted.by_name.entry(address.name()).or_insert(index);
        index as u64
    }

    /// Removes the address with this index.
    fn remove(&self, index: sys::fi_addr_t) -> Result<()> {
        let mut inserted = self.inserted.write();
        let address = inserted.addresses.get_mut(index as usize).and_then(Option::take).ok_or(sys::FI_EINVAL)?;
        let name = address.name();
        if inserted.by_name.get(&name) == Some(&(index as usize)) {
            inserted.by_name.remove(&name);
            let other = inserted.addresses.iter().position(|other| other.is_some_and(|other| other.name() == name));
            other.map(|other| inserted.by_name.insert(name, other));
        }
        drop(inserted);
        // Endpoints forget it before another address can have the index.
        self.endpoints.forget(&mut self.domain.enter(), index);
        self.inserted.write().removed.insert(index as usize);
        Ok(())
    }

    fn get(&self, index: sys::fi_addr_t) -> Option<CompactAddress> {
        *self.inserted.read().addresses.get(usize::try_from(index).ok()?)?
    }

    /// Returns the name of the peer with this index.
    pub(crate) fn name(&self, index: sys::fi_addr_t) -> Option<PeerName> {
        self.get(index).map(|address| address.name())
    }

    /// Returns the index of a peer.
    pub(crate) fn address(&self, name: PeerName) -> Option<sys::fi_addr_t> {
        self.inserted.read().by_name.get(&name).map(|index| *index as u64)
    }

    /// Returns the address and the key of a peer's port.
    pub(crate) fn entry(&self, name: PeerName) -> Option<PortEntry> {
        self.get(self.address(name)?).map(|address| address.entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{address, domain};

    #[test]
    fn an_inserted_peer_is_found_by_index_and_by_name_until_it_is_removed() {
        let vector = AddressVector::new(domain());
        let (one, two) = (address(1), address(2));
        assert_eq!((vector.insert(one), vector.insert(two), vector.insert(one)), (0, 1, 2));
        assert_eq!((vector.name(0), vector.name(2), vector.name(3)), (Some(one.name()), Some(one.name()), None));
        assert_eq!((vector.address(one.name()), vector.address(two.name())), (Some(0), Some(1)));
        assert_eq!(vector.entry(two.name()), Some(two.entry));
        assert_eq!(vector.remove(0), Ok(()));
        assert_eq!((vector.name(0), vector.address(one.name())), (None, Some(2)), "it was inserted twice");
        assert_eq!(vector.remove(2), Ok(()));
        assert_eq!((vector.address(one.name()), vector.entry(one.name())), (None, None));
        assert_eq!((vector.remove(2), vector.remove(9)), (Err(sys::FI_EINVAL), Err(sys::FI_EINVAL)));
        assert_eq!(vector.name(sys::FI_ADDR_NOTAVAIL), None);
        assert_eq!([vector.insert(two), vector.insert(one), vector.insert(one)], [0, 2, 3], "the lowest free indexes");
    }
}
