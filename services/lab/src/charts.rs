//! Values over an axis: in letters for a terminal, as SVG for a file or for a page.

use anyhow::Result;
use minijinja::{Environment, context};
use std::fmt::Write;

pub struct Chart {
    pub title: String,
    pub x: &'static str,
    pub y: &'static str,
    pub series: Vec<Series>,
}

pub struct Series {
    pub name: &'static str,
    pub mark: char, // the letter of its points on a terminal
    pub points: Vec<(f64, f64)>,
    /// Range of most values at each point. Empty: the points are dots without a line.
    pub band: Vec<(f64, f64)>,
}

impl Series {
    pub fn dots(name: &'static str, mark: char, points: Vec<(f64, f64)>) -> Series {
        Series { name, mark, points, band: Vec::new() }
    }
}

impl Chart {
    pub fn is_worth_drawing(&self) -> bool {
        // a single point says no more than a table
        self.series.iter().map(|series| series.points.len()).sum::<usize>() > 1
    }

    /// Draws in letters. If two series meet, the later one is seen.
    pub fn text(&self) -> String {
        let (x_end, y_end) = self.ends(false);
        let mut cells = vec![vec![' '; COLUMNS]; ROWS];
        for series in &self.series {
            for &(x, y) in &series.points {
                let column = (x / x_end * (COLUMNS - 1) as f64).round() as usize;
                let row = (y / y_end * (ROWS - 1) as f64).round() as usize;
                cells[ROWS - 1 - row.min(ROWS - 1)][column.min(COLUMNS - 1)] = series.mark;
            }
        }
        let mut text = format!("{}\n", self.title);
        for (row, cells) in cells.iter().enumerate() {
            let label = match row {
                0 => label(y_end),
                row if row == ROWS - 1 => label(0.0),
                _ => String::new(),
            };
            let line: String = cells.iter().collect();
            let _ = writeln!(text, "{label:>9} |{}", line.trim_end());
        }
        let _ = writeln!(text, "{:>9} +{}", "", "-".repeat(COLUMNS));
        let _ = writeln!(text, "{:>9}  0{:>width$}", "", label(x_end), width = COLUMNS - 1);
        let marks: Vec<String> = self.seen().map(|(_, series)| format!("{} {}", series.mark, series.name)).collect();
        let _ = write!(text, "{:>9}  {} over {}: {}", "", self.y, self.x, marks.join(", "));
        text
    }

    /// Draws an image for a page whose style has the colours (`arm0`, `arm1`, ...).
    pub fn figure(&self) -> Result<String> {
        let (x_end, y_end) = self.ends(true);
        let at = |(x, y): (f64, f64)| {
            let (x, y) = (LEFT + x / x_end * (RIGHT - LEFT), BOTTOM - (y / y_end).min(1.0) * (BOTTOM - TOP));
            [format!("{x:.1}"), format!("{y:.1}")]
        };
        let line = |points: &mut dyn Iterator<Item = (f64, f64)>| {
            points.map(at).map(|at| at.join(",")).collect::<Vec<_>>().join(" ")
        };
        let steps = (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS)).map(|share| {
            let [x, y] = at((x_end * share, y_end * share));
            context! { x, y, x_label => label(x_end * share), y_label => label(y_end * share) }
        });
        let series = self.seen().map(|(arm, Series { name, points, band, .. })| {
            let ends = || points.iter().zip(band);
            let highs = ends().map(|((x, _), (_, high))| (*x, *high));
            let mut around = highs.chain(ends().rev().map(|((x, _), (low, _))| (*x, *low)));
            // Points without a band are dots without a line.
            let dots: Vec<_> = points.iter().copied().map(at).filter(|_| band.is_empty()).collect();
            let (band, line) = (line(&mut around), line(&mut points.iter().copied()));
            context! { arm, name => *name, dots, band, line }
        });
        let (steps, series): (Vec<_>, Vec<_>) = (steps.collect(), series.collect());
        let chart = context! { title => self.title.clone(), x => self.x, y => self.y, steps, series };
        filled(include_str!("../data/figure.svg"), chart)
    }

    fn seen(&self) -> impl Iterator<Item = (usize, &Series)> {
        self.series.iter().enumerate().filter(|(_, series)| !series.points.is_empty())
    }

    /// Ends of both axes, which begin at zero, so that twice as high is twice as much.
    fn ends(&self, with_bands: bool) -> (f64, f64) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let highs = self.series.iter().flat_map(|series| &series.band).map(|(_, high)| *high).filter(|_| with_bands);
        let x_end = points().map(|point| point.0).fold(0.0, f64::max);
        (round_up(x_end), round_up(points().map(|point| point.1).chain(highs).fold(0.0, f64::max)))
    }
}

