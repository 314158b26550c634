// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new shared file of atomic 8-byte words. Other processes may read it, and even write to it, at the same time.
//! Called by the engine's `flight`. Path: setup. Threads: any. Tests: below.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::AtomicU64;

/// Creates a file of `words` zero words with mode 0600, and maps it until the process ends. Its space is allocated at
/// once, so no later write finds the file system full.
///
/// # Errors
/// The file exists, cannot be created, or does not fit in the file system.
pub fn create(path: &Path, words: usize) -> io::Result<&'static [AtomicU64]> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path)?;
    map(&file, words).inspect_err(|_| {
        // If this fails, the file is removed later, with those of ended processes.
        let _ = fs::remove_file(path);
    })
}

fn map(file: &File, words: usize) -> io::Result<&'static [AtomicU64]> {
    let bytes = words.checked_mul(size_of::<AtomicU64>()).filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let length = libc::off_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: the descriptor is open; the call accesses no memory of the process.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => {}
        code => return Err(io::Error::from_raw_os_error(code)),
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses touches no existing one.
    let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping has this many bytes, is page-aligned and never unmapped; every bit pattern is a number; all
    // access is atomic. If another process truncates the file, SIGBUS ends this one; no other memory is accessed.
    Ok(unsafe { std::slice::from_raw_parts(base.cast::<AtomicU64>(), words) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::Ordering;

    #[test]
    fn words_written_are_in_the_file_and_only_this_user_may_read_it() {
        let path = std::env::temp_dir().join(format!("ibex-shared-{}", std::process::id()));
        let words = create(&path, 600).expect("a new file");
        assert!(words.len() == 600 && words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        words[599].store(7, Ordering::Relaxed);
        let bytes = fs::read(&path).expect("the file exists");
        assert_eq!((bytes.len(), bytes[4792]), (4800, 7));
        assert_eq!(fs::metadata(&path).expect("the file exists").permissions().mode() & 0o777, 0o600);
        assert_eq!(create(&path, 1).expect_err("the file exists").kind(), io::ErrorKind::AlreadyExists);
        fs::remove_file(&path).expect("the file exists");
        words[599].store(8, Ordering::Relaxed);
        assert!(create(&path, 0).is_err() && !path.exists());
    }
}
