// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables: CSV by its rules and by pandas, Parquet by the crate's reader, by pyarrow and by pandas.

mod readers;
mod scratch;

use std::collections::HashMap;
use std::fs::File;

use ibex_export::{Format, export};
use ibex_messages::{ByAdapter, Communicator, Connection, Job, Pause, Protocol, ReceiveSide, Time};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use scratch::Scratch;

/// Makes a job with rows in each table, and a message with few known values.
fn job() -> Job {
    let mut job = Job::synthetic(4, 2000, 21);
    "with \"quotes\", a comma\nand a line end".clone_into(&mut job.communicators[0].name);
    job.communicators.push(Communicator {
        context: 4,
        members: vec![3, 1],
        remote: vec![0],
        ..Communicator::default()
    });
    job.messages[7].send = None;
    job.messages[7].protocol = None;
    job.messages[7].port = None;
    for (place, message) in job.messages.iter_mut().enumerate() {
        let stamped = |number: usize| place % 5 == number;
        if let Some(side) = &mut message.send {
            side.by_adapter = ByAdapter { arrived: false, begun: stamped(0), ended: stamped(1) };
            side.freed = side.notified.filter(|_| stamped(2));
        }
        if let Some(side) = &mut message.receive {
            side.by_adapter = ByAdapter { arrived: stamped(2), begun: stamped(3), ended: stamped(4) };
            [side.removed, side.taken, side.freed] = [0, 1, 2].map(|number| side.matched.filter(|_| stamped(number)));
        }
    }
    job.cancelled = vec![(1, ReceiveSide { cancelled: Some(Time::new(8)), ..ReceiveSide::default() })];
    let [begun, established] = [1, 4].map(|time| Some(Time::new(time)));
    job.connections = vec![Connection { rank: 3, peer: 1, begun, established, ..Connection::default() }];
    job.pauses.push(Pause { rank: 2, from: Time::new(7), to: None });
    job.faults.push("rank 3 has left no trace".to_owned());
    job
}

fn parse(text: &str) -> Vec<Vec<String>> {
    let (mut lines, mut line, mut value, mut is_quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => value.extend(letters.next()),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => line.push(std::mem::take(&mut value)),
            '\n' if !is_quoted => {
                line.push(std::mem::take(&mut value));
                lines.push(std::mem::take(&mut line));
            }
            _ => value.push(letter),
        }
    }
    lines
}

#[test]
fn csv_has_a_row_for_each_message_and_leaves_unknown_values_empty() {
    let (scratch, job) = (Scratch::new("csv"), job());
    let out = scratch.path("tables");
    export(&job, Format::Csv, &out).expect("written");
    let read = |name: &str| parse(&std::fs::read_to_string(out.join(format!("{name}.csv"))).expect("a table"));
    let messages = read("messages");
    assert_eq!(messages.len(), 2001);
    let columns: HashMap<&str, usize> =
        messages[0].iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
    assert!(messages.iter().all(|row| row.len() == columns.len()));
    for (row, message) in messages[1..].iter().zip(&job.messages) {
        assert_eq!(row[columns["bytes"]], message.bytes.to_string());
        let activated = message.send.and_then(|side| side.activated).map(|time| time.nanoseconds().to_string());
        assert_eq!(row[columns["send_activated"]], activated.unwrap_or_default());
    }
    for name in ["protocol", "port", "send_request", "send_begun", "delay_ns"] {
        assert_eq!(messages[8][columns[name]], "", "{name}");
    }
    assert_eq!(read("communicators")[1][2], job.communicators[0].name);
    assert_eq!(read("members").len(), 1 + 4 + 3);
    let calls = read("calls");
    assert_eq!(calls.len(), 1 + job.calls.len());
    for side in ["send", "receive"] {
        let function = if side == "send" { "MPI_Send" } else { "MPI_Recv" };
        for row in messages[1..].iter().filter(|row| !row[columns[format!("{side}_call").as_str()]].is_empty()) {
            let call: usize = row[columns[format!("{side}_call").as_str()]].parse().expect("a row of calls");
            assert_eq!(calls[call + 1][3], function, "{row:?}");
            assert_eq!(calls[call + 1][5], row[columns[format!("{side}_notified").as_str()]], "{row:?}");
        }
    }
    assert_eq!(read("pauses")[1..], [["2", "7", ""]]);
    assert_eq!(read("faults")[1], ["rank 3 has left no trace"]);
    for table in ["ranks", "threads", "ports", "operations", "connections", "incidents", "losses"] {
        assert!(!read(table).is_empty(), "{table}");
    }
}

