// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process's resource limits (`getrlimit(2)`), and their use, for messages about failures and for the command.
//! Grade: errors. Threads: any. Bytes, or numbers of files. Tests: at the end of the file.

use std::fs;

/// How many files may be open; `None` without limit.
#[must_use]
pub fn open_files() -> Option<u64> {
    soft(libc::RLIMIT_NOFILE)
}

/// How much memory may be locked, in bytes; `None` where this process may lock what it wants.
#[must_use]
pub fn locked_memory() -> Option<u64> {
    soft(libc::RLIMIT_MEMLOCK).filter(|_| !may_lock_all())
}

/// How much address space there may be, in bytes; `None` without limit.
#[must_use]
pub fn address_space() -> Option<u64> {
    soft(libc::RLIMIT_AS)
}

/// How much address space there is, in bytes; `None` where the kernel does not say.
#[must_use]
pub fn address_space_used() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes: u64 = field(&status, "VmSize:")?.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Whether this thread has `CAP_IPC_LOCK` (`capget(2)`). No file is read, since there may be no descriptor left for
/// one.
fn may_lock_all() -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    const IPC_LOCK: u32 = 14;
    // Version and thread (0: this one). The masks of effective, permitted and inheritable capabilities: of 32, and of
    // 32.
    let (mut header, mut capabilities) = ([VERSION_3, 0], [0_u32; 6]);
    // SAFETY: both are valid for the call, and as long as the kernel's structures of this version.
    let done = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), capabilities.as_mut_ptr()) };
    done == 0 && capabilities[0] >> IPC_LOCK & 1 == 1
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

fn soft(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the call, which fills it.
    let done = unsafe { libc::getrlimit(resource, &raw mut limit) };
    (done == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_space_in_use_is_more_than_a_mebibyte_and_within_the_limit() {
        let used = address_space_used().expect("the kernel says it");
        assert!(used > 1 << 20);
        assert!(address_space().is_none_or(|limit| used <= limit));
    }

    #[test]
    fn the_capability_to_lock_memory_is_as_the_kernel_lists_it_for_the_thread() {
        let status = fs::read_to_string("/proc/thread-self/status").expect("the kernel lists it");
        let effective = field(&status, "CapEff:").expect("a mask");
        let effective = u64::from_str_radix(effective.trim(), 16).expect("a hexadecimal number");
        assert_eq!(may_lock_all(), (effective >> 14) & 1 == 1);
        assert_eq!(field(&status, "no such field:"), None);
    }
}
