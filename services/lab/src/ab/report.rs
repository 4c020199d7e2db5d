//! `reprise ab report`: an experiment on live traffic, from the store's measurements.

use super::curves::curves;
use super::{ArmReport, OutputArgs, tell};
use anyhow::{Result, bail};
use runtime::ArmTurns;
use settings::{Experiment, Settings};
use store::{ExperimentTurn, Store};
use terminal::output::{clean, time};
use terminal::store::with_store;

/// Prints the differences between the arms of an experiment on live traffic
///
/// Compares each user with itself, if sessions or days were drawn. Else the intervals come from resampling users with all
/// their turns (sessions, if there are too few users), because turns of one user resemble each other. All intervals
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
    let (first, last) = (measured.first()?, measured.last()?);
    let arms = ArmTurns::of(configured, measured);
    let facts = vec![format!(
        "{} turns from {} to {} (UTC)",
        arms.turns.len(),
        time(first.measurement.created_at_ms),
        time(last.measurement.created_at_ms)
    )];
    let (comparison, curves) = (arms.compared(seed), curves(arms.arms.len(), &arms.turns));
    Some(ArmReport { title: format!("Experiment {}", clean(name)), facts, comparison, curves, recall: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::super::view::ReportView;
    use super::*;
    use serde_json::json;

    fn turn(n: u64) -> ExperimentTurn {
        let measurement = json!({
            "turn": n, "response": null, "experiment": "windows", "arm": "small", "preset": "small", "ctx_size": 1000,
            "tokens_in": 400, "tokens_out": 21, "fill_tokens": 421, "reused_tokens": 390, "computed_tokens": 10,
            "computed_reason": "new_text", "queue_ms": 1.0, "prefill_ms": 30.0, "first_token_ms": 32.0,
            "first_sentence_ms": 90.0, "total_ms": 432.0, "decode_ms": 400.0, "compactions": 1, "drops": 0,
            "barged_in": true, "regenerated": false, "feedback": null, "memory": {}, "created_at_ms": 1,
        });
        let measurement = serde_json::from_value(measurement).unwrap();
        ExperimentTurn { user: "ann".to_owned(), session: "a".to_owned(), measurement }
    }

    #[test]
    fn a_report_says_from_when_its_turns_are() {
        let report = report("windows", None, &[turn(0), turn(1)], 1).unwrap();
        assert!(report.facts[0].starts_with("2 turns from 1970-01-01"));
        let advice = ReportView::new(&report).advice;
        assert_eq!(advice, "Go on measuring: there is too little yet to tell the arms apart.", "of one arm");
        assert_eq!((report.comparison.arms, report.curves.len()), (vec!["small".to_owned()], 2));
    }

    #[test]
    fn a_home_whose_users_met_both_arms_gets_advice() {
        let mut measured = Vec::new();
        for session in 0..24_u32 {
            let (user, arm) = ([100.0, 900.0][session as usize % 2], ["large", "small"][session as usize / 2 % 2]);
            for n in 0..3 {
                let mut one = turn(n);
                one.measurement.arm = Some(arm.to_owned());
                one.measurement.ctx_size = if arm == "large" { 2000 } else { 1000 };
                let wait = user + f64::from(session % 5) + n as f64;
                one.measurement.first_token_ms = Some(wait + if arm == "large" { 40.0 } else { 0.0 });
                one.measurement.created_at_ms = i64::from(session) * 86_400_000;
                measured.push(ExperimentTurn { user: user.to_string(), session: session.to_string(), ..one });
            }
        }
        let report = report("windows", None, &measured, 1).unwrap();
        let view = ReportView::new(&report);
        assert!(view.advice.starts_with("Take A (small): in it time to first token"), "{}", view.advice);
        assert!(view.method.contains("each user with itself"), "{}", view.method);
    }

    #[test]
    fn of_nothing_there_is_no_report() {
        assert!(report("windows", None, &[], 1).is_none());
    }
}
