// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI between two ranks of one node: the command line over a transport, and the lines `ibex_mpi_bench` prints.
//!
//! `--mca btl` and `--mca osc` leave one way for a message: what a transport cannot carry fails, and takes no other.
//!
//! Grade: setup. Called by [`super::run`]. Tests: at the end of this file.

use super::plan::Test;
use super::report::{Measurement, Transport};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::Path;

/// What a run over a transport needs to know of the place it runs in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// `ibex_mpi_bench`.
    pub(crate) program: &'a Path,
    /// The folder of the component links.
    pub(crate) components: &'a Path,
    /// The RDMA device.
    pub(crate) device: &'a str,
    /// Its network interface, for the tcp BTL; empty where it has none.
    pub(crate) interface: &'a str,
    /// Whether the device is software, whose work the kernel does on the processors the ranks wait on.
    pub(crate) software: bool,
}

/// The command that measures the tests over a transport.
///
/// # Errors
/// For TCP over a device without a network interface, and for the raw transport, which has no MPI.
pub(crate) fn command(
    place: Place,
    transport: Transport,
    tests: &[&Test],
    sizes: &[u64],
    seconds_per_row: f64,
) -> Result<Vec<String>> {
    let mut words: Vec<String> = ["mpirun", "-n", "2"].map(str::to_owned).into();
    let mut parameter = |name: &str, value: &str| words.extend(["--mca".to_owned(), name.to_owned(), value.to_owned()]);
    parameter("pml", "ob1");
    if place.software {
        // perftest's processes are not bound either. Two ranks that spin would leave the kernel no processor for the
        // adapter's work; Open MPI sees for itself only that there are not too many ranks.
        parameter("hwloc_base_binding_policy", "none");
        parameter("mpi_yield_when_idle", "1");
    }
    match transport {
        Transport::Ibex => {
            parameter("btl", "self,ibex");
            parameter("btl_ibex_if_include", place.device);
            parameter("osc", "rdma");
        }
        Transport::Tcp => {
            if place.interface.is_empty() {
                bail!(
                    "{} has no network interface, so there is no TCP to compare with; leave it out: --transports ibex,raw",
                    place.device
                );
            }
            parameter("btl", "self,tcp");
            parameter("btl_tcp_if_include", place.interface);
            parameter("osc", "pt2pt");
        }
        Transport::Raw => bail!("the raw transport has no MPI"),
    }
    words.push(place.program.display().to_string());
    let list = |items: Vec<String>| items.join(",");
    words.extend(["--tests".to_owned(), list(tests.iter().map(|test| test.name.to_owned()).collect())]);
    words.extend(["--sizes".to_owned(), list(sizes.iter().map(u64::to_string).collect())]);
    words.extend(["--seconds-per-row".to_owned(), seconds_per_row.to_string()]);
    Ok(words)
}

/// The environment of mpirun. Over ibex, Open MPI looks for components in that folder, too; a folder that is not there
/// would hide all other components, and over TCP it need not be.
pub(crate) fn environment(transport: Transport, components: &Path) -> Vec<(String, String)> {
    let variable = |name: &str, value: String| (name.to_owned(), value);
    let mut variables = vec![
        variable("OMPI_ALLOW_RUN_AS_ROOT", "1".to_owned()),
        variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1".to_owned()),
    ];
    if transport == Transport::Ibex {
        let path = format!("{}:SYSTEM_DEFAULT", components.display());
        variables.push(variable("OMPI_MCA_mca_base_component_path", path));
    }
    variables
}

/// One line of `ibex_mpi_bench`; it has more fields than are read here.
#[derive(Deserialize)]
struct Line {
    test: String,
    bytes: u64,
    unit: String,
    value: f64,
    spread: f64,
}

/// The measurement a line of output is; none where it is something else, which programs under mpirun may print.
///
/// # Errors
/// When it is a measurement of a test that was not asked for, or in another unit.
pub(crate) fn measurement(line: &str, transport: Transport, tests: &[&Test]) -> Result<Option<Measurement>> {
    if !line.starts_with('{') {
        return Ok(None);
    }
    let line: Line = serde_json::from_str(line)
        .with_context(|| format!("ibex_mpi_bench printed a line that cannot be read: {line}"))?;
    let Some(test) = tests.iter().find(|test| test.name == line.test) else {
        bail!("ibex_mpi_bench measured {}, which was not asked for", line.test);
    };
    if line.unit != test.metric.unit() {
        bail!("ibex_mpi_bench gives {} in {}, and {} was expected", line.test, line.unit, test.metric.unit());
    }
    Ok(Some(Measurement { test: line.test, transport, bytes: line.bytes, value: line.value, spread: line.spread }))
}

#[cfg(test)]
mod tests {
    use super::super::plan;
    use super::*;

    fn place() -> Place<'static> {
        Place {
            program: Path::new("/t/bench"),
            components: Path::new("/t/lib/openmpi"),
            device: "rxe0",
            interface: "veth0",
            software: false,
        }
    }

    #[test]
    fn on_a_software_device_ranks_leave_the_kernel_the_processor() {
        let words = |software| {
            let place = Place { software, ..place() };
            command(place, Transport::Ibex, &[plan::test("latency").unwrap()], &[8], 1.0).unwrap().join(" ")
        };
        assert!(words(true).contains("--mca mpi_yield_when_idle 1"));
        assert!(!words(false).contains("mpi_yield_when_idle"));
    }

    #[test]
    fn over_ibex_there_is_no_other_way_for_a_message() {
        let line =
            command(place(), Transport::Ibex, &[plan::test("latency").unwrap()], &[0, 8], 0.5).unwrap().join(" ");
        assert_eq!(
            line,
            "mpirun -n 2 --mca pml ob1 --mca btl self,ibex --mca btl_ibex_if_include rxe0 --mca osc rdma \
             /t/bench --tests latency --sizes 0,8 --seconds-per-row 0.5"
        );
    }

    #[test]
    fn tcp_goes_over_the_interface_of_the_device_or_nowhere() {
        let tests = [plan::test("latency").unwrap(), plan::test("bandwidth").unwrap()];
        let line = command(place(), Transport::Tcp, &tests, &[8], 1.0).unwrap().join(" ");
        assert!(line.contains("--mca btl self,tcp --mca btl_tcp_if_include veth0"), "{line}");
        assert!(line.contains("--tests latency,bandwidth"), "{line}");
        let without = Place { interface: "", ..place() };
        assert!(
            command(without, Transport::Tcp, &tests, &[8], 1.0)
                .unwrap_err()
                .to_string()
                .contains("--transports ibex,raw")
        );
    }

    #[test]
    fn a_line_of_the_program_is_a_measurement_and_other_lines_are_not() {
        let tests = [plan::test("latency").unwrap()];
        let line = r#"{"test":"latency","bytes":8,"metric":"half_round_trip","unit":"us","value":46.5,"spread":1.25,"samples":20,"iterations":5000,"window":1}"#;
        let measured = measurement(line, Transport::Tcp, &tests).unwrap().unwrap();
        assert_eq!((measured.bytes, measured.value, measured.spread), (8, 46.5, 1.25));
        assert_eq!(measurement("[host:1] a remark", Transport::Tcp, &tests).unwrap(), None);
        assert!(measurement("{half a line", Transport::Tcp, &tests).is_err());
        assert!(measurement(&line.replace("us", "ms"), Transport::Tcp, &tests).is_err());
        assert!(measurement(line, Transport::Tcp, &[plan::test("bandwidth").unwrap()]).is_err());
    }
}
