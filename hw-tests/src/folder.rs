// SPDX-License-Identifier: MIT OR Apache-2.0
//! A folder that exists as long as its value. Setup grade; any thread. Tests: at the end of this file.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;

/// A folder of this process; dropping the value removes it.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder whose name begins with `name` among the machine's temporary files.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        Self::within(&std::env::temp_dir(), name)
    }

    /// Makes the folder `NAME-PROCESS-NUMBER` in `parent`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn within(parent: &Path, name: &str) -> anyhow::Result<Self> {
        // Each number is used once, so the path of a removed folder never leads to a new one.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let folder = parent.join(format!("{name}-{}-{number}", std::process::id()));
            match fs::create_dir(&folder) {
                // A killed process, or one in a container, may have had the same process number and left its folder.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    return made.map(|()| Self(folder.clone())).with_context(|| format!("make {}", folder.display()));
                }
            }
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the file `name` in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_one_name_are_separate_and_are_removed_with_their_contents() {
        let (one, other) = (Folder::new("hw-tests-folder").unwrap(), Folder::new("hw-tests-folder").unwrap());
        assert_ne!(one.path(), other.path());
        fs::write(one.file("content"), "").unwrap();
        let (path, other) = (one.path().to_owned(), other.path().to_owned());
        drop(one);
        assert!(!path.exists() && !other.join("content").exists());
        assert_ne!(Folder::new("hw-tests-folder").unwrap().path(), path, "the name of one that is gone");
        assert!(Folder::within(&path, "x").unwrap_err().to_string().contains("make "));
    }
}
