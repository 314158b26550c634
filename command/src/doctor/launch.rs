// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts the doctor's agent on a host, by ssh or by the batch system's launcher inside an allocation: makes the
//! command lines, and explains their failures. Called by `remote`. Grade: setup. Tests: below.

use super::finding::{Finding, Severity};
use std::env;
use std::process::Command;
use which::which;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Launch {
    /// srun or mpirun inside an allocation, else ssh
    #[default]
    Auto,
    /// ssh, without prompts
    Ssh,
    /// srun of Slurm, inside an allocation
    Srun,
    /// the mpirun in PATH
    Mpirun,
}

/// Variables that batch systems set inside an allocation.
const SLURM: &str = "SLURM_JOB_ID";
const OTHERS: [&str; 3] = ["PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE"];

impl Launch {
    pub(super) fn chosen(self) -> Launch {
        self.chosen_where(|name| env::var_os(name).is_some(), &|program| which(program).is_ok())
    }

    fn chosen_where(self, is_set: impl Fn(&str) -> bool, has: &dyn Fn(&str) -> bool) -> Launch {
        match self {
            Launch::Auto if is_set(SLURM) && has("srun") => Launch::Srun,
            Launch::Auto if (is_set(SLURM) || OTHERS.into_iter().any(is_set)) && has("mpirun") => Launch::Mpirun,
            Launch::Auto => Launch::Ssh,
            named => named,
        }
    }

    pub(super) fn command(self, host: &str, script: &str) -> Command {
        let words: &[&str] = match self {
            Launch::Auto | Launch::Ssh => {
                // The user's shell there may not be a POSIX shell.
                let mut command = Command::new("ssh");
                command.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
                command.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "--", host]);
                command.arg(format!("exec sh -c {}", quoted(script)));
                return command;
            }
            Launch::Srun => &["srun", "--quiet", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist"],
            Launch::Mpirun => &["mpirun", "--bind-to", "none", "--oversubscribe", "-n", "1", "--host"],
        };
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args([host, "sh", "-c", script]);
        command
    }

    /// Returns the command that the user should try when a host does not answer.
    fn trial(self, host: &str) -> String {
        match self {
            Launch::Auto | Launch::Ssh => format!("`ssh -o BatchMode=yes {host} ibex info` must work"),
            Launch::Srun => format!("`srun --overlap -N 1 -w {host} ibex info` must work"),
            Launch::Mpirun => format!("`mpirun -n 1 --host {host} ibex info` must work"),
        }
    }

    /// Returns the finding for a host that stopped answering, from its last output.
    pub(super) fn failure(self, host: &str, said: &str, ended: &str) -> Finding {
        let (check, meaning, mend) = explained(host, said);
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let said = lines[lines.len().saturating_sub(4)..].join("; ");
        let measured = [meaning, said.as_str(), ended].into_iter().filter(|part| !part.is_empty());
        let measured = measured.collect::<Vec<_>>().join("; ");
        let mend = if mend.is_empty() { self.trial(host) } else { format!("{mend}; {}", self.trial(host)) };
        Finding::new(Severity::Error, check, host, measured).expected("an answer of `ibex` on that host").mended(mend)
    }
}

/// Returns the check, the meaning and the advice for an error of ssh, a shell or an older ibex.
fn explained(host: &str, said: &str) -> (&'static str, &'static str, String) {
    let has = |words: &str| said.contains(words);
    if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        let mend =
            format!("if the host was installed anew: ssh-keygen -R {host}, then ssh {host} once to take its new key");
        return ("ssh", "the host's key has changed", mend);
    }
    if has("Host key verification failed") || has("No ED25519 host key is known") {
        let mend = format!(
            "ssh {host} once and compare the key it shows with the host's own (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub \
             there), or have the administrator list the cluster's keys in /etc/ssh/ssh_known_hosts"
        );
        return ("ssh", "ssh does not know the host's key, and may not ask", mend);
    }
    if has("Permission denied") {
        let mend = format!("ssh-copy-id {host}, and ssh-add where the key has a passphrase");
        return ("ssh", "the host does not let this user in without a password", mend);
    }
    if has("Could not resolve hostname") {
        let mend = "use the cluster's name for the host, or add the name to /etc/hosts or DNS".to_owned();
        return ("ssh", "the name of the host has no address", mend);
    }
    if has("Connection refused") {
        return ("ssh", "nothing listens for ssh there", "start sshd there (systemctl start ssh)".to_owned());
    }
    if has("timed out") || has("No route to host") || has("Network is unreachable") {
        let mend = format!("check that the host runs (ping {host}) and that firewalls let TCP port 22 through");
        return ("ssh", "the host does not answer", mend);
    }
    if has("unexpected argument") || has("unrecognized subcommand") {
        return ("ibex-version", "its ibex has another version", "install the same ibex on all hosts".to_owned());
    }
    if has("ibex: not found") || has("ibex: command not found") || has("ibex: No such file") {
        let mend = "install ibex there (cargo xtask install), in a folder that is in the PATH of non-login shells";
        return ("no-ibex", "the host has no ibex in its PATH", mend.to_owned());
    }
    ("host", "the host did not answer", String::new())
}

