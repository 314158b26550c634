// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints what a folder holds.
fn main() {
    let folder =
        ibex_trace::Folder::open(std::path::Path::new(&std::env::args().nth(1).expect("a folder"))).expect("opened");
    let job = ibex_messages::Job::read(&folder);
    println!("{} ranks {:#?}", job.ranks.len(), job.ranks);
    println!("{:#?} {:#?}", job.ports, job.communicators);
    println!(
        "{} connections, {} operations, {} incidents, {:?}",
        job.connections.len(),
        job.operations.len(),
        job.incidents.len(),
        job.losses
    );
    println!("faults {:#?}", job.faults);
    let both = job.messages.iter().filter(|m| m.send.is_some() && m.receive.is_some()).count();
    println!(
        "{} messages, {both} with both sides, negative delays {}",
        job.messages.len(),
        job.messages.iter().filter(|m| m.delay().is_some_and(|d| d < 0)).count()
    );
    for m in job.messages.iter().take(2) {
        println!("{m:?}");
    }
    for m in job.messages.iter().filter(|m| m.send.is_none() || m.receive.is_none()).take(3) {
        println!("{m:?}");
    }
}
