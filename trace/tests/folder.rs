// SPDX-License-Identifier: MIT OR Apache-2.0
//! All ranks of a job: files in a folder, on one time line.

mod made;

use std::path::Path;

use ibex_trace::{BLOCK, Error, Event, Folder, Head, Writer};

fn write(folder: &Path, head: &Head, numbers: impl Iterator<Item = u64>) {
    write_threads(folder, head, 64, [(0, numbers.collect())]);
}

fn write_threads(folder: &Path, head: &Head, block: usize, threads: impl IntoIterator<Item = (u32, Vec<u64>)>) {
    let layouts = head.layouts();
    let mut writer = Writer::create(folder, head, block).expect("made");
    made::sample(&mut writer, 0);
    for (thread, numbers) in threads {
        let mut batch = Vec::new();
        for number in numbers {
            made::records(&layouts, &made::event(number), &mut batch);
        }
        writer.write(thread, &batch).expect("written");
    }
    made::sample(&mut writer, 100_000);
    writer.finish().expect("finished");
}

#[test]
fn the_events_of_all_ranks_are_on_one_time_line() {
    let folder = made::folder("time-line");
    for rank in 0..3 {
        write(&folder, &made::head(rank), (0..1000).map(|number| number * 3 + u64::from(rank)));
    }
    std::fs::write(folder.join("notes.txt"), "no trace").expect("written");
    let opened = Folder::open(&folder).expect("opened");
    assert_eq!(opened.readers().len(), 3);
    for (rank, (reader, line)) in (0..).zip(opened.readers().iter().zip(opened.lines())) {
        let events: Vec<Event> = reader.events().collect::<Result<_, _>>().expect("no fault");
        assert_eq!(events.len(), 1000);
        for (number, event) in (0_u64..).zip(&events) {
            // They share a host, and so the calendar of the first.
            let wanted = made::event(number * 3 + rank).time.map(|time| time + made::head(0).calendar);
            assert_eq!(event.time.map(|time| line.time(time)), wanted);
        }
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn events_of_a_thread_come_as_it_raised_them_and_between_those_of_others_by_their_times() {
    let folder = made::folder("interleaved");
    // Each thread has every fifth number, and swaps some, as an adapter's stamps are earlier; the last is written
    // first.
    let of = |thread: u32| {
        let mut numbers: Vec<u64> = (0..200).map(|number| number * 5 + u64::from(thread)).collect();
        for place in 0..thread as usize {
            numbers.swap(20 * place + 3, 20 * place + 4);
        }
        numbers
    };
    write_threads(&folder, &made::head(0), 4, (0..5).rev().map(|thread| (thread, of(thread))));
    let opened = Folder::open(&folder).expect("opened");
    let events: Vec<_> = opened.readers()[0].interleaved().collect::<Result<_, _>>().expect("no fault");
    assert_eq!(events.len(), 1000);
    let mut reached = i64::MIN;
    let mut behind = 0;
    for event in &events {
        let time = event.time.expect("its clock is known");
        behind += usize::from(time < reached);
        reached = reached.max(time);
    }
    // Only the earlier one of two swapped events comes late.
    assert!((1..=10).contains(&behind), "{behind} events come late");
    for thread in 0..5 {
        let ticks = events.iter().filter(|event| event.thread == thread).map(|event| event.ticks);
        assert!(ticks.eq(of(thread).into_iter().map(|number| made::event(number).ticks)), "thread {thread}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn an_unreadable_file_costs_no_other_rank() {
    let folder = made::folder("unreadable");
    write(&folder, &made::head(1), 0..100);
    std::fs::write(folder.join("trace.0.0.n1.5.ibex"), "").expect("written");
    let opened = Folder::open(&folder).expect("one can be read");
    assert!(matches!(opened.unreadable(), [Error::Empty { .. }]));
    let [reader] = opened.readers() else { panic!("{opened:?}") };
    assert_eq!(reader.events().filter_map(Result::ok).count(), 100);
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn open_refuses_a_folder_without_a_trace_and_create_overwrites_no_file() {
    let folder = made::folder("none");
    let told = Folder::open(&folder).expect_err("nothing there").to_string();
    assert!(told.starts_with("there is no trace in "), "{told}");
    let missing = Folder::open(&folder.join("x")).expect_err("not there").to_string();
    assert!(missing.starts_with("cannot read the folder "), "{missing}");
    write(&folder, &made::head(0), 0..10);
    let again = Writer::create(&folder, &made::head(0), BLOCK).err().expect("is there").to_string();
    assert!(again.starts_with("cannot make "), "{again}");
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_folder_reads_more_files_than_may_be_open() {
    let folder = made::folder("many");
    for rank in 0..300 {
        write(&folder, &made::head(rank), 0..10);
    }
    let opened = Folder::open(&folder).expect("opened");
    let events = opened.readers().iter().flat_map(|reader| reader.events().map(|event| event.expect("no fault")));
    assert_eq!(events.count(), 3000);
    std::fs::remove_dir_all(&folder).expect("removed");
}
