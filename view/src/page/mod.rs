// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assembles the page: text, style and scripts of `page/`, then the data. The data for the first view comes first, so
//! that a browser shows the whole run while it still reads the rest. The content security policy in the page's head
//! forbids any network access. Called by `lib.rs`. Tests: below.

use crate::about::About;
use crate::lanes::Lanes;
use crate::spans::Spans;
use crate::{block, columns, levels, rare, rows};
use ibex_messages::{Job, Time};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;

const FRAME: &str = include_str!("frame.html");
const STYLES: [&str; 2] = [include_str!("colours.css"), include_str!("layout.css")];

macro_rules! scripts {
    ($($name:literal)*) => { [$((concat!($name, ".js"), include_str!(concat!($name, ".js")))),*] };
}

/// In order of dependency; all share one scope.
const SCRIPTS: [(&str, &str); 23] = scripts![
    "words" "colours" "block" "messages" "life" "spans" "filter" "state" "rows" "bands" "arrows" "phases" "calls"
    "marks" "timeline" "overview" "input" "histogram" "matrix" "slowest" "details" "controls" "main"
];

/// Writes the page: one self-contained file that needs no network.
///
/// # Errors
/// As `out`.
pub fn page(job: &Job, out: &mut dyn Write) -> io::Result<()> {
    let lanes = Lanes::of(job);
    let mut rows = rows::rows(job, &lanes);
    levels::give_details(&mut rows);
    let spans = Spans::of(job, &lanes, &rows);
    let bands = levels::bands(job, &rows);
    let start = job.span.map_or(Time::new(0), |span| span.0);
    let about = serde_json::to_string(&About::of(job, &lanes, &rows, &spans, &bands))?;
    out.write_all(head(job).as_bytes())?;
    // `</script>` in a name would end the element.
    writeln!(out, "<script type=\"application/json\" id=\"about\">{}</script>", about.replace('<', "\\u003c"))?;
    levels::write(&bands, lanes.all.len(), job, &rows, out)?;
    writeln!(out, "<script>\n\"use strict\";\n(() => {{")?;
    for (name, script) in SCRIPTS {
        writeln!(out, "// ---- {name}\n{script}")?;
    }
    writeln!(out, "}})();\n</script>")?;
    columns::write_messages(job, &rows, start, out)?;
    rare::write(job, &lanes, start, out)?;
    spans.write(job, start, out)?;
    columns::write_lives(job, &rows, out)?;
    // Marks the end, so that the script can tell a truncated file.
    block::write("end", &[], out)?;
    out.write_all(b"</body>\n</html>\n")
}

fn head(job: &Job) -> String {
    let name = heading(job).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    FRAME.replace("{{name}}", &name).replace("{{style}}", &STYLES.concat())
}

/// Returns the programs of a job without their folders, and the job's name.
fn heading(job: &Job) -> String {
    let programs: BTreeSet<&OsStr> = job.ranks.iter().filter_map(|rank| Path::new(&rank.program).file_name()).collect();
    let mut words: Vec<String> = programs.iter().take(3).map(|name| name.to_string_lossy().into_owned()).collect();
    words.extend((programs.len() > 3).then(|| format!("{} more", programs.len() - 3)));
    words.extend((!job.name.is_empty()).then(|| format!("job {}", job.name)));
    if words.is_empty() { "a job".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(job: &Job) -> String {
        crate::block::reading::text(|out| page(job, out))
    }

    #[test]
    fn the_page_is_self_contained_and_a_name_cannot_end_an_element() {
        let mut job = Job::synthetic(4, 100, 1);
        job.name = "</script><blink>".to_owned();
        job.ranks[0].program = "</script>".to_owned();
        let page = text(&job);
        for foreign in ["src=", "href=\"http", "@import", "url(", "fetch(", "XMLHttpRequest", "import("] {
            assert!(!page.replace("url(#", "").contains(foreign), "{foreign} is in the page");
        }
        assert!(page.contains("default-src 'none'"));
        assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
        assert!(!page.contains("<blink>"));
    }

    #[test]
    fn the_heading_is_the_programs_name() {
        let mut job = Job::synthetic(3, 10, 1);
        job.name = "4711".to_owned();
        job.ranks.iter_mut().for_each(|rank| rank.program = "/home/me/bin/solver".to_owned());
        assert!(text(&job).contains("<title>solver, job 4711 – ibex</title>"));
        assert!(text(&job).contains("<h1 id=\"name\">solver, job 4711</h1>"));
        job.ranks[1].program = "./coupler".to_owned();
        assert_eq!(heading(&job), "coupler, solver, job 4711");
        job.ranks.iter_mut().zip(["a", "b", "c"]).for_each(|(rank, name)| rank.program = name.to_owned());
        job.ranks.push(ibex_messages::Rank { program: "d".to_owned(), ..Default::default() });
        assert_eq!(heading(&job), "a, b, c, 1 more, job 4711");
        assert_eq!(heading(&Job::default()), "a job");
    }

    #[test]
    fn each_script_is_in_the_page_and_of_a_size_to_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            assert!(lines <= 400, "{name} has {lines} lines");
            let is_script = path.extension().is_some_and(|extension| extension == "js");
            assert!(!is_script || SCRIPTS.iter().any(|script| script.0 == name), "{name} is not in the page");
        }
    }

    #[test]
    fn an_empty_job_has_a_page() {
        assert!(text(&Job::default()).contains("id=\"about\""));
    }
}
