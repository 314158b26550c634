// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections and incidents, which the page shows as marks (`page/marks.js`): one block for each kind, ordered by
//! time. Called by `page`. Tests: below.

use crate::block::{self, Column};
use crate::lanes::Lanes;
use ibex_messages::{Connection, Job, Time};
use std::io::{self, Write};

/// Writes the blocks `incidents` and `connections`.
pub(crate) fn write(job: &Job, lanes: &Lanes, start: Time, out: &mut dyn Write) -> io::Result<()> {
    block::write("incidents", &incidents(job, lanes, start), out)?;
    block::write("connections", &connections(job, lanes, start), out)
}

fn incidents(job: &Job, lanes: &Lanes, start: Time) -> [Column; 6] {
    let mut columns: [Column; 6] = Default::default();
    for incident in &job.incidents {
        columns[0].push_signed(incident.time.since(start));
        columns[1].push(u64::from(lanes.of_rank(incident.rank)));
        columns[2].push(incident.kind as u64);
        columns[3].push_place(incident.peer);
        columns[4].push_place(incident.port);
        columns[5].push(incident.value);
    }
    columns
}

fn connections(job: &Job, lanes: &Lanes, start: Time) -> [Column; 9] {
    let mut columns: [Column; 9] = Default::default();
    let first = |connection: &Connection| connection.begun.or(connection.established).or(connection.failed);
    for connection in job.connections.iter().filter(|connection| first(connection).is_some()) {
        let moments = [first(connection), connection.established, connection.failed];
        let distance = |moment: Option<Time>| moment.map(|moment| moment.since(start));
        columns.iter_mut().zip(moments).for_each(|(column, moment)| column.push_distance(distance(moment)));
        columns[3].push(u64::from(lanes.of_rank(connection.rank)));
        columns[4].push(u64::from(connection.peer));
        columns[5].push_place(connection.port);
        columns[6].push(u64::from(connection.queue_pair));
        columns[7].push(u64::from(connection.remote_queue_pair));
        columns[8].push(u64::from(connection.status));
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::reading;
    use ibex_messages::{Incident, IncidentKind};

    #[test]
    fn each_is_written_with_its_time() {
        let mut job = Job::synthetic(2, 0, 1);
        let at = |nanoseconds: i64| Time::new(1000 + nanoseconds);
        let incident = |time, kind| Incident { rank: 1, time: at(time), kind, peer: None, port: None, value: 3 };
        job.incidents = vec![incident(4, IncidentKind::QueuedBegin), incident(9, IncidentKind::ReceiverNotReady)];
        let page = reading::text(|out| write(&job, &Lanes::of(&job), at(0), out));
        let incidents = reading::columns(&page, "incidents");
        assert_eq!((&incidents[0], &incidents[2]), (&vec![8, 18], &vec![0, 2]));
        assert!(reading::columns(&page, "connections")[0].is_empty());
    }
}
