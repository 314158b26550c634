// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access rights of registered memory, and the verb that registers it: ibex's own memory (`mapping.rs`) and a program's
//! (`domain.rs`). Setup grade, any thread. Tests: below, and device tests in `hw-tests`.

use crate::verbs::handle::Handle;
use crate::verbs::sys;
use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

bitflags::bitflags! {
    /// Rights of access to registered memory (`enum ibv_access_flags`). Local reads are always allowed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Access: u32 {
        /// The adapter may write here for this process: received messages, results of reads and atomics.
        const LOCAL_WRITE = 1;
        /// Peers may write here.
        const REMOTE_WRITE = 2;
        /// Peers may read from here.
        const REMOTE_READ = 4;
        /// Peers may execute atomics here.
        const REMOTE_ATOMIC = 8;
        /// The adapter's writes may arrive in any order; a completion still comes after all earlier writes. An optional
        /// flag, which a kernel without it ignores. Not a right of queue pairs.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// All rights that a queue pair may give to its peer.
    pub const RIGHTS: Access =
        Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);
}

/// Whether an adapter is known to refuse memory with relaxed ordering.
#[derive(Debug, Default)]
pub(super) struct Relaxation {
    is_refused: AtomicBool,
}

impl Relaxation {
    pub(super) fn is_refused(&self) -> bool {
        // Relaxed: a thread that learns of it late is refused once more.
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Registers by `verb` with `access`. If the adapter refuses only the ordering, registers without it from now on.
    fn register<T>(&self, access: Access, verb: impl Fn(Access) -> io::Result<T>) -> io::Result<T> {
        let strict = access.difference(Access::RELAXED_ORDERING);
        if access == strict || self.is_refused() {
            return verb(strict);
        }
        match verb(access) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                let registered = verb(strict)?;
                self.is_refused.store(true, Ordering::Relaxed);
                Ok(registered)
            }
            answer => answer,
        }
    }
}

/// Registers `bytes` bytes at `start` (`ibv_reg_mr(3)`).
///
/// # Safety
/// The domain is live, and outlives the registration (R4). During it the adapter may use the range as `access` says.
pub(super) unsafe fn register(
    domain: *mut sys::ibv_pd,
    start: *mut c_void,
    bytes: usize,
    access: Access,
    relaxation: &Relaxation,
) -> io::Result<Handle<sys::ibv_mr>> {
    relaxation.register(access, |access| {
        // In C `ibv_reg_mr` is a macro, which calls this function if a flag may be optional: it omits flags that the
        // kernel does not know. SAFETY: the caller says that the domain is live (R4), and that the adapter may use the
        // range.
        let region = unsafe { sys::ibv_reg_mr_iova2(domain, start, bytes, start.addr() as u64, access.bits()) };
        // SAFETY: R4: just made from the domain, which the caller says outlives it.
        unsafe { Handle::new(region, ()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const RELAXED: Access = Access::LOCAL_WRITE.union(Access::RELAXED_ORDERING);

    fn adapter(relaxed: i32, strict: i32, asked: &RefCell<Vec<Access>>) -> impl Fn(Access) -> io::Result<()> {
        move |access| {
            asked.borrow_mut().push(access);
            match if access.contains(Access::RELAXED_ORDERING) { relaxed } else { strict } {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    #[test]
    fn the_flag_is_the_header_s_and_no_right_of_a_queue_pair() {
        assert_eq!(Access::RELAXED_ORDERING.bits(), sys::ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0);
        assert_eq!(Access::RIGHTS.bits(), 15);
    }

    #[test]
    fn register_passes_on_all_rights_that_the_adapter_accepts() {
        let (relaxation, asked) = (Relaxation::default(), RefCell::default());
        for access in [RELAXED, Access::LOCAL_WRITE] {
            assert!(relaxation.register(access, adapter(0, 0, &asked)).is_ok());
        }
        assert_eq!(*asked.borrow(), [RELAXED, Access::LOCAL_WRITE]);
        assert!(!relaxation.is_refused());
    }

    #[test]
    fn register_omits_relaxed_ordering_once_the_adapter_has_refused_it() {
        for errno in [libc::EINVAL, libc::EOPNOTSUPP] {
            let (relaxation, asked) = (Relaxation::default(), RefCell::default());
            for _ in 0..2 {
                assert!(relaxation.register(RELAXED, adapter(errno, 0, &asked)).is_ok());
            }
            assert_eq!(*asked.borrow(), [RELAXED, Access::LOCAL_WRITE, Access::LOCAL_WRITE]);
            assert!(relaxation.is_refused());
        }
    }

    #[test]
    fn a_registration_that_fails_for_another_reason_keeps_relaxed_ordering() {
        let (relaxation, asked) = (Relaxation::default(), RefCell::default());
        let failed = relaxation.register(RELAXED, adapter(libc::ENOMEM, 0, &asked)).expect_err("no memory");
        assert_eq!((failed.raw_os_error(), asked.borrow().len()), (Some(libc::ENOMEM), 1));
        let failed =
            relaxation.register(RELAXED, adapter(libc::EINVAL, libc::EINVAL, &asked)).expect_err("a bad range");
        assert_eq!(failed.raw_os_error(), Some(libc::EINVAL));
        assert!(!relaxation.is_refused());
    }
}
