// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which path the messenger reports at sender and receiver, for each kind of message.

use super::*;
use ibex::messenger::rails::routes::SHORTEST;

#[test]
fn sender_and_receiver_are_told_the_path_that_the_length_the_gaps_and_the_ports_of_a_message_permit() {
    let (context, persistent) = (0, false);
    // Length, room, and whether the sender's and the receiver's data have gaps.
    let messages = [
        (8, 8, false, false),
        (60, 8, false, true),
        (8, 8, true, false),
        (200, 200, false, false),
        (600, 600, false, false),
        (600, 0, false, false),
        (600, 600, true, false),
        (600, 600, false, true),
        (SHORTEST - 1, SHORTEST, false, false),
        (SHORTEST, SHORTEST - 1, false, false),
        (SHORTEST, SHORTEST, false, false),
        (3 * SHORTEST, 2 * SHORTEST, false, false),
    ];
    for (rails, per_host, schedule) in [(1, 1, 1), (1, 2, 5), (2, 1, 9), (3, 1, 13), (2, 1, 17), (3, 1, 21)] {
        let mut operations = Vec::new();
        // The first round connects the ports.
        for (tag, (length, room, gaps, gaps_of_receive)) in (0..).zip(messages.iter().copied().cycle().take(24)) {
            for to in [1, 2] {
                let mode = if tag % 5 == 4 { Mode::Synchronous } else { Mode::Standard };
                operations.push(Operation::Send { from: 1, to, context, tag, length, mode, gaps, persistent });
                let (from, tag, gaps) = (Some(1), Some(tag), gaps_of_receive);
                operations.push(Operation::Receive { at: to, from, context, tag, room, gaps, persistent });
            }
            operations.extend((tag % 12 == 11).then_some(Operation::Settle { at: 1 }));
        }
        check(&Program { processes: 4, rails, per_host, schedule, operations, ..Program::default() });
    }
}
