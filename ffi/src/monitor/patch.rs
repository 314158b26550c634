// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patches of functions of the C library: their first instruction becomes a jump. It goes by a pad, a few bytes near
//! the library, because a jump to anywhere is longer: it would cover instructions to which another thread may return
//! from the kernel. So a patch is one store of a word, and a thread sees the function as it was, or patched.
//!
//! Other libraries patch the same functions (UCX, libfabric's `memhooks`, Open MPI); their jumps are recognised, so
//! that the hook can call theirs. Called by `hooks.rs`, with its lock. Grade: setup. Tests: in `mod.rs`.

use std::ffi::{CStr, c_void};
use std::io;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use super::calls::PAGE;

#[cfg(target_arch = "x86_64")]
mod code {
    //! Machine code of x86-64.

    /// Reach of a jump, bytes.
    pub(super) const REACH: usize = 1 << 31;

    /// The bits of a function's first word that a jump takes.
    pub(super) const JUMP: u64 = (1 << 40) - 1;

    /// `jmp` by this distance, from the function's first byte.
    pub(super) fn jump(distance: isize) -> Option<u64> {
        let distance = i32::try_from(distance - 5).ok()?;
        Some(0xe9 | u64::from(distance as u32) << 8)
    }

    /// `jmp *2(%rip)`, whose operand follows.
    pub(super) const PAD: u64 = 0x9090_0000_0002_25ff;

    /// Returns the target of a jump at `start`, as patches of other libraries have it.
    pub(super) fn target(start: usize, code: [u8; 16]) -> Option<usize> {
        let word = |at: usize| code[at..at + 8].try_into().map(u64::from_le_bytes).ok().map(|word| word as usize);
        let near = |at: usize| code[at..at + 4].try_into().map(i32::from_le_bytes).ok().map(|near| near as isize);
        match code {
            // movabs $target, %r11; jmp *%r11, of libfabric and Open MPI; the same by %rax, of UCX
            [0x49, 0xbb, _, _, _, _, _, _, _, _, 0x41, 0xff, 0xe3, ..]
            | [0x48, 0xb8, _, _, _, _, _, _, _, _, 0xff, 0xe0, ..] => word(2),
            // jmp *(%rip), whose operand follows
            [0xff, 0x25, 0, 0, 0, 0, ..] => word(6),
            // jmp
            [0xe9, ..] => Some(start.wrapping_add_signed(near(1)? + 5)),
            _ => None,
        }
    }

    /// Nothing to do: processors see what is stored.
    pub(super) fn flush(_: usize) {}
}

#[cfg(target_arch = "aarch64")]
mod code {
    //! Machine code of aarch64.

    /// Reach of a jump, bytes.
    pub(super) const REACH: usize = 1 << 27;

    /// The bits of a function's first word that a jump takes.
    pub(super) const JUMP: u64 = (1 << 32) - 1;

    /// `b` by this distance.
    pub(super) fn jump(distance: isize) -> Option<u64> {
        let is_near = distance.unsigned_abs() < REACH && distance % 4 == 0;
        is_near.then_some(0x1400_0000 | (distance / 4) as u64 & 0x03ff_ffff)
    }

    /// `ldr x16, .+8; br x16`, with the target behind it.
    pub(super) const PAD: u64 = 0xd61f_0200_5800_0050;

    /// Returns the target of a jump at `start`, as patches of other libraries have it.
    pub(super) fn target(start: usize, code: [u8; 16]) -> Option<usize> {
        let word = |at: usize| code[at..at + 4].try_into().map(u32::from_le_bytes).unwrap_or_default();
        let first = word(0);
        if first >> 26 == 0b000101 {
            return Some(start.wrapping_add_signed(((first << 6) as i32 >> 4) as isize));
        }
        // movz, movk, movk, movk: 16 bits each. A br follows.
        let parts = [0, 4, 8, 12].map(word);
        let is_target = first >> 23 == 0x1a5 && parts[1..].iter().all(|part| part >> 23 == 0x1e5);
        let bits = |part: u32| (part as usize >> 5 & 0xffff) << (16 * (part >> 21 & 3));
        is_target.then(|| parts.iter().fold(0, |all, part| all | bits(*part)))
    }

