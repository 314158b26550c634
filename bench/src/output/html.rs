// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a report as one self-contained HTML page: a plot and a table for each test, then the test environment.
//!
//! Grade: setup. Called by the bench. Tests: at the end of this file.

use super::plot;
use super::table::{compared, count_lines, divided, effort_lines, note, over, part_lines, remark_lines, with_spread};
use crate::catalogue::Test;
use crate::catalogue::transport::{self, Transport};
use crate::numbers::size;
use crate::report::Report;
use crate::report::events::Cost;
use crate::report::parts::Part;
use anyhow::Result;

/// The page. `environment` is shown as it is, name and value.
///
/// # Errors
/// When a plot cannot be drawn.
pub(crate) fn page(
    remark: &str,
    report: &Report,
    tests: &[&'static Test],
    environment: &[(String, String)],
) -> Result<String> {
    let mut body = format!(
        "<header><h1>ibex</h1><p>MPI over RDMA, measured on <b>{}</b>. {}</p></header>\n",
        escaped(&report.device),
        escaped(remark)
    );
    for test in tests {
        if !report.sizes(test.name).is_empty() {
            body += &test_section(report, test)?;
        }
    }
    body += &parts_section(&report.instructions);
    body += &report.events.as_ref().map(counts_section).unwrap_or_default();
    body += &remarks_section(report);
    body += &environment_section(environment);
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>ibex on {}</title>\n<style>{}{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escaped(&report.device),
        colours(),
    ))
}

fn test_section(report: &Report, test: &Test) -> Result<String> {
    let legend: Vec<String> = report
        .transports(test.name)
        .iter()
        .map(|transport| format!("<span class=\"{}\">{}</span>", transport.name(), transport.words()))
        .collect();
    // One size is no line.
    let plot = if report.has_rows(test.name) && report.sizes(test.name).len() > 1 {
        let percentages = report.percentages().map(|percentages| plot::svg(&percentages, test)).transpose()?;
        let percentages = percentages.unwrap_or_default();
        format!("<p class=\"legend\">{}</p>\n{}\n{percentages}\n", legend.concat(), plot::svg(report, test)?)
    } else {
        String::new()
    };
    Ok(format!(
        "<section>\n<h2>{}</h2>\n<p class=\"note\">{}</p>\n{plot}{}</section>\n",
        test.title,
        escaped(&note(report, test)),
        test_table(report, test),
    ))
}

fn test_table(report: &Report, test: &Test) -> String {
    let Some((first, rest)) = compared(report, test) else { return String::new() };
    let unit = test.metric.unit().replace("us", "µs");
    // Which raw program was the better one is worth a column where there are several.
    let several = test.raw.len() > 1 && rest.contains(&Transport::Raw);
    let all = || std::iter::once(&first).chain(&rest);
    let mut header = vec![("", "size".to_owned())];
    header.extend(all().map(|transport| ("n", format!("{}, {unit}", transport.name()))));
    header.extend(rest.iter().map(|other| {
        let (of, to) = divided(report, first, *other);
        ("n", format!("{} / {}", of.name(), to.name()))
    }));
    header.extend(several.then(|| ("", "raw is".to_owned())));
    let lines = report.sizes(test.name).into_iter().map(|bytes| {
        let value = |transport: &Transport| cell(&with_spread(report.row(test.name, *transport, bytes)));
        let over = |other: &Transport| cell(&over(report, test, first, *other, bytes));
        let mut cells = vec![("", size(bytes))];
        cells.extend(all().map(|transport| ("n", value(transport))));
        cells.extend(rest.iter().map(|other| ("n strong", over(other))));
        cells.extend(several.then(|| ("", report.raw_program(test, bytes).unwrap_or("–").to_owned())));
        line("td", &cells)
    });
    format!(
        "<table>\n<thead>{}</thead>\n<tbody>\n{}</tbody>\n</table>\n",
        line("th", &header),
        lines.collect::<Vec<_>>().concat(),
    )
}

/// A line of a table, of cells with their classes.
fn line(tag: &str, cells: &[(&str, String)]) -> String {
    let cell = |(class, text): &(&str, String)| match *class {
        "" => format!("<{tag}>{text}</{tag}>"),
        class => format!("<{tag} class=\"{class}\">{text}</{tag}>"),
    };
    format!("<tr>{}</tr>\n", cells.iter().map(cell).collect::<Vec<_>>().concat())
}

fn parts_section(parts: &[Part]) -> String {
    let mut lines = part_lines(parts).into_iter().map(|(name, cells)| {
        let numbers = cells.iter().map(|text| ("n", cell(text)));
        std::iter::once(("", escaped(&name))).chain(numbers).collect::<Vec<_>>()
    });
    let Some(header) = lines.next() else { return String::new() };
    let body: Vec<String> = lines.map(|cells| line("td", &cells)).collect();
    format!(
        "<section>\n<h2>Where the instructions of a message go</h2>\n\
         <p class=\"note\">By shared library, of one MPI_Send and one MPI_Recv of 8 bytes.</p>\n\
         <table>\n<thead>{}</thead>\n<tbody>\n{}</tbody>\n</table>\n</section>\n",
        line("th", &header),
        body.concat()
    )
}

/// What is not in the tables, and why.
fn remarks_section(report: &Report) -> String {
    let effort = effort_lines(report).into_iter().map(|line| format!("<p class=\"note\">{}</p>\n", escaped(&line)));
    let effort = effort.collect::<String>();
    let lines = remark_lines(report);
    if lines.is_empty() {
        return effort;
    }
    let lines: Vec<String> = lines.iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
    let lines = lines.concat();
    format!("{effort}<section>\n<h2>Not measured</h2>\n<ul>\n{lines}</ul>\n</section>\n")
}