#[test]
fn tables_have_whose_clock_gave_a_time_the_waits_and_the_cancelled_receives() {
    let (scratch, job) = (Scratch::new("clocks"), job());
    let out = scratch.path("tables");
    export(&job, Format::Csv, &out).expect("written");
    let rows = |name: &str| parse(&std::fs::read_to_string(out.join(format!("{name}.csv"))).expect("a table"));
    let messages = rows("messages");
    let time = |time: Option<Time>| time.map(|time| time.nanoseconds().to_string()).unwrap_or_default();
    let clock = |time: Option<Time>, is| time.map_or("", |_| if is { "adapter" } else { "host" }).to_owned();
    for (row, message) in messages[1..].iter().zip(&job.messages) {
        let (send, receive) = (message.send.unwrap_or_default(), message.receive.unwrap_or_default());
        for (name, value) in [
            ("send_begun_clock", clock(send.begun, send.by_adapter.begun)),
            ("send_ended_clock", clock(send.ended, send.by_adapter.ended)),
            ("send_freed", time(send.freed)),
            ("receive_arrived_clock", clock(receive.arrived, receive.by_adapter.arrived)),
            ("receive_begun_clock", clock(receive.begun, receive.by_adapter.begun)),
            ("receive_ended_clock", clock(receive.ended, receive.by_adapter.ended)),
            ("receive_removed", time(receive.removed)),
            ("receive_taken", time(receive.taken)),
            ("receive_freed", time(receive.freed)),
        ] {
            let place = messages[0].iter().position(|column| column == name).expect(name);
            assert_eq!(row[place], value, "{name}");
        }
    }
    let waits = rows("waits");
    for (row, (place, wait)) in waits[1..].iter().zip(job.message_waits()) {
        let of = &job.messages[place];
        let ends = [place as u32, of.sender, of.receiver].map(|number| number.to_string());
        assert_eq!((row[0].as_str(), &row[1..4]), (wait.kind.name(), &ends[..]));
        assert_eq!(row[4..], [wait.from, wait.to].map(|moment| time(Some(moment))));
    }
    assert_eq!(waits.len(), 1 + job.message_waits().len() + 1);
    assert_eq!(waits.last().expect("a wait"), &["connection", "", "3", "1", "1", "4"]);
    assert_eq!(rows("cancelled")[1..], [["1", "", "0", "", "", "", "", "8", "", "", ""]]);
}

#[test]
fn parquet_has_the_jobs_values() {
    let (scratch, job) = (Scratch::new("parquet"), job());
    let out = scratch.path("tables");
    export(&job, Format::Parquet, &out).expect("written");
    let file = File::open(out.join("messages.parquet")).expect("a table");
    let reader = SerializedFileReader::new(file).expect("Parquet");
    assert_eq!(reader.metadata().file_metadata().num_rows(), 2000);
    let schema = reader.metadata().file_metadata().schema_descr();
    let place = |name: &str| schema.columns().iter().position(|column| column.name() == name).expect(name);
    for (row, message) in reader.get_row_iter(None).expect("rows").zip(&job.messages) {
        let row = row.expect("a row");
        assert_eq!(row.get_long(place("bytes")).ok(), Some(message.bytes.cast_signed()));
        assert_eq!(row.get_string(place("protocol")).is_ok(), message.protocol.is_some());
        if message.protocol == Some(Protocol::Inline) {
            assert_eq!(row.get_string(place("protocol")).ok().map(String::as_str), Some("inline"));
        }
    }

    let bytes: u64 = job.messages.iter().map(|message| message.bytes).sum();
    let delays: i64 = job.messages.iter().filter_map(ibex_messages::Message::delay).sum();
    let read = [out.into_os_string(), "2000".into(), bytes.to_string().into(), delays.to_string().into()];
    readers::python("read_parquet.py", "pandas, pyarrow", &read);
}

#[test]
fn pandas_reads_the_same_from_csv_as_from_parquet() {
    let (scratch, mut job) = (Scratch::new("both"), job());
    job.ranks[1].host = "nan".to_owned();
    let [csv, parquet] = ["csv", "parquet"].map(|name| scratch.path(name));
    export(&job, Format::Csv, &csv).expect("written");
    export(&job, Format::Parquet, &parquet).expect("written");
    readers::python("read_csv.py", "pandas, pyarrow", &[csv.into_os_string(), parquet.into_os_string(), "2000".into()]);
}
