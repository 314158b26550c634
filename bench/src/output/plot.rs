// SPDX-License-Identifier: MIT OR Apache-2.0
//! One test of a report as a plot: value over message size, both axes logarithmic, a line per transport, the spread as
//! a bar at each point. The result is one `<svg>` element that scales with the page.
//!
//! Grade: setup. Called by [`super::html`]. Tests: at the end of this file.

use crate::catalogue::Test;
use crate::catalogue::transport::{self, Transport};
use crate::numbers::{number, size};
use crate::report::{Report, Row};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::ops::Range;

/// The colour of a transport in plots and legends.
pub(crate) fn colour(transport: Transport) -> RGBColor {
    match transport {
        Transport::Ibex | Transport::Unregistered => RGBColor(0x0b, 0x5f, 0xa5),
        Transport::IbexBtl => RGBColor(0x1f, 0x9e, 0xd1),
        Transport::Raw | Transport::WithoutEvents => RGBColor(0x4a, 0x4f, 0x57),
        Transport::Openib | Transport::Callbacks => RGBColor(0x2e, 0x8b, 0x57),
        Transport::Ucx => RGBColor(0x8e, 0x3b, 0x9e),
        Transport::Ofi => RGBColor(0xb8, 0x32, 0x4a),
        Transport::OfiBtl => RGBColor(0xe0, 0x86, 0x93),
        Transport::UcxPerftest => RGBColor(0xc9, 0x8a, 0xd6),
        Transport::Tcp | Transport::Logger => RGBColor(0xc4, 0x6a, 0x12),
        Transport::Memory | Transport::Buffered => RGBColor(0xa8, 0x8f, 0x2c),
        Transport::Recorded => RGBColor(0xb3, 0x2d, 0x4b),
        // Of these instructions are counted, and not plotted.
        Transport::Elsewhere
        | Transport::Watched
        | Transport::Peruse
        | Transport::MpiT
        | Transport::Kept
        | Transport::Delivered => GRID,
    }
}

const WIDTH: u32 = 760;
const HEIGHT: u32 = 380;
const GRID: RGBColor = RGBColor(0xe3, 0xe6, 0xea);
const AXIS: RGBColor = RGBColor(0x9a, 0xa1, 0xaa);
const TEXT: RGBColor = RGBColor(0x3a, 0x40, 0x48);
const FONT: &str = "sans-serif";

/// Draws a test. Messages of 0 bytes have no place on a logarithmic axis and are left to the table.
///
/// # Errors
/// When there is nothing to draw.
pub(crate) fn svg(report: &Report, test: &Test) -> Result<String> {
    let rows: Vec<&Row> =
        report.rows.iter().filter(|row| row.test == test.name && row.bytes > 0 && row.value > 0.0).collect();
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        draw(&area, test, &rows)?;
        area.present().map_err(drawing)?;
    }
    Ok(scalable(&svg, test.title))
}

fn draw(area: &DrawingArea<SVGBackend, Shift>, test: &Test, rows: &[&Row]) -> Result<()> {
    let (horizontal, vertical) = ranges(rows).ok_or_else(|| anyhow!("nothing was measured of {}", test.name))?;
    let mut sizes: Vec<f64> = rows.iter().map(|row| row.bytes as f64).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let marks = marks(&vertical);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_right(18)
        .x_label_area_size(46)
        .y_label_area_size(78)
        .build_cartesian_2d(horizontal.log_scale().with_key_points(sizes), vertical.log_scale().with_key_points(marks))
        .map_err(drawing)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(AXIS)
        .label_style((FONT, 13).into_font().color(&TEXT))
        .axis_desc_style((FONT, 13).into_font().color(&TEXT))
        .x_desc("message size")
        .y_desc(rows.first().map_or("", |row| row.unit.as_str()).replace("us", "µs"))
        .x_label_formatter(&|bytes| size(*bytes as u64))
        .y_label_formatter(&|value| number_of_axis(*value))
        .draw()
        .map_err(drawing)?;
    // ibex on top of the others, and the reference last and dashed: where ibex is as fast, both are seen.
    let mut order = transport::ALL.to_vec();
    order.sort_by_key(|transport| match transport {
        Transport::Ibex | Transport::IbexBtl => 1,
        _ if transport.is_reference() => 2,
        _ => 0,
    });
    for transport in order {
        let line: Vec<&&Row> = rows.iter().filter(|row| row.transport == transport.name()).collect();
        let colour = colour(transport);
        let points = line.iter().map(|row| (row.bytes as f64, row.value));
        if transport.is_reference() {
            let dashed = DashedLineSeries::new(points.clone(), 6, 5, colour.stroke_width(2));
            chart.draw_series(dashed).map_err(drawing)?;
        } else {
            chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2))).map_err(drawing)?;
        }
        chart.draw_series(line.iter().map(|row| spread(row, colour))).map_err(drawing)?;
        chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled()))).map_err(drawing)?;
    }
    Ok(())
}

