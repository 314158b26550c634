// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the events per second that the recorder takes without loss: `cargo bench -p ibex-event-log`. A thread puts
//! events into its ring as the callback does; the recorder's thread writes them to a temporary file, or to the folder
//! `IBEX_BENCH_FOLDER`. Prints for each pace events per second, losses, bytes, and processor time per event on each
//! side. The events are those of messages of 8 bytes, one in ten of 1 MiB, where ibex does the matching.

#[allow(dead_code, unused_imports, reason = "the bench uses less of it than the library, and not its tests")]
#[path = "../src/recorder.rs"]
mod recorder;
#[allow(dead_code, unused_imports, reason = "as above")]
#[path = "../src/rings.rs"]
mod rings;

use std::cell::Cell;
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ibex_trace::{Clock, ClockSample, Element, ElementKind, EventType, Head, Options, Source, Values, Writer};

use recorder::Recorder;
use rings::{Rings, Task};

/// As the recorder's own (src/recording.rs).
const ROOM: usize = 1 << 19;

/// What src/mpi.c has for the library.
#[unsafe(no_mangle)]
extern "C" fn ibex_log_mine() -> *mut *const c_void {
    thread_local!(static MINE: Cell<[*const c_void; 2]> = const { Cell::new([null(); 2]) });
    MINE.with(Cell::as_ptr).cast()
}

fn main() {
    // `cargo test --benches` runs this as well: then little is enough.
    let is_quick = !std::env::args().any(|word| word == "--bench");
    let seconds = if is_quick { 0.01 } else { 3.0 };
    println!(
        "{:>10} {:>12} {:>10} {:>10} {:>12} {:>14} {:>14}",
        "asked M/s", "put M/s", "lost", "lost %", "B/event", "callback ns", "writer ns"
    );
    for pace in [1.0, 2.0, 5.0, 10.0, f64::INFINITY] {
        run(pace, seconds);
    }
}

fn head() -> Head {
    use ElementKind::{I32, U32, U64};
    let elements = [
        ("id", U64),
        ("bytes", U64),
        ("buffer", U64),
        ("peer", I32),
        ("tag", I32),
        ("operation", U32),
        ("context", U32),
        ("posted", U32),
        ("unexpected", U32),
        ("count", I32),
    ];
    let elements: Vec<_> = elements.iter().map(|(name, kind)| Element::new(name, *kind, "")).collect();
    let names = ["activate", "arrived", "match", "xfer_begin", "xfer_end", "complete", "notify"];
    let of = |name: &&str| EventType {
        name: format!("ibex_comm_{name}"),
        description: String::new(),
        elements: elements.clone(),
    };
    let source = Source {
        name: "host:0".into(),
        description: String::new(),
        ticks_per_second: 1_000_000_000,
        max_ticks: 0,
        ordered: true,
    };
    Head { types: names.iter().map(of).collect(), sources: vec![source], ..Head::default() }
}

/// Processor time of this thread, nanoseconds.
fn processor_time() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

fn run(pace: f64, seconds: f64) {
    let folder = std::env::var_os("IBEX_BENCH_FOLDER").map_or_else(std::env::temp_dir, Into::into);
    let file = folder.join(format!("ibex-recorder-{}", std::process::id()));
    let (head, rings) = (head(), Rings::new(Task::Trace, ROOM).expect("memory"));
    let layouts = head.layouts();
    let out = std::fs::File::create(&file).expect("the folder can be written to");
    let writer = Writer::new(out, &file, &head, Options::default()).expect("begun");
    let done = AtomicBool::new(false);
    let (put, lost, took, callback, written, cost) = std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            let mut recorder = Recorder::new(writer);
            let begin = processor_time();
            loop {
                let is_last = done.load(Ordering::Acquire);
                let sample = ClockSample { clock: Clock::Source(0), shown: 1, before: 1, after: 1 };
                let taken = recorder.pass(&rings, |writer| writer.clock(sample));
                // A look takes what lies in one piece: the end is where nothing is left.
                if is_last && taken == 0 {
                    break;
                } else if !is_last && taken < 1 << 14 {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            let written = recorder.finish().expect("written");
            (written, processor_time() - begin)
        });
        let ring = rings.mine().expect("one of few threads");
        let (begin, processor) = (Instant::now(), processor_time());
        let (mut put, mut lost, mut ticks, mut chance) = (0_u64, 0_u64, 0_u64, 1_u64);
        // In bursts of a tenth of a millisecond, as a pace of single events is not to be had of a clock.
        let burst = if pace.is_finite() { (pace * 100.0) as u64 } else { 1000 };
        let mut bursts = 0_u32;
        while begin.elapsed().as_secs_f64() < seconds {
            for _ in 0..burst {
                let message = put / 7;
                let bytes = if message.is_multiple_of(10) { 1 << 20 } else { 8 };
                let mut values: Values = [0; 16];
                // xorshift: peers, tags and times as they come.
                chance ^= chance << 13;
                chance ^= chance >> 7;
                chance ^= chance << 17;
                let (peer, tag, buffer) = (chance % 16, 40 + (chance >> 8) % 4, (chance >> 16) % 8 * 4096);
                let address = 0x7ffd_1234_5670 + buffer;
                values[..10].copy_from_slice(&[message, bytes, address, peer, tag, 1, 3, (chance >> 20) % 3, 0, bytes]);
                ticks += 60 + (chance >> 24) % 64;
                let (layout, values) = (layouts[(put % 7) as usize], black_box(&values));
                // SAFETY: `mine` gave it.
                let is_put =
                    unsafe { ring.put(|room| layout.pack_into(0, ticks, |element| values[element % 16], room)) };
                lost += u64::from(!is_put);
                put += 1;
            }
            bursts += 1;
            while pace.is_finite() && begin.elapsed() < Duration::from_micros(100) * bursts {
                std::hint::spin_loop();
            }
        }
        let (took, callback) = (begin.elapsed().as_secs_f64(), processor_time() - processor);
        done.store(true, Ordering::Release);
        let (written, cost) = recorder.join().expect("no panic");
        (put, lost, took, callback, written, cost)
    });
    assert_eq!(written.events, put - lost, "each is written or counted");
    std::fs::remove_file(&file).expect("a file of our own");
    let asked = if pace.is_finite() { format!("{pace:.0}") } else { "most".to_owned() };
    // At a pace the thread also waits: only at the most its time is that of the events.
    let callback = if pace.is_finite() { "-".to_owned() } else { format!("{:.1}", callback / put as f64) };
    println!(
        "{asked:>10} {:>12.2} {lost:>10} {:>10.2} {:>12.2} {callback:>14} {:>14.1}",
        put as f64 / took / 1e6,
        lost as f64 / put as f64 * 100.0,
        written.bytes as f64 / written.events as f64,
        cost / written.events as f64
    );
}
