//! A comparison as a page: one file, no scripts, light or dark as the reader has it.

use super::ArmReport;
use super::recall::{FILL_NAMES, RecallRow};
use super::view::{ReportView, chart};
use crate::charts::filled;
use anyhow::Result;
use minijinja::context;
use minijinja::value::Serde;

pub fn page(report: &ArmReport) -> Result<String> {
    let charts = report.curves.iter().map(|curve| chart(curve).figure()).collect::<Result<Vec<_>>>()?;
    let recall: Vec<(&RecallRow, &str)> = report.recall.iter().map(|row| (row, row.zone.words())).collect();
    let context = context! {
        report => Serde(report), view => Serde(ReportView::new(report)), recall => Serde(recall), fill_names => FILL_NAMES,
        charts,
    };
    filled(include_str!("../../data/comparison.html"), context)
}

#[cfg(test)]
mod tests {
    use super::super::curves::curves;
    use super::super::recall::{AskedFact, FactZone, recall};
    use super::*;
    use experiment::{ArmTurn, DrawnUnit, Metric, SeededRandom, compare, pair_blocks};
    use std::collections::BTreeMap;

    #[test]
    fn the_page_needs_nothing_but_itself_and_says_all() {
        let mut random = SeededRandom::new(1);
        let mut turns = Vec::new();
        for turn in 0..60 {
            for arm in 0..2 {
                let wait = 40.0 + 20.0 * random.share() + if arm == 1 { 30.0 } else { 0.0 };
                let values = BTreeMap::from([(Metric::FirstTokenMs, wait), (Metric::FillShare, 0.01 * turn as f64)]);
                let (session, pair) = (arm as u64, pair_blocks(0, turn));
                turns.push(ArmTurn { arm, user: 0, session, pair, period: 0, turn, values });
            }
        }
        let arms = ["small".to_owned(), "<large>".to_owned()];
        let asked = AskedFact {
            fact: "f".into(),
            zone: FactZone::Summarised,
            fill: 0.6,
            turns_since: 9,
            right: true,
            answer: "x".into(),
        };
        let report = ArmReport {
            title: "Replay of a & b".into(),
            facts: vec!["1 run".into()],
            comparison: compare(&arms, &[], &turns, DrawnUnit::Turn, 1),
            curves: curves(2, &turns),
            recall: recall(2, &[(1, &asked)]),
        };
        let page = page(&report).unwrap();
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
