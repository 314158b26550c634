// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of devices: those that `--device` accepts, and the RDMA devices of this machine.
//!
//! Called by [`crate::fabric`] and the commands. Setup grade, any thread. Tests: at the end of this file.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::bail;

/// The RDMA device that jobs run on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Device {
    /// The kernel's software `RoCE` (`rdma_rxe`) in virtual machines that the fabric boots.
    SoftRoce,
    /// Emulated adapters for processes of this machine (`softhca`): two InfiniBand adapters, unless configured.
    SoftHca,
    /// Emulated adapters of this profile (docs/softhca.md), where the configuration names none.
    SoftHcaAs(String),
    /// A device of this machine, by its name under `/sys/class/infiniband` (`mlx5_0`, `rxe0`).
    Local(String),
}

/// Name of soft-RoCE in a virtual machine, as a value of `--device`.
pub const SOFT_ROCE: &str = "soft-roce";

/// Name of the emulated adapters, as a value of `--device`.
pub const SOFTHCA: &str = "softhca";

/// Profiles of the emulated adapters, which `--device` takes after [`SOFTHCA`] and a colon.
pub const PROFILES: [&str; 5] = ["mlx5", "rxe", "irdma", "bnxt_re", "minimal"];

const SYSFS: &str = "/sys/class/infiniband";

impl FromStr for Device {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        if name == SOFT_ROCE {
            return Ok(Self::SoftRoce);
        }
        if name == SOFTHCA {
            return Ok(Self::SoftHca);
        }
        if let Some(profile) = name.strip_prefix(SOFTHCA).and_then(|rest| rest.strip_prefix(':')) {
            if !PROFILES.contains(&profile) {
                bail!("{profile:?} is no profile of {SOFTHCA}; give one of {}", PROFILES.join(", "));
            }
            return Ok(Self::SoftHcaAs(profile.to_owned()));
        }
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            bail!(
                "{name:?} is no device name; give `{SOFT_ROCE}`, `{SOFTHCA}`, `{SOFTHCA}:PROFILE`, or a name that `ibv_devices` lists, such as mlx5_0"
            );
        }
        Ok(Self::Local(name.to_owned()))
    }
}

impl Device {
    /// Whether the device is an emulated adapter, of any profile.
    pub fn is_emulated(&self) -> bool {
        matches!(self, Self::SoftHca | Self::SoftHcaAs(_))
    }

    /// Whether the adapters have atomics, by their profile.
    pub fn has_atomics(&self) -> bool {
        !self.profile().is_some_and(|profile| ["irdma", "bnxt_re", "minimal"].contains(&profile))
    }

    /// Whether the adapters carry data in work requests, by their profile.
    pub fn has_inline(&self) -> bool {
        self.profile() != Some("minimal")
    }

    /// Whether the adapters stamp completions, by their profile.
    pub fn has_stamps(&self) -> bool {
        self.profile().is_none_or(|profile| profile == "mlx5")
    }

    /// Whether the adapters may have InfiniBand ports, by their profile.
    pub fn has_infiniband(&self) -> bool {
        !self.profile().is_some_and(|profile| ["irdma", "bnxt_re", "rxe"].contains(&profile))
    }

    /// Whether the adapters raise events of ports that go down and up, by their profile.
    pub fn has_port_events(&self) -> bool {
        self.profile() != Some("minimal")
    }

    /// Returns the profile of emulated adapters, if the device names one.
    pub fn profile(&self) -> Option<&str> {
        match self {
            Self::SoftHcaAs(profile) => Some(profile),
            _ => None,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SoftRoce => out.write_str(SOFT_ROCE),
            Self::SoftHca => out.write_str(SOFTHCA),
            Self::SoftHcaAs(profile) => write!(out, "{SOFTHCA}:{profile}"),
            Self::Local(name) => out.write_str(name),
        }
    }
}

/// Returns the network interface of the RDMA device `name` of this machine (`IPoIB` on InfiniBand), if it has one.
///
/// # Errors
/// The machine has no such device: the message lists those it has.
pub fn local_interface(name: &str) -> anyhow::Result<Option<String>> {
    interface_under(Path::new(SYSFS), name)
}

fn interface_under(sysfs: &Path, name: &str) -> anyhow::Result<Option<String>> {
    let device = sysfs.join(name);
    if !device.exists() {
        let there = names_in(sysfs);
        if there.is_empty() {
            bail!(
                "this machine has no RDMA device, so not {name:?} either ({} is empty or missing); \
                 load the adapter's driver, or use `--device {SOFT_ROCE}`",
                sysfs.display()
            );
        }
        bail!("this machine has no RDMA device {name:?}; it has: {}", there.join(", "));
    }
    // A RoCE port names its interface per GID; drivers also list theirs beside the parent device.
    for gid in 0..4 {
        let file = device.join(format!("ports/1/gid_attrs/ndevs/{gid}"));
        if let Ok(text) = fs::read_to_string(file)
            && !text.trim().is_empty()
        {
            return Ok(Some(text.trim().to_owned()));
        }
    }
    Ok(names_in(&device.join("device/net")).into_iter().next())
}

/// Returns the names of this machine's RDMA devices.
pub fn local_names() -> Vec<String> {
    names_in(Path::new(SYSFS))
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_roce_and_adapter_names_are_distinguished() {
        assert_eq!("soft-roce".parse::<Device>().unwrap(), Device::SoftRoce);
        assert_eq!("softhca".parse::<Device>().unwrap(), Device::SoftHca);
        for profile in PROFILES {
            let device: Device = format!("softhca:{profile}").parse().unwrap();
            assert_eq!((device.profile(), device.is_emulated()), (Some(profile), true));
            assert_eq!(device.to_string(), format!("softhca:{profile}"));
        }
        let refusal = "softhca:mlx4".parse::<Device>().unwrap_err().to_string();
        assert!(refusal.contains("mlx5, rxe, irdma, bnxt_re, minimal"), "{refusal}");
        assert_eq!("mlx5_0".parse::<Device>().unwrap(), Device::Local("mlx5_0".to_owned()));
        assert_eq!(Device::Local("rxe0".to_owned()).to_string(), "rxe0");
    }

    #[test]
    fn a_path_is_refused_as_a_device_name() {
        let refusal = "../etc".parse::<Device>().unwrap_err().to_string();
        assert!(refusal.contains("ibv_devices"), "{refusal}");
        assert!("".parse::<Device>().is_err());
    }

    #[test]
    fn a_missing_device_is_refused_with_the_list_of_those_there_are() {
        let there = crate::Folder::new("hw-tests-sysfs").unwrap();
        let folder = there.path();
        fs::create_dir_all(folder.join("mlx5_0/ports/1/gid_attrs/ndevs")).unwrap();
        fs::create_dir_all(folder.join("mlx5_1/device/net/ib0")).unwrap();
        fs::write(folder.join("mlx5_0/ports/1/gid_attrs/ndevs/0"), "enp1s0\n").unwrap();
        let refusal = interface_under(folder, "mlx4_0").unwrap_err().to_string();
        assert!(refusal.contains("mlx5_0, mlx5_1"), "{refusal}");
        assert_eq!(interface_under(folder, "mlx5_0").unwrap().as_deref(), Some("enp1s0"));
        assert_eq!(interface_under(folder, "mlx5_1").unwrap().as_deref(), Some("ib0"));
    }
}
