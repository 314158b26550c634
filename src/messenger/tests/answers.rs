// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers, which name a transfer: only those of its peer count, by whichever rail they come.

use super::*;
use crate::messenger::path_taken::Reason;
use crate::transport::EndpointId;

/// Returns the route to another process than the peer.
fn other() -> Route {
    Route::new(0, EndpointId::from_index(1))
}

/// Makes a send that waits for the answer of the process to which this route leads. Returns its number.
fn unanswered(host: &mut SmallHost, route: Route) -> u32 {
    let send = host.request(Role::Send(Mode::Standard), vec![1; 20]);
    let transfer =
        Transfer::Unanswered { sender: TransferId(0), registered: Some(()), others: Vec::new(), counted: false };
    (host.cores[send].route, host.cores[send].transfer) = (route, transfer);
    host.registered.push(route.rail());
    host.messenger.transfers.begin(send).0
}

#[test]
fn only_the_peer_of_a_send_ends_it_by_whichever_rail_its_answer_comes() {
    let answers: [fn(u32) -> Header; 3] = [
        |request| Header::Finished { request, length: 20 },
        |request| Header::Acknowledge { request },
        |request| Header::ClearToSend { request, receive: 1, why: Reason::Gaps, length: 20 },
    ];
    let routes = [(by_rail(0), by_rail(0)), (by_rail(0), by_rail(1)), (Route::local(1), Route::local(1))];
    for (answer, (route, from)) in answers.into_iter().flat_map(|answer| routes.map(|of| (answer, of))) {
        let mut host = SmallHost::new();
        let answer = (answer(unanswered(&mut host, route)), Vec::new());
        for stranger in [Some(other()), Some(Route::local(2)), Some(Route::UNKNOWN), None] {
            host.handle_from(stranger, answer.clone());
            assert!(matches!(host.cores[0].transfer, Transfer::Unanswered { .. }), "{answer:?} of {stranger:?}");
            assert_eq!((host.registered.len(), host.sent.len(), host.finished.len()), (1, 0, 0));
        }
        host.handle_from(Some(from), answer);
        assert!(!matches!(host.cores[0].transfer, Transfer::Unanswered { .. }) && host.registered.is_empty());
    }
}

#[test]
fn a_receive_takes_the_next_fragment_of_its_peer_and_no_other() {
    let mut host = SmallHost::new();
    let receive = host.request(Role::Receive, vec![0; 4]);
    fragments::ask(&(), &mut host, receive, (by_rail(0), TransferId(7)), (4, Reason::Gaps));
    let Some((Header::ClearToSend { receive: number, .. }, _)) = host.sent.pop_front() else { panic!("it asks") };
    let fragment = |offset, byte| (Header::Fragment { receive: number, offset }, vec![byte; 2]);
    host.handle_from(Some(other()), fragment(0, 9));
    host.handle_from(Some(by_rail(0)), fragment(2, 9));
    assert_eq!(host.cores[receive].data, [0; 4]);
    host.handle_from(Some(by_rail(0)), fragment(0, 1));
    host.handle_from(Some(by_rail(1)), fragment(0, 9));
    host.handle_from(None, fragment(2, 9));
    assert!(host.finished.is_empty());
    host.handle_from(Some(by_rail(1)), fragment(2, 2));
    assert_eq!((&host.cores[receive].data[..], &host.finished[..]), (&[1, 1, 2, 2][..], &[receive][..]));
}