    /// Has all processors fetch the instructions at this address anew.
    pub(super) fn flush(address: usize) {
        // SAFETY: cache maintenance of a mapped address changes no memory.
        unsafe {
            std::arch::asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", "dsb ish", "isb", in(reg) address);
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod code {
    //! No machine code: nothing is patched on other processors.
    pub(super) const REACH: usize = 0;
    pub(super) const JUMP: u64 = 0;
    pub(super) const PAD: u64 = 0;
    pub(super) fn jump(_: isize) -> Option<u64> {
        None
    }
    pub(super) fn target(_: usize, _: [u8; 16]) -> Option<usize> {
        None
    }
    pub(super) fn flush(_: usize) {}
}

/// What a page of pads begins with, so that another copy of ibex knows it.
const MARK: [u64; 2] = [u64::from_le_bytes(*b"ibex' mo"), u64::from_le_bytes(*b"nitor 01")];

/// Distance between places where a page of pads is tried.
const STEP: usize = 1 << 20;

/// A function that is, or was, patched.
pub(super) struct Function {
    /// Its first word.
    word: &'static AtomicU64,
    /// The jump to its pad.
    jump: u64,
}

/// What a call of a function meets first.
pub(super) enum First {
    /// The function itself.
    Original,
    /// The patch of another library, and its hook.
    Hook(usize),
    /// The patch of another copy of ibex.
    Ibex,
}

/// Returns the first word of a function of the C library.
pub(super) fn find(name: &'static CStr) -> Result<&'static AtomicU64, String> {
    let lack = || format!("the C library has no function {} that can be patched", name.to_string_lossy());
    let start = library_symbol(name).ok_or_else(lack)?.cast::<u64>();
    if !start.is_aligned() {
        return Err(lack());
    }
    // SAFETY: the C library's code is mapped and readable as long as the process lives; writers are patches, and they
    // write whole words, or before this one.
    Ok(unsafe { AtomicU64::from_ptr(start) })
}

/// Looks up a symbol of the C library itself, whatever libraries are preloaded.
pub(super) fn library_symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: C strings; the flag prevents loading.
    let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    // SAFETY: an open library, or null, and a C string. The library is never closed.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!library.is_null() && !found.is_null()).then_some(found)
}

/// Makes a pad for each pair of a function and what is called instead. Nothing is patched yet.
pub(super) fn prepare(hooks: &[(&'static AtomicU64, *const c_void)]) -> Result<Vec<Function>, String> {
    let near = hooks.first().map_or(0, |(word, _)| word.as_ptr().addr());
    let page = map_near(near).ok_or("no memory is free near the C library")?;
    let jumps = hooks.iter().enumerate().map(|(number, (word, instead))| {
        let pad = page.wrapping_add(MARK.len() * (number + 1));
        // SAFETY: the page is ours, writable, and has room for two words for each of these few hooks.
        unsafe {
            pad.write(code::PAD);
            pad.add(1).write(instead.addr() as u64);
        }
        let distance = pad.addr().wrapping_sub(word.as_ptr().addr()) as isize;
        Some(Function { word, jump: code::jump(distance)? })
    });
    let functions = jumps.collect::<Option<Vec<_>>>().ok_or("the C library is out of reach")?;
    // SAFETY: as above.
    unsafe { page.cast::<[u64; 2]>().write(MARK) };
    code::flush(page.addr());
    allow(page.addr(), libc::PROT_READ | libc::PROT_EXEC)?;
    Ok(functions)
}

/// Maps a page that stays for ever, near this address.
fn map_near(near: usize) -> Option<*mut u64> {
    let places =
        (1..code::REACH / STEP).flat_map(|step| [near.checked_add(step * STEP), near.checked_sub(step * STEP)]);
    let mut places = places.flatten().map(|place| place / STEP * STEP);
    places.find_map(|place| {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: covers no other mapping: kernels before 4.17, which do not know the last flag, take a hint.
        let page = unsafe {
            libc::mmap(
                null_mut::<c_void>().wrapping_byte_add(place),
                PAGE,
                rights,
                flags | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if page != libc::MAP_FAILED && page.addr() != place {
            // SAFETY: mapped above, and unused.
            unsafe { libc::munmap(page, PAGE) };
        }
        (page.addr() == place).then_some(page.cast())
    })
}

/// Changes the rights of the pages of a word.
fn allow(word: usize, rights: i32) -> Result<(), String> {
    // SAFETY: a question.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let page = null_mut::<c_void>().wrapping_byte_add(word / size * size);
    // SAFETY: code keeps its right to be executed, and nobody else has the page of pads.
    if unsafe { libc::mprotect(page, size, rights) } == 0 {
        return Ok(());
    }
    Err(format!("mprotect: {}", io::Error::last_os_error()))
}

impl Function {
    /// Whether the patch is in place.
    #[inline]
    pub(super) fn is_patched(&self) -> bool {
        // Relaxed: a thread that learns of another patch late has not used what was changed behind that patch.
        self.word.load(Ordering::Relaxed) & code::JUMP == self.jump
    }

    /// Returns what a call meets, if it does not meet this patch.
    pub(super) fn first(&self) -> First {
        let start = self.word.as_ptr();
        // SAFETY: a function has, with its padding, so many readable bytes.
        let code = unsafe { start.cast::<[u8; 16]>().read_volatile() };
        let Some(target) = code::target(start.addr(), code) else { return First::Original };
        let page = null::<[u64; 2]>().wrapping_byte_add(target / PAGE * PAGE);
        // SAFETY: the page has the code to which the function jumps.
        if unsafe { page.read_volatile() } == MARK { First::Ibex } else { First::Hook(target) }
    }

    /// Patches the function, over any other patch.
    pub(super) fn patch(&self) -> Result<(), String> {
        let start = self.word.as_ptr().addr();
        allow(start, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)?;
        let old = self.word.load(Ordering::Relaxed);
        // Release: who runs the pad finds the hook that it calls afterwards.
        self.word.store(old & !code::JUMP | self.jump, Ordering::Release);
        code::flush(start);
        allow(start, libc::PROT_READ | libc::PROT_EXEC)
    }
}

/// Keeps the library of this code loaded.
pub(super) fn keep(code: usize) {
    // SAFETY: a structure of pointers, for which zero is a value.
    let mut of: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address, and a live structure.
    if unsafe { libc::dladdr(null::<c_void>().wrapping_byte_add(code), &raw mut of) } != 0 {
        // SAFETY: a name that the loader keeps; the flags load nothing.
        unsafe { libc::dlopen(of.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

/// Replaces code as other libraries do. Returns what was there.
#[cfg(test)]
pub(super) fn write(function: *mut u8, new: &[u8]) -> Vec<u8> {
    allow(function.addr(), libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC).expect("code can be written");
    // SAFETY: a function that nobody else calls in the program of the tests.
    let place = unsafe { std::slice::from_raw_parts_mut(function, new.len()) };
    let before = place.to_vec();
    place.copy_from_slice(new);
    code::flush(function.addr());
    before
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::code;

    #[test]
    fn the_jumps_that_libraries_patch_with_are_recognised_and_the_functions_themselves_are_not() {
        const TO: usize = 0x7fff_1234_5678;
        let far = |before: &[u8], after: &[u8]| {
            let all: Vec<u8> = [before, &TO.to_le_bytes(), after, &[0xcc; 16]].concat();
            all[..16].try_into().unwrap()
        };
        for code in [
            far(&[0x49, 0xbb], &[0x41, 0xff, 0xe3]),
            far(&[0x48, 0xb8], &[0xff, 0xe0]),
            far(&[0xff, 0x25, 0, 0, 0, 0], &[]),
            (u128::from(code::jump(-0x1000).unwrap()) | 0x55 << 40).to_le_bytes(),
        ] {
            assert_eq!(code::target(TO + 0x1000, code), Some(TO), "{code:x?}");
        }
        let munmap = [0xb8, 0x0b, 0, 0, 0, 0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0x73, 0x01, 0xc3];
        assert_eq!(code::target(TO, munmap), None);
        assert_eq!(code::jump((1 << 31) + 5), None, "it is out of reach");
    }
}
