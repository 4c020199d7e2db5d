//! Recall: the share of planted facts that replies gave back.

use experiment::wilson;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactZone {
    Tail,       // word for word in the prompt
    Summarised, // in a summary
    History,    // neither: only the store had it
}

impl FactZone {
    pub const ALL: [FactZone; 3] = [FactZone::Tail, FactZone::Summarised, FactZone::History];

    pub fn words(self) -> &'static str {
        match self {
            FactZone::Tail => "tail (word for word)",
            FactZone::Summarised => "summarised",
            FactZone::History => "history (not in the prompt)",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AskedFact {
    pub fact: String,
    pub zone: FactZone,
    pub fill: f64,          // share of its window that the conversation had filled
    pub turns_since: usize, // turns since it was told
    pub right: bool,
    pub answer: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecallRow {
    pub arm: usize,
    pub zone: FactZone,
    pub right: usize,
    pub asked: usize,
    pub low: f64, // Wilson's, of 95 in 100
    pub high: f64,
    pub by_fill: Vec<FillScore>, // by fill, in the parts of `FILLS`
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FillScore {
    pub right: usize,
    pub asked: usize,
}

pub const FILLS: [f64; 4] = [0.25, 0.5, 0.75, f64::INFINITY]; // ends of the parts of a window
pub const FILL_NAMES: [&str; 4] = ["fill below 25 %", "25 to 50 %", "50 to 75 %", "above 75 %"];

pub fn recall(arms: usize, asked: &[(usize, &AskedFact)]) -> Vec<RecallRow> {
    let mut all = Vec::new();
    for arm in 0..arms {
        for zone in FactZone::ALL {
            let own: Vec<&AskedFact> =
                asked.iter().filter(|(of, asked)| *of == arm && asked.zone == zone).map(|(_, asked)| *asked).collect();
            let right = own.iter().filter(|asked| asked.right).count();
            let Some(interval) = wilson(right, own.len()) else { continue };
            let mut by_fill = vec![FillScore::default(); FILLS.len()];
            for asked in own.iter() {
                let at = FILLS.iter().position(|end| asked.fill < *end).unwrap_or(FILLS.len() - 1);
                by_fill[at].asked += 1;
                by_fill[at].right += usize::from(asked.right);
            }
            let (low, high) = (interval.low, interval.high);
            all.push(RecallRow { arm, zone, right, asked: own.len(), low, high, by_fill });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_arm_zone_and_fill() {
        let asked = |zone, fill, right| AskedFact {
            fact: "f".into(),
            zone,
            fill,
            turns_since: 3,
            right,
            answer: String::new(),
        };
        let some = [
            asked(FactZone::Tail, 0.1, true),
            asked(FactZone::Tail, 0.9, false),
            asked(FactZone::Tail, 1.2, true),
            asked(FactZone::History, 0.5, false),
        ];
        let some: Vec<(usize, &AskedFact)> = some.iter().map(|asked| (1, asked)).collect();
        let found = recall(2, &some);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].arm, found[0].zone, found[0].right, found[0].asked), (1, FactZone::Tail, 2, 3));
        let parts: Vec<(usize, usize)> = found[0].by_fill.iter().map(|part| (part.right, part.asked)).collect();
        assert_eq!(parts, [(1, 1), (0, 0), (0, 0), (1, 2)]);
        assert_eq!(found[1].by_fill[2].asked, 1);
        assert!(found[0].low > 0.2 && found[0].high < 0.95);
    }
}
