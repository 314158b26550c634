// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hosts: starts a program on either, checks that both have what a bench needs, and runs the server and the client
//! of a program, one on each. `mpirun` uses its own launcher. Everything else starts through ssh (or the value of
//! `plm_rsh_agent`, as for `mpirun`), in a Slurm allocation through `srun`, and on this host directly. The server is on
//! the first host. It ends with its standard input, a pipe from this program: so no server is left, however this
//! program ends. Called by [`crate::run`] and `ibex bench`. Grade: setup. Tests: `hosts/tests.rs`.

use super::job::{Here, Job, Outcome, run};
use super::sides::Sides;
use anyhow::{Context, Result, bail};
use ibex_jobs::Purpose;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};
use which::which;

/// Two hosts.
#[derive(Clone, Debug)]
pub struct Hosts {
    names: [String; 2],
    launcher: Launcher,
}

/// Launcher of a program on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Launcher {
    /// These words, the host, and a line for its shell.
    Remote(Vec<String>),
    /// A step of the allocation.
    Srun,
}

/// Line that a server's shell prints when the server listens.
const LISTENS: &str = "ibex-bench: it listens";

/// Longest time for a host's answer; if there is no such host, ssh gives up by itself, and sooner.
const ANSWER: Duration = Duration::from_mins(5);

/// Longest time for a side of a measurement.
const SIDE: Duration = Duration::from_mins(5);

/// Longest time for a server to end after its client has ended, or failed.
const AFTER: Duration = Duration::from_secs(10);
const AT_ONCE: Duration = Duration::from_millis(500);

const TOOLS: [&str; 3] = ["orted", "prted", "ib_send_lat"];

/// Daemons that mpirun starts on a host: Open MPI 4.1's, and 5's.
const DAEMONS: [&str; 2] = ["orted", "prted"];

