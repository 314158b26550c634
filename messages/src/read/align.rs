// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs sends with arrived messages, among all with the same two processes, communicator and tag.
//!
//! MPI messages do not overtake each other, so the first send belongs to the first message. If events are missing,
//! sizes must also be equal and no message may arrive before its send. The algorithm then finds the gaps: at the end of
//! a truncated trace, at the beginning of one that starts late, anywhere if events were lost or the recording stopped.
//! A half without a partner stays alone, and does not shift the later ones. Called by `join.rs`. Path: pending, once
//! per message. Threads: plain data. Tests: below; tests/.

use crate::read::pass::Gaps;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) bytes: u64,
    /// For a send, a time before it left; for a message, a time after it arrived.
    pub(crate) time: Option<i64>,
}

/// Largest number of halves to skip at a mismatch.
const AROUND: usize = 512;

/// Number of consecutive matches that must follow.
const FITTING: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// In order, without a contradiction.
    Certain,
    /// By sizes and times: a pair may belong to a neighbour of the same size.
    Likely,
}

/// Adds the indexes of pairs to `pairs`, in order. By clock errors a message may seem to arrive `late` before its send.
pub(crate) fn align(
    (sends, arrivals): (&[End], &[End]),
    (sender, receiver): (Gaps, Gaps),
    late: i64,
    pairs: &mut Vec<(u32, u32)>,
) -> How {
    pairs.clear();
    if sends.is_empty() || arrivals.is_empty() {
        return How::Certain;
    }
    let fit = |send: usize, arrival: usize| fits(&sends[send], &arrivals[arrival], late);
    let may_shift = sender.within || receiver.within;
    let (all, least) = (sends.len().max(arrivals.len()), sends.len().min(arrivals.len()));
    let is_late = sender.before || receiver.before;
    let skip = |length: usize| if is_late && !may_shift { length - least } else { 0 };
    let (from, to) = (skip(sends.len()), skip(arrivals.len()));
    if (all == least || !may_shift) && (0..least).all(|step| fit(from + step, to + step)) {
        pairs.extend((0..least).map(|step| ((from + step) as u32, (to + step) as u32)));
        return if may_shift || is_late { How::Likely } else { How::Certain };
    }
    if sends.len() > arrivals.len() && may_shift {
        // From the end on: each message belongs to the latest possible send.
        let (sends_last, arrivals_last) = (sends.len() - 1, arrivals.len() - 1);
        walk((sends.len(), arrivals.len()), pairs, |send, arrival| {
            meet(&sends[sends_last - send], &arrivals[arrivals_last - arrival], late)
        });
        pairs.reverse();
        for (send, arrival) in pairs {
            (*send, *arrival) = (sends_last as u32 - *send, arrivals_last as u32 - *arrival);
        }
        return How::Likely;
    }
    walk((sends.len(), arrivals.len()), pairs, |send, arrival| meet(&sends[send], &arrivals[arrival], late));
    How::Likely
}

/// Aligns halves of programs that stopped the recording at the indexes `cuts`.
///
/// Before the first stop it counts pairs from the beginning; after the last stop, from the end. If both programs
/// stopped equally often, the halves between two stops belong together; halves left over there have no partner.
pub(crate) fn align_between(
    (sends, arrivals): (&[End], &[End]),
    (of_sends, of_arrivals): (&[usize], &[usize]),
    (sender, receiver): (Gaps, Gaps),
    late: i64,
    pairs: &mut Vec<(u32, u32)>,
) -> How {
    const PARTS: Gaps = Gaps { within: true, before: false, after: false };
    let until = |cuts: &[usize], all: usize| cuts.first().copied().unwrap_or(all);
    let first = until(of_sends, sends.len()).min(until(of_arrivals, arrivals.len()));
    let after = |cuts: &[usize], all: usize| all - cuts.last().copied().unwrap_or(0);
    let last = after(of_sends, sends.len()).min(after(of_arrivals, arrivals.len()));
    let last = last.min(sends.len() - first).min(arrivals.len() - first);
    let last = if sender.after || receiver.after { 0 } else { last };
    let ends = (sends.len() - last, arrivals.len() - last);
    let known = (0..first).map(|at| (at, at)).chain((0..last).map(|at| (ends.0 + at, ends.1 + at)));
    let is_sound = known.clone().all(|(send, arrival)| fits(&sends[send], &arrivals[arrival], late));
    if sender.within || receiver.within || sender.before || receiver.before || !is_sound {
        return align((sends, arrivals), (PARTS, PARTS), late, pairs);
    }
    pairs.clear();
    let mut found = Vec::new();
    let mut between = |from: (usize, usize), to: (usize, usize)| {
        let from = (from.0.max(first), from.1.max(first));
        let to = (to.0.clamp(from.0, ends.0.max(from.0)), to.1.clamp(from.1, ends.1.max(from.1)));
        align((&sends[from.0..to.0], &arrivals[from.1..to.1]), (PARTS, PARTS), late, &mut found);
        pairs.extend(found.iter().map(|(send, arrival)| (send + from.0 as u32, arrival + from.1 as u32)));
    };
    if of_sends.len() == of_arrivals.len() {
        let places: Vec<_> = of_sends.iter().copied().zip(of_arrivals.iter().copied()).collect();
        places.windows(2).for_each(|two| between(two[0], two[1]));
    } else {
        between((0, 0), ends);
    }
    pairs.extend(known.map(|(send, arrival)| (send as u32, arrival as u32)));
    pairs.sort_unstable();
    How::Likely
}

