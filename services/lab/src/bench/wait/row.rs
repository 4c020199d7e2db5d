//! A row of the table: a value, its floor, and its limit.

use serde::Serialize;

#[derive(Debug, Default, Serialize)]
pub struct WaitRow {
    pub what: String,
    pub value: Option<f64>, // median
    pub unit: &'static str,
    pub floor: Option<f64>, // the same if nothing but the arithmetic took time
    pub share_of_floor: Option<f64>,
    pub must_show: String,
    pub aim: String,
    pub holds: Option<bool>,
    pub peer: Option<f64>,
    pub ratio: Option<f64>, // ours to the peer's
    pub note: String,
}

impl WaitRow {
    pub fn new(what: impl Into<String>, unit: &'static str, value: Option<f64>) -> WaitRow {
        WaitRow { what: what.into(), unit, value, ..WaitRow::default() }
    }

    pub fn at_most(self, must: f64, aim: Option<f64>) -> WaitRow {
        // a wait: less is better
        let holds = self.value.map(|value| value <= must);
        WaitRow {
            must_show: format!("<= {must}"),
            aim: aim.map_or_else(String::new, |aim| format!("{aim}")),
            holds,
            ..self
        }
    }

    pub fn at_least(self, must: f64, aim: Option<f64>) -> WaitRow {
        // a rate: more is better
        let holds = self.value.map(|value| value >= must);
        WaitRow {
            must_show: format!(">= {must}"),
            aim: aim.map_or_else(String::new, |aim| format!("{aim}")),
            holds,
            ..self
        }
    }

    pub fn over(self, floor: Option<f64>) -> WaitRow {
        let share_of_floor = floor.zip(self.value).map(|(floor, value)| floor / value);
        WaitRow { floor, share_of_floor, ..self }
    }

    pub fn beside(self, peer: Option<f64>) -> WaitRow {
        let ratio = self.value.zip(peer).map(|(ours, theirs)| ours / theirs);
        WaitRow { peer, ratio, ..self }
    }

    pub fn noted(self, note: impl Into<String>) -> WaitRow {
        WaitRow { note: note.into(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_what_it_must_show() {
        let wait = |value| WaitRow::new("", "ms", Some(value)).at_most(70.0, Some(63.0)).holds;
        assert_eq!((wait(70.0), wait(70.1)), (Some(true), Some(false)));
        let rate = |value| WaitRow::new("", "%", value).at_least(88.0, None);
        assert_eq!((rate(Some(88.0)).holds, rate(Some(87.9)).holds, rate(None).holds), (Some(true), Some(false), None));
        assert_eq!((rate(None).must_show, rate(None).aim), (">= 88".to_owned(), String::new()));
        let row = WaitRow::new("", "ms", Some(90.0)).over(Some(63.0)).beside(Some(450.0));
        assert_eq!((row.share_of_floor, row.ratio), (Some(0.7), Some(0.2)));
    }
}
