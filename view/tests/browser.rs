// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages in headless Chromium, which returns the page's description of itself (the element `self`) and draws pictures.
//! These stay in `tmp` of the target folder.

use ibex_messages::{
    ByAdapter, Call, Connection, Fragment, Incident, IncidentKind, Job, Loss, Message, Operation, OperationKind,
    Protocol, Search, Time,
};
use ibex_view::picture::Browser;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

struct Page {
    file: PathBuf,
    browser: Browser,
}

impl Page {
    fn of(name: &str, job: &Job) -> Page {
        let mut bytes = Vec::new();
        ibex_view::page(job, &mut bytes).unwrap();
        Page::from_bytes(name, &bytes)
    }

    fn from_bytes(name: &str, bytes: &[u8]) -> Page {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name} page.html"));
        fs::write(&file, bytes).unwrap();
        let browser = Browser::find().expect("`cargo xtask setup` installs what tests need");
        Page { file, browser }
    }

    fn text(&self, fragment: &str) -> String {
        self.browser.text(&self.file, fragment).unwrap()
    }

    /// Returns the page's text at an address, once all is drawn without a problem. A worker of the page decompresses
    /// blocks, and on a busy machine the browser's virtual time may end before the worker does.
    fn drawn_text(&self, fragment: &str) -> String {
        for _ in 0..10 {
            let text = self.text(fragment);
            let shown = said(&text);
            assert_eq!(shown["problems"], Value::Array(Vec::new()), "{shown}");
            if shown["ready"] == true {
                return text;
            }
        }
        panic!("{}#{fragment} is not ready in ten tries", self.file.display());
    }

    fn shows(&self, fragment: &str) -> Value {
        said(&self.drawn_text(fragment))
    }

    fn draw(&self, name: &str, fragment: &str) {
        let file = self.file.with_file_name(format!("{name}.png"));
        let _ = fs::remove_file(&file);
        self.browser.draw(&self.file, fragment, (1600, 1000), &file).unwrap();
        let bytes = fs::read(&file).unwrap();
        assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
        assert!(bytes.len() > 30_000, "{name} has {} bytes: nothing can be in it", bytes.len());
    }
}

fn said(text: &str) -> Value {
    let begin = text.find("id=\"self\">").expect("the page describes itself") + "id=\"self\">".len();
    let end = begin + text[begin..].find("</script>").unwrap();
    serde_json::from_str(&text[begin..end]).unwrap()
}

fn between(job: &Job, from: i64, to: i64) -> impl Iterator<Item = &Message> {
    let start = job.span.unwrap().0;
    let is_between = move |message: &&Message| {
        let first = message.moments().min().unwrap().since(start);
        let last = message.moments().max().unwrap().since(start);
        first < to && last >= from
    };
    job.messages.iter().filter(is_between)
}

#[test]
fn the_whole_run_a_part_of_it_and_one_message() {
    let mut job = Job::synthetic(16, 60_000, 4);
    let every = ByAdapter { arrived: true, begun: true, ended: true };
    job.messages[12345].send.as_mut().unwrap().by_adapter = every;
    job.messages[12345].receive.as_mut().unwrap().by_adapter = every;
    let page = Page::of("levels", &job);
    let whole = page.shows("");
    assert_eq!((&whole["mode"], &whole["shown"]), (&"bands".into(), &60_000.into()));
    assert_eq!(whole["rows"], 16);

    let part = page.shows("t=20ms..20.2ms");
    assert_eq!(part["mode"], "phases");
    assert_eq!(part["shown"], between(&job, 20_000_000, 20_200_000).count());
    assert_eq!(part["arrows"], part["shown"]);
    assert_eq!(part["bars"].as_u64(), part["shown"].as_u64().map(|shown| 2 * shown));

    let text = page.drawn_text("m=12345");
    let message = &job.messages[12345];
    assert_eq!(said(&text)["rows"], 2);
    assert_eq!(said(&text)["chosen"], 12345);
    let title = format!("Rank {} → rank {}", message.sender, message.receiver);
    let pair = format!("({0:#x})", message.queue_pair.unwrap());
    for words in [&title, "MPI_COMM_WORLD (16 ranks)", "mlx5_0:1 (fe80::", &pair, "± 300\u{202f}ns", "by its size"] {
        assert!(text.contains(words), "{words} is not in the page");
    }
    for words in ["leave", "has the last bytes", "arrives", "first bytes are in place", "last bytes are in place"] {
        assert!(text.contains(&format!("{words} (adapter)</td>")), "{words}, by the adapter's clock");
    }
    assert_eq!(text.matches(" (host)</td>").count(), message.moments().count() - 5);

    page.draw("whole", "");
    page.draw("part", "t=20ms..20.2ms&c=wait&theme=dark");
    page.draw("message", "m=12345");
}

