// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a port counts of its troubles, shown as files like the kernel's `hw_counters`, under the names mlx5 uses.
//!
//! A count is a word of the region's header, and its text a file of the fabric's folder that every process maps when it
//! first opens an adapter: so reading needs no help, and counting neither a system call nor an allocation. Called by:
//! fabric, for the queue pairs where something goes wrong, never for a message that arrives. Grade: pending. Thread
//! rule: any thread of any process. Tests: at the end of the file, and tests/engine.rs.

use std::{
    fs::OpenOptions,
    io,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::engine::{
    memory::{
        header::Header,
        layout::{HW_COUNTERS, MAX_DEVICES, MAX_PORTS},
        words::W64,
    },
    spec::device::DeviceSpec,
};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Messages that found no receive request here: answered "not ready", or lost.
    OutOfBuffer,
    /// Answers "not ready" that senders here got.
    RnrNakRetry,
    /// Times a sender here waited in vain for an answer.
    LocalAckTimeout,
    /// Requests that arrived here a second time.
    DuplicateRequest,
    /// Sends from here that ended in an error, flushed ones aside.
    RequesterError,
    /// Receives here that ended in an error, flushed ones aside.
    ResponderError,
    /// Sends from here that were denied access to the target's memory.
    RequesterAccess,
    /// Requests that were denied access to memory here.
    ResponderAccess,
}

/// Their files, in the order of `Count`.
const NAMES: [&str; HW_COUNTERS] = [
    "out_of_buffer",
    "rnr_nak_retry_err",
    "local_ack_timeout_err",
    "duplicate_request",
    "req_cqe_error",
    "resp_cqe_error",
    "req_remote_access_errors",
    "resp_remote_access_errors",
];

/// Bytes of a file: a number, set to the right, and a newline.
const TEXT_BYTES: usize = 16;

/// A file's text, mapped.
type Text = [W64; 2];

/// The texts that this process has mapped; `None` where that failed.
#[derive(Default)]
pub(crate) struct Texts([[[OnceLock<Option<&'static Text>>; HW_COUNTERS]; MAX_PORTS]; MAX_DEVICES]);

/// The folder of the counters of a port (both counted from 0) in the fabric's `folder`.
pub(crate) fn folder_of(folder: &Path, device: usize, port: usize) -> PathBuf {
    folder.join(format!("hw_counters/{device}/{port}"))
}

/// Makes the files that are not there yet.
pub(crate) fn make(folder: &Path, devices: &[DeviceSpec]) -> io::Result<()> {
    for (device, spec) in devices.iter().enumerate() {
        for port in 0..spec.ports.len() {
            let files = folder_of(folder, device, port);
            std::fs::create_dir_all(&files)?;
            for name in NAMES {
                make_one(&files, name)?;
            }
        }
    }
    Ok(())
}

/// Makes a file under another name first, so that nobody finds it half written.
fn make_one(files: &Path, name: &str) -> io::Result<()> {
    let path = files.join(name);
    if path.exists() {
        return Ok(());
    }
    let draft = files.join(format!(".{name}.{}", std::process::id()));
    std::fs::write(&draft, text(0))?;
    let made = std::fs::hard_link(&draft, &path);
    let _another_thread_may_have = std::fs::remove_file(&draft);
    if path.exists() { Ok(()) } else { made }
}

/// The text of a count. Allocates nothing: other messages wait meanwhile.
fn text(count: u64) -> [u8; TEXT_BYTES] {
    let mut bytes = [b' '; TEXT_BYTES];
    bytes[TEXT_BYTES - 1] = b'\n';
    let mut rest = count;
    for digit in bytes[..TEXT_BYTES - 1].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    bytes
}

impl Texts {
    /// Maps the texts of all ports, so that counting need not.
    pub(super) fn map_all(&self, folder: &Path, devices: &[DeviceSpec]) {
        for (device, spec) in devices.iter().enumerate() {
            for port in 0..spec.ports.len() {
                for (what, _) in NAMES.iter().enumerate() {
                    self.mapped(folder, device, port, what);
                }
            }
        }
    }

    fn mapped(&self, folder: &Path, device: usize, port: usize, what: usize) -> Option<&'static Text> {
        *self.0[device][port][what].get_or_init(|| map(&folder_of(folder, device, port).join(NAMES[what])).ok())
    }

    /// Counts one more for a port (both from 0), and shows it in the port's file below `folder`.
    pub(super) fn count(&self, header: &Header, folder: &Path, device: usize, port: usize, what: Count) {
        let Some(words) = header.hw_counters.get(device).and_then(|ports| ports.get(port)) else { return };
        let word = &words[what as usize];
        word.add(1);
        let Some(mapped) = self.mapped(folder, device, port, what as usize) else { return };
        loop {
            // Of several who count at once the last to look shows the last count.
            let shown = word.get();
            let bytes = text(shown);
            for (half, word) in mapped.iter().enumerate() {
                word.swap(u64::from_ne_bytes(std::array::from_fn(|i| bytes[half * 8 + i])));
            }
            if word.add(0) == shown {
                return;
            }
        }
    }
}

fn map(path: &Path) -> io::Result<&'static Text> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path)?;
    if file.metadata()?.len() < TEXT_BYTES as u64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            TEXT_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is a page, so aligned and long enough; it is never unmapped; words may be shared, and the
    // file is not made shorter by anyone.
    Ok(unsafe { &*base.cast::<Text>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_size_of_its_file_whatever_the_count() {
        assert_eq!(&text(0), b"              0\n");
        assert_eq!(&text(1_234_567), b"        1234567\n");
        assert_eq!(text(u64::MAX)[TEXT_BYTES - 1], b'\n');
        assert_eq!(NAMES[Count::ResponderAccess as usize], "resp_remote_access_errors");
    }
}
