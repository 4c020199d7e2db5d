//! `reprise ab report`: an experiment on live traffic, from the store's measurements.

use super::curves::curves;
use super::turns::values;
use super::{ArmReport, OutputArgs, tell};
use crate::output::{clean, time};
use crate::store::with_store;
use anyhow::{Result, bail};
use experiment::{ArmTurn, ComparedUnit, DrawnUnit, compare};
use settings::{Experiment, ExperimentUnit, Settings};
use std::collections::HashMap;
use store::{ExperimentTurn, Store};

/// Prints the differences between the arms of an experiment on live traffic
///
/// Where sessions or days were drawn, each user is compared with itself. Else the intervals come from resampling users with
/// all their turns (sessions, if there are too few users), because turns of one user resemble each other. All intervals
/// hold together in 95 of 100 comparisons.
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
    let drawn = match configured.map(|experiment| experiment.unit) {
        Some(ExperimentUnit::User) => DrawnUnit::User,
        Some(ExperimentUnit::Day) => DrawnUnit::Day,
        // Where no user met two arms, users are compared.
        Some(ExperimentUnit::Session | ExperimentUnit::Auto) | None => DrawnUnit::Session,
    };
    let (mut users, mut sessions) = (HashMap::new(), HashMap::new());
    // Number of each user's session, or day, in the order of first turns; and how many the user has.
    let (mut periods, mut counts): (HashMap<_, u64>, HashMap<_, u64>) = (HashMap::new(), HashMap::new());
    let turns: Vec<ArmTurn> = measured
        .iter()
        .filter_map(|turn| {
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
                values: values(&turn.measurement),
            })
        })
        .collect();
    let (first, last) = (measured.first()?, measured.last()?);
    let weights: Vec<f64> =
        configured.iter().flat_map(|experiment| arms.iter().map(|arm| weight(experiment, arm))).collect();
    let mut comparison = compare(&arms, &weights, &turns, drawn, seed);
    if comparison.unit == ComparedUnit::Sessions && drawn != DrawnUnit::User {
        // If sessions are drawn, the counts of users say nothing about the draw.
        comparison = compare(&arms, &[], &turns, drawn, seed);
    }
    let curves = curves(arms.len(), &turns);
    let facts = vec![format!(
        "{} turns from {} to {} (UTC)",
        turns.len(),
        time(first.measurement.created_at_ms),
        time(last.measurement.created_at_ms)
    )];
    Some(ArmReport { title: format!("Experiment {}", clean(name)), facts, comparison, curves, recall: Vec::new() })
}

const DAY_MS: i64 = 86_400_000;

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
    use super::super::view::ReportView;
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
    fn users_who_met_both_arms_are_compared_with_themselves() {
        let day = |session: usize| session as i64 * DAY_MS;
        let mut measured = Vec::new();
        for session in 0..24 {
            let (user, arm) = (["ann", "bob"][session % 2], ["large", "small"][session / 2 % 2]);
            for n in 0..3 {
                let mut one = turn(user, &format!("sess_{session}"), arm, if arm == "large" { 2000 } else { 1000 }, n);
                let wait = if user == "ann" { 100.0 } else { 900.0 } + (session % 5) as f64 + n as f64;
                one.measurement.first_token_ms = Some(wait + if arm == "large" { 40.0 } else { 0.0 });
                one.measurement.created_at_ms = day(session);
                measured.push(one);
            }
        }
        let report = report("windows", None, &measured, 1).unwrap();
        assert_eq!(report.comparison.unit, ComparedUnit::OwnSessions);
        let view = ReportView::new(&report);
        assert!(view.advice.starts_with("Take A (small): in it time to first token"), "{}", view.advice);
        assert!(view.method.contains("each user with itself"), "{}", view.method);
    }

    #[test]
    fn of_nothing_there_is_no_report() {
        assert!(report("windows", None, &[], 1).is_none());
    }
}
