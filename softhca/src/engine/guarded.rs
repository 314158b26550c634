// SPDX-License-Identifier: MIT OR Apache-2.0
//! A copy within this process that fails where memory is not mapped, instead of killing the process: an adapter reads
//! and writes registered pages long after the program's call, and the program may have unmapped them since. The copy is
//! the C library's `memmove`, called at one place that a handler of SIGSEGV and SIGBUS knows: a fault below that call
//! ends it. All other faults go to the handler that was there before. Owns that handler of the process. Called by: copy;
//! service (`watch`, once per process). Grade: hot; a copy costs six instructions more than `memmove`, and a fault a
//! signal. Thread rule: any thread. If the program sets handlers of its own later, such a fault kills it as before.
//! Tests: below, and `tests/engine_unmapped.rs`.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::engine::{Errno, Result};

// `softhca_memmove` is `memmove`, but returns null after a fault: the handler goes on at `softhca_memmove_end`.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.softhca_memmove,\"ax\",@progbits",
    ".hidden softhca_memmove",
    ".globl softhca_memmove",
    ".type softhca_memmove,@function",
    "softhca_memmove:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call qword ptr [rip + memmove@GOTPCREL]",
    ".hidden softhca_memmove_end",
    ".globl softhca_memmove_end",
    "softhca_memmove_end:",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size softhca_memmove, . - softhca_memmove",
    ".popsection",
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.softhca_memmove,\"ax\",@progbits",
    ".hidden softhca_memmove",
    ".globl softhca_memmove",
    ".type softhca_memmove,@function",
    "softhca_memmove:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset 29, -16",
    ".cfi_offset 30, -8",
    "bl memmove",
    ".hidden softhca_memmove_end",
    ".globl softhca_memmove_end",
    "softhca_memmove_end:",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa_offset 0",
    "ret",
    ".cfi_endproc",
    ".size softhca_memmove, . - softhca_memmove",
    ".popsection",
);

unsafe extern "C" {
    fn softhca_memmove(to: *mut c_void, from: *const c_void, len: usize) -> *mut c_void;
    /// The place in `softhca_memmove` to which `memmove` returns.
    fn softhca_memmove_end();
}

/// Copies `len` bytes, which may overlap. EFAULT: some of them are not mapped; others may have been copied.
/// # Safety
/// Memory that is mapped there may be read and written so.
#[inline]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> Result<()> {
    // SAFETY: `memmove` touches these bytes only, and a fault ends it; the caller says that they may be used so.
    let done = unsafe { softhca_memmove(to.cast(), from.cast(), len) };
    if done.is_null() { Err(Errno(libc::EFAULT)) } else { Ok(()) }
}

/// The signals of a fault, and what the process did about each before.
static BEFORE: [(c_int, OnceLock<libc::sigaction>); 2] =
    [(libc::SIGSEGV, OnceLock::new()), (libc::SIGBUS, OnceLock::new())];

/// Lets faults of copies end them. Further calls do nothing.
pub(super) fn watch() {
    for (signal, before) in &BEFORE {
        before.get_or_init(|| {
            // SAFETY: all-zero is a value of the type, and the calls read and write ours only. The handler is for ever:
            // the library is never unloaded.
            unsafe {
                let mut ours: libc::sigaction = std::mem::zeroed();
                ours.sa_sigaction = on_fault as *const () as usize;
                ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                let mut before = std::mem::zeroed();
                libc::sigaction(*signal, &raw const ours, &raw mut before);
                before
            }
        });
    }
}

unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO both structures.
    let (fault, thread) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    // SAFETY: the thread stopped at a fault, if the kernel sent the signal.
    if fault.si_code > 0 && unsafe { end_copy(fault.si_addr() as usize, &mut thread.uc_mcontext) } {
        return;
    }
    let before = BEFORE.iter().find(|(of, _)| *of == signal).and_then(|(_, before)| before.get());
    // SAFETY: this handler's own arguments.
    unsafe { pass_on(before, signal, info, context) };
}

/// Does what the process did `before` about a signal; by default, or while another thread is just calling [`watch`], it
/// dies.
/// # Safety
/// The arguments of a handler.
unsafe fn pass_on(before: Option<&libc::sigaction>, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    match before.map_or(libc::SIG_DFL, |before| before.sa_sigaction) {
        default @ (libc::SIG_DFL | libc::SIG_IGN) => {
            // SAFETY: calls that a handler may make, and the kernel's structure.
            unsafe {
                libc::signal(signal, default);
                // A fault repeats itself once this returns; a signal that was sent does not.
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO == 0) => {
            // SAFETY: the program set this handler, and said by the flag of which of the two types it is.
            unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler)(signal) };
        }
        handler => {
            type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: as above.
            unsafe { std::mem::transmute::<usize, Handler>(handler)(signal, info, context) };
        }
    }
}