/// Parameters that are passed to an agent, as mpirun passes them to a job. Others may belong to a job in which the
/// doctor itself runs.
const PARAMETERS: [&str; 3] = ["OMPI_MCA_btl_ibex_", "OMPI_MCA_pml_ibex_", "OMPI_MCA_mca_base_component_path"];

/// Returns the script that runs on a host: this command, from the PATH there or from the same folder as here.
pub(super) fn script(words: &str) -> String {
    let is_ours = |name: &str| PARAMETERS.iter().any(|prefix| name.starts_with(prefix));
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let text = env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let parameters = text.filter(|(name, _)| is_ours(name) && is_name(name));
    let exports: Vec<_> = parameters.map(|(name, value)| format!("export {name}={}; ", quoted(&value))).collect();
    let folder = env::current_exe().ok().and_then(|program| Some(program.parent()?.to_path_buf()));
    let folder = folder.map(|folder| format!("PATH=$PATH:{}; export PATH; ", quoted(&folder.display().to_string())));
    format!("{}{}exec ibex {words}", exports.concat(), folder.unwrap_or_default())
}

pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_an_allocation_its_launcher_starts_agents() {
        let chosen = |launch: Launch, set: &[&str], has: &[&str]| {
            launch.chosen_where(|name| set.contains(&name), &|program| has.contains(&program))
        };
        assert_eq!(chosen(Launch::Auto, &[SLURM], &["srun", "mpirun"]), Launch::Srun);
        assert_eq!(chosen(Launch::Auto, &[SLURM], &["mpirun"]), Launch::Mpirun);
        assert_eq!(chosen(Launch::Auto, &["PBS_JOBID"], &["mpirun"]), Launch::Mpirun);
        assert_eq!(chosen(Launch::Auto, &[], &["srun", "mpirun"]), Launch::Ssh);
        assert_eq!(chosen(Launch::Ssh, &[SLURM], &["srun"]), Launch::Ssh);
    }

    #[test]
    fn a_script_survives_two_shells_and_ssh_asks_nothing() {
        let command = Launch::Ssh.command("node1", "echo 'a b'");
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert!(words.contains(&"BatchMode=yes".to_owned()), "{words:?}");
        assert_eq!(words[words.len() - 3..], ["--", "node1", r"exec sh -c 'echo '\''a b'\'''"]);
        let output = Command::new("sh").args(["-c", &words[words.len() - 1]]).output().expect("a shell");
        assert_eq!(output.stdout, b"a b\n");
    }

    #[test]
    fn errors_of_ssh_are_explained_with_advice() {
        let told = |said: &str| Launch::Ssh.failure("node1", said, "ended with 255");
        let changed = told("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.");
        assert!(changed.mend.contains("ssh-keygen -R node1"), "{changed:?}");
        assert!(told("Host key verification failed.").mend.contains("ssh_known_hosts"));
        assert!(told("root@node1: Permission denied (publickey).").mend.contains("ssh-copy-id node1"));
        assert!(told("ssh: Could not resolve hostname node1: x").mend.contains("/etc/hosts"));
        assert!(told("connect to host node1 port 22: Connection timed out").mend.contains("ping node1"));
        assert_eq!(told("sh: 1: exec: ibex: not found").check, "no-ibex");
        assert_eq!(told("error: unexpected argument '--agent' found").check, "ibex-version");
        let unknown = told("a\nb\nc\nd\ne");
        assert_eq!(unknown.check, "host");
        assert!(unknown.measured.contains("b; c; d; e; ended with 255") && unknown.mend.contains("ibex info"));
    }
}
