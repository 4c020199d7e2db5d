//! The experiment: arms, their weights, when it runs, and who is in an arm whatever the dice say.

use crate::nearest::nearest;
use crate::reader::{Choice, Findings, Reader};
use crate::settings::Settings;
use crate::tree::{Value, join};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    pub name: String,
    pub by: DrawnBy,
    /// By name, so that the order in which they were written says nothing.
    pub arms: Vec<ExperimentArm>,
    /// Milliseconds since 1970. None: at once.
    pub start_ms: Option<i64>,
    /// None: never.
    pub end_ms: Option<i64>,
    /// Arms by user.
    pub overrides: BTreeMap<String, String>,
}

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawnBy {
    User,
    Session,
}

impl Choice for DrawnBy {
    const ALL: &'static [(&'static str, Self)] = &[("user", DrawnBy::User), ("session", DrawnBy::Session)];
}

/// An arm has the name of its preset.
#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentArm {
    pub preset: String,
    pub weight: f64,
}

impl Experiment {
    pub fn runs_at(&self, now_ms: i64) -> bool {
        self.start_ms.is_none_or(|start| start <= now_ms) && self.end_ms.is_none_or(|end| now_ms < end)
    }

    /// None where it has no name.
    pub(crate) fn read(r: &Reader<'_>) -> Option<Experiment> {
        let allowed = format!("text of at most {NAME_CHARS} characters on one line");
        let name = r.text_as("name", String::new(), &allowed, |text| {
            let right = text.chars().count() <= NAME_CHARS && !text.chars().any(char::is_control);
            if right { Ok(text.to_string()) } else { Err(None) }
        });
        let by = r.choice("by");
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
        (!name.is_empty()).then_some(Experiment { name, by, arms, start_ms, end_ms, overrides })
    }
}

const NAME_CHARS: usize = 64;
const MOST_WEIGHT: f64 = 1e6;
const ARMS: &str = "presets with weights such as { \"qwen3.5-9b-32k\" = 1, \"qwen3.5-9b-64k\" = 1 }";
const OVERRIDES: &str = "users with arms such as { ann = \"qwen3.5-9b-64k\" }";

/// What the keys must say together. After the presets are known.
pub(crate) fn check(settings: &Settings, findings: &Findings) {
    let Some(experiment) = &settings.experiment else { return };
    if let (Some(start), Some(end)) = (experiment.start_ms, experiment.end_ms)
        && start >= end
    {
        let keys = [("experiment", "start"), ("experiment", "end")];
        findings.contradiction(&keys, "an end that is not after the start".into(), "a start before the end");
    }
    let weighted = experiment.arms.iter().filter(|arm| arm.weight > 0.0).count();
    if weighted < 2 {
        let found = match experiment.arms.len() {
            0 => "no arm".to_string(),
            _ => format!("{weighted} arm with a weight above 0"),
        };
        let keys = [("experiment", "name"), ("experiment", "arms")];
        findings.contradiction(&keys, found, &format!("two arms or more: {ARMS}"));
    }
    for arm in experiment.arms.iter().filter(|arm| !settings.presets.contains_key(&arm.preset)) {
        let found =
            format!("the arm {:?}, which is no preset{}", arm.preset, mean(&arm.preset, settings.presets.keys()));
        findings.contradiction(&[("experiment", "arms")], found, &settings.preset_names());
    }
    let names = || experiment.arms.iter().map(|arm| &arm.preset);
    for (user, arm) in experiment.overrides.iter().filter(|(_, arm)| !names().any(|name| name == *arm)) {
        let found = format!("the arm {arm:?} for {}{}", join("", user), mean(arm, names()));
        let allowed = names().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        findings.contradiction(&[("experiment", "overrides")], found, &allowed);
    }
}

fn mean<'a>(word: &str, allowed: impl Iterator<Item = &'a String>) -> String {
    nearest(word, allowed.map(String::as_str)).map(|near| format!(" (did you mean {near:?}?)")).unwrap_or_default()
}
