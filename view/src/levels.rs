// SPDX-License-Identifier: MIT OR Apache-2.0
//! Summaries for spans of time with too many messages to draw each one. Bands: for each lane and bin of the whole run,
//! the number of arrows that begin or end there, by protocol and by wait. Outstanding arrows: for each bin of a level
//! (32 in the coarsest, then four times as many in each next one) the slowest message that no coarser level has, so the
//! page always draws the slowest messages. `page/bands.js` and `page/arrows.js` draw them. Called by `page`. Tests:
//! below.

use crate::block::{self, Column};
use crate::rows::{self, Row};
use ibex_messages::{Job, Time};
use serde::Serialize;
use std::io::{self, Write};

/// Bins of the bands.
const BINS: usize = 512;
/// Number of levels of detail of arrows.
pub(crate) const DETAILS: u8 = 9;

#[derive(Serialize)]
pub(crate) struct Bands {
    bins: usize,
    /// Occurring protocols, as indexes in the page's tables, with a plane of cells for each.
    protocols: Vec<usize>,
    waits: Vec<usize>,
}

pub(crate) fn bands(job: &Job, rows: &[Row]) -> Bands {
    let mut protocols: Vec<_> = rows.iter().map(|row| rows::protocol(job.messages[row.place].protocol)).collect();
    let mut waits: Vec<_> = rows.iter().map(|row| rows::wait(row.wait.map(|wait| wait.0))).collect();
    for classes in [&mut protocols, &mut waits] {
        classes.sort_unstable();
        classes.dedup();
    }
    Bands { bins: BINS, protocols, waits }
}

/// Writes the bands as a block: a column for each plane, by lane and bin.
pub(crate) fn write(bands: &Bands, lanes: usize, job: &Job, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let (start, end) = job.span.unwrap_or((Time::new(0), Time::new(1)));
    let bin = |time: Time| bin_of(time.since(start), end.since(start), BINS);
    let plane = |is_of: &dyn Fn(&Row) -> bool| {
        let mut cells = vec![0_u64; lanes * BINS];
        for row in rows.iter().filter(|row| is_of(row)) {
            for (lane, time) in [(row.lanes.0, row.from), (row.lanes.1, row.to)] {
                if let Some(cell) = cells.get_mut(lane as usize * BINS + bin(time)) {
                    *cell += 1;
                }
            }
        }
        cells.into_iter().collect::<Column>()
    };
    let mut planes: Vec<Column> = Vec::new();
    for class in &bands.protocols {
        planes.push(plane(&|row| rows::protocol(job.messages[row.place].protocol) == *class));
    }
    for class in &bands.waits {
        planes.push(plane(&|row| rows::wait(row.wait.map(|wait| wait.0)) == *class));
    }
    block::write("bands", &planes, out)
}

/// Returns the bin of a time after the start, nanoseconds; `page/bands.js` computes the same.
fn bin_of(after: i64, span: i64, bins: usize) -> usize {
    let bin = (after.max(0) as f64 * bins as f64 / span.max(1) as f64) as usize;
    bin.min(bins - 1)
}

/// Sets for each row the level from which on its arrow is drawn.
pub(crate) fn give_details(rows: &mut [Row]) {
    let Some(start) = rows.first().map(|row| row.first) else { return };
    let span = rows.iter().map(|row| row.from.since(start)).max().unwrap_or_default();
    let mut slowest: Vec<u32> = (0..rows.len() as u32).collect();
    slowest.sort_by_key(|place| std::cmp::Reverse(rows[*place as usize].took));
    let mut left = slowest;
    for detail in 0..DETAILS {
        let bins = 32 << (2 * detail);
        let mut is_taken = vec![false; bins];
        left.retain(|place| {
            let row = &mut rows[*place as usize];
            let taken = &mut is_taken[bin_of(row.from.since(start), span, bins)];
            if !*taken {
                row.detail = detail;
            }
            std::mem::replace(taken, true)
        });
    }
    for place in left {
        rows[place as usize].detail = DETAILS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::reading;
    use crate::lanes::Lanes;

    fn made(messages: usize) -> (Job, Vec<Row>, usize) {
        let job = Job::synthetic(8, messages, 2);
        let lanes = Lanes::of(&job);
        let mut rows = rows::rows(&job, &lanes);
        give_details(&mut rows);
        (job, rows, lanes.all.len())
    }

    #[test]
    fn the_bands_count_each_message_at_both_ends() {
        let (job, rows, lanes) = made(20_000);
        let bands = bands(&job, &rows);
        let page = reading::text(|out| write(&bands, lanes, &job, &rows, out));
        let planes = reading::columns(&page, "bands");
        let (protocols, waits) = planes.split_at(bands.protocols.len());
        for planes in [protocols, waits] {
            assert_eq!(planes.iter().flatten().sum::<u64>(), 40_000);
            assert!(planes.iter().all(|plane| plane.len() == lanes * BINS));
        }
    }

    #[test]
    fn the_slowest_message_of_each_bin_is_drawn_at_the_level_of_the_bin() {
        let (_, rows, _) = made(20_000);
        let of = |detail| rows.iter().filter(move |row| row.detail == detail);
        assert_eq!(of(0).count(), 32);
        assert_eq!(of(1).count(), 128);
        assert_eq!(rows.iter().map(|row| row.took).max(), of(0).map(|row| row.took).max());
        assert_eq!(of(u8::MAX).count(), 0);
    }

    #[test]
    fn a_job_without_messages_has_no_bands() {
        let (job, rows, lanes) = made(0);
        let page = reading::text(|out| write(&bands(&job, &rows), lanes, &job, &rows, out));
        assert!(reading::columns(&page, "bands").is_empty());
    }
}
