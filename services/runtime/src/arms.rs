//! Arms of an experiment on live traffic, from the store's measurements.

use crate::placement::DAY_MS;
use experiment::{ArmTurn, ComparedUnit, Comparison, DrawnUnit, Metric, Warning, compare};
use settings::{Experiment, ExperimentUnit};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use store::{ExperimentTurn, Measurement};

/// Turns of an experiment by their arm, the smallest window first: the others are compared with it.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmTurns {
    pub arms: Vec<String>,
    pub turns: Vec<ArmTurn>,
    weights: Vec<f64>,
    drawn: DrawnUnit,
    warnings: Vec<Warning>,
}

impl ArmTurns {
    pub fn of(configured: Option<&Experiment>, measured: &[ExperimentTurn]) -> ArmTurns {
        let arms = arms(configured, measured);
        let drawn = match configured.map(|experiment| experiment.unit) {
            Some(ExperimentUnit::User) => DrawnUnit::User,
            Some(ExperimentUnit::Day) => DrawnUnit::Day,
            // Where no user met two arms, users are compared.
            Some(ExperimentUnit::Session | ExperimentUnit::Auto) | None => DrawnUnit::Session,
        };
        let (mut users, mut sessions) = (HashMap::new(), HashMap::new());
        // Number of each user's session, or day, in the order of first turns; and how many the user has.
        let (mut periods, mut counts): (HashMap<_, u64>, HashMap<_, u64>) = (HashMap::new(), HashMap::new());
        let turns = measured.iter().filter_map(|turn| {
            let arm = arms.iter().position(|arm| Some(arm) == turn.measurement.arm.as_ref())?;
            let (next_user, next_session) = (users.len() as u64, sessions.len() as u64);
            let day = turn.measurement.created_at_ms.div_euclid(DAY_MS);
            let unit =
                if drawn == DrawnUnit::Day { (&turn.user, "", day) } else { (&turn.user, turn.session.as_str(), 0) };
            let period = *periods.entry(unit).or_insert_with(|| {
                let count = counts.entry(&turn.user).or_default();
                *count += 1;
                *count - 1
            });
            Some(ArmTurn {
                arm,
                user: *users.entry(&turn.user).or_insert(next_user),
                session: *sessions.entry((&turn.user, &turn.session)).or_insert(next_session),
                pair: 0,
                period,
                turn: turn.measurement.turn,
                values: turn_values(&turn.measurement),
            })
        });
        let turns = turns.collect();
        let weights = configured.iter().flat_map(|experiment| arms.iter().map(|arm| weight(experiment, arm))).collect();
        let warnings = warnings(configured, &arms, measured);
        ArmTurns { arms, turns, weights, drawn, warnings }
    }

    pub fn compared(&self, seed: u64) -> Comparison {
        let by_shares = compare(&self.arms, &self.weights, &self.turns, self.drawn, seed);
        let mut comparison = match by_shares.unit {
            // If sessions are drawn, the counts of users say nothing about the draw.
            ComparedUnit::Sessions if self.drawn != DrawnUnit::User => {
                compare(&self.arms, &[], &self.turns, self.drawn, seed)
            }
            _ => by_shares,
        };
        comparison.warnings.extend(self.warnings.iter().cloned());
        comparison
    }
}

/// Finds what the turns say against a comparison beside their numbers.
fn warnings(configured: Option<&Experiment>, arms: &[String], measured: &[ExperimentTurn]) -> Vec<Warning> {
    let of_arm = |arm: &String| {
        let own = measured.iter().filter(|turn| turn.measurement.arm.as_ref() == Some(arm));
        let windows: BTreeSet<u64> = own.map(|turn| turn.measurement.ctx_size).collect();
        (windows.len() > 1).then(|| Warning::ChangedWindow { arm: arm.clone(), windows: windows.into_iter().collect() })
    };
    let overrides = |user: &String| configured.is_some_and(|experiment| experiment.overrides.contains_key(user));
    let users: BTreeSet<&String> = measured.iter().map(|turn| &turn.user).filter(|user| overrides(user)).collect();
    let not_drawn = (!users.is_empty()).then_some(Warning::NotDrawn { users: users.len() });
    arms.iter().filter_map(of_arm).chain(not_drawn).collect()
}