impl Hosts {
    /// Hosts that ssh, or the value of `plm_rsh_agent`, reaches.
    pub fn by_ssh(names: [String; 2]) -> Self {
        let agent = env::var("OMPI_MCA_plm_rsh_agent").ok();
        let agent = agent.map(|agent| agent.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let ssh = || ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"].map(str::to_owned).into();
        Self { names, launcher: Launcher::Remote(agent.unwrap_or_else(ssh)) }
    }

    /// Hosts of the Slurm allocation that this program runs in.
    pub fn by_srun(names: [String; 2]) -> Self {
        Self { names, launcher: Launcher::Srun }
    }

    /// Returns their names.
    pub fn names(&self) -> &[String; 2] {
        &self.names
    }

    pub(crate) fn mpirun(&self) -> Vec<String> {
        let [first, second] = &self.names;
        let mut words = vec!["--host".to_owned(), format!("{first}:1,{second}:1")];
        if let Some(prefix) = prefix_of_mpirun() {
            words.extend(["--prefix".to_owned(), prefix.display().to_string()]);
        }
        words
    }

    fn words(&self, host: usize, script: &str) -> Vec<String> {
        let name = self.names[host].as_str();
        let plain = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match &self.launcher {
            _ if is_here(name) => plain(&["sh", "-c", script]),
            Launcher::Remote(agent) => {
                // A shell without a login may not know the folders of Open MPI and perftest.
                let path = env::var("PATH").unwrap_or_default();
                let script = format!("PATH=$PATH:{}; export PATH; {script}", quoted(&path));
                [agent.clone(), plain(&[name, &format!("sh -c {}", quoted(&script))])].concat()
            }
            Launcher::Srun => {
                let step = ["srun", "--quiet", "--nodes=1", "--ntasks=1", "--mpi=none"];
                [plain(&step), plain(&[&format!("--nodelist={name}"), "sh", "-c", script])].concat()
            }
        }
    }

    fn job(&self, host: usize, script: &str) -> Job {
        let mut job = Job::new(self.words(host, script));
        // Beside the step of mpirun, or of this program's shell; older versions of Slurm ignore it.
        job.env.push(("SLURM_OVERLAP".to_owned(), "1".to_owned()));
        job
    }

    /// Asks both hosts, and returns the programs that both have.
    ///
    /// # Errors
    /// A host does not answer, lacks the bench's programs or the adapter, or has another Open MPI.
    pub fn look(&self, program: &Path, device: &str) -> Result<BTreeSet<String>> {
        let answers = [0, 1].map(|host| self.ask(host, program, device));
        let [first, second] = answers;
        let (first, second) = (first?, second?);
        if first.openmpi != second.openmpi {
            bail!(
                "{} has {}, and {} has {}: MPI needs the same on both",
                self.names[0],
                first.openmpi,
                self.names[1],
                second.openmpi
            );
        }
        Ok(first.tools.intersection(&second.tools).cloned().collect())
    }

    fn ask(&self, host: usize, program: &Path, device: &str) -> Result<Answer> {
        let name = &self.names[host];
        let script = format!(
            "for tool in {}; do if command -v $tool >/dev/null; then echo tool $tool; fi; done; \
             if test -x {}; then echo program; fi; for one in /sys/class/infiniband/*; do echo device ${{one##*/}}; done; \
             echo version $(mpirun --version 2>/dev/null | head -n 1)",
            TOOLS.join(" "),
            quoted(&program.display().to_string())
        );
        let outcome = run(&Here, &self.job(host, &script).limit(ANSWER))?;
        if !outcome.success() {
            let said = if outcome.stderr.trim().is_empty() { outcome.to_string() } else { outcome.stderr };
            bail!("{name} cannot be asked: {}\n{}", said.trim(), self.remedy(name));
        }
        let answer = Answer::read(&outcome.stdout);
        if !answer.has_program {
            bail!(
                "{name} has no {}: ibex has to be installed at the same place on both hosts; `cargo xtask install --prefix DIR` \
                 puts it into a folder that both mount",
                program.display()
            );
        }
        if !answer.devices.is_empty() && !answer.devices.contains(device) {
            let there: Vec<&str> = answer.devices.iter().map(String::as_str).collect();
            bail!("{name} has no adapter {device}, but {}; --device names one that both have", there.join(", "));
        }
        if !DAEMONS.iter().any(|daemon| answer.tools.contains(*daemon)) && prefix_of_mpirun().is_none() {
            bail!(
                "{name} has no Open MPI in PATH (there is no {}, which mpirun starts there)",
                DAEMONS.join(" and no ")
            );
        }
        Ok(answer)
    }

    fn remedy(&self, name: &str) -> String {
        match &self.launcher {
            Launcher::Srun => format!("`srun --nodelist={name} true` must work in this allocation"),
            Launcher::Remote(agent) => format!(
                "`{} {name} true` must work without a password or a question; where there is no key yet: `ssh-keygen`, then \
                 `ssh-copy-id {name}`, and `ssh {name}` once, to accept its host key",
                agent.join(" ")
            ),
        }
    }

    /// Runs a server on the first host and its client on the second. Returns the client's outcome, with the server's
    /// output behind its standard error.
    pub(crate) fn both_sides(&self, sides: &Sides) -> Result<Outcome> {
        let server = Job { input: Some("held\n".to_owned()), ..self.job(0, &server_script(sides)).limit(2 * SIDE) };
        let mut server = ibex_jobs::here(&server, Purpose::Measurement);
        if let Err(error) = server.wait_for_line(LISTENS, 2 * SIDE) {
            bail!("the server on {} did not come to listen: {error}", self.names[0]);
        }
        let address = if is_here(&self.names[0]) { here() } else { self.names[0].clone() };
        let script = format!("{} {}", sides.line, quoted(&address));
        let mut client = run(&Here, &self.job(1, &script).limit(SIDE))?;
        let server = server.wait_within(if client.success() { AFTER } else { AT_ONCE })?;
        let said = if client.success() { server.stdout + &server.stderr } else { format!("\nthe server: {server}") };
        client.stderr += &said;
        Ok(client)
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    tools: BTreeSet<String>,
    devices: BTreeSet<String>,
    has_program: bool,
    openmpi: String,
}

impl Answer {
    fn read(text: &str) -> Self {
        let mut answer = Self::default();
        for line in text.lines() {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("tool", name) => drop(answer.tools.insert(name.to_owned())),
                // In an empty folder the pattern stays as it is.
                ("device", name) if name != "*" => drop(answer.devices.insert(name.to_owned())),
                ("program", _) => answer.has_program = true,
                ("version", text) => text.trim().clone_into(&mut answer.openmpi),
                _ => {}
            }
        }
        answer
    }
}

/// One line, because a csh as login shell accepts nothing else. The watching process does not keep the output open.
fn server_script(Sides { line, port }: &Sides) -> String {
    format!(
        "exec 3<&0; {line} 3<&- & server=$!; \
         if read -r held; then {{ cat <&3; kill $server; }} >/dev/null 2>&1 & watch=$!; fi; \
         until grep -q ':{port:04X} [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6 2>/dev/null; do \
         kill -0 $server 2>/dev/null || {{ wait $server; exit $?; }}; sleep 0.05; done; echo {}; \
         wait $server; status=$?; kill $watch 2>/dev/null; exit $status",
        quoted(LISTENS)
    )
}

pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn here() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Whether that is this host's name, with or without its domain.
pub fn is_here(name: &str) -> bool {
    let here = here();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    name == "localhost" || name == here || (short(name) == short(&here) && !(name.contains('.') && here.contains('.')))
}

/// Returns the folder of an Open MPI that is not the system's: shells of other hosts do not find it by themselves.
fn prefix_of_mpirun() -> Option<PathBuf> {
    let mpirun = which("mpirun").ok()?;
    let folder = mpirun.parent()?;
    let is_of_system = [Path::new("/usr/bin"), Path::new("/bin")].contains(&folder);
    (!is_of_system && folder.ends_with("bin")).then(|| folder.parent().map(Path::to_path_buf))?
}

/// Returns the hosts of the Slurm allocation of this program; none outside an allocation.
///
/// # Errors
/// `scontrol`, which knows their names, fails.
pub fn of_allocation() -> Result<Vec<String>> {
    match env::var("SLURM_JOB_NODELIST") {
        Ok(list) if !list.is_empty() => hosts_of("scontrol", &list),
        _ => Ok(Vec::new()),
    }
}

fn hosts_of(scontrol: &str, list: &str) -> Result<Vec<String>> {
    let outcome = run(&Here, &Job::new([scontrol, "show", "hostnames", list]).limit(ANSWER))?;
    let outcome =
        outcome.checked().context("this is a Slurm allocation whose hosts cannot be told; --host names two")?;
    Ok(outcome.stdout.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests;