fn fits(send: &End, arrival: &End, late: i64) -> bool {
    meet(send, arrival, late) == Meeting::Fit
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meeting {
    Fit,
    /// The message arrived before it was sent.
    Early,
    OtherSize,
}

fn meet(send: &End, arrival: &End, late: i64) -> Meeting {
    match (send.time, arrival.time) {
        (Some(left), Some(arrived)) if arrived.saturating_add(late) < left => Meeting::Early,
        _ if send.bytes != arrival.bytes => Meeting::OtherSize,
        _ => Meeting::Fit,
    }
}

/// Walks through both, and skips as few as possible at a mismatch.
fn walk((sends, arrivals): (usize, usize), pairs: &mut Vec<(u32, u32)>, meet: impl Fn(usize, usize) -> Meeting) {
    let (mut send, mut arrival) = (0, 0);
    let fit = |send: usize, arrival: usize| {
        (0..FITTING).all(|step| {
            let is_over = send + step >= sends || arrival + step >= arrivals;
            (is_over && step > 0) || (!is_over && meet(send + step, arrival + step) == Meeting::Fit)
        })
    };
    while send < sends && arrival < arrivals {
        if meet(send, arrival) == Meeting::Fit {
            pairs.push((send as u32, arrival as u32));
            (send, arrival) = (send + 1, arrival + 1);
            continue;
        }
        // The nearest position with enough consecutive matches.
        let found = (1..=AROUND).find_map(|left_out| {
            let splits = (0..=left_out).map(|of_sends| (of_sends, left_out - of_sends));
            // Prefers a gap on one side to gaps on both.
            let mut splits = splits.filter(|(one, other)| *one == 0 || *other == 0 || left_out <= 16);
            splits.find(|(of_sends, of_arrivals)| fit(send + of_sends, arrival + of_arrivals))
        });
        let (of_sends, of_arrivals) = found.unwrap_or((1, 1));
        (send, arrival) = (send + of_sends, arrival + of_arrivals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(of: &[(u64, i64)]) -> Vec<End> {
        of.iter().map(|(bytes, time)| End { bytes: *bytes, time: Some(*time) }).collect()
    }

    fn aligned(sends: &[End], arrivals: &[End], gaps: (Gaps, Gaps)) -> (Vec<(u32, u32)>, How) {
        let mut pairs = Vec::new();
        let how = align((sends, arrivals), gaps, 0, &mut pairs);
        (pairs, how)
    }

    const WHOLE: Gaps = Gaps { within: false, before: false, after: false };
    const LOST: Gaps = Gaps { within: true, ..WHOLE };
    const LATE: Gaps = Gaps { before: true, ..WHOLE };

    #[test]
    fn the_first_halves_belong_together() {
        let (sends, arrivals) = (ends(&[(8, 0), (8, 1), (8, 2)]), ends(&[(8, 5), (8, 6)]));
        assert_eq!(aligned(&sends, &arrivals, (WHOLE, WHOLE)), (vec![(0, 0), (1, 1)], How::Certain));
        assert_eq!(aligned(&sends, &[], (WHOLE, WHOLE)), (vec![], How::Certain));
    }

    #[test]
    fn if_a_recording_began_late_the_last_halves_belong_together() {
        let (sends, arrivals) = (ends(&[(8, 0), (8, 1)]), ends(&[(8, 5), (8, 6), (8, 7)]));
        assert_eq!(aligned(&sends, &arrivals, (LATE, WHOLE)), (vec![(0, 1), (1, 2)], How::Likely));
    }

    #[test]
    fn a_loss_on_either_side_does_not_shift_later_messages() {
        // Each is sent when the one before it has arrived.
        let sends: Vec<_> = (0..100).map(|number| (8, number * 10)).collect();
        let arrivals: Vec<_> = (0..100).map(|number| (8, number * 10 + 4)).collect();
        for lost in [0, 50, 99] {
            let without = |of: &[(u64, i64)]| ends(&[&of[..lost], &of[lost + 1..]].concat());
            let lost = lost as u32;
            let (pairs, _) = aligned(&ends(&sends), &without(&arrivals), (WHOLE, LOST));
            let wanted: Vec<_> = (0..100).filter(|n| *n != lost).map(|n| (n, n - u32::from(n > lost))).collect();
            assert_eq!(pairs, wanted);
            let (pairs, _) = aligned(&without(&sends), &ends(&arrivals), (LOST, WHOLE));
            let wanted: Vec<_> = wanted.iter().map(|(one, other)| (*other, *one)).collect();
            assert_eq!(pairs, wanted);
        }
    }

    #[test]
    fn messages_between_a_stop_and_a_resume_shift_no_others() {
        let of = |numbers: &[std::ops::Range<i64>], late: i64| {
            ends(&numbers.iter().cloned().flatten().map(|number| (8, number * 10 + late)).collect::<Vec<_>>())
        };
        // The recorded windows begin and end with different messages; or one side records all the time.
        for (sent, came) in [
            (vec![0..20, 30..50], vec![0..22, 34..50]),
            (vec![0..22, 34..50], vec![0..20, 30..50]),
            (vec![0..5, 20..30, 60..70], vec![0..5, 20..30, 60..70]),
            (std::iter::once(0..50).collect(), vec![0..20, 30..50]),
            (vec![10..20, 40..50], vec![10..20, 40..50]),
        ] {
            let (sends, arrivals) = (of(&sent, 0), of(&came, 4));
            let cuts = |windows: &[std::ops::Range<i64>]| {
                let places = windows.iter().scan(0, |all, window| {
                    *all += (window.end - window.start) as usize;
                    Some(*all)
                });
                let mut places: Vec<usize> = places.collect();
                places.pop();
                if windows[0].start > 0 {
                    places.insert(0, 0);
                }
                places
            };
            let mut pairs = Vec::new();
            let cuts = (cuts(&sent), cuts(&came));
            let how = align_between((&sends, &arrivals), (&cuts.0, &cuts.1), (WHOLE, WHOLE), 0, &mut pairs);
            let number = |end: &End| end.time.expect("made") / 10;
            let found: Vec<_> = pairs
                .iter()
                .map(|(send, arrival)| (number(&sends[*send as usize]), number(&arrivals[*arrival as usize])))
                .collect();
            let both = sends.iter().map(number).filter(|sent| arrivals.iter().any(|came| number(came) == *sent));
            assert_eq!(found, both.map(|number| (number, number)).collect::<Vec<_>>(), "{sent:?} {came:?}");
            assert_eq!(how, How::Likely);
        }
    }

    #[test]
    fn sizes_show_a_loss_even_if_no_counter_does() {
        let sends: Vec<_> = (0..50).map(|number| (1000 + number, 0)).collect();
        let arrivals: Vec<_> = (0..50).filter(|n| ![7, 8, 30].contains(n)).map(|number| (1000 + number, 9)).collect();
        let (pairs, how) = aligned(&ends(&sends), &ends(&arrivals), (WHOLE, WHOLE));
        assert!(pairs.iter().all(|(send, arrival)| sends[*send as usize].0 == arrivals[*arrival as usize].0));
        assert_eq!((pairs.len(), how), (47, How::Likely));
    }
}
