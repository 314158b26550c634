// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which atomic operations there are, and how long they may be: the answers of `fi_atomicvalid`,
//! `fi_fetch_atomicvalid`, `fi_compare_atomicvalid` and `fi_query_atomic`.
//!
//! Grade: setup; [`Calls`] pending. Threads: any. Tests: below, and `hw-tests/libfabric`.

use std::ffi::c_int;

use super::arithmetic::Datatype;
use super::by::By;
use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::entry::{Result, done};
use crate::fid::object;
use crate::sys;

/// Most bytes of the targets of an operation.
pub(super) const LONGEST: usize = 1 << 20;

/// The calls by which a program starts an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// `fi_atomic`.
    Base = 0,
    /// `fi_fetch_atomic`: they return the old values.
    Fetch = 1,
    /// `fi_compare_atomic`: they do as well.
    Compare = 2,
}

impl Calls {
    pub(super) fn of(number: u8) -> Option<Calls> {
        [Calls::Base, Calls::Fetch, Calls::Compare].get(usize::from(number)).copied()
    }

    /// Whether these calls have this operation (`fi_op`) for elements of this type.
    pub(super) fn has(self, datatype: Datatype, operation: sys::fi_op) -> bool {
        let is_read = operation == sys::FI_ATOMIC_READ;
        let is_compared = (sys::FI_CSWAP..=sys::FI_MSWAP).contains(&operation);
        let is_theirs = match self {
            Calls::Base => !is_compared && !is_read,
            Calls::Fetch => !is_compared,
            Calls::Compare => is_compared,
        };
        is_theirs && datatype.has(operation)
    }

    /// Returns the number of values for each element, besides the target.
    pub(super) fn operands(self, operation: sys::fi_op) -> usize {
        match self {
            _ if operation == sys::FI_ATOMIC_READ => 0,
            Calls::Base | Calls::Fetch => 1,
            Calls::Compare => 2,
        }
    }

    pub(super) fn returns_values(self) -> bool {
        self != Calls::Base
    }

    /// The access that the region of the target must permit.
    pub(super) fn access(self, operation: sys::fi_op) -> u64 {
        let reads = if self.returns_values() { sys::FI_REMOTE_READ } else { 0 };
        let writes = if operation == sys::FI_ATOMIC_READ { 0 } else { sys::FI_REMOTE_WRITE };
        reads | writes
    }

    /// Flags of its completion: what returns values counts as a read.
    pub(super) fn flags(self) -> u64 {
        sys::FI_ATOMIC | if self.returns_values() { sys::FI_READ } else { sys::FI_WRITE }
    }
}

/// Returns the type of the elements, if there is such an operation.
pub(super) fn known(calls: Calls, datatype: sys::fi_datatype, operation: sys::fi_op) -> Result<Datatype> {
    Datatype::of(datatype).filter(|datatype| calls.has(*datatype, operation)).ok_or(sys::FI_EOPNOTSUPP)
}

/// Returns the most elements of an operation.
pub(super) fn most(by: By, datatype: Datatype) -> Result<usize> {
    by.most(datatype).ok_or(sys::FI_EOPNOTSUPP)
}

/// Answers whether there is an operation: writes the most elements that it may have.
///
/// # Safety
/// F1, F2.
unsafe fn answer(
    calls: Calls,
    endpoint: *mut sys::fid_ep,
    (datatype, operation): (u32, u32),
    count: *mut usize,
) -> c_int {
    done("fi_atomicvalid", || {
        // SAFETY: F1, F2.
        let (endpoint, count) = unsafe { (object::<Endpoint>(endpoint), count.as_mut()) };
        *count.ok_or(sys::FI_EINVAL)? = most(endpoint.atomics()?, known(calls, datatype, operation)?)?;
        Ok(())
    })
}

macro_rules! answers {
    ($($name:ident: $calls:ident;)*) => { $(
        pub(super) unsafe extern "C" fn $name(
            endpoint: *mut sys::fid_ep,
            datatype: sys::fi_datatype,
            operation: sys::fi_op,
            count: *mut usize,
        ) -> c_int {
            // SAFETY: F1, F2.
            unsafe { answer(Calls::$calls, endpoint, (datatype, operation), count) }
        }
    )* };
}

answers! {
    base: Base;
    fetch: Fetch;
    compare: Compare;
}

/// Returns the calls that `fi_query_atomic` is asked about.
fn queried(flags: u64) -> Result<Calls> {
    match flags {
        0 => Ok(Calls::Base),
        sys::FI_FETCH_ATOMIC => Ok(Calls::Fetch),
        sys::FI_COMPARE_ATOMIC => Ok(Calls::Compare),
        _ if flags & sys::FI_TAGGED != 0 => Err(sys::FI_EOPNOTSUPP),
        _ => Err(sys::FI_EINVAL),
    }
}

/// `fi_query_atomic`.
///
/// # Safety
/// F1, F2.
pub(crate) unsafe extern "C" fn query(
    domain: *mut sys::fid_domain,
    datatype: sys::fi_datatype,
    operation: sys::fi_op,
    place: *mut sys::fi_atomic_attr,
    flags: u64,
) -> c_int {
    done("fi_query_atomic", || {
        let datatype = known(queried(flags)?, datatype, operation)?;
        // SAFETY: F1, F2.
        let (domain, place) = unsafe { (object::<Domain>(domain), place.as_mut()) };
        let count = most(domain.atomics()?, datatype)?;
        *place.ok_or(sys::FI_EINVAL)? = sys::fi_atomic_attr { count, size: datatype.size };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_belongs_to_the_calls_that_the_manual_page_names() {
        for operation in 0..sys::FI_ATOMIC_OP_LAST + 2 {
            let is = [Calls::Base, Calls::Fetch, Calls::Compare]
                .map(|calls| known(calls, sys::FI_UINT32, operation).is_ok());
            let expected = match operation {
                sys::FI_ATOMIC_READ => [false, true, false],
                sys::FI_CSWAP..=sys::FI_MSWAP => [false, false, true],
                sys::FI_MIN..=sys::FI_ATOMIC_WRITE => [true, true, false],
                _ => [false; 3],
            };
            assert_eq!(is, expected, "operation {operation}");
        }
        assert_eq!(known(Calls::Base, sys::FI_DOUBLE, sys::FI_BOR).err(), Some(sys::FI_EOPNOTSUPP));
    }

    #[test]
    fn a_program_asks_about_one_kind_of_calls() {
        assert_eq!(queried(sys::FI_COMPARE_ATOMIC), Ok(Calls::Compare));
        assert_eq!(queried(sys::FI_TAGGED), Err(sys::FI_EOPNOTSUPP));
        assert_eq!(queried(sys::FI_FETCH_ATOMIC | sys::FI_COMPARE_ATOMIC), Err(sys::FI_EINVAL));
    }

    #[test]
    fn an_adapter_changes_one_element_of_8_bytes() {
        let ask = |by, datatype| most(by, known(Calls::Base, datatype, sys::FI_SUM).expect("it is there"));
        assert_eq!(ask(By::Processor, sys::FI_INT128), Ok(LONGEST / 16));
        assert_eq!(ask(By::Processor, sys::FI_INT8), Ok(LONGEST));
        assert_eq!(ask(By::Adapter, sys::FI_DOUBLE), Ok(1));
        assert_eq!(ask(By::Adapter, sys::FI_INT32), Err(sys::FI_EOPNOTSUPP));
        assert_eq!(ask(By::Nobody, sys::FI_INT64), Err(sys::FI_EOPNOTSUPP));
    }
}
