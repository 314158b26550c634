// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI between two ranks, on one node or two: the command line for a transport, and the output of `ibex_mpi_bench`.
//! `--mca btl` and `--mca osc` permit a single transport, so a message that it cannot carry fails. Called by
//! [`crate::run`]. Grade: setup. Tests: below.

use super::{Line, Measurement, stock};
use crate::catalogue::{Kind, Mpi, Test, Transport};
use crate::nodes::{Job, Where};
use anyhow::{Result, bail};
use std::path::PathBuf;

const PROGRAM: &str = "ibex_mpi_bench";

pub(crate) fn command(place: Where, transport: Transport, tests: &[&Test], sizes: &[u64]) -> Result<Vec<String>> {
    let mut words = mpirun(place, transport)?;
    let program = place.programs_over(transport).join(PROGRAM);
    words.extend(["-n".to_owned(), "2".to_owned(), program.display().to_string()]);
    let list = |items: Vec<String>| items.join(",");
    words.extend(["--tests".to_owned(), list(tests.iter().map(|test| test.name.to_owned()).collect())]);
    words.extend(["--sizes".to_owned(), list(sizes.iter().map(u64::to_string).collect())]);
    Ok(words)
}

/// Returns the launcher and the parameters that permit a message a single transport, without the ranks.
pub(crate) fn mpirun(place: Where, transport: Transport) -> Result<Vec<String>> {
    if let Mpi::Stock(stock) = place.mpi {
        return stock::mpiexec(place, stock, transport);
    }
    let mut words = vec!["mpirun".to_owned()];
    if let Some(hosts) = place.hosts {
        words.extend(hosts.mpirun());
        // `mpirun` passes Open MPI's own variables to the other host.
        let exported = match transport {
            Transport::Ucx => ucx_environment(place),
            _ if transport.is_ofi() => ofi_environment(place).to_vec(),
            _ => Vec::new(),
        };
        words.extend(exported.into_iter().flat_map(|(name, _)| ["-x".to_owned(), name]));
    }
    if place.kind == Kind::SoftRoce {
        // perftest's processes are not bound either.
        words.extend(["--bind-to", "none"].map(str::to_owned));
    }
    let mut parameter = |name: &str, value: &str| words.extend(["--mca".to_owned(), name.to_owned(), value.to_owned()]);
    if place.kind == Kind::SoftRoce {
        // Two spinning ranks would leave the kernel no processor for the adapter's work. By itself Open MPI yields only
        // if there are too many ranks.
        parameter("mpi_yield_when_idle", "1");
    }
    match transport {
        _ if transport.is_ibex() => {
            parameter("pml", if transport.is_pml() { "ibex" } else { "ob1" });
            parameter("btl", "self,ibex");
            parameter("btl_ibex_if_include", place.device);
            parameter("osc", "rdma");
            if transport == Transport::Buffered {
                parameter("btl_ibex_event_buffered", "1");
            }
            if transport == Transport::Unstamped {
                parameter("btl_ibex_event_adapter_clock", "0");
            }
            if transport == Transport::Uncut {
                parameter("pml_ibex_read_size", "1073741824");
            }
            // For the ranks alone: the tool does not watch mpirun.
            if let Some(tool) = tool(place, transport) {
                let way = transport.way_of_every_event().map_or_else(String::new, |way| format!(";EVERY_EVENT={way}"));
                parameter("mca_base_env_list", &format!("LD_PRELOAD={}{way}", tool.display()));
            }
        }
        Transport::Openib => {
            parameter("pml", "ob1");
            parameter("btl", "self,openib");
            parameter("btl_openib_if_include", place.device);
            // Otherwise openib leaves InfiniBand to UCX, and warns that it does not know the device.
            parameter("btl_openib_allow_ib", "1");
            parameter("btl_openib_warn_no_device_params_found", "0");
            parameter("osc", "rdma");
        }
        Transport::Ucx => {
            parameter("pml", "ucx");
            parameter("osc", "ucx");
            // By default the component declines a network that it does not take for a fast one.
            parameter("pml_ucx_tls", "any");
            parameter("pml_ucx_devices", "any");
        }
        Transport::Ofi | Transport::OfiBtl => {
            // One-sided operations go by the BTL under either.
            parameter("btl", "self,ofi");
            parameter("osc", "rdma");
            if transport == Transport::Ofi {
                parameter("pml", "cm");
                parameter("mtl", "ofi");
            } else {
                parameter("pml", "ob1");
                // Messages, too, not only one-sided operations.
                parameter("btl_ofi_mode", "2");
            }
        }
        Transport::Tcp => {
            if place.interface.is_empty() && place.hosts.is_none() {
                bail!(
                    "{} has no network interface, so there is no TCP to compare with; leave tcp out of --transports",
                    place.device
                );
            }
            parameter("pml", "ob1");
            parameter("btl", "self,tcp");
            if !place.interface.is_empty() {
                parameter("btl_tcp_if_include", place.interface);
            }
            // The remaining components make windows of messages, or in Open MPI 5 of any BTL's operations.
            parameter("osc", "^ucx,sm");
        }
        _ => bail!("there is no MPI over {}", transport.name()),
    }
    Ok(words)
}