fn counts_section(cost: &Cost) -> String {
    let row = |tag: &str, cells: Vec<String>| {
        let mut cells: Vec<_> = cells.into_iter().map(|text| ("n", text)).collect();
        cells[0].0 = "";
        line(tag, &cells)
    };
    let mut lines = count_lines(cost).into_iter();
    let header = lines.next().map(|cells| row("th", cells)).unwrap_or_default();
    format!(
        "<section>\n<h2>What became of the events</h2>\n\
         <p class=\"note\">As ibex counts them, and what the handler for lost events was told.</p>\n\
         <table>\n<thead>{header}</thead>\n<tbody>\n{}</tbody>\n</table>\n</section>\n",
        lines.map(|cells| row("td", cells)).collect::<String>()
    )
}

/// Spread and limits are set smaller than the value, and nothing measured is a dash.
fn cell(text: &str) -> String {
    match text.find(['±', '(']) {
        Some(at) => format!("{}<small>{}</small>", &text[..at], &text[at..]),
        None => text.replace('-', "–"),
    }
}

fn environment_section(environment: &[(String, String)]) -> String {
    let line =
        |(name, value): &(String, String)| format!("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(value));
    format!(
        "<section>\n<h2>Measured with</h2>\n<table class=\"facts\">\n<tbody>\n{}</tbody>\n</table>\n\
         <p class=\"note\">A value is the median over the rounds, ± its interquartile range. MB is 10<sup>6</sup> bytes. \
         Speeds of a software device or a virtual machine move from boot to boot: compare within one page.</p>\n</section>\n",
        environment.iter().map(line).collect::<Vec<_>>().concat()
    )
}

fn colours() -> String {
    let rule = |transport: &Transport| {
        let plotters::style::RGBColor(red, green, blue) = plot::colour(*transport);
        let style = if transport.is_reference() { "dashed" } else { "solid" };
        format!(".legend .{}::before{{border-top:3px {style} rgb({red},{green},{blue})}}", transport.name())
    };
    transport::ALL.iter().map(rule).collect::<Vec<_>>().concat()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "
:root{color-scheme:light}
body{margin:0;background:#f4f5f7;color:#1d2127;font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}
header h1{margin:0;font-size:30px;letter-spacing:-.02em}
header p{margin:2px 0 24px;color:#555c66}
section{background:#fff;border:1px solid #e3e6ea;border-radius:8px;padding:20px 24px 22px;margin:0 0 20px;overflow-x:auto}
h2{margin:0 0 2px;font-size:19px}
.note{margin:0 0 10px;color:#555c66;font-size:13.5px}
.facts+.note{margin-top:14px}
.legend{margin:0;font-size:13.5px}
.legend span{margin-right:22px;white-space:nowrap}
.legend span::before{content:'';display:inline-block;width:20px;margin-right:7px;vertical-align:middle}
svg{display:block;width:100%;height:auto;margin:4px 0 10px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:5px 10px;text-align:left;border-bottom:1px solid #eceef1;white-space:nowrap}
td:first-child,th:first-child{padding-left:2px}
thead th{font-weight:600;color:#555c66;border-bottom:1px solid #c9ced5}
tbody tr:last-child td,tbody tr:last-child th{border-bottom:0}
.n{text-align:right}
.strong{font-weight:600}
small{color:#7a828c;font-size:12px}
.facts{width:auto;margin-top:8px}
.facts th{font-weight:500;color:#555c66}
.facts td{white-space:normal}
@media print{body{background:#fff}section{break-inside:avoid}}
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::programs::measurement::tests::measured;
    use crate::report::summary::summarise;
    use crate::run::found::Failure;

    fn example() -> String {
        let tests = [catalogue::test("bandwidth").unwrap()];
        let measurements = [
            measured("bandwidth", Transport::Ibex, 1 << 20, 97.0),
            measured("bandwidth", Transport::Ibex, 8, 1.0),
            measured("ib_read_bw", Transport::Raw, 1 << 20, 100.0),
        ];
        let environment = [("Kernel".to_owned(), "Linux <6.12> & more".to_owned())];
        let report = summarise("rxe0", &tests, &measurements);
        page("", &report, &tests, &environment).unwrap()
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = example();
        for outside in ["<script", "src=", "href=", "url(", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn the_page_shows_the_plot_and_the_raw_program_that_was_better() {
        let page = example();
        assert!(page.contains("<svg viewBox"), "{page}");
        assert!(page.contains("<td>ib_read_bw</td>"), "{page}");
    }

    #[test]
    fn a_page_of_failures_alone_says_what_failed_and_has_no_plot() {
        let tests = [catalogue::test("latency").unwrap()];
        let mut report = summarise("rxe0", &tests, &[]);
        let failure = Failure {
            transport: "ibex".to_owned(),
            tests: vec!["latency".to_owned()],
            values: [8, 64].map(|bytes| ("latency".to_owned(), bytes)).into(),
            round: 1,
            reason: "no <route>".to_owned(),
            busy: false,
            missing: true,
        };
        report.lacks(&[failure], &[]);
        let page = page("", &report, &tests, &[]).unwrap();
        assert!(page.contains("no &lt;route&gt;") && page.contains("<td>64 B</td>"), "{page}");
        assert!(!page.contains("<svg"), "{page}");
    }

    #[test]
    fn what_a_machine_says_of_itself_is_text_and_not_markup() {
        assert!(example().contains("Linux &lt;6.12&gt; &amp; more"));
    }
}
