// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit of locked memory, against which registrations count. A program of its own: the limit is a process'.

mod engine_support;

use engine_support::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const PAGE: u64 = 4096;

fn limit(bytes: u64) {
    let maximum = getrlimit(Resource::Memlock).maximum;
    setrlimit(Resource::Memlock, Rlimit { current: Some(bytes), maximum }).unwrap();
}

/// Takes `CAP_IPC_LOCK` out of this thread's effective set, or puts it back; whether the thread may have it.
fn may_lock(allowed: bool) -> bool {
    let mut sets = capabilities(None).unwrap();
    sets.effective.set(CapabilitySet::IPC_LOCK, allowed && sets.permitted.contains(CapabilitySet::IPC_LOCK));
    set_capabilities(None, sets).unwrap();
    sets.effective.contains(CapabilitySet::IPC_LOCK)
}

#[test]
fn the_engine_refuses_registrations_beyond_the_limit_of_locked_memory_unless_the_process_may_lock_all() {
    let hca = adapter();
    let pd = hca.alloc_pd();
    let memory = vec![0_u8; 64 * PAGE as usize];
    let start = (memory.as_ptr() as u64).next_multiple_of(PAGE);
    let register = |at: u64, len: u64| pd.reg_mr(start + at, len, start, RIGHTS);
    may_lock(false);
    limit(16 * PAGE);

    let whole = register(0, 16 * PAGE).unwrap();
    assert_eq!(register(32 * PAGE, 1).err(), Some(Errno(libc::ENOMEM)), "the sum of all counts");
    whole.destroy().unwrap();
    assert_eq!(register(0, 16 * PAGE + 1).err(), Some(Errno(libc::ENOMEM)));
    assert_eq!(register(1, 16 * PAGE).err(), Some(Errno(libc::ENOMEM)), "pages that are touched count whole");
    let (half, again) = (register(0, 8 * PAGE).unwrap(), register(0, 8 * PAGE).unwrap());
    assert_eq!(register(0, 1).err(), Some(Errno(libc::ENOMEM)), "memory that is registered twice counts twice");
    again.destroy().unwrap();
    half.change(&pd, start, 4 * PAGE, start, RIGHTS).unwrap();
    register(0, 12 * PAGE).unwrap();
    assert_eq!(half.change(&pd, start, 1, start, RIGHTS), Err(Errno(libc::ENOMEM)), "the new one comes first");

    if may_lock(true) {
        register(0, 32 * PAGE).unwrap().destroy().unwrap();
    } else {
        println!("not run by root: that CAP_IPC_LOCK lifts the limit was not tried");
    }
}
