//! A comparison as a page: one file, no scripts, light or dark as the reader has it.

use super::Report;
use super::chart::chart;
use super::recall::FILL_NAMES;
use super::show::{cells, interval, letter, method, part_words, verdict};
use experiment::{Better, Comparison, Difference, Row, Verdict};
use std::fmt::Write;

pub fn page(report: &Report) -> String {
    let title = escaped(&report.title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n"
    );
    for fact in &report.facts {
        let _ = writeln!(out, "<p class=\"quiet\">{}</p>", escaped(fact));
    }
    arms(&mut out, &report.comparison);
    for warning in &report.comparison.warnings {
        let _ =
            writeln!(out, "<p class=\"warning\"><strong>Take care:</strong> {}.</p>", escaped(&warning.to_string()));
    }
    summary(&mut out, &report.comparison);
    out.push_str("<h2>Side by side</h2>\n<div class=\"wide\">\n");
    side_by_side(&mut out, &report.comparison);
    let _ = writeln!(out, "</div>\n<p class=\"quiet\">{}</p>", escaped(&method(&report.comparison)).replace('`', ""));
    if !report.recall.is_empty() {
        recall(&mut out, report);
    }
    if !report.curves.is_empty() {
        out.push_str("<h2>Along the conversation</h2>\n");
        legend(&mut out, &report.comparison);
        for curve in &report.curves {
            let _ = writeln!(out, "<figure>{}</figure>", chart(curve));
        }
        out.push_str("<p class=\"quiet\">Lines are medians, bands hold eight turns of ten.</p>\n");
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn arms(out: &mut String, comparison: &Comparison) {
    out.push_str("<div class=\"arms\">\n");
    for (index, (arm, seen)) in comparison.arms.iter().zip(&comparison.traffic).enumerate() {
        let _ = writeln!(
            out,
            "<div class=\"arm\"><span class=\"dot arm{index}\">{}</span><strong>{}</strong><span class=\"quiet\">{} \
             users, {} sessions, {} turns</span></div>",
            letter(index),
            escaped(arm),
            seen.users,
            seen.sessions,
            seen.turns
        );
    }
    out.push_str("</div>\n");
}

/// In sentences, what the table shows.
fn summary(out: &mut String, comparison: &Comparison) {
    for other in 1..comparison.arms.len() {
        let found: Vec<(&Row, Difference)> = comparison
            .rows
            .iter()
            .filter_map(|row| Some((row, row.differences.get(other - 1).copied().flatten()?)))
            .collect();
        let shown: Vec<String> = found
            .iter()
            .filter(|(_, found)| matches!(found.verdict, Verdict::Higher | Verdict::Lower))
            .map(|(row, found)| format!("{} is {}", row.metric.words(), verdict(found)))
            .collect();
        let (arm, first) = (letter(other), letter(0));
        let words = match (shown.is_empty(), found.iter().all(|(_, found)| found.verdict == Verdict::TooFew)) {
            (true, true) => format!("There are too few turns to tell {arm} from {first}."),
            (true, false) => format!("Between {first} and {arm} there is no difference shown."),
            (false, _) => format!("In {arm}, compared with {first}: {}.", shown.join("; ")),
        };
        let _ = writeln!(out, "<p class=\"lead\">{}</p>", escaped(&words));
    }
}

fn side_by_side(out: &mut String, comparison: &Comparison) {
    out.push_str("<table>\n<thead><tr><th></th>");
    for index in 0..comparison.arms.len() {
        let _ = write!(
            out,
            "<th class=\"n\">n</th><th><span class=\"dot arm{index}\">{}</span></th><th>p95</th>",
            letter(index)
        );
    }
    for other in 1..comparison.arms.len() {
        let _ = write!(out, "<th>{} less {}</th><th></th>", letter(other), letter(0));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &comparison.rows {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", row.metric.words());
        for index in 0..comparison.arms.len() {
            let [n, value, p95] = cells(row, index);
            let _ = write!(out, "<td class=\"n\">{n}</td><td>{value}</td><td class=\"quiet\">{p95}</td>");
        }
        for other in 1..comparison.arms.len() {
            match row.differences.get(other - 1).copied().flatten() {
                Some(found) => {
                    let (interval, class) = (interval(row.metric, &found), class(row, &found));
                    let _ = write!(out, "<td>{interval}</td><td class=\"words {class}\">{}</td>", verdict(&found));
                }
                None => out.push_str("<td></td><td></td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n");
}

fn class(row: &Row, found: &Difference) -> &'static str {
    match (found.verdict, row.metric.better()) {
        (Verdict::NoDifferenceShown | Verdict::TooFew, _) => "quiet",
        (_, Better::Neither) => "",
        (Verdict::Higher, Better::Higher) | (Verdict::Lower, Better::Lower) => "good",
        _ => "bad",
    }
}

fn recall(out: &mut String, report: &Report) {
    out.push_str("<h2>What was remembered</h2>\n<div class=\"wide\">\n<table>\n<thead><tr><th></th><th class=\"left\">the fact stood in</th><th>right</th><th>95 % interval</th>");
    for name in FILL_NAMES {
        let _ = write!(out, "<th>{name}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for of in &report.recall {
        let (index, zone) = (of.arm, of.zone.words());
        let _ = write!(
            out,
            "<tr><td><span class=\"dot arm{index}\">{}</span></td><th scope=\"row\">{zone}</th><td>{} of {}</td>\
             <td class=\"quiet\">{:.0} to {:.0} %</td>",
            letter(index),
            of.right,
            of.asked,
            of.low * 100.0,
            of.high * 100.0
        );
        for part in &of.by_fill {
            let share = if part.asked == 0 { 0.0 } else { part.right as f64 / part.asked as f64 };
            let _ =
                write!(out, "<td class=\"heat\" style=\"--share:{:.0}%\">{}</td>", share * 100.0, part_words(*part));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

fn legend(out: &mut String, comparison: &Comparison) {
    out.push_str("<p class=\"legend\">");
    for (index, arm) in comparison.arms.iter().enumerate() {
        let _ = write!(out, "<span><span class=\"dot arm{index}\">{}</span> {}</span> ", letter(index), escaped(arm));
    }
    out.push_str("</p>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Colours that people who do not see red and green tell apart, too.
const STYLE: &str = "
:root { color-scheme: light dark; --back: #fbfaf7; --card: #ffffff; --ink: #1d2226; --quiet: #667078; --line: #e3e1da;
  --good: #00703c; --bad: #b3261e; --warn: #fff3d6; --a0: #0067a5; --a1: #c8530a; --a2: #00805e; --a3: #a4508b; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --card: #1c2024; --ink: #e6e8ea; --quiet: #97a1a9;
  --line: #30363c; --good: #5fd08f; --bad: #ff8a80; --warn: #3a2f14; --a0: #5ab0ea; --a1: #ff9a52; --a2: #3fcda0;
  --a3: #e08fc8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 78rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; }
p { margin: .25rem 0 .5rem; }
.quiet { color: var(--quiet); }
.lead { font-size: 1.1rem; margin: 1.25rem 0 0; }
.warning { background: var(--warn); border-radius: 8px; padding: .6rem .9rem; margin: .75rem 0; }
.arms { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; }
.arm { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .6rem 1rem; display: flex;
  gap: .6rem; align-items: center; flex-wrap: wrap; }
.dot { display: inline-block; min-width: 1.5em; padding: 0 .35em; border-radius: 999px; text-align: center;
  font-weight: 600; color: var(--card); background: var(--arm); font-size: .85em; }
.arm0 { --arm: var(--a0); } .arm1 { --arm: var(--a1); } .arm2 { --arm: var(--a2); } .arm3 { --arm: var(--a3); }
.wide { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .42rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
tbody tr:last-child > * { border-bottom: 0; }
thead th { font-weight: 600; color: var(--quiet); }
th[scope=row], .left, .words { text-align: left; font-weight: 400; }
.n { color: var(--quiet); font-size: .8rem; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.heat { background: color-mix(in srgb, var(--a2) calc(var(--share) * .45), transparent); }
figure { margin: 0 0 1rem; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .75rem; }
.legend { display: flex; gap: 1.25rem; flex-wrap: wrap; }
svg { width: 100%; height: auto; display: block; font-size: 12px; }
svg text { fill: var(--quiet); } svg .title { fill: var(--ink); font-size: 14px; font-weight: 600; }
svg .title .quiet { fill: var(--quiet); font-weight: 400; }
.grid { stroke: var(--line); } .axis { stroke: var(--quiet); }
.line { fill: none; stroke: var(--arm); stroke-width: 2; stroke-linejoin: round; }
.band { fill: var(--arm); fill-opacity: .14; }
";

#[cfg(test)]
mod tests {
    use super::super::curves::curves;
    use super::super::recall::{Asked, Zone, recall};
    use super::*;
    use experiment::{Metric, Random, Turn, compare, pair_blocks};
    use std::collections::BTreeMap;

    #[test]
    fn the_page_needs_nothing_but_itself_and_says_all() {
        let mut random = Random::new(1);
        let mut turns = Vec::new();
        for turn in 0..60 {
            for arm in 0..2 {
                let wait = 40.0 + 20.0 * random.share() + if arm == 1 { 30.0 } else { 0.0 };
                let values = BTreeMap::from([(Metric::FirstTokenMs, wait), (Metric::FillShare, 0.01 * turn as f64)]);
                turns.push(Turn { arm, user: 0, session: arm as u64, pair: pair_blocks(0, turn), turn, values });
            }
        }
        let arms = ["small".to_owned(), "<large>".to_owned()];
        let asked = Asked {
            fact: "f".into(),
            zone: Zone::Summarised,
            fill: 0.6,
            turns_since: 9,
            right: true,
            answer: "x".into(),
        };
        let report = Report {
            title: "Replay of a & b".into(),
            facts: vec!["1 run".into()],
            comparison: compare(&arms, &[], &turns, true, 1),
            curves: curves(2, &turns),
            recall: recall(2, &[(1, &asked)]),
        };
        let page = page(&report);
        for expected in [
            "Replay of a &amp; b",
            "&lt;large&gt;",
            "time to first token is higher by",
            "no difference shown",
            "1 of 1",
            "summarised",
        ] {
            assert!(page.contains(expected), "{expected} is not on the page");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        for foreign in ["http://", "https://", "<script", "src=", "@import", "url(", "NaN"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