/// Half the spread below the value and half above; never so far below that a logarithmic axis has no place for it.
fn spread(row: &Row, colour: RGBColor) -> PathElement<(f64, f64)> {
    let (bytes, half) = (row.bytes as f64, row.spread / 2.0);
    let ends = vec![(bytes, (row.value - half).max(row.value / 2.0)), (bytes, row.value + half)];
    PathElement::new(ends, colour.stroke_width(1))
}

/// The ranges of both axes, with some room around the values.
fn ranges(rows: &[&Row]) -> Option<(Range<f64>, Range<f64>)> {
    let around = |values: &[f64], room: f64| {
        let least = values.iter().copied().min_by(f64::total_cmp)?;
        let most = values.iter().copied().max_by(f64::total_cmp)?;
        Some(least / room..most * room)
    };
    let bytes: Vec<f64> = rows.iter().map(|row| row.bytes as f64).collect();
    let values: Vec<f64> = rows.iter().map(|row| row.value).collect();
    Some((around(&bytes, 1.4)?, around(&values, 1.35)?))
}

/// Where the vertical axis has numbers: 1, 2 and 5 of each power of ten, or only the powers where that would be many.
fn marks(range: &Range<f64>) -> Vec<f64> {
    let decades = (range.end / range.start).log10();
    let steps: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let first = range.start.log10().floor() as i32;
    let last = range.end.log10().ceil() as i32;
    let all = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
    all.filter(|mark| range.contains(mark)).collect()
}

fn number_of_axis(value: f64) -> String {
    let text = number(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Without a fixed size an `<svg>` fills the width it is given; with a title a reader who hears the page knows it.
fn scalable(svg: &str, title: &str) -> String {
    let (_, rest) = svg.split_once('>').unwrap_or(("", svg));
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\" xmlns=\"http://www.w3.org/2000/svg\">{rest}"
    )
}

fn drawing<E: std::error::Error + Send + Sync + 'static>(error: E) -> anyhow::Error {
    anyhow::Error::new(error).context("cannot draw the plot")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::programs::measurement::tests::measured;
    use crate::report::summary::summarise;

    #[test]
    fn a_plot_has_a_point_for_each_value_but_that_of_0_bytes() {
        let test = catalogue::test("latency").unwrap();
        let measurements = [0, 8, 64].map(|bytes| measured("latency", Transport::Ibex, bytes, 50.0 + bytes as f64));
        let svg = svg(&summarise("rxe0", &[test], &measurements), test).unwrap();
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
        assert!(svg.starts_with("<svg viewBox=") && svg.trim_end().ends_with("</svg>"), "{svg}");
        assert!(svg.contains("64 B"), "{svg}");
    }

    #[test]
    fn nothing_measured_is_an_error_and_no_empty_plot() {
        let test = catalogue::test("latency").unwrap();
        assert!(svg(&summarise("rxe0", &[], &[]), test).unwrap_err().to_string().contains("latency"));
    }

    #[test]
    fn the_marks_of_an_axis_are_round_numbers_inside_it() {
        assert_eq!(marks(&(30.0..450.0)), [50.0, 100.0, 200.0]);
        assert_eq!(marks(&(0.5..20000.0)), [1.0, 10.0, 100.0, 1000.0, 10000.0]);
        assert_eq!([0.5, 1.0, 50.0, 20000.0].map(number_of_axis), ["0.5", "1", "50", "20 000"]);
    }
}
