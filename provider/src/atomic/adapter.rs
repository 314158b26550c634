// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic operations by the target's adapter (`FI_IBEX_ATOMICS=adapter`), which need no progress of the target: one
//! element of 8 bytes each.
//!
//! An adapter adds, and compares and swaps. Any other operation reads the element by adding zero, and then swaps until
//! nobody has changed it in between; each request of it is posted when the one before has ended. An operation holds a
//! slot of `rma`, which gets the old value. Called by `mod.rs` and `rma`. Grade: pending. Threads: the one that has
//! entered the endpoint. Tests: below, and `hw-tests/libfabric/atomics.c`.

use ibex::messenger::host::{Data as _, Process as _};
use ibex::messenger::route::Route;
use ibex::transport::adapter::verbs::Verbs;
use ibex::transport::{EndpointId, Port, Refused, Token};
use ibex_ffi::verbs::{LocalSpan, RemoteSpan};

use super::arithmetic::Datatype;
use super::{Atomic, Range};
use crate::entry::Result;
use crate::host::data::Data;
use crate::host::{Shared, State};
use crate::mr;
use crate::rma::local::{self, Local};
use crate::rma::notice::Notice;
use crate::rma::operations::Operation;
use crate::rma::{self, LOST, REFUSED, Rma, TOKEN, watch};
use crate::sys;

/// Bytes of an element.
pub(super) const SIZE: usize = size_of::<u64>();

type Element = [u8; SIZE];

/// A request to the adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Add(u64),
    Swap { compare: u64, to: u64 },
}

/// An operation that the adapter does not have.
#[derive(Clone, Copy)]
pub(crate) struct Exchange {
    datatype: Datatype,
    operation: sys::fi_op,
    /// The operand, and what the element is compared with.
    values: [Element; 2],
    remote: RemoteSpan,
    /// What the element was when it was read last; `None`: it is read now.
    expected: Option<u64>,
}

impl Exchange {
    /// Returns the next request, after one that found this value; `None`: the operation is done.
    fn next(&mut self, found: u64) -> Option<Step> {
        if self.expected == Some(found) {
            return None;
        }
        self.expected = Some(found);
        let (old, mut new) = (found.to_ne_bytes(), [0; SIZE]);
        self.datatype.apply(self.operation, [&old, &self.values[0], &self.values[1]], &mut new);
        (new != old).then(|| Step::Swap { compare: found, to: u64::from_ne_bytes(new) })
    }
}

/// Returns the only request of an operation, if the adapter has it, or the first one.
fn first(datatype: sys::fi_datatype, operation: sys::fi_op, [operand, compared]: [Element; 2]) -> (Step, bool) {
    let (operand, compared) = (u64::from_ne_bytes(operand), u64::from_ne_bytes(compared));
    let is_integer = matches!(datatype, sys::FI_INT64 | sys::FI_UINT64);
    match operation {
        sys::FI_ATOMIC_READ => (Step::Add(0), true),
        sys::FI_SUM if is_integer => (Step::Add(operand), true),
        sys::FI_CSWAP if is_integer => (Step::Swap { compare: compared, to: operand }, true),
        _ => (Step::Add(0), false),
    }
}

fn post(
    port: &mut Port<Verbs>,
    (to, number): (EndpointId, u32),
    slot: LocalSpan,
    remote: RemoteSpan,
    step: Step,
) -> std::result::Result<(), Refused> {
    let token = Token(TOKEN << 32 | u64::from(number));
    match step {
        Step::Add(operand) => port.fetch_add(to, slot.first(SIZE as u32), remote, operand, token),
        Step::Swap { compare, to: swap } => {
            port.compare_swap(to, slot.first(SIZE as u32), remote, (compare, swap), token)
        }
    }
}

impl Rma {
    /// Starts an operation by the adapter.
    fn begin_by_adapter(
        &mut self,
        port: &mut Port<Verbs>,
        to: EndpointId,
        of: &Atomic<'_>,
        target: Range,
    ) -> Result<()> {
        let datatype = Datatype::of(of.datatype).ok_or(sys::FI_EOPNOTSUPP)?;
        let number = self.operations.next();
        let values = [of.operands, of.compared].map(|pieces| {
            let mut value = Element::default();
            Data::of(pieces).take_at(0, &mut value);
            value
        });
        let remote = RemoteSpan { addr: target.address, rkey: target.key as u32 };
        let (step, is_all) = first(of.datatype, of.operation, values);
        let slot = self.slots.take(port)?;
        if post(port, (to, number), slot, remote, step).is_err() {
            self.slots.end(&mut self.registrations, Local::Slot(slot, None), false);
            return Err(sys::FI_ENOTCONN);
        }
        let exchange = Exchange { datatype, operation: of.operation, values, remote, expected: None };
        let results = of.calls.returns_values().then(|| Data::of(of.results));
        let local =
            if is_all { Local::Slot(slot, results) } else { Local::Exchange(slot, results, Box::new(exchange)) };
        let (flags, end) = (of.calls.flags(), of.end);
        let notice = Notice::of(of.calls.access(of.operation), None, std::iter::once(target.key)).map(Box::new);
        let place = (of.results.first().map_or(0, |piece| piece.address()), target.address, SIZE);
        let watched = watch::started(port, to, flags, place);
        self.operations.put(number, Operation { flags, end, to, posted: 1, failure: None, local, notice, watched });
        self.atomics += 1;
        self.exchanges += u32::from(!is_all);
        Ok(())
    }

