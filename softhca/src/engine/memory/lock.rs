// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lock in shared memory that outlives its holder: it names the process that holds it, and a waiter takes it over
//! from a dead one. Called by: every shared object. Grade: hot: one exchange to take, one store to give back, no system
//! call. A waiter spins for a short time, then yields; after a while it asks whether the holder lives (a system call).
//! A dead holder leaves its writing half done, so each structure orders its stores such that half is harmless (an index
//! is published last). Thread rule: any thread of any process. Tests: below.

use crate::engine::memory::{Process, W32};

/// Rounds of spinning before the first yield.
const SPINS: u32 = 200;
/// Rounds (spins and yields) before a waiter asks whether the holder lives, and between two such questions.
const PATIENCE: u32 = 4096;

/// The lock: 0, or the token of the process that holds it (`process::token`).
#[repr(transparent)]
#[derive(Default)]
pub(crate) struct SharedLock(W32);

#[must_use]
pub(crate) struct Held<'a>(&'a SharedLock);

impl SharedLock {
    #[inline]
    pub(crate) fn lock(&self, process: &Process) -> Held<'_> {
        if !self.0.replace(0, process.token()) {
            self.wait(process);
        }
        Held(self)
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, process: &Process) {
        let mut round = 0_u32;
        loop {
            if self.0.get() == 0 && self.0.replace(0, process.token()) {
                return;
            }
            round = round.wrapping_add(1);
            if round < SPINS {
                std::hint::spin_loop();
                continue;
            }
            std::thread::yield_now();
            let holder = self.0.get();
            let is_asked = round.is_multiple_of(PATIENCE) && holder != 0;
            if is_asked && process.is_dead(holder) && self.0.replace(holder, process.token()) {
                return;
            }
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.publish(0);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;
    use std::sync::Arc;

    use crate::config::Config;
    use crate::engine::{Fabric, FabricSpec};

    const FOLDER: &str = "SOFTHCA_TEST_FOLDER";

    fn join(folder: &Path) -> Arc<Fabric> {
        let Config { devices, faults, .. } = Config::of_profile(None);
        Fabric::join(FabricSpec { folder: folder.to_owned(), devices, faults, trace: false }).unwrap()
    }

    #[test]
    fn a_lock_whose_holder_has_died_is_taken_over() {
        let folder = std::path::PathBuf::from(format!("/dev/shm/softhca-test-{}-lock", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let fabric = join(&folder);
        let died = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "engine::memory::lock::tests::dies_within_two_locks"])
            .env(FOLDER, &folder)
            .status()
            .unwrap();
        assert!(!died.success());
        let header = fabric.header();
        let held = || (header.tables.0.get() != 0, header.atomics.0.0.get() != 0);
        assert_eq!(held(), (true, true));
        drop(header.tables.lock(&fabric));
        let all_got_it = std::thread::scope(|scope| {
            // However many wait, one takes it over and the others get it after that.
            let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| drop(header.atomics.0.lock(&fabric)))).collect();
            waiters.into_iter().all(|waiter| waiter.join().is_ok())
        });
        assert!(all_got_it);
        assert_eq!(held(), (false, false));
        assert!(
            fabric
                .open(0)
                .unwrap()
                .open_xrcd(crate::engine::XrcdOpen { file: Some((1, 1)), create: true, exclusive: true })
                .is_ok()
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    #[ignore = "started by the test above, as the process that dies"]
    fn dies_within_two_locks() {
        let fabric = join(Path::new(&std::env::var_os(FOLDER).expect("started by another test")));
        let header = fabric.header();
        std::mem::forget((header.tables.lock(&fabric), header.atomics.0.lock(&fabric)));
        // SAFETY: kill touches no memory of this process, which it ends.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}
