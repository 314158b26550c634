// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the recorder's file: written data can be read, and incomplete or damaged parts are reported.

use super::layout::{ENTRIES, ENTRY, PEERS, WORDS, at};
use super::recorder::Recorder;
use super::*;
use crate::peer::PeerName;
use ibex_ffi::verbs::Status;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("ibex-flight-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder of this test's own");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PROCESS: Process<'_> = Process { job: 7, rank: 3, host: "n2", names_instances: false };

fn recorder(test: &str) -> (Folder, Recorder, PathBuf) {
    let folder = Folder::new(test);
    let recorder = Recorder::create(&folder.0, &PROCESS).expect("there is room");
    let path = leftovers::find(&folder.0).first().expect("its file").path.clone();
    (folder, recorder, path)
}

fn entry(kind: Kind, number: u64) -> Entry {
    Entry { number: 0, time: number, kind: kind as u16, port: 1, detail: 0, peer: 5, numbers: [number, 12, 0, 0] }
}

#[test]
fn a_reader_gets_the_recorded_entries_with_their_process_and_port() {
    let (_folder, recorder, path) = recorder("read");
    recorder.name_port(1, "mlx5_1:1", std::array::from_fn(|byte| byte as u8));
    recorder.write(&entry(Kind::ReceiverNotReady, 1024));
    recorder.write(&entry(Kind::ConnectionFailed, 0x1a2b));
    let flight = Flight::read(&path).expect("it is sound");
    assert_eq!((flight.job, flight.rank, flight.host.as_str(), flight.pid), (7, 3, "n2", std::process::id()));
    assert!(flight.is_alive && flight.reason.is_empty() && flight.program.contains("ibex"));
    assert_eq!((flight.made, flight.torn, flight.port_name(1)), (2, 0, "mlx5_1:1"));
    assert!(flight.ports[0].gid.into_iter().eq(0..16));
    let texts: Vec<_> = flight.entries.iter().map(ToString::to_string).collect();
    assert!(texts[0].contains("all 1024 receives"), "{texts:?}");
    assert!(texts[1].contains("0x001a2b") && texts[1].contains(&Status(12).to_string()), "{texts:?}");
    assert_eq!(flight.entries[1].who(), "rank 5");
}

#[test]
fn a_ring_that_wraps_has_the_last_entries_in_order() {
    let (_folder, recorder, path) = recorder("round");
    let count = ENTRIES as u64 * 2 + 10;
    (0..count).for_each(|number| recorder.write(&entry(Kind::StallBegun, number)));
    let flight = Flight::read(&path).expect("it is sound");
    assert_eq!((flight.made, flight.torn, flight.entries.len()), (count, 0, ENTRIES));
    assert!(flight.entries.iter().zip(count - ENTRIES as u64..).all(|(entry, number)| entry.time == number));
}

#[test]
fn the_reader_leaves_out_and_counts_an_incomplete_entry() {
    let (_folder, recorder, path) = recorder("torn");
    (0..4).for_each(|number| recorder.write(&entry(Kind::StallBegun, number)));
    // One entry was only begun, and one has words of another.
    recorder.words[at::RING + ENTRY].store(0, Ordering::Relaxed);
    recorder.words[at::RING + 2 * ENTRY + 4].store(99, Ordering::Relaxed);
    let flight = Flight::read(&path).expect("it is sound");
    assert_eq!((flight.made, flight.torn), (4, 2));
    assert_eq!(flight.entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn several_threads_write_entries_at_the_same_time() {
    let (_folder, recorder, path) = recorder("threads");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let recorder = &recorder;
            scope.spawn(move || (0..500).for_each(|at| recorder.write(&entry(Kind::StallBegun, thread * 1000 + at))));
        }
    });
    let flight = Flight::read(&path).expect("it is sound");
    let mut times: Vec<_> = flight.entries.iter().map(|entry| entry.time).collect();
    times.sort_unstable();
    assert!(times.iter().copied().eq((0..4).flat_map(|thread| (0..500).map(move |at| thread * 1000 + at))));
}

#[test]
fn the_reader_refuses_other_files_with_the_reason() {
    let (_folder, _, path) = recorder("other-format");
    let sound = fs::read(&path).expect("it is there");
    let refusal = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("the test's own");
        Flight::read(&path).expect_err("it is not sound").to_string()
    };
    assert!(refusal(b"").contains("is no file of"));
    assert!(refusal(&vec![b'x'; WORDS * 8]).contains("is no file of"));
    for length in [8, 16, 200, sound.len() - 1] {
        assert!(refusal(&sound[..length]).contains(&format!("has {length} bytes")), "{length}");
    }
    let changed = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 2;
        bytes
    };
    assert!(refusal(&changed(0)).contains("is no file of"));
    assert!(refusal(&changed(8)).contains("has version 0"));
    assert!(refusal(&changed(at::HOST * 8)).contains("is damaged"));
    let swapped: Vec<u8> = sound.chunks(8).flat_map(|word| word.iter().rev().copied()).collect();
    assert!(refusal(&swapped).contains("byte order"));
    fs::remove_file(&path).expect("it is there");
    assert!(Flight::read(&path).expect_err("it is gone").to_string().contains("cannot be read: No such file"));
}

fn peer(rank: u32, port: u8) -> PeerFlight {
    PeerFlight {
        peer: PeerName { job: 7, rank },
        port,
        state: PeerState::Ready,
        queue_pairs: (rank.wrapping_add(0x100), 0x200),
        posted: 0,
        in_flight: 3,
        waiting: 2,
        asked: 1,
        timeout: 14,
        retries: 7,
        time: 0,
    }
}