fn tool(place: Where, transport: Transport) -> Option<PathBuf> {
    match transport {
        _ if transport.has_every_event() => Some(place.programs.join("every_event.so")),
        Transport::Logger | Transport::Recorded => Some(place.components?.with_file_name("libibex-log.so")),
        _ => None,
    }
}

pub(crate) fn trace(place: Where) -> PathBuf {
    place.reports.join("events.trace")
}

pub(crate) fn job(place: Where, transport: Transport, argv: Vec<String>) -> Job {
    Job { env: environment(place, transport), ..Job::new(argv) }
}

/// Returns the environment of the launcher. Only over ibex, Open MPI searches that folder, too: a folder that does not
/// exist would hide all other components.
pub(crate) fn environment(place: Where, transport: Transport) -> Vec<(String, String)> {
    if let Mpi::Stock(stock) = place.mpi {
        return stock::environment(place, stock, transport);
    }
    let variable = |name: &str, value: String| (name.to_owned(), value);
    let mut variables = vec![
        variable("OMPI_ALLOW_RUN_AS_ROOT", "1".to_owned()),
        variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1".to_owned()),
    ];
    if transport.is_ibex() {
        let without = transport == Transport::WithoutEvents;
        let components = if without { place.without_events } else { place.components };
        if let Some(components) = components {
            let path = format!("{}:SYSTEM_DEFAULT", components.display());
            variables.push(variable("OMPI_MCA_mca_base_component_path", path));
            // Open MPI 5 passes the path on to PMIx, which complains about each file there that is no component of its
            // own. So PMIx gets a folder without files; with an empty path, mpirun crashes if there is another host.
            variables.push(variable("PMIX_MCA_mca_base_component_path", "/sys".to_owned()));
        }
    }
    if transport == Transport::Ucx {
        variables.extend(ucx_environment(place));
    }
    if transport.is_ofi() {
        variables.extend(ofi_environment(place));
    }
    if transport == Transport::Logger {
        variables.push(variable("IBEX_LOG_EVENTS", "all".to_owned()));
        variables.push(variable("IBEX_LOG_FILE", place.reports.join("events").display().to_string()));
    }
    if transport == Transport::Recorded {
        variables.push(variable("IBEX_TRACE_EVENTS", "all".to_owned()));
        variables.push(variable("IBEX_TRACE", trace(place).display().to_string()));
    }
    variables
}

/// Returns the variables that restrict UCX to this device and to reliable connections, which it makes with datagrams.
/// On a real adapter it may use more than verbs, as by default.
pub(crate) fn ucx_environment(place: Where) -> Vec<(String, String)> {
    let transports = if place.kind == Kind::Adapter { "rc,ud,self" } else { "rc_verbs,ud_verbs,self" };
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        variable("UCX_TLS", transports),
        variable("UCX_NET_DEVICES", &format!("{}:1", place.device)),
        variable("UCX_LOG_LEVEL", "error"),
    ]
}