#[test]
fn a_search_shows_matching_messages_and_names_unknown_words() {
    let job = Job::synthetic(4, 3000, 9);
    let page = Page::of("search", &job);
    let passing = |fragment: &str| page.shows(fragment)["passing"].as_u64().unwrap() as usize;
    let count = |test: &dyn Fn(&Message) -> bool| job.messages.iter().filter(|message| test(message)).count();
    assert_eq!(passing("q=tag:3%20size:>=64K"), count(&|each| each.tag == 3 && each.bytes >= 65536));
    assert_eq!(
        passing("q=rank:2%20tag:-17"),
        count(&|each| each.tag == -17 && (each.sender == 2 || each.receiver == 2))
    );
    let pair = count(&|each| (each.sender, each.receiver) == (1, 3) && each.protocol == Some(Protocol::Copied));
    assert_eq!(passing("q=from:1%20to:3%20protocol:copied%20comm:MPI_COMM_WORLD"), pair);
    let refused = page.shows("q=colour:blue");
    assert!(refused["error"].as_str().unwrap().contains("is not a term"), "{refused}");
    assert_eq!(refused["passing"], 3000);
}

#[test]
fn the_slowest_are_those_of_the_job() {
    let job = Job::synthetic(4, 3000, 11);
    let shown = Page::of("slowest", &job).shows("");
    let took = |message: &Message| {
        let (send, receive) = (message.send.unwrap(), message.receive.unwrap());
        receive.completed.max(send.completed).unwrap().since(send.activated.unwrap())
    };
    let mut all: Vec<i64> = job.messages.iter().map(took).collect();
    all.sort_unstable_by(|one, other| other.cmp(one));
    let slowest = shown["slowest"].as_array().unwrap().iter();
    let slowest: Vec<i64> = slowest.map(|place| took(&job.messages[place.as_u64().unwrap() as usize])).collect();
    assert_eq!(slowest, all[..5]);
}

#[test]
fn losses_and_faults_stand_at_the_top_and_incidents_are_marks() {
    let mut job = Job::synthetic(4, 400, 2);
    let start = job.span.unwrap().0;
    let at = |nanoseconds: i64| Time::new(start.nanoseconds() + nanoseconds);
    let incident = |time, kind| Incident { rank: 1, time: at(time), kind, peer: Some(2), port: Some(1), value: 4096 };
    job.incidents =
        vec![incident(100_000, IncidentKind::ReceiverNotReady), incident(200_000, IncidentKind::RegistrationMiss)];
    let (begun, failed) = (Some(at(1000)), Some(at(50_000)));
    job.connections = vec![Connection { peer: 3, begun, failed, status: 12, ..Connection::default() }];
    job.losses = vec![Loss { rank: 1, event: "ibex_comm_msg_arrived".to_owned(), count: 12 }];
    job.faults = vec!["Block 7 of <the trace> of rank 2 is damaged.".to_owned()];
    job.messages[10].receive = None;
    let page = Page::of("faults", &job);
    assert_eq!(page.shows("")["marks"], 3);
    let text = page.drawn_text("m=10");
    for words in ["12 events were lost", "Block 7 of &lt;the trace&gt; of rank 2", "No trace of this side."] {
        assert!(text.contains(words), "{words} is not in the page");
    }
    page.draw("faults", "");
}

fn with_calls() -> (Job, usize) {
    let mut job = Job::synthetic(4, 400, 3);
    let (start, last) = job.span.unwrap();
    let step = last.since(start) / 20_000;
    let at = |after: i64| Time::new(start.nanoseconds() + after);
    let call = |rank, number: i64| {
        let (begun, ended) = (at(number * step), Some(at(number * step + step / 2)));
        Call::made(rank, 1, begun, ended)
    };
    job.calls = (0..4).flat_map(|rank| (0..20_000).map(move |number| call(rank, number))).collect();
    let longest =
        |place: &usize| job.messages[*place].receive.map(|side| side.ended.unwrap().since(side.begun.unwrap()));
    let chosen = (0..400).max_by_key(longest).unwrap();
    let (rank, side) = (job.messages[chosen].receiver, job.messages[chosen].receive.unwrap());
    let (begun, length) = (side.begun.unwrap().nanoseconds(), longest(&chosen).unwrap());
    let fragment = |number: u64| Fragment {
        is_by_adapter: true,
        part: Some((number * 64, 64)),
        ..Fragment::made(rank, chosen as u32, Time::new(begun + length * number as i64 / 50_001))
    };
    job.fragments = (1..=50_000).map(fragment).collect();
    let put = |number: i64| Operation {
        rank: 1,
        peer: 0,
        kind: OperationKind::Put,
        bytes: 8,
        begun: Some(at(number)),
        completed: Some(at(number + 1000)),
        status: 0,
    };
    job.operations = (0..10_000).map(put).collect();
    job.searches = vec![Search {
        peer: 2,
        tag: 5,
        length: Some(12),
        message: Some(chosen as u32),
        is_found: Some(true),
        ..Search::made(rank, at(10 * step), at(10 * step + step / 4))
    }];
    (job, chosen)
}