#[test]
fn a_peer_has_a_row_that_counts_the_requests_of_all_its_connections() {
    let (_folder, recorder, path) = recorder("peers");
    let of_4 = peer(4, 1);
    for (time, posted) in [(10, 100), (20, u64::from(u32::MAX)), (30, 49)] {
        recorder.show_peer(&PeerFlight { posted, ..of_4 }, time);
    }
    // The count has wrapped. Another connection counts from its own beginning.
    let failed = PeerFlight { queue_pairs: (9, 0), state: PeerState::Failed, posted: 5, ..of_4 };
    recorder.show_peer(&failed, 40);
    recorder.show_peer(&peer(4, 0), 50);
    recorder.show_peer(&peer(2, 1), 60);
    let flight = Flight::read(&path).expect("it is sound");
    let named: Vec<_> = flight.peers.iter().map(|peer| (peer.peer.rank, peer.port)).collect();
    assert_eq!((named, flight.has_more_peers), (vec![(2, 1), (4, 0), (4, 1)], false));
    assert_eq!(flight.peers[0], PeerFlight { time: 60, ..peer(2, 1) });
    assert_eq!(flight.peers[2], PeerFlight { time: 40, posted: (1 << 32) + 54, ..failed });
}

#[test]
fn the_file_says_that_it_lacks_peers_without_a_row() {
    let (_folder, recorder, path) = recorder("more-peers");
    (0..PEERS as u32).for_each(|rank| recorder.show_peer(&peer(rank, 0), 1));
    let flight = Flight::read(&path).expect("it is sound");
    assert_eq!((flight.peers.len(), flight.has_more_peers), (PEERS, false));
    recorder.show_peer(&peer(PEERS as u32, 0), 1);
    recorder.show_peer(&peer(u32::MAX, 0), 1);
    let flight = Flight::read(&path).expect("it is sound");
    assert_eq!((flight.peers.len(), flight.has_more_peers), (PEERS, true));
}

#[test]
fn the_reader_survives_any_bytes_behind_a_valid_header() {
    let (_folder, recorder, path) = recorder("bytes");
    let mut state = 1_u64;
    for word in &recorder.words[at::ENTRIES..] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        word.store(state, Ordering::Relaxed);
    }
    let flight = Flight::read(&path).expect("its header is sound");
    assert!(flight.entries.is_empty());
    assert!(!flight.reason.contains(|letter: char| letter.is_control() && letter != '\n'));
    // Entries of every kind, known or not.
    for kind in 0..40 {
        let entry = Entry { kind, numbers: [state; 4], ..entry(Kind::Defect, state) };
        assert!(!entry.to_string().is_empty());
    }
}

#[test]
fn a_clean_end_removes_the_file_and_a_failure_keeps_it() {
    let (folder, recorder, path) = recorder("end");
    recorder.close();
    assert!(!path.exists() && leftovers::find(&folder.0).is_empty());
    let (_again, recorder, path) = self::recorder("end");
    assert_eq!(recorder.keep("ibex does without a port of softhca0"), path);
    recorder.keep("a peer is lost");
    recorder.close();
    assert_eq!(Flight::read(&path).expect("it is sound").reason, "a peer is lost");
}

#[test]
fn clear_keeps_the_newest_files_of_dead_processes_and_all_files_of_living_ones() {
    let (folder, _recorder, path) = recorder("leftovers");
    // No process has such an id.
    let dead = |job: u32| folder.0.join(leftovers::file_name(job, 0, u32::MAX - job));
    for job in 0..leftovers::MOST as u32 + 5 {
        fs::write(dead(job), "").expect("the test's own");
        let age = std::time::Duration::from_secs(1000 - u64::from(job));
        let file = fs::File::options().write(true).open(dead(job)).expect("the test's own");
        file.set_modified(std::time::SystemTime::now() - age).expect("the test's own");
    }
    fs::write(folder.0.join("ibex-flight.x.0.1"), "").expect("the test's own");
    leftovers::clear(&folder.0);
    assert!(path.exists() && folder.0.join("ibex-flight.x.0.1").exists());
    let left: Vec<_> = (0..leftovers::MOST as u32 + 5).filter(|job| dead(*job).exists()).collect();
    assert_eq!(left, (5..leftovers::MOST as u32 + 5).collect::<Vec<_>>());
}

#[test]
fn each_kind_has_a_number_and_a_name_of_its_own() {
    for (index, kind) in Kind::ALL.iter().enumerate() {
        assert_eq!(*kind as usize, index + 1);
        assert!(Kind::ALL[..index].iter().all(|other| other.name() != kind.name()), "{kind:?}");
    }
}

/// The only test of the process-wide recorder; ports of other tests may write to it meanwhile.
#[test]
fn a_process_records_from_its_beginning_to_its_end() {
    let folder = Folder::new("process");
    record((Kind::Defect, 0), NO_PORT, NOBODY, [0; 4]);
    assert!(begin(&folder.0.join("nowhere"), &PROCESS).is_err() && keep("nothing").is_none());
    begin(&folder.0, &PROCESS).expect("there is room");
    name_port(15, "softhca0:1", [0; 16]);
    let counters = crate::counters::Counters::default();
    counters.received.store(17, Ordering::Relaxed);
    assert!(show(15, &counters, 0));
    counters.received.store(18, Ordering::Relaxed);
    assert!(!show(15, &counters, u64::MAX));
    let path = leftovers::find(&folder.0).remove(0).path;
    let flight = Flight::read(&path).expect("it is sound");
    let port = flight.ports.iter().find(|port| port.index == 15).expect("it was named");
    assert_eq!((port.count("received"), port.count("no such")), (17, 0));
    assert!(port.time.is_some() && flight.entries.iter().any(|entry| entry.to_string().contains("softhca0:1")));
    end();
    assert!(!path.exists());
    end();
}
