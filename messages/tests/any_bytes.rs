// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders with damaged, truncated, foreign and future files, and with events that no process raises, are read without
//! a panic; faults name file and block. Seeded, so that each run does the same.

mod damaged;
mod simulated;

use damaged::{ALL, Damage, make};
use ibex_messages::Job;
use ibex_trace::Folder;

/// Number of seeds for each kind of damage.
const SEEDS: u64 = 15;

/// Reads a folder with this damage, and returns the job and the name of the damaged file.
fn read(damage: Damage, seed: u64) -> (Job, String) {
    let folder = simulated::folder("any-bytes");
    let name = make(&folder, damage, seed);
    (simulated::read_folder(&folder), name)
}

#[test]
fn the_reader_reads_any_folder_and_reports_each_fault_with_its_place() {
    let whole = simulated::read("any-bytes-whole", &damaged::job(60));
    assert_eq!((whole.messages.len(), whole.faults.len()), (60, 0), "{:?}", whole.faults);
    for damage in ALL {
        for seed in 0..SEEDS {
            let (job, name) = read(damage, seed);
            assert!(job.ranks.len() >= 3, "{damage:?} {seed}");
            if !damage.is_told() {
                continue;
            }
            let told = |fault: &&String| fault.contains(&name) || fault.contains("another.ibex");
            let fault = job.faults.iter().find(told);
            let fault = fault.unwrap_or_else(|| panic!("{damage:?} {seed}: nothing of {name} in {:?}", job.faults));
            let has_place = [" block ", " offset ", "Nothing can be read"];
            if damage != Damage::Doubled {
                assert!(has_place.iter().any(|words| fault.contains(words)), "{damage:?} {seed}: {fault}");
            }
            // Messages between the two other ranks are complete; one half of each other message is known.
            let others = job.messages.iter().filter(|of| (of.sender, of.receiver) == (2, 0));
            assert_eq!(others.count(), 20, "{damage:?} {seed}");
            let first = job.messages.iter().filter(|of| of.send.is_some() || of.receive.is_some()).count();
            assert!(first >= 60, "{damage:?} {seed}: {first} messages are shown");
        }
    }
}

#[test]
fn messages_before_a_damaged_block_have_both_halves() {
    for seed in 0..SEEDS {
        let folder = simulated::folder("any-bytes-before");
        let name = make(&folder, Damage::Doubled, seed);
        std::fs::remove_file(folder.join("another.ibex")).expect("it was made");
        let file = folder.join(name);
        let bytes = std::fs::read(&file).expect("it was written");
        let length = bytes.len() * (50 + seed as usize) / 100;
        std::fs::write(&file, &bytes[..length]).expect("a folder of the test's own");
        let opened = Folder::open(&folder).expect("two files are sound");
        let cut = opened.readers().iter().find(|reader| reader.file() == file).expect("its head is there");
        let readable = cut.events().filter_map(Result::ok).count();
        let job = Job::read(&opened);
        std::fs::remove_dir_all(&folder).expect("a folder of the test's own");
        let whole = job.messages.iter().filter(|of| of.receiver == 1 && of.receive.is_some()).count();
        // Number of events of a message: at most 20 of its receiver and 6 of its sender.
        assert!(whole >= (readable / 26).saturating_sub(2), "{seed}: {whole} messages of {readable} events");
        assert!(readable == 0 || whole > 0, "{seed}");
    }
}