    /// Whether an operation with the peer needs several requests, so that those of a later one would come between.
    fn is_exchanging(&self, to: EndpointId) -> bool {
        let is_exchange = |of: &Operation| matches!(of.local, Local::Exchange(..)) && of.to == to;
        self.exchanges > 0 && self.operations.all().any(is_exchange)
    }

    /// Whether an operation whose request has succeeded needs another one, which [`take_steps`] posts.
    #[cold]
    pub(crate) fn goes_on(&mut self, number: u32) -> bool {
        let Some(Operation { local: Local::Exchange(slot, _, exchange), .. }) = self.operations.get(number) else {
            return false;
        };
        let mut found = Element::default();
        found.copy_from_slice(local::bytes(*slot, SIZE));
        let next = exchange.next(u64::from_ne_bytes(found));
        self.steps.extend(next.map(|step| (number, step)));
        next.is_some()
    }
}

/// Starts an operation by the adapter of the target, which may be this endpoint itself.
pub(super) fn start(state: &mut State, shared: &Shared, of: &Atomic<'_>, route: Route) -> Result<()> {
    let Some(&target) = of.targets.iter().find(|target| target.elements > 0) else {
        rma::report(&state.reports, of.calls.flags(), of.end, None);
        return Ok(());
    };
    if !target.address.is_multiple_of(SIZE as u64) {
        return Err(sys::FI_EINVAL);
    }
    // The adapter of the peer breaks the connection if it refuses; this process need not go so far with itself.
    let access = of.calls.access(of.operation);
    let regions = &state.others.domain.regions;
    let is_refused =
        route == Route::LOOPBACK && !regions.check(target.key, (target.address, SIZE), access | mr::ATOMIC);
    if is_refused || mr::adapter_key(target.key).is_none() {
        rma::report(&state.reports, of.calls.flags(), of.end, Some(REFUSED));
        return Ok(());
    }
    let to = endpoint_of(state, shared, route).ok_or(sys::FI_EAGAIN)?;
    rma::ended(state, shared, |state| state.others.is_exchanging(to))?;
    rma::begin(state, shared, |others, port, _| others.begin_by_adapter(port, to, of, target))
}

/// Returns the port's endpoint of a route, also of that to this endpoint itself.
fn endpoint_of(state: &mut State, shared: &Shared, route: Route) -> Option<EndpointId> {
    if route != Route::LOOPBACK {
        return Some(route.to());
    }
    if state.others.ourselves.is_none() {
        state.others.ourselves = Some(shared.enter_port(0)?.peer(state.name(), 0));
    }
    state.others.ourselves
}

/// Posts the next requests of operations that need several. No port is entered.
pub(crate) fn take_steps(state: &mut State, shared: &Shared) {
    let Some(mut port) = shared.enter_port(0) else { return };
    let others = &mut state.others;
    for (number, step) in std::mem::take(&mut others.steps) {
        let Some(Operation { to, local: Local::Exchange(slot, _, exchange), .. }) = others.operations.get(number)
        else {
            continue;
        };
        if post(&mut port, (*to, number), *slot, exchange.remote, step).is_err()
            && let Some(ended) = others.operations.ended(number, Some(LOST))
        {
            others.end(ended, &state.reports);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(value: f64) -> u64 {
        u64::from_ne_bytes(value.to_ne_bytes())
    }

    #[test]
    fn an_adapter_adds_reads_and_swaps_integers_by_one_request() {
        let values = [5_u64, 7].map(u64::to_ne_bytes);
        let swap = Step::Swap { compare: 7, to: 5 };
        for (datatype, operation, expected) in [
            (sys::FI_UINT64, sys::FI_SUM, (Step::Add(5), true)),
            (sys::FI_INT64, sys::FI_CSWAP, (swap, true)),
            (sys::FI_DOUBLE, sys::FI_ATOMIC_READ, (Step::Add(0), true)),
            (sys::FI_DOUBLE, sys::FI_SUM, (Step::Add(0), false)),
            (sys::FI_DOUBLE, sys::FI_CSWAP, (Step::Add(0), false)),
            (sys::FI_INT64, sys::FI_ATOMIC_WRITE, (Step::Add(0), false)),
        ] {
            assert_eq!(first(datatype, operation, values), expected, "type {datatype}, operation {operation}");
        }
    }

    #[test]
    fn any_other_operation_swaps_until_nobody_has_changed_the_element_in_between() {
        let exchange = |operation, operand: f64| Exchange {
            datatype: Datatype::of(sys::FI_DOUBLE).expect("it is there"),
            operation,
            values: [operand.to_ne_bytes(), [0; SIZE]],
            remote: RemoteSpan { addr: 0, rkey: 0 },
            expected: None,
        };
        let mut sum = exchange(sys::FI_SUM, 2.0);
        assert_eq!(sum.next(bits(1.0)), Some(Step::Swap { compare: bits(1.0), to: bits(3.0) }));
        assert_eq!(sum.next(bits(4.0)), Some(Step::Swap { compare: bits(4.0), to: bits(6.0) }), "it has changed");
        assert_eq!(sum.next(bits(4.0)), None);
        assert_eq!(exchange(sys::FI_MAX, 2.0).next(bits(3.0)), None, "the value stays");
    }
}