/// Returns the variables that restrict libfabric to this device, by verbs. Without `rdma_cm`, as on emulated adapters,
/// it uses datagrams.
fn ofi_environment(place: Where) -> [(String, String); 2] {
    [("FI_PROVIDER", "verbs"), ("FI_VERBS_DEVICE_NAME", place.device)].map(|(name, value)| (name.into(), value.into()))
}

/// Parses a line of output; `None` for other lines, which programs under mpirun may print.
pub(crate) fn measurement(line: &str, transport: Transport, tests: &[&Test]) -> Result<Option<Measurement>> {
    if !line.starts_with('{') {
        return Ok(None);
    }
    let line = Line::read(PROGRAM, line)?;
    let Some(test) = tests.iter().find(|test| test.name == line.test) else {
        bail!("{PROGRAM} measured {}, which was not asked for", line.test);
    };
    line.measured(PROGRAM, transport, test).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{self, transport};
    use crate::nodes::Hosts;
    use crate::nodes::place::tests::place;

    fn line(place: Where, transport: Transport) -> String {
        command(place, transport, &[catalogue::test("latency").unwrap()], &[0, 8]).unwrap().join(" ")
    }

    #[test]
    fn over_ibex_there_is_no_other_way_for_a_message() {
        assert_eq!(
            line(place(), Transport::Ibex),
            "mpirun --mca pml ibex --mca btl self,ibex --mca btl_ibex_if_include rxe0 --mca osc rdma -n 2 \
             /t/mpi/ibex_mpi_bench --tests latency --sizes 0,8"
        );
    }

    #[test]
    fn over_each_transport_messages_take_the_device_that_is_measured() {
        for (transport, words) in [
            (Transport::IbexBtl, "--mca pml ob1 --mca btl self,ibex"),
            (Transport::Openib, "--mca btl self,openib --mca btl_openib_if_include rxe0"),
            (Transport::Ucx, "mpirun --mca pml ucx --mca osc ucx"),
            (Transport::Ofi, "--mca pml cm --mca mtl ofi"),
            (Transport::OfiBtl, "--mca btl self,ofi"),
            (Transport::OfiBtl, "--mca btl_ofi_mode 2"),
            (Transport::Tcp, "--mca btl self,tcp --mca btl_tcp_if_include veth0"),
        ] {
            let line = line(place(), transport);
            assert!(line.contains(words), "{line} is without {words}");
        }
        for (transport, name, value) in
            [(Transport::Ucx, "UCX_NET_DEVICES", "rxe0:1"), (Transport::Ofi, "FI_VERBS_DEVICE_NAME", "rxe0")]
        {
            let variables = environment(place(), transport);
            assert!(variables.contains(&(name.to_owned(), value.to_owned())), "{variables:?}");
        }
        let without = Where { interface: "", ..place() };
        assert!(mpirun(without, Transport::Tcp).unwrap_err().to_string().contains("--transports"));
    }

    #[test]
    fn on_soft_roce_ranks_leave_the_kernel_the_processor() {
        let yields = |kind| line(Where { kind, ..place() }, Transport::Ibex).contains("--mca mpi_yield_when_idle 1");
        assert_eq!([Kind::SoftRoce, Kind::SoftHca, Kind::Adapter].map(yields), [true, false, false]);
    }

    #[test]
    fn two_hosts_have_a_rank_each_and_both_get_ucxs_variables() {
        let hosts = Hosts::by_ssh(["a", "b"].map(str::to_owned));
        let on = |transport| line(Where { hosts: Some(&hosts), interface: "10.0.0.0/24", ..place() }, transport);
        assert!(on(Transport::Ibex).contains("--host a:1,b:1") && !on(Transport::Ibex).contains("-x"));
        assert!(on(Transport::Ucx).contains("-x UCX_TLS -x UCX_NET_DEVICES"), "{}", on(Transport::Ucx));
        assert!(on(Transport::Tcp).contains("--mca btl_tcp_if_include 10.0.0.0/24"));
        let without = Where { hosts: Some(&hosts), interface: "", ..place() };
        assert!(!line(without, Transport::Tcp).contains("if_include"));
    }

    #[test]
    fn only_over_ibex_is_its_folder_looked_at_if_open_mpi_does_not_find_it_by_itself() {
        let is_told =
            |place, transport| format!("{:?}", environment(place, transport)).contains("mca_base_component_path");
        assert!(is_told(place(), Transport::Ibex));
        assert!(!is_told(Where { components: None, ..place() }, Transport::Ibex));
        for other in [Transport::Openib, Transport::Ucx, Transport::Tcp] {
            assert!(!is_told(place(), other), "{}", other.name());
        }
    }

    #[test]
    fn only_those_that_watch_have_a_tool_and_only_one_build_has_no_events() {
        let lines = transport::EVENTS.map(|transport| line(place(), transport));
        let tools = lines.each_ref().map(|line| line.split(' ').find_map(|word| word.strip_prefix("LD_PRELOAD=")));
        let (empty, logger) = ("/t/mpi/every_event.so", "/t/lib/libibex-log.so");
        assert_eq!(tools, [None, None, Some(empty), Some(empty), Some(logger), Some(logger)]);
        let buffered = lines.each_ref().map(|line| line.contains("--mca btl_ibex_event_buffered 1"));
        assert_eq!(buffered, [false, false, false, true, false, false]);
        for transport in transport::EVENTS {
            let variables = format!("{:?}", environment(place(), transport));
            assert_eq!(variables.contains("/t/without/"), transport == Transport::WithoutEvents, "{variables}");
            assert_eq!(variables.contains("IBEX_LOG"), transport == Transport::Logger, "{variables}");
            assert_eq!(variables.contains("IBEX_TRACE"), transport == Transport::Recorded, "{variables}");
        }
    }

    #[test]
    fn the_tool_gets_its_mode_over_either_component() {
        let [plain, ways @ ..] = transport::EVENTS_OF_MATCHING;
        assert!(!line(place(), plain).contains("LD_PRELOAD"));
        let of_matching = ["elsewhere", "watched", "peruse", "mpi_t", "buffered", "delivered"];
        let told = of_matching.into_iter().chain(["ibex_msg_arrived", "ibex_msg_arrived", "nothing", "nothing"]);
        let idle = [Transport::Initialised, Transport::InitialisedBtl];
        for (transport, way) in ways.into_iter().chain(idle).zip(told) {
            let line = line(place(), transport);
            let pml = if transport == Transport::InitialisedBtl { "ob1" } else { "ibex" };
            assert!(line.contains(&format!("--mca pml {pml} --mca btl self,ibex")), "{line}");
            assert!(line.contains(&format!("LD_PRELOAD=/t/mpi/every_event.so;EVERY_EVENT={way} ")), "{line}");
            assert!(format!("{:?}", environment(place(), transport)).contains("/t/lib/openmpi"));
        }
    }

    #[test]
    fn a_line_of_the_program_is_a_measurement_and_other_lines_are_not() {
        let tests = [catalogue::test("latency").unwrap()];
        let line = r#"{"test":"latency","bytes":8,"unit":"us","value":46.5,"spread":1.25,"samples":20,"iterations":5000,"window":1}"#;
        let measured = measurement(line, Transport::Tcp, &tests).unwrap().unwrap();
        assert_eq!((measured.bytes, measured.value, measured.spread), (8, 46.5, 1.25));
        assert_eq!(measurement("[host:1] a remark", Transport::Tcp, &tests).unwrap(), None);
        assert!(measurement("{half a line", Transport::Tcp, &tests).is_err());
        for (right, wrong, gives) in [("us", "ms", "46.5 ms"), ("46.5", "0.00", "0 us")] {
            let error = measurement(&line.replace(right, wrong), Transport::Tcp, &tests).unwrap_err().to_string();
            assert!(error.contains(&format!("{gives} for latency of 8 bytes, and a value above 0 us")), "{error}");
        }
        assert!(measurement(line, Transport::Tcp, &[catalogue::test("bandwidth").unwrap()]).is_err());
    }
}
