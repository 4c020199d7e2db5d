//! The experiment: its arms with their weights, and its time.

use std::collections::BTreeMap;

use strum::{IntoStaticStr, VariantArray};

use crate::reader::SectionReader;
use crate::value::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    pub name: String,
    pub unit: ExperimentUnit,
    /// Arms by name: the order in the file has no meaning.
    pub arms: Vec<ExperimentArm>,
    /// Milliseconds since 1970. `None`: at once.
    pub start_ms: Option<i64>,
    pub end_ms: Option<i64>,
    pub overrides: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum ExperimentUnit {
    // Users where the service knows many, else sessions.
    Auto,
    User,
    Session,
    Day,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentArm {
    pub preset: String,
    pub weight: f64,
}

impl Experiment {
    pub fn runs_at(&self, now_ms: i64) -> bool {
        self.start_ms.is_none_or(|start| start <= now_ms) && self.end_ms.is_none_or(|end| now_ms < end)
    }

    pub(crate) fn read(r: &SectionReader<'_>) -> Option<Experiment> {
        let allowed = format!("text of at most {NAME_CHARS} characters on one line");
        let name = r.text_as("name", String::new(), &allowed, |text| {
            let right = text.chars().count() <= NAME_CHARS && !text.chars().any(char::is_control);
            if right { Ok(text.to_string()) } else { Err(None) }
        });
        let unit = r.choice("unit");
        let arms = r.map("arms", ARMS, |value| match value {
            None => Ok(1.0),
            Some(Value::Integer(number)) if (0..=MOST_WEIGHT as i64).contains(number) => Ok(*number as f64),
            Some(Value::Float(number)) if (0.0..=MOST_WEIGHT).contains(number) => Ok(*number),
            Some(_) => Err(None),
        });
        let overrides = r.map("overrides", OVERRIDES, |value| match value {
            Some(Value::Text(arm)) => Ok(arm.clone()),
            _ => Err(None),
        });
        let arms = arms.into_iter().map(|(preset, weight)| ExperimentArm { preset, weight }).collect();
        let (start_ms, end_ms) = (r.moment("start"), r.moment("end"));
        let overrides = overrides.into_iter().collect();
        (!name.is_empty()).then_some(Experiment { name, unit, arms, start_ms, end_ms, overrides })
    }
}

const NAME_CHARS: usize = 64;
const MOST_WEIGHT: f64 = 1e6;
pub(crate) const ARMS: &str = "presets with weights such as { \"qwen3.5-9b-32k\" = 1, \"qwen3.5-9b-64k\" = 1 }";
const OVERRIDES: &str = "users with arms such as { ann = \"qwen3.5-9b-64k\" }";
