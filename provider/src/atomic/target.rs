// SPDX-License-Identifier: MIT OR Apache-2.0
//! The target of atomic operations: checks a request as the adapter checks those of reads and writes, does it, and
//! answers.
//!
//! Called for each message of `atomic`, and for operations of an endpoint with itself. Grade: pending. Threads: the
//! one that has entered the endpoint. Tests: below, and `hw-tests/libfabric`.

use super::arithmetic::{Datatype, LARGEST};
use super::memory;
use super::message::{self, Outcome, Request};
use crate::adapter::RECEIVE_SIZE;
use crate::mr::Regions;

/// Does what a request asks for. Returns what became of it, and the answer. `values`: its operands, and what targets
/// are compared with.
pub(super) fn serve(regions: &Regions, of: &Request, values: &[u8]) -> (Outcome, Vec<u8>) {
    let mut old = Vec::new();
    let outcome = perform(regions, of, values, &mut old);
    if outcome == Outcome::Done && of.counts[0] {
        regions.count(&[of.key], of.calls.access(of.operation));
    }
    (outcome, message::answer(of.number, outcome, &old))
}

fn perform(regions: &Regions, of: &Request, values: &[u8], old: &mut Vec<u8>) -> Outcome {
    let known = Datatype::of(of.datatype).filter(|datatype| of.calls.has(*datatype, of.operation));
    let Some(datatype) = known else { return Outcome::Unknown };
    let size = datatype.size;
    let length = of.count as usize * size;
    let is_whole = values.len() == length * of.calls.operands(of.operation) && length <= RECEIVE_SIZE as usize;
    let range = usize::try_from(of.elements).ok().and_then(|elements| elements.checked_mul(size));
    let Some(range) = range.filter(|_| is_whole && u64::from(of.first) + u64::from(of.count) <= of.elements) else {
        return Outcome::Unknown;
    };
    let (operands, compared) = values.split_at(length.min(values.len()));
    let change = || {
        let start = of.address as usize + of.first as usize * size;
        let mut value = vec![0; size];
        for index in 0..of.count as usize {
            let [operand, compare] = [operands, compared]
                .map(|values| values.get(index * size..(index + 1) * size).unwrap_or(&[0; LARGEST][..size]));
            // SAFETY: inside an open region that permits the access, and stays open meanwhile (`Regions::within`).
            unsafe {
                memory::change(start + index * size, &mut value, |old, new| {
                    datatype.apply(of.operation, [old, operand, compare], new);
                });
            }
            if of.calls.returns_values() {
                old.extend_from_slice(&value);
            }
        }
    };
    match regions.within(of.key, (of.address, range), of.calls.access(of.operation), change) {
        Some(()) => Outcome::Done,
        None => Outcome::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Calls;
    use super::super::message::{Message, decode};
    use super::*;
    use crate::sys;

    /// The memory of a region, and a request that adds to its second and third element of four.
    fn request(memory: &mut [u32; 4]) -> Request {
        Request {
            calls: Calls::Fetch,
            datatype: sys::FI_UINT32,
            operation: sys::FI_SUM,
            number: 5,
            address: memory.as_mut_ptr().expose_provenance() as u64,
            key: 7,
            elements: 4,
            first: 1,
            count: 2,
            counts: [false; 2],
        }
    }

    #[test]
    fn a_request_is_done_within_its_region_and_else_touches_nothing() {
        let mut memory = [10, 20, 30, 40];
        let of = request(&mut memory);
        let values: Vec<u8> = [1_u32, 2].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let regions = |access| Regions::of(7, (of.address, 16), access);
        let (read, write) = (sys::FI_REMOTE_READ, sys::FI_REMOTE_WRITE);
        let outcome = |regions: &Regions, of: &Request, values: &[u8]| {
            let (_, answer) = serve(regions, of, values);
            let Some(Message::Answer { number: 5, outcome, old }) = decode(&answer) else { panic!("no answer") };
            (outcome, old.to_vec())
        };
        let nothing = |outcome| (outcome, Vec::new());
        let both = &regions(read | write);
        for (regions, wrong) in [
            (&regions(read), of),
            (&regions(write), of),
            (both, Request { key: 8, ..of }),
            (both, Request { elements: 5, ..of }),
            (both, Request { address: of.address - 4, ..of }),
        ] {
            assert_eq!(outcome(regions, &wrong, &values), nothing(Outcome::Refused));
        }
        for wrong in [
            Request { first: 3, ..of },
            Request { count: 1, ..of },
            Request { operation: sys::FI_CSWAP, ..of },
            Request { datatype: 99, ..of },
            Request { elements: u64::MAX, ..of },
        ] {
            assert_eq!(outcome(both, &wrong, &values), nothing(Outcome::Unknown));
        }
        assert_eq!(memory, [10, 20, 30, 40]);
        let of = request(&mut memory);
        let old: Vec<u8> = [20_u32, 30].iter().flat_map(|value| value.to_ne_bytes()).collect();
        assert_eq!(outcome(both, &of, &values), (Outcome::Done, old));
        assert_eq!(outcome(&regions(write), &Request { calls: Calls::Base, ..of }, &values), nothing(Outcome::Done));
        assert_eq!(memory, [10, 22, 34, 40]);
        let reads = Request { operation: sys::FI_ATOMIC_READ, ..of };
        assert_eq!(outcome(&regions(read), &reads, &[]).0, Outcome::Done, "a read needs no right to write");
    }
}
