// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of the study, with the input of each: an unmodified benchmark and an unmodified application from
//! Debian, and a proxy of our own. Recorded by [`super::application`], timed by [`super::run_times`]. Tests: below.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::planted;
use crate::catalogue::Transport;
use crate::nodes::Where;
use crate::nodes::hosts::quoted;
use crate::programs::mpi;

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) words: String,
    pub(super) ranks: u32,
    /// Text before the seconds of its main loop, if it prints them.
    pub(super) loop_time: Option<&'static str>,
    argv: Vec<String>,
    /// Name and content of a file that it reads in its folder.
    input: Option<(&'static str, String)>,
}

impl Program {
    pub(super) fn hpcc(order: u32) -> Self {
        let words = format!("the HPC Challenge (Debian's hpcc), matrices of order {order}, one more of {}", order / 2);
        // HPL.dat with two numbers for PTRANS behind it.
        let input = format!(
            "\n\nHPL.out\n8 device\n1 sizes\n{order}\n1 block sizes\n40\n0 mapping\n1 grids\n1 Ps\n2 Qs\n16.0 threshold\n\
             1\n2 PFACTs\n1\n4 NBMINs\n1\n2 NDIVs\n1\n1 RFACTs\n1\n1 BCASTs\n1\n1 DEPTHs\n2 SWAP\n64\n0 L1\n0 U\n\
             1 equilibration\n8 alignment\n-\n1 more for PTRANS\n{}\n1 more block sizes\n24\n",
            order / 2
        );
        let argv = vec!["hpcc".to_owned()];
        Self { name: "hpcc", words, ranks: 2, loop_time: None, argv, input: Some(("hpccinf.txt", input)) }
    }

    /// LAMMPS: a cube of a Lennard-Jones melt, for `steps` steps. It is small, so that neighbours exchange often.
    pub(super) fn lammps(steps: u32) -> Self {
        const EDGE: u32 = 10;
        let atoms = 4 * EDGE.pow(3);
        let words = format!("LAMMPS (Debian's lammps), a Lennard-Jones melt of {atoms} atoms, {steps} steps");
        let input = format!(
            "units lj\natom_style atomic\nlattice fcc 0.8442\nregion box block 0 {EDGE} 0 {EDGE} 0 {EDGE}\n\
             create_box 1 box\ncreate_atoms 1 box\nmass 1 1.0\nvelocity all create 3.0 87287\n\
             pair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0 2.5\nneighbor 0.3 bin\n\
             neigh_modify every 20 delay 0 check no\nfix 1 all nve\nthermo {steps}\nrun {steps}\n"
        );
        let argv = ["lmp", "-in", "melt.lmp", "-log", "none"].map(str::to_owned).into();
        let (loop_time, input) = (Some("Loop time of "), Some(("melt.lmp", input)));
        Self { name: "lammps", words, ranks: 2, loop_time, argv, input }
    }

    /// Our own proxy, a grid in strips that exchange their edges, with these faults.
    pub(super) fn halo(place: Where) -> Self {
        let faults = planted::words();
        let words = format!(
            "examples/halo.c, edges of a grid; rank {} has twice the work ({})",
            planted::RANKS / 2,
            faults.join(" ")
        );
        let argv = [place.programs.join("halo").display().to_string()].into_iter().chain(faults).collect();
        Self { name: "halo", words, ranks: planted::RANKS, loop_time: None, argv, input: None }
    }

    /// Makes a new folder for the run, with its input.
    pub(super) fn prepare(&self, folder: &Path) -> Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        if let Some((name, text)) = &self.input {
            fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
        }
        Ok(())
    }

    /// Returns the command that runs it in this folder, behind these words.
    pub(super) fn command(
        &self,
        place: Where,
        transport: Transport,
        folder: &Path,
        before: &[String],
    ) -> Result<Vec<String>> {
        let mut words = before.to_vec();
        words.extend(mpi::mpirun(place, transport)?);
        // There may be fewer processors than ranks.
        words.extend(["--oversubscribe".to_owned(), "-n".to_owned(), self.ranks.to_string()]);
        words.extend(self.argv.iter().cloned());
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let script = format!("cd {} && exec {}", quoted(&folder.display().to_string()), words.join(" "));
        Ok(vec!["sh".to_owned(), "-c".to_owned(), script])
    }
}

/// Returns the words that record a command in this trace: all events, or those that are recorded by default.
pub(super) fn recorder(place: Where, trace: &Path, all: bool) -> Vec<String> {
    let mut words = vec![place.command.display().to_string(), "trace".to_owned()];
    if all {
        words.extend(["--events", "all"].map(str::to_owned));
    }
    words.extend(["-o".to_owned(), trace.display().to_string(), "--".to_owned()]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::place::tests::place;

    #[test]
    fn the_recorder_is_around_mpirun_and_ibex_is_the_only_way() {
        let place = place();
        let script = |all| {
            let recorder = recorder(place, Path::new("/t/a b/trace"), all);
            Program::halo(place).command(place, Transport::Ibex, Path::new("/t/a b"), &recorder).unwrap().pop().unwrap()
        };
        let all = script(true);
        assert!(all.starts_with(
            "cd '/t/a b' && exec '/t/bin/ibex' 'trace' '--events' 'all' '-o' '/t/a b/trace' '--' 'mpirun'"
        ));
        assert!(all.contains("'--mca' 'pml' 'ibex' '--mca' 'btl' 'self,ibex'"), "{all}");
        assert!(all.ends_with("'-n' '4' '/t/mpi/halo' '--late-sender' '0:300' '--late-receiver' '3:200'"), "{all}");
        assert_eq!(script(false), all.replace("'--events' 'all' ", ""));
    }

    #[test]
    fn a_program_finds_its_input_in_a_folder_that_has_nothing_else() {
        let folder = std::env::temp_dir().join(format!("ibex-study-{}", std::process::id()));
        fs::create_dir_all(folder.join("trace")).unwrap();
        let lammps = Program::lammps(100);
        lammps.prepare(&folder).unwrap();
        let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let input = fs::read_to_string(folder.join("melt.lmp")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(names, ["melt.lmp"]);
        assert!(input.contains("block 0 10 0 10 0 10\n") && input.ends_with("run 100\n"), "{input}");
        assert!(lammps.words.contains("4000 atoms, 100 steps"), "{}", lammps.words);
        let script = lammps.command(place(), Transport::Peruse, &folder, &[]).unwrap().pop().unwrap();
        assert!(
            script.contains("EVERY_EVENT=peruse'") && script.ends_with("'-in' 'melt.lmp' '-log' 'none'"),
            "{script}"
        );
    }
}
