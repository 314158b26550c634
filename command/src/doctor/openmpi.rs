// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about a host's Open MPI and its components of ibex. Called by [`super`]. Grade: setup. Tests: below.

use super::finding::{Finding, Severity};
use crate::facts::Facts;
use crate::facts::openmpi::OpenMpi;
use crate::installed;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(openmpi) = &facts.openmpi else {
        let finding = Finding::new(Severity::Error, "openmpi", "Open MPI", "there is no mpirun in PATH");
        return vec![
            finding.expected("an Open MPI 4.1 or 5.0").mended("install it (apt-get install openmpi-bin), or set PATH"),
        ];
    };
    let mut findings = Vec::new();
    for link in &openmpi.dangling {
        let finding = Finding::new(
            Severity::Error,
            "components",
            link.display().to_string(),
            "the link is dangling, so Open MPI finds no component in its folder",
        );
        findings.push(finding.expected("a link to a file").mended(format!("rm {}", link.display())));
    }
    for component in &openmpi.components {
        let place = component.name.clone();
        match &component.file {
            None if !component.of_others.is_empty() => {
                let found = format!("ibex is installed for {}", installed::releases(&component.of_others));
                let finding = Finding::new(Severity::Error, "components", place, found);
                findings.push(
                    finding.expected(format!("for Open MPI {}, whose mpirun is in PATH", openmpi.version)).mended(
                        "cargo xtask install, with this mpicc in PATH; or put the other one's mpirun first in PATH",
                    ),
                );
            }
            None => {
                let folders: Vec<String> = openmpi.folders.iter().map(|folder| folder.display().to_string()).collect();
                let found = format!("it is in none of {}", folders.join(", "));
                let finding = Finding::new(Severity::Error, "components", place, found);
                findings.push(finding.expected("the component, in one of Open MPI's folders").mended(
                    "cargo xtask install; after an installation with --prefix, set OMPI_MCA_mca_base_component_path as it printed",
                ));
            }
            Some(file) if !component.is_listed => {
                let found = format!("Open MPI {} does not take {}", openmpi.version, file.display());
                let finding = Finding::new(Severity::Error, "components", place, found);
                findings.push(
                    finding
                        .expected("a component built for this Open MPI")
                        .mended("install ibex again with this mpicc in PATH: cargo xtask install"),
                );
            }
            Some(_) => {}
        }
    }
    findings.extend(lost_to_ranks(openmpi));
    findings
}

/// Reports components that Open MPI itself finds, but not the ranks that its `mpirun` starts.
fn lost_to_ranks(openmpi: &OpenMpi) -> Option<Finding> {
    let (folder, path) = openmpi.lost_to_ranks()?;
    let measured = format!("because of a setting of PMIx, mpirun makes the ranks of a job look only in {path}");
    let finding = Finding::new(Severity::Error, "components-of-ranks", "mpirun", measured);
    Some(finding.expected(format!("{}, too", folder.display())).mended(format!(
        "export OMPI_MCA_mca_base_component_path={}:SYSTEM_DEFAULT PMIX_MCA_mca_base_component_path={path}",
        folder.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::openmpi::Component;

    #[test]
    fn each_reason_why_open_mpi_does_not_load_ibex_is_found() {
        let component = |file: Option<&str>, is_listed| Component {
            name: "mca_pml_ibex.so".into(),
            file: file.map(Into::into),
            is_listed,
            of_others: Vec::new(),
        };
        let for_other = Component { of_others: vec!["openmpi-5.0.7".into()], ..component(None, false) };
        let judged = |components, dangling| {
            let openmpi = Some(OpenMpi { version: "4.1.4".into(), components, dangling, ..OpenMpi::default() });
            judge(&Facts { openmpi, ..Facts::default() })
                .into_iter()
                .map(|finding| finding.measured)
                .collect::<Vec<_>>()
        };
        assert!(judged(vec![component(Some("/x"), true)], vec![]).is_empty());
        assert!(judged(vec![component(None, false)], vec![])[0].contains("it is in none of"));
        assert!(judged(vec![for_other], vec![])[0].contains("installed for Open MPI 5.0.7"));
        assert!(judged(vec![component(Some("/x"), false)], vec![])[0].contains("4.1.4 does not take /x"));
        assert!(judged(vec![], vec!["/y".into()])[0].contains("is dangling"));
        assert_eq!(judge(&Facts::default()).len(), 1);
        let elsewhere = Some("/usr/lib/pmix".to_owned());
        let folders = vec!["/home/a/.openmpi/components".into()];
        let components = vec![component(Some("/home/a/lib/libibex.so"), true)];
        let openmpi = Some(OpenMpi { folders, components, elsewhere, ..OpenMpi::default() });
        let lost = judge(&Facts { openmpi, ..Facts::default() });
        assert!(lost.len() == 1 && lost[0].measured.contains("look only in /usr/lib/pmix"));
    }
}
