// SPDX-License-Identifier: MIT OR Apache-2.0
//! A picture of a page, drawn by headless Chromium with a temporary profile. Called by `ibex view --picture`, and by
//! the tests, which also read the page's description of itself. Path: setup. Tests: tests/browser.rs.

use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use which::which;

/// Names of the browser on different systems.
const NAMES: [&str; 5] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];

/// Time for the page's scripts, in milliseconds of the browser's virtual time.
const BUDGET: u32 = 20_000;

/// An installed browser.
#[derive(Debug, Clone)]
pub struct Browser {
    program: PathBuf,
}

impl Browser {
    /// Finds a browser in `PATH`.
    ///
    /// # Errors
    /// `NotFound`, which names the package to install.
    pub fn find() -> io::Result<Browser> {
        let found = NAMES.iter().find_map(|name| which(name).ok());
        let missing = "the picture needs Chromium, which is not installed (Debian's package `chromium`)";
        found.map(|program| Browser { program }).ok_or_else(|| io::Error::new(ErrorKind::NotFound, missing))
    }

    /// Draws a page into a PNG file. `fragment`, the part of the address after `#`, says what it shows.
    ///
    /// # Errors
    /// The browser does not run, or leaves no picture.
    pub fn draw(&self, page: &Path, fragment: &str, (width, height): (u32, u32), out: &Path) -> io::Result<()> {
        let size = format!("--window-size={width},{height}");
        let file = format!("--screenshot={}", std::path::absolute(out)?.display());
        let done = self.run(page, fragment, &[&size, &file])?;
        if done.status.success() && out.is_file() { Ok(()) } else { Err(failure(&done)) }
    }

    /// Returns the page's elements as text after its scripts have run.
    ///
    /// # Errors
    /// The browser does not run.
    pub fn text(&self, page: &Path, fragment: &str) -> io::Result<String> {
        let done = self.run(page, fragment, &["--window-size=1600,1000", "--dump-dom"])?;
        if done.status.success() { Ok(String::from_utf8_lossy(&done.stdout).into_owned()) } else { Err(failure(&done)) }
    }

    fn run(&self, page: &Path, fragment: &str, arguments: &[&str]) -> io::Result<Output> {
        let profile = Profile::new()?;
        Command::new(&self.program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--disable-background-networking", "--disable-extensions"])
            .arg(format!("--user-data-dir={}", profile.0.display()))
            .arg(format!("--virtual-time-budget={BUDGET}"))
            .args(arguments)
            .arg(address(page, fragment)?)
            .stdin(Stdio::null())
            .output()
    }
}

struct Profile(PathBuf);

impl Profile {
    fn new() -> io::Result<Profile> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("ibex-view.{}.{call}", std::process::id()));
        std::fs::create_dir(&folder)?;
        Ok(Profile(folder))
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        // A remaining folder only costs space.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn address(page: &Path, fragment: &str) -> io::Result<String> {
    let path = page.canonicalize()?;
    let mut address = "file://".to_owned();
    for byte in path.to_string_lossy().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => address.push(byte.into()),
            _ => {
                let _ = write!(address, "%{byte:02X}");
            }
        }
    }
    Ok(if fragment.is_empty() { address } else { format!("{address}#{fragment}") })
}

fn failure(done: &Output) -> io::Error {
    let text = String::from_utf8_lossy(&done.stderr);
    let last = text.lines().last().unwrap_or("nothing on standard error");
    io::Error::other(format!("Chromium ended with {} and gave no result: {last}", done.status))
}