/// Writes one file that needs nothing outside it: the charts one below the other.
pub fn svg(charts: &[Chart]) -> Result<String> {
    let figures = charts.iter().map(Chart::figure).collect::<Result<Vec<_>>>()?;
    filled(include_str!("../data/plot.svg"), context! { figures })
}

pub fn filled(template: &str, values: minijinja::Value) -> Result<String> {
    Ok(Environment::new().render_named_str("template.html", template, values)? + "\n")
}

const COLUMNS: usize = 64;
const ROWS: usize = 14;
const LEFT: f64 = 70.0; // axes in `figure.svg`
const RIGHT: f64 = 700.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 300.0;
const STEPS: u32 = 5; // steps between the lines across, and between the numbers along each axis

/// Rounds up to 1, 2, 2.5, 5 or 10 of its power of ten.
fn round_up(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|end| *end >= value * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

fn label(value: f64) -> String {
    match value {
        value if value == value.trunc() => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)]) -> Chart {
        let turns = Series::dots("turn", 'o', points.to_vec());
        let none = Series::dots("barge-in", 'b', Vec::new());
        Chart { title: "a < b".to_owned(), x: "tokens", y: "ms", series: vec![turns, none] }
    }

    #[test]
    fn the_highest_point_stands_at_the_top_and_the_last_at_the_right() {
        let text = chart(&[(0.0, 0.0), (1000.0, 50.0)]).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("{:>9} |{}o", 50, " ".repeat(COLUMNS - 1)));
        assert_eq!(lines[ROWS], format!("{:>9} |o", 0));
        assert!(text.ends_with("ms over tokens: o turn"), "{text}");
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, end) in [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (21.0, 25.0), (99.0, 100.0), (5100.0, 10000.0)] {
            assert!((round_up(value) - end).abs() < 1e-9, "{value}: {}", round_up(value));
        }
    }

    #[test]
    fn a_file_holds_every_point_and_escapes_its_words() {
        let svg = svg(&[chart(&[(1.0, 2.0), (3.0, 4.0)]), chart(&[])]).unwrap();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("class=\"point").count(), 2);
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && !svg.contains("barge-in"));
    }

    #[test]
    fn every_arm_has_its_line_and_nothing_leaves_the_picture() {
        let arm = |scale: f64| {
            let points: Vec<(f64, f64)> = (1..=40).map(|turn| (turn as f64, scale * turn as f64)).collect();
            let band = points.iter().map(|(_, median)| (median / 2.0, median * 1.5)).collect();
            Series { name: "arm", mark: 'o', points, band }
        };
        let series = vec![arm(1.0), Series::dots("none", 'x', Vec::new()), arm(3.0)];
        let svg = Chart { title: "waits".to_owned(), x: "turns", y: "ms", series }.figure().unwrap();
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<polygon").count()), (2, 2));
        assert!(svg.contains("class=\"line arm2\"") && !svg.contains("arm1") && !svg.contains("NaN"));
        for pair in svg.split("points=\"").skip(1).flat_map(|rest| rest.split('"').next().unwrap().split(' ')) {
            let (x, y) = pair.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((70.0..=700.1).contains(&x) && (39.9..=300.1).contains(&y), "{pair}");
        }
    }
}