#[test]
fn calls_searches_and_fragments_are_drawn_no_more_than_pixels_can_show() {
    let (job, chosen) = with_calls();
    let page = Page::of("calls", &job);
    let number = |shown: &Value, name: &str| shown[name].as_u64().unwrap();
    let whole = page.shows("");
    assert!((1000..12_000).contains(&number(&whole, "calls")), "{whole} of 80000 calls");
    assert_eq!(number(&whole, "searches"), 1);
    assert!((10..3000).contains(&number(&whole, "operations")), "{whole} of 10000 puts");

    let step = job.calls[1].begun.since(job.calls[0].begun);
    let part = page.shows(&format!("t={}..{}", 100 * step - 1, 103 * step - 1));
    assert_eq!((number(&part, "calls"), number(&part, "searches")), (12, 0));

    let text = page.drawn_text(&format!("m={chosen}"));
    let shown = said(&text);
    assert!((100..1600).contains(&number(&shown, "fragments")), "{shown}");
    for words in ["and 49\u{202f}800 more", "search of the posted receive queue of length 12", "at 128, 64", ": found"]
    {
        assert!(text.contains(words), "{words} is not in the page");
    }
    page.draw("calls", "t=0..300us");
    page.draw("fragments", &format!("m={chosen}"));
}

#[test]
fn the_pointer_shows_a_call_and_the_search_in_it() {
    let (job, _) = with_calls();
    let mut bytes = Vec::new();
    ibex_view::page(&job, &mut bytes).unwrap();
    // The pointer goes to the lower edge of each row, in the middle of the view.
    let script = r#"<script>setInterval(() => {
        const [line, tip] = ["line", "tip"].map((id) => document.getElementById(id));
        if (!JSON.parse(document.getElementById("self").textContent || "{}").ready || document.getElementById("seen")) return;
        const { left, top } = line.getBoundingClientRect();
        const told = [0, 1, 2, 3].map((row) => {
            const y = 22 + ((line.clientHeight - 22) * (row + 1)) / 4 - 3;
            line.dispatchEvent(new PointerEvent("pointermove", { clientX: left + 132 + (line.clientWidth - 132) / 2, clientY: top + y }));
            return tip.hidden ? "nothing" : tip.textContent;
        });
        document.body.insertAdjacentHTML("beforeend", `<p id="seen">${told.join("; ")}</p>`);
    }, 50);</script></body>"#;
    let text = String::from_utf8(bytes).unwrap().replace("</body>", script);
    let page = Page::from_bytes("pointed", text.as_bytes());
    let step = job.calls[1].begun.since(job.calls[0].begun);
    let shown = page.drawn_text(&format!("t={}..{}", 10 * step - step / 4, 10 * step + step / 2));
    let seen = shown.rsplit_once("id=\"seen\">").expect("it has seen").1.split_once("</p>").unwrap().0;
    assert_eq!(seen.matches("MPI_Recv").count(), 4, "{seen}");
    assert_eq!(seen.matches("search of the posted receive queue of length 12").count(), 1, "{seen}");
}

#[test]
fn many_threads_of_a_rank_are_one_row_until_the_rank_is_opened() {
    let mut job = Job::synthetic(4, 400, 3);
    // Each message of rank 0 has its own thread.
    job.ranks[0].threads = (0..=400).collect();
    for (thread, message) in (1..).zip(&mut job.messages) {
        if let Some(side) = message.send.as_mut().filter(|_| message.sender == 0) {
            side.thread = thread;
        }
        if let Some(side) = message.receive.as_mut().filter(|_| message.receiver == 0) {
            side.thread = thread;
        }
    }
    let page = Page::of("threads", &job);
    let rows = |fragment: &str| page.shows(fragment)["rows"].as_u64().unwrap();
    assert_eq!((rows(""), rows("o=1"), rows("r=0,2")), (4, 4, 2));
    let opened = rows("o=0");
    assert!(opened > 5 && opened < 100, "{opened} rows");
    assert_eq!(rows("r=0,2&o=0"), opened - 2);
    page.draw("threads", "t=20us..40us&o=0");
}

#[test]
fn a_page_that_was_cut_says_so() {
    let mut bytes = Vec::new();
    ibex_view::page(&Job::synthetic(4, 2000, 2), &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let cut = text.find("id=\"life-0\"").unwrap();
    let page = Page::from_bytes("cut", &text.as_bytes()[..cut]);
    let problems = said(&page.text(""))["problems"].to_string();
    assert!(problems.contains("This file is truncated"), "{problems}");
}

#[test]
fn a_job_without_messages_is_an_empty_page_and_not_a_broken_one() {
    let shown = Page::of("empty", &Job::default()).shows("");
    assert_eq!((&shown["total"], &shown["rows"]), (&0.into(), &0.into()));
}