/// If the thread is within the call of `memmove` in [`softhca_memmove`], makes it return null; else returns `false`.
/// # Safety
/// `at` is the state of a thread that stopped at a fault at this address.
#[cfg(target_arch = "x86_64")]
unsafe fn end_copy(address: usize, at: &mut libc::mcontext_t) -> bool {
    const DIRECTION: libc::greg_t = 1 << 10;
    let stack = at.gregs[libc::REG_RSP as usize] as usize;
    // A fault of the stack itself: it cannot be read.
    if address.abs_diff(stack) < 2 * 4096 {
        return false;
    }
    // SAFETY: the stack of a thread that runs, whose fault is elsewhere. `memmove` saves nothing there, so the first word
    // is the address to which it returns.
    let to = unsafe { std::ptr::with_exposed_provenance::<usize>(stack).read_volatile() };
    let is_ours = to == softhca_memmove_end as *const () as usize;
    if is_ours {
        at.gregs[libc::REG_RSP as usize] = (stack + size_of::<usize>()) as libc::greg_t;
        at.gregs[libc::REG_RIP as usize] = to as libc::greg_t;
        at.gregs[libc::REG_RAX as usize] = 0;
        at.gregs[libc::REG_EFL as usize] &= !DIRECTION; // `memmove` may have been copying downwards
    }
    is_ours
}

/// As on x86-64; `memmove` calls nothing, so the address to return to stays in its register.
/// # Safety
/// `at` is the state of a thread that stopped at a fault.
#[cfg(target_arch = "aarch64")]
unsafe fn end_copy(_address: usize, at: &mut libc::mcontext_t) -> bool {
    const LINK: usize = 30;
    let end = softhca_memmove_end as *const () as u64;
    let is_ours = at.regs[LINK] == end;
    if is_ours {
        at.pc = end;
        at.regs[0] = 0;
    }
    is_ours
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A page with nothing behind it, far from where the kernel maps what other threads ask for.
    fn last_page() -> *mut u8 {
        static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
        let at = NEXT.fetch_add(64 << 20, Ordering::Relaxed) as *mut c_void;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: a new mapping, which replaces nothing.
        let base = unsafe { libc::mmap(at, 4096, rights, how, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        base.cast()
    }

    #[test]
    fn a_copy_from_or_to_pages_that_are_not_mapped_fails_whatever_its_length_and_direction() {
        watch();
        let page = last_page();
        let mut memory = vec![7_u8; 4 << 20];
        let base = memory.as_mut_ptr();
        for len in [1, 8, 31, 100, 300, 2000, 5000, 12 << 10, 100 << 10, 4 << 20] {
            // From the end of the page on, and from within it.
            for before in [0, 1, 100] {
                let at = page.wrapping_add(4096 - before.min(len - 1));
                // SAFETY: the vector's memory, and pages that nobody else uses; what is not mapped may be touched.
                unsafe {
                    assert_eq!(copy(base, at, len), Err(Errno(libc::EFAULT)), "from, {len} bytes");
                    assert_eq!(copy(at, base, len), Err(Errno(libc::EFAULT)), "to, {len} bytes");
                }
            }
        }
        // Overlapping, downwards.
        // SAFETY: as above.
        unsafe { assert_eq!(copy(page.wrapping_add(64), page, 4096), Err(Errno(libc::EFAULT))) };
        // SAFETY: a page that is mapped, and the vector.
        unsafe {
            copy(base, page, 4096).unwrap();
            copy(page.add(1), page, 4095).unwrap();
        }
    }

    /// Each runs in a child: its status tells which signal killed it. A signal that is sent to this program would end in
    /// the handler of Rust's library, which ignores it.
    #[test]
    fn a_fault_of_the_program_itself_and_a_signal_that_is_sent_still_kill() {
        watch();
        let gone = last_page().wrapping_add(4096);
        for is_sent in [false, true] {
            let mut status = 0;
            // SAFETY: the child makes system calls, or an access that kills it. All-zero is a value of both types.
            unsafe {
                let (mut sent, before): (libc::siginfo_t, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
                let pid = match libc::fork() {
                    0 => {
                        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                        if is_sent {
                            pass_on(Some(&before), libc::SIGSEGV, &raw mut sent, std::ptr::null_mut());
                        } else {
                            gone.read_volatile();
                        }
                        libc::_exit(0)
                    }
                    pid => pid,
                };
                assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            }
            assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "{status:#x}");
        }
    }
}
