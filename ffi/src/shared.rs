// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new shared file of atomic words, which other processes may read, and even write, while this one writes. Called by
//! the engine's `flight`. Path: setup. Threads: any. Sizes in words of 8 bytes. Tests: below.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::AtomicU64;

/// Makes a file of so many words, 0 at first, that this user alone may read and write, and maps it for as long as the
/// process lives. All of it is there from now on, so that no write can find the file system full.
///
/// # Errors
/// There is such a file, there can be none, or there is no room for it.
pub fn create(path: &Path, words: usize) -> io::Result<&'static [AtomicU64]> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path)?;
    map(&file, words).inspect_err(|_| {
        // It is nobody's yet; where it cannot be removed it is found with the next leftovers.
        let _ = fs::remove_file(path);
    })
}

fn map(file: &File, words: usize) -> io::Result<&'static [AtomicU64]> {
    let bytes = words.checked_mul(size_of::<AtomicU64>()).filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let length = libc::off_t::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: an open file; touches no memory of the process.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => {}
        code => return Err(io::Error::from_raw_os_error(code)),
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at no given address touches nothing that exists.
    let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: so many bytes, never unmapped, aligned to a page; any bits are a number; all access is atomic, or reads
    // the file. Where another process shortens the file, a signal ends this one, and no other memory is accessed.
    Ok(unsafe { std::slice::from_raw_parts(base.cast::<AtomicU64>(), words) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_is_written_stands_in_the_file_which_this_user_alone_may_read() {
        let path = std::env::temp_dir().join(format!("ibex-shared-{}", std::process::id()));
        let words = create(&path, 600).expect("a file of this test's own");
        assert!(words.len() == 600 && words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        words[599].store(7, Ordering::Relaxed);
        let bytes = fs::read(&path).expect("it is there");
        assert_eq!((bytes.len(), bytes[4792]), (4800, 7));
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(create(&path, 1).expect_err("another's").kind(), io::ErrorKind::AlreadyExists);
        fs::remove_file(&path).expect("it is there");
        words[599].store(8, Ordering::Relaxed);
        assert!(create(&path, 0).is_err() && !path.exists());
    }
}
