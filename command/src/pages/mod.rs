// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex pages DIR`: writes the manual pages and shell completions for an installation, from the command line's
//! definition, and the pages of section 7 from documents ([`document`]). Grade: setup. Tests: below.

mod document;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::{Shell, generate_to};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder, for example /usr/share
    folder: PathBuf,
}

/// Subfolders in which shells search.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Documents that are manual pages, too: of the libfabric provider, where its users look for it, and for tool writers.
const DOCUMENTS: [(&str, &str); 5] = [
    ("fi_ibex", include_str!("../../../docs/libfabric.md")),
    ("ibex-events", include_str!("../../../docs/events.md")),
    ("ibex-events-calls", include_str!("../../../docs/events-calls.md")),
    ("ibex-peruse", include_str!("../../../docs/peruse.md")),
    ("ibex-writing-a-tool", include_str!("../../../docs/writing-a-tool.md")),
];

pub(crate) fn run(arguments: &Arguments, mut command: Command) -> Result<()> {
    let manual = made(&arguments.folder.join("man/man1"))?;
    clap_mangen::generate_to(command.clone(), &manual)
        .with_context(|| format!("cannot write to {}", manual.display()))?;
    let manual = made(&arguments.folder.join("man/man7"))?;
    for (name, text) in DOCUMENTS {
        let file = manual.join(format!("{name}.7"));
        fs::write(&file, document::page(name, text)).with_context(|| format!("cannot write {}", file.display()))?;
    }
    for (shell, folder) in SHELLS {
        let folder = made(&arguments.folder.join(folder))?;
        generate_to(shell, &mut command, "ibex", &folder)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
    }
    Ok(())
}

fn made(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn each_command_has_a_manual_page_and_each_shell_its_completions() {
        let folder = std::env::temp_dir().join(format!("ibex-pages-{}", std::process::id()));
        run(&Arguments { folder: folder.clone() }, crate::Arguments::command()).expect("a folder of our own");
        let page = fs::read_to_string(folder.join("man/man1/ibex-doctor.1")).expect("a page");
        assert!(page.contains("ibex doctor") && page.contains("Exit status"));
        assert!(folder.join("man/man1/ibex-info.1").is_file() && !folder.join("man/man1/ibex-pages.1").exists());
        let page = fs::read_to_string(folder.join("man/man7/fi_ibex.7")).expect("a page");
        assert!(page.contains("fi_ibex \\- The libfabric provider\n.SH DESCRIPTION"), "{page}");
        for file in
            ["bash-completion/completions/ibex.bash", "zsh/site-functions/_ibex", "fish/vendor_completions.d/ibex.fish"]
        {
            assert!(folder.join(file).is_file(), "{file}");
        }
        fs::remove_dir_all(folder).expect("a folder of our own");
    }
}