/// Lists arms with turns and configured ones, the smallest window first: the others are compared with it.
fn arms(configured: Option<&Experiment>, measured: &[ExperimentTurn]) -> Vec<String> {
    let mut arms: Vec<(u64, String)> = Vec::new();
    for turn in measured {
        if let Some(arm) = &turn.measurement.arm
            && !arms.iter().any(|(_, known)| known == arm)
        {
            arms.push((turn.measurement.ctx_size, arm.clone()));
        }
    }
    for arm in configured.iter().flat_map(|experiment| &experiment.arms) {
        if !arms.iter().any(|(_, known)| *known == arm.preset) {
            arms.push((u64::MAX, arm.preset.clone()));
        }
    }
    arms.sort();
    arms.into_iter().map(|(_, arm)| arm).collect()
}

fn weight(experiment: &Experiment, arm: &str) -> f64 {
    experiment.arms.iter().find(|known| known.preset == arm).map_or(0.0, |known| known.weight)
}

pub fn turn_values(turn: &Measurement) -> BTreeMap<Metric, f64> {
    let yes = |is: bool| Some(f64::from(u8::from(is)));
    let decoded = turn.tokens_out.saturating_sub(1);
    let speed = (decoded > 0 && turn.decode_ms > 0.0).then(|| decoded as f64 * 1e3 / turn.decode_ms);
    let bytes = |kinds: &[&str]| {
        let found: Vec<f64> = kinds.iter().filter_map(|kind| turn.memory.get(*kind)?.as_f64()).collect();
        (!found.is_empty()).then(|| found.iter().sum::<f64>())
    };
    let values = [
        (Metric::FirstTokenMs, turn.first_token_ms),
        (Metric::FirstTokenP95Ms, turn.first_token_ms),
        (Metric::FirstSentenceMs, turn.first_sentence_ms),
        (Metric::TotalMs, Some(turn.total_ms)),
        (Metric::DecodeTokensPerSecond, speed),
        (Metric::TokensIn, Some(turn.tokens_in as f64)),
        (Metric::TokensOut, Some(turn.tokens_out as f64)),
        (Metric::FillShare, (turn.ctx_size > 0).then(|| turn.fill_tokens as f64 / turn.ctx_size as f64)),
        (Metric::ReusedTokens, Some(turn.reused_tokens as f64)),
        (Metric::ComputedTokens, Some(turn.computed_tokens as f64)),
        (Metric::Compactions, Some(turn.compactions as f64)),
        (Metric::Drops, Some(turn.drops as f64)),
        (Metric::BargeIns, yes(turn.barged_in)),
        (Metric::Regenerations, yes(turn.regenerated)),
        (Metric::ThumbsUp, turn.feedback.filter(|thumb| *thumb != 0).and_then(|thumb| yes(thumb > 0))),
        (Metric::SessionBytes, bytes(&["pages", "snapshots", "moved_snapshots", "recurrence_logs", "trails", "live"])),
        (Metric::GpuBytes, bytes(&["gpu_process"]).or_else(|| bytes(&["gpu_used"]))),
    ];
    values.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn measurement(turn: u64) -> Measurement {
        serde_json::from_value(json!({
            "turn": turn, "response": format!("resp_{turn}"), "experiment": "windows", "arm": "small", "preset": "small",
            "ctx_size": 1000, "tokens_in": 400, "tokens_out": 21, "fill_tokens": 421, "reused_tokens": 390,
            "computed_tokens": 10, "computed_reason": "new_text", "queue_ms": 1.0, "prefill_ms": 30.0,
            "first_token_ms": 32.0, "first_sentence_ms": 90.0, "total_ms": 432.0, "decode_ms": 400.0, "compactions": 1,
            "drops": 0, "barged_in": true, "regenerated": false, "feedback": null,
            "memory": {"pages": 3000, "snapshots": 500, "recurrence_logs": 20, "live": 100, "gpu_used": 7}, "created_at_ms": 1,
        }))
        .unwrap()
    }

    #[test]
    fn every_value_is_what_the_store_has() {
        let found = turn_values(&measurement(0));
        for (metric, value) in [
            (Metric::FirstTokenMs, 32.0),
            (Metric::DecodeTokensPerSecond, 50.0),
            (Metric::FillShare, 0.421),
            (Metric::BargeIns, 1.0),
            (Metric::Regenerations, 0.0),
            (Metric::SessionBytes, 3620.0),
            (Metric::GpuBytes, 7.0),
        ] {
            assert_eq!(found.get(&metric), Some(&value), "{metric:?}");
        }
        assert!(!found.contains_key(&Metric::ThumbsUp));
        let silent = Measurement {
            first_token_ms: None,
            tokens_out: 0,
            decode_ms: 0.0,
            feedback: Some(-1),
            memory: json!({}),
            ..measurement(1)
        };
        let found = turn_values(&silent);
        assert_eq!(found.get(&Metric::ThumbsUp), Some(&0.0));
        for metric in [Metric::FirstTokenMs, Metric::DecodeTokensPerSecond, Metric::SessionBytes, Metric::GpuBytes] {
            assert!(!found.contains_key(&metric), "{metric:?}");
        }
    }

    fn turn(user: &str, session: &str, arm: &str, ctx_size: u64, turn: u64) -> ExperimentTurn {
        let measurement = Measurement { arm: Some(arm.to_owned()), ctx_size, ..measurement(turn) };
        ExperimentTurn { user: user.to_owned(), session: session.to_owned(), measurement }
    }

    #[test]
    fn arms_by_window_and_sessions_by_user() {
        let mut measured = Vec::new();
        for user in 0..20 {
            let (arm, ctx_size) = if user % 2 == 0 { ("large", 2000) } else { ("small", 1000) };
            for session in ["a", "b"] {
                measured.extend((0..3).map(|n| turn(&format!("user_{user}"), session, arm, ctx_size, n)));
            }
        }
        let turns = ArmTurns::of(None, &measured);
        let comparison = turns.compared(1);
        assert_eq!(comparison.arms, ["small", "large"]);
        assert_eq!((comparison.traffic[0].users, comparison.traffic[0].sessions), (10, 20));
        assert_eq!(comparison.traffic[1].turns, 60);
    }

    #[test]
    fn users_who_met_both_arms_are_compared_with_themselves() {
        let mut measured = Vec::new();
        for session in 0..24 {
            let (user, arm) = (["ann", "bob"][session % 2], ["large", "small"][session / 2 % 2]);
            for n in 0..3 {
                let mut one = turn(user, &format!("sess_{session}"), arm, if arm == "large" { 2000 } else { 1000 }, n);
                let wait = if user == "ann" { 100.0 } else { 900.0 } + (session % 5) as f64 + n as f64;
                one.measurement.first_token_ms = Some(wait + if arm == "large" { 40.0 } else { 0.0 });
                one.measurement.created_at_ms = session as i64 * DAY_MS;
                measured.push(one);
            }
        }
        assert_eq!(ArmTurns::of(None, &measured).compared(1).unit, ComparedUnit::OwnSessions);
    }

    #[test]
    fn an_arm_whose_window_changed_and_users_who_were_not_drawn_are_told() {
        let mut measured: Vec<ExperimentTurn> = (0..20)
            .map(|n| turn("ann", &format!("sess_{n}"), ["large", "small"][n % 2], [2000, 1000][n % 2], 0))
            .collect();
        let words = |configured: Option<&Experiment>, measured: &[ExperimentTurn]| {
            let warnings = ArmTurns::of(configured, measured).compared(1).warnings;
            warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(words(None, &measured), "");
        measured[18].measurement.ctx_size = 4000;
        let told = words(None, &measured);
        assert!(
            told.contains("the window of large was changed from one size to another ([2000, 4000] tokens)"),
            "{told}"
        );
        measured[18].measurement.ctx_size = 2000;
        let experiment = Experiment {
            name: "windows".to_owned(),
            unit: ExperimentUnit::Auto,
            arms: Vec::new(),
            start_ms: None,
            end_ms: None,
            overrides: BTreeMap::from([("ann".to_owned(), "large".to_owned()), ("bob".to_owned(), "large".to_owned())]),
        };
        let told = words(Some(&experiment), &measured);
        assert!(told.contains("the arm of 1 of the users was not drawn"), "{told}");
    }
}
