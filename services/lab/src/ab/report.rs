//! `reprise ab report`: an experiment on live traffic, from the store's measurements.

use super::curves::curves;
use super::turns::values;
use super::{ArmReport, OutputArgs, tell};
use crate::output::{clean, time};
use crate::store::with_store;
use anyhow::{Result, bail};
use experiment::{ArmTurn, compare};
use settings::{DrawnBy, Experiment, Settings};
use std::collections::HashMap;
use store::{ExperimentTurn, Store};

/// Prints the differences between the arms of an experiment on live traffic
///
/// The intervals come from resampling users with all their turns (sessions, if there are too few users), because turns
/// of one user resemble each other. All intervals hold together in 95 of 100 comparisons.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the experiment [default: the configured one, else the newest that has turns]
    experiment: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    /// Seed of the draws that make the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(args: &Args, settings: &Settings) -> Result<()> {
    with_store(settings, false, async |store| {
        let name = name(args, settings, store).await?;
        let turns = store.experiment_turns(&name).await?;
        let configured = settings.experiment.as_ref().filter(|experiment| experiment.name == name);
        let Some(report) = report(&name, configured, &turns, args.seed) else {
            bail!("the experiment {:?} has no turns yet: talk with the service while it runs", clean(&name));
        };
        tell(&report, &args.output)
    })
}

async fn name(args: &Args, settings: &Settings, store: &Store) -> Result<String> {
    let known = store.experiments().await?;
    match (&args.experiment, &settings.experiment) {
        (Some(name), _) if known.contains(name) => Ok(name.clone()),
        (Some(name), _) => bail!("there is no experiment {name:?}; there are: {}", clean(&known.join(", "))),
        (None, Some(configured)) => Ok(configured.name.clone()),
        (None, None) => match known.into_iter().next() {
            Some(newest) => Ok(newest),
            None => bail!("no turn was measured in an experiment: set [experiment] in reprise.toml"),
        },
    }
}

fn report(name: &str, configured: Option<&Experiment>, measured: &[ExperimentTurn], seed: u64) -> Option<ArmReport> {
    let arms = arms(configured, measured);
    let (mut users, mut sessions) = (HashMap::new(), HashMap::new());
    let turns: Vec<ArmTurn> = measured
        .iter()
        .filter_map(|turn| {
            let arm = arms.iter().position(|arm| Some(arm) == turn.measurement.arm.as_ref())?;
            let (next_user, next_session) = (users.len() as u64, sessions.len() as u64);
            Some(ArmTurn {
                arm,
                user: *users.entry(&turn.user).or_insert(next_user),
                session: *sessions.entry((&turn.user, &turn.session)).or_insert(next_session),
                pair: 0,
                turn: turn.measurement.turn,
                values: values(&turn.measurement),
            })
        })
        .collect();
    let (first, last) = (measured.first()?, measured.last()?);
    // If sessions are drawn, the counts of users say nothing about the draw.
    let weights = match configured.filter(|experiment| experiment.by == DrawnBy::User) {
        Some(experiment) => arms.iter().map(|arm| weight(experiment, arm)).collect(),
        None => Vec::new(),
    };
    let comparison = compare(&arms, &weights, &turns, false, seed);
    let curves = curves(arms.len(), &turns);
    let facts = vec![format!(
        "{} turns from {} to {} (UTC)",
        turns.len(),
        time(first.measurement.created_at_ms),
        time(last.measurement.created_at_ms)
    )];
    Some(ArmReport { title: format!("Experiment {}", clean(name)), facts, comparison, curves, recall: Vec::new() })
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

#[cfg(test)]
mod tests {
    use super::super::turns::tests::measurement;
    use super::*;
    use store::Measurement;

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
        let report = report("windows", None, &measured, 1).unwrap();
        assert_eq!(report.comparison.arms, ["small", "large"]);
        assert_eq!((report.comparison.traffic[0].users, report.comparison.traffic[0].sessions), (10, 20));
        assert_eq!(report.comparison.traffic[1].turns, 60);
        assert!(report.facts[0].starts_with("120 turns from 1970-01-01"));
        assert_eq!(report.curves.len(), 3);
    }

    #[test]
    fn of_nothing_there_is_no_report() {
        assert!(report("windows", None, &[], 1).is_none());
    }
}
