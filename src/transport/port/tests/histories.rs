// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random histories: no request, slot or credit is lost or comes back twice.

use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

#[derive(Debug, Clone)]
enum Step {
    Send,
    /// The adapters deliver posted requests.
    Transfer,
    Complete,
    /// The adapter has no room for the next request.
    Full,
    Poll,
    Break,
    /// A gives B up, and makes the peer again.
    Part,
    /// B gives A up, and makes the peer again.
    PartB,
    Carry,
    /// The adapters flush the requests of queue pairs in error.
    Flush,
    Wait,
    /// B computes for so long that A holds it back if requests wait for it.
    Compute,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Send),
        3 => Just(Step::Transfer),
        4 => Just(Step::Complete),
        1 => Just(Step::Full),
        6 => Just(Step::Poll),
        1 => Just(Step::Break),
        1 => Just(Step::Part),
        1 => Just(Step::PartB),
        3 => Just(Step::Carry),
        3 => Just(Step::Flush),
        1 => Just(Step::Wait),
        1 => Just(Step::Compute),
    ]
}

fn run(steps: &[Step]) {
    let mut pair = Pair::connected();
    let mut next = 100;
    let mut outstanding: HashSet<u64> = HashSet::new();
    for step in steps {
        match step {
            Step::Send => {
                if pair.a.send(next).is_ok() {
                    outstanding.insert(next);
                }
                next += 1;
            }
            Step::Transfer => pair.transfer(),
            Step::Complete => {
                if let Some(index) = pair.a.script.connected() {
                    pair.a.script.complete(index, Status::SUCCESS);
                }
            }
            Step::Full => pair.a.script.state().answers.push_back(Some(libc::ENOMEM)),
            Step::Poll => {
                pair.a.poll();
                pair.b.poll();
            }
            Step::Break => {
                if let Some(index) = pair.a.script.connected() {
                    pair.a.script.complete(index, Status::RETRY_EXCEEDED);
                    pair.a.script.complete_all(index, Status::FLUSHED);
                }
            }
            Step::Part => pair.a.part(),
            Step::PartB => pair.b.part(),
            Step::Carry => pair.carry(),
            Step::Flush => [&pair.a, &pair.b].into_iter().for_each(|side| side.script.flush()),
            Step::Wait => pair.a.script.state().now += Duration::from_secs(2),
            Step::Compute => (0..10).for_each(|_| pair.a.poll()),
        }
        look(&mut pair, &mut outstanding);
    }
    end(pair, outstanding);
}

fn look(pair: &mut Pair, outstanding: &mut HashSet<u64>) {
    for (token, _) in pair.a.ended() {
        assert!(outstanding.remove(&token), "token {token} came back twice, or was never given");
    }
    let posted = pair.a.script.state().qps.iter().map(|qp| qp.posted.len() as u32).sum::<u32>();
    let credits = pair.a.port.tx.credits();
    assert!(credits + posted <= CAPACITY - SLOTS, "{credits} credits with {posted} requests posted");
    let with_adapter = pair.b.script.state().receives.len();
    let (counted, released) = pair.b.port.rx.slots();
    assert!(with_adapter <= counted as usize && counted as usize + released <= SLOTS as usize);
}

/// Ends both peers; all requests, slots and credits come back.
fn end(mut pair: Pair, mut outstanding: HashSet<u64>) {
    for side in [&mut pair.a, &mut pair.b] {
        side.port.forget(side.peer);
        // A hello that arrives later belongs to a new peer, and would make a connection.
        side.script.state().incoming.clear();
    }
    for _ in 0..64 {
        pair.a.script.flush();
        pair.b.script.flush();
        pair.a.poll();
        pair.b.poll();
        look(&mut pair, &mut outstanding);
    }
    assert_eq!([pair.a.script.living(), pair.b.script.living()], [0; 2], "queue pairs");
    assert!(outstanding.is_empty(), "never came back: {outstanding:?}");
    assert_eq!(pair.a.port.tx.credits(), CAPACITY - SLOTS);
    pair.b.has_all_slots();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, ..ProptestConfig::default() })]

    #[test]
    fn no_history_loses_or_doubles_a_request_a_slot_or_a_credit(steps in prop::collection::vec(step(), 1..120)) {
        run(&steps);
    }
}
