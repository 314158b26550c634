// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the component that every Open MPI of a user loads (`plugin-abi/chooser`). Called by [`crate::install`].
//! Grade: setup. Tests: below; two seconds.

use crate::command::{run, step};
use crate::workspace::Workspace;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the component; it is linked with no Open MPI.
pub(crate) fn chooser(workspace: &Workspace) -> Result<PathBuf> {
    step("Compiling the component that chooses among libraries");
    let chooser = workspace.chooser();
    fs::create_dir_all(chooser.parent().unwrap_or(Path::new(".")))?;
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"]);
    compile.args(["-Wl,-z,nodelete", "-o"]).arg(&chooser);
    run(compile.arg(workspace.root().join("plugin-abi/chooser/chooser.c")).arg("-ldl"))?;
    Ok(chooser)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::output;
    use crate::install::tests::scratch;
    use std::process::Output;

    #[test]
    fn the_component_that_chooses_fits_the_installed_open_mpi_and_needs_none() {
        let source = Workspace::here().root().join("plugin-abi/chooser");
        // Compares the layouts with the headers, if this Open MPI has headers for components.
        let includes = output(Command::new("mpicc").arg("--showme:incdirs")).unwrap();
        let has_headers = |folder: &str| Path::new(folder).join("opal/mca/btl/btl.h").exists();
        if includes.split_whitespace().any(has_headers) {
            run(Command::new("mpicc").args(["-std=gnu11", "-fsyntax-only"]).arg(source.join("layout.c"))).unwrap();
        } else {
            println!("skip the layouts: there is no opal/mca/btl/btl.h in {includes}");
        }
        let folder = scratch();
        let workspace = Workspace::here().in_target(folder.path());
        let needed = output(Command::new("readelf").arg("--dynamic").arg(chooser(&workspace).unwrap())).unwrap();
        assert!(needed.contains("NEEDED") && !needed.contains("libmpi") && !needed.contains("libopen-pal"), "{needed}");
    }

    /// A simulated Open MPI: it has a version, loads the component, and makes it register and return modules.
    const HOST: &str = r#"
#include "component.h"
#include <dlfcn.h>
#include <stdio.h>
extern const char opal_version_string[];
const char opal_version_string[] = VERSION;
int main(int count, char **words) {
    void *file = dlopen(words[1], RTLD_LAZY | RTLD_GLOBAL);
    struct component *component = file ? dlsym(file, "mca_btl_ibex_component") : 0;
    if (count < 2 || !component) { puts(dlerror()); return 1; }
    int registered = component->register_parameters ? component->register_parameters() : 1, modules = 7;
    void *module = component->initialize && !registered ? component->initialize(&modules) : 0;
    printf("%s %s %d %d %d", component->type_name, component->name, registered, modules, module != 0);
    return 0;
}"#;

    /// A simulated libibex.so, which checks that its own component is the one that is handed over.
    const LIBRARY: &str = r#"
#include "component.h"
struct component mca_btl_ibex_component, mca_pml_ibex_component;
__attribute__((constructor)) static void name(void) {
    __builtin_strcpy(mca_btl_ibex_component.type_name, "btl");
    __builtin_strcpy(mca_btl_ibex_component.name, NAME);
}"#;

    fn compile(folder: &Path, (name, text): (&str, &str), options: &[&str]) -> PathBuf {
        let source = folder.join(name).with_extension("c");
        fs::write(&source, text).unwrap();
        let file = folder.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut compile = Command::new("cc");
        compile.arg("-I").arg(Workspace::here().root().join("plugin-abi/chooser")).args(options);
        run(compile.arg("-o").arg(&file).arg(&source).arg("-ldl")).unwrap();
        file
    }

    #[test]
    fn each_open_mpi_is_handed_its_own_library_and_one_without_is_not_troubled() {
        let folder = scratch();
        let chooser = chooser(&Workspace::here().in_target(folder.path())).unwrap();
        let beside = chooser.parent().unwrap();
        for (name, release) in [("four", "openmpi-4.1.4"), ("five", "openmpi-5.0.7")] {
            let library = compile(folder.path(), (name, LIBRARY), &["-shared", "-fPIC", &format!("-DNAME=\"{name}\"")]);
            fs::create_dir(beside.join(release)).unwrap();
            fs::rename(library, beside.join(release).join("libibex.so")).unwrap();
        }
        let link = folder.path().join("mca_btl_ibex.so");
        std::os::unix::fs::symlink(&chooser, &link).unwrap();
        let run_in = |version: &str, asked_for: Option<&str>| -> Output {
            let program =
                compile(folder.path(), ("host", HOST), &["-rdynamic", "-O0", &format!("-DVERSION=\"{version}\"")]);
            let mut host = Command::new(program);
            host.arg(&link).env_remove("OMPI_MCA_pml").env_remove("OMPI_MCA_btl");
            host.envs(asked_for.map(|list| ("OMPI_MCA_btl", list))).output().unwrap()
        };
        let said_in = |version, asked_for| {
            let output = run_in(version, asked_for);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(&output.stdout), text(&output.stderr))
        };
        assert_eq!(said_in("4.1.4", None), ("btl four 1 7 0".into(), String::new()));
        assert_eq!(said_in("v5.0.7rc2", None), ("btl five 1 7 0".into(), String::new()));
        // Open MPI takes this answer to mean that the component is left out.
        assert_eq!(said_in("5.0.8", None), ("btl ibex -16 7 0".into(), String::new()));
        assert_eq!(said_in("5.0.70", Some("^ibex")), ("btl ibex -16 7 0".into(), String::new()));
        let (state, complaint) = said_in("6.0.0", Some("self,ibex"));
        assert_eq!(state, "btl ibex 0 0 0");
        assert!(complaint.contains("this is Open MPI 6.0.0, and ibex is installed for Open MPI"), "{complaint}");
        assert!(
            complaint.contains("4.1.4") && complaint.contains("5.0.7") && complaint.lines().count() == 1,
            "{complaint}"
        );
    }
}
