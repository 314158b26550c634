// SPDX-License-Identifier: MIT OR Apache-2.0
//! The soft resource limits of the process (`getrlimit(2)`) and its address space, for error messages and the command.
//! Grade: errors. Threads: any. Tests: below.

use std::fs;

/// Largest number of open files; `None`: no limit.
pub fn open_files() -> Option<u64> {
    soft(libc::RLIMIT_NOFILE)
}

/// Most bytes of locked memory; `None`: no limit, or `CAP_IPC_LOCK` lifts it.
pub fn locked_memory() -> Option<u64> {
    soft(libc::RLIMIT_MEMLOCK).filter(|_| !may_lock_all())
}

/// Largest address space, in bytes; `None`: no limit.
pub fn address_space() -> Option<u64> {
    soft(libc::RLIMIT_AS)
}

/// Present size of the address space, in bytes; `None`: unknown.
pub fn address_space_used() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes: u64 = field(&status, "VmSize:")?.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Whether this thread has `CAP_IPC_LOCK`: by `capget(2)`, as the process may have no descriptor left to read a file.
fn may_lock_all() -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    const IPC_LOCK: u32 = 14;
    // Version and thread (0: this one). The effective, permitted and inheritable capabilities 0 to 31, then 32 to 63.
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
        let used = address_space_used().expect("/proc/self/status has VmSize");
        assert!(used > 1 << 20);
        assert!(address_space().is_none_or(|limit| used <= limit));
    }

    #[test]
    fn the_capability_to_lock_memory_is_as_the_kernel_lists_it_for_the_thread() {
        let status = fs::read_to_string("/proc/thread-self/status").expect("/proc is mounted");
        let effective = field(&status, "CapEff:").expect("a mask");
        let effective = u64::from_str_radix(effective.trim(), 16).expect("a hexadecimal number");
        assert_eq!(may_lock_all(), (effective >> 14) & 1 == 1);
        assert_eq!(field(&status, "no such field:"), None);
    }
}
