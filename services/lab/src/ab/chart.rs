//! Lines over turns as inline SVG, in the colours of the page around it.

use super::curves::{Curve, Point};
use super::show::{capitalised, scale};
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = HEIGHT - 38.0;
const STEPS: u32 = 4;

/// `colours` are classes `arm0`, `arm1`, ... of the page's style.
pub fn chart(curve: &Curve) -> String {
    let (unit, divisor) = scale(curve.metric);
    let all = || curve.arms.iter().flatten();
    let turns = all().map(|point| point.turn).fold(1.0, f64::max);
    // A single wait that was endless must not press all others flat: the ends are those of the bands.
    let top = round_up(all().map(|point| point.p90.max(point.median) / divisor).fold(0.0, f64::max));
    let x = |turn: f64| LEFT + turn / turns * (RIGHT - LEFT);
    let y = |value: f64| BOTTOM - (value / divisor / top).min(1.0) * (BOTTOM - TOP);
    let title = capitalised(curve.metric.words());
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title} over turns\">\n\
         <text x=\"{LEFT}\" y=\"18\" class=\"title\">{title} <tspan class=\"quiet\">{unit}</tspan></text>\n"
    );
    for step in 0..=STEPS {
        let share = f64::from(step) / f64::from(STEPS);
        let at = BOTTOM - share * (BOTTOM - TOP);
        let class = if step == 0 { "axis" } else { "grid" };
        let _ = writeln!(out, "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{RIGHT}\" y2=\"{at:.1}\" class=\"{class}\"/>");
        text(&mut out, LEFT - 8.0, at + 4.0, "end", &label(top * share));
        text(&mut out, x(turns * share), BOTTOM + 17.0, "middle", &label(turns * share));
    }
    text(&mut out, (LEFT + RIGHT) / 2.0, HEIGHT - 4.0, "middle", "turn");
    for (arm, points) in curve.arms.iter().enumerate().filter(|(_, points)| !points.is_empty()) {
        if points.iter().any(|point| point.n > 1) {
            let upper = points.iter().map(|point| (x(point.turn), y(point.p90)));
            let lower = points.iter().rev().map(|point| (x(point.turn), y(point.p10)));
            let _ = writeln!(out, "<polygon points=\"{}\" class=\"band arm{arm}\"/>", pairs(upper.chain(lower)));
        }
        let line = points.iter().map(|point: &Point| (x(point.turn), y(point.median)));
        let _ = writeln!(out, "<polyline points=\"{}\" class=\"line arm{arm}\"/>", pairs(line));
    }
    out.push_str("</svg>\n");
    out
}

fn pairs(points: impl Iterator<Item = (f64, f64)>) -> String {
    points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
}

/// Four steps of it are round numbers too.
fn round_up(value: f64) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|end| *end >= value * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

fn label(value: f64) -> String {
    let rounded = (value * 100.0).round() / 100.0;
    if rounded >= 10.0 || rounded == rounded.trunc() { format!("{rounded:.0}") } else { format!("{rounded}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use experiment::Metric;

    #[test]
    fn every_arm_has_its_line_and_nothing_leaves_the_picture() {
        let points = |scale: f64| {
            (1..=40)
                .map(|turn| {
                    let median = scale * turn as f64;
                    Point { turn: turn as f64, n: 5, median, p10: median / 2.0, p90: median * 1.5 }
                })
                .collect::<Vec<_>>()
        };
        let curve = Curve { metric: Metric::FirstTokenMs, arms: vec![points(1.0), points(3.0), Vec::new()] };
        let svg = chart(&curve);
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<polygon").count()), (2, 2));
        assert!(svg.contains("class=\"line arm1\"") && !svg.contains("arm2") && !svg.contains("NaN"));
        for pair in svg.split("points=\"").skip(1).flat_map(|rest| rest.split('"').next().unwrap().split(' ')) {
            let (x, y) = pair.split_once(',').unwrap();
            let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
            assert!((LEFT..=RIGHT + 0.1).contains(&x) && (TOP - 0.1..=BOTTOM + 0.1).contains(&y), "{pair}");
        }
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, end) in [(0.0, 1.0), (0.9, 1.0), (1.1, 1.2), (181.0, 200.0), (97.0, 100.0), (8100.0, 10000.0)] {
            assert!((round_up(value) - end).abs() < 1e-9 * end.max(1.0), "{value}: {}", round_up(value));
        }
    }
}
