//! Points over an axis: in letters for a terminal, as one SVG file for a page.

use std::fmt::Write;

pub struct Plot {
    pub title: String,
    pub x: &'static str,
    pub y: &'static str,
    pub series: Vec<Series>,
}

pub struct Series {
    pub name: &'static str,
    pub mark: char,
    pub points: Vec<(f64, f64)>,
}

impl Plot {
    /// A single point says no more than the table.
    pub fn is_worth_drawing(&self) -> bool {
        self.points().count() > 1
    }

    pub fn text(&self) -> String {
        let (x_end, y_end) = self.ends();
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
                0 => number(y_end),
                row if row == ROWS - 1 => number(0.0),
                _ => String::new(),
            };
            let line: String = cells.iter().collect();
            let _ = writeln!(text, "{label:>9} |{}", line.trim_end());
        }
        let _ = writeln!(text, "{:>9} +{}", "", "-".repeat(COLUMNS));
        let end = number(x_end);
        let _ = writeln!(text, "{:>9}  0{:>width$}", "", end, width = COLUMNS - 1);
        let marks: Vec<String> = self.used().map(|series| format!("{} {}", series.mark, series.name)).collect();
        let _ = write!(text, "{:>9}  {} over {}: {}", "", self.y, self.x, marks.join(", "));
        text
    }

    fn points(&self) -> impl Iterator<Item = &(f64, f64)> {
        self.series.iter().flat_map(|series| &series.points)
    }

    fn used(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(|series| !series.points.is_empty())
    }

    /// Both axes begin at zero, so that twice as high is twice as much.
    fn ends(&self) -> (f64, f64) {
        let end = |value: fn(&(f64, f64)) -> f64| round_up(self.points().map(value).fold(0.0, f64::max));
        (end(|point| point.0), end(|point| point.1))
    }
}

/// One file, nothing outside it: the plots one below the other.
pub fn svg(plots: &[Plot]) -> String {
    let height = plots.len() as f64 * PANEL;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (index, plot) in plots.iter().enumerate() {
        panel(&mut out, plot, index as f64 * PANEL);
    }
    out.push_str("</svg>\n");
    out
}

fn panel(out: &mut String, plot: &Plot, top: f64) {
    let (x_end, y_end) = plot.ends();
    let (left, right, above, below) = (70.0, WIDTH - 20.0, top + 40.0, top + PANEL - 60.0);
    let at = |x: f64, y: f64| (left + x / x_end * (right - left), below - y / y_end * (below - above));
    let mut text = |x: f64, y: f64, anchor: &str, words: &str| {
        let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ =
            writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#222222\">{words}</text>");
    };
    text(left, top + 20.0, "start", &plot.title);
    text(left, above - 6.0, "start", plot.y);
    text((left + right) / 2.0, below + 34.0, "middle", plot.x);
    for step in 0..=LINES {
        let share = f64::from(step) / f64::from(LINES);
        let ((x, _), (_, y)) = (at(x_end * share, 0.0), at(0.0, y_end * share));
        text(x, below + 16.0, "middle", &number(x_end * share));
        text(left - 6.0, y + 4.0, "end", &number(y_end * share));
    }
    for step in 0..=LINES {
        let y = at(0.0, y_end * f64::from(step) / f64::from(LINES)).1;
        let _ = writeln!(
            out,
            "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#dddddd\" stroke-width=\"1\"/>"
        );
    }
    for (index, series) in plot.used().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        for &(x, y) in &series.points {
            let (x, y) = at(x, y);
            let _ =
                writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\" fill-opacity=\"0.8\"/>");
        }
        let (x, y) = (left + index as f64 * 150.0, top + PANEL - 12.0);
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"/>", y - 4.0);
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{y:.1}\" fill=\"#222222\">{}</text>", x + 9.0, series.name);
    }
}

const COLUMNS: usize = 64;
const ROWS: usize = 14;
const WIDTH: f64 = 720.0;
const PANEL: f64 = 360.0;
/// Lines across, and numbers along each axis.
const LINES: u32 = 5;
/// Told apart by people who do not see red and green, too.
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/// The next 1, 2, 2.5, 5 or 10 of its power of ten.
fn round_up(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|end| *end >= value).unwrap_or(10.0 * power)
}

fn number(value: f64) -> String {
    match value {
        value if value == value.trunc() => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: &[(f64, f64)]) -> Plot {
        let turns = Series { name: "turn", mark: 'o', points: points.to_vec() };
        let none = Series { name: "barge-in", mark: 'b', points: Vec::new() };
        Plot { title: "a < b".to_owned(), x: "tokens", y: "ms", series: vec![turns, none] }
    }

    #[test]
    fn the_highest_point_stands_at_the_top_and_the_last_at_the_right() {
        let text = plot(&[(0.0, 0.0), (1000.0, 50.0)]).text();
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
    fn an_svg_holds_every_point_and_escapes_its_words() {
        let svg = svg(&[plot(&[(1.0, 2.0), (3.0, 4.0)]), plot(&[])]);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("fill-opacity").count(), 2);
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && !svg.contains("barge-in"));
    }
}
