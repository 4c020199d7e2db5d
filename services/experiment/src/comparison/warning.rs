//! Warnings about a comparison that is worth less than it looks.

use super::{ArmTurn, ComparedUnit, LEAST_UNITS, Traffic};
use crate::bootstrap::{Pairing, Resampling, Sample, Statistic, difference};
use crate::traffic::chi_square;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Serialize, strum::Display)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Warning {
    #[strum(to_string = "{arm} has no turn yet")]
    NoTurns { arm: String },
    #[strum(
        to_string = "{arm} has {users} users, and {least} are the least to tell arms apart: sessions are compared \
                         instead, so a difference may be one of people"
    )]
    TooFewUsers { arm: String, users: usize, least: usize },
    #[strum(to_string = "{blocks} blocks of turns were played, and {least} are the least to tell arms apart")]
    TooFewPairs { blocks: usize, least: usize },
    #[strum(
        to_string = "the arms have {users:?} users, which their weights make unlikely (p = {p:.5}): something else \
                         than chance sends users (overrides, changed weights), and no difference is to be trusted before \
                     that is found"
    )]
    UnevenUsers { users: Vec<usize>, p: f64 },
    #[strum(to_string = "{users} users have been in more than one arm (weights or overrides changed)")]
    UsersInSeveralArms { users: usize },
    #[strum(
        to_string = "sessions of {arm} have {turns_per_session:.1} turns, those of the first arm {first:.1}: waits \
                         and fill grow with turns, so compare the plots at the same turn"
    )]
    UnevenSessions { arm: String, turns_per_session: f64, first: f64 },
    #[strum(
        to_string = "{metric} changes by {change:.3} from one session or day of a user to the next, whatever the arm: the \
                         differences are of what is left, and will change further"
    )]
    Drift { metric: &'static str, change: f64 },
    #[strum(
        to_string = "the window of {arm} was changed from one size to another ({windows:?} tokens): its turns are of all of \
                     them, so give the experiment a new name where a preset changes"
    )]
    ChangedWindow { arm: String, windows: Vec<u64> },
    #[strum(to_string = "the arm of {users} of the users was not drawn (overrides): a difference may be one of people")]
    NotDrawn { users: usize },
}

const UNLIKELY: f64 = 0.001; // less than one comparison in a thousand shows it by chance

pub fn warnings(
    arms: &[String],
    weights: &[f64],
    turns: &[ArmTurn],
    traffic: &[Traffic],
    unit: ComparedUnit,
    seed: u64,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let silent = arms.iter().zip(traffic).filter(|(_, seen)| seen.turns == 0);
    warnings.extend(silent.map(|(arm, _)| Warning::NoTurns { arm: arm.clone() }));
    if unit == ComparedUnit::Pairs {
        let blocks = turns.iter().map(|turn| turn.pair).collect::<BTreeSet<_>>().len();
        if blocks < LEAST_UNITS {
            warnings.push(Warning::TooFewPairs { blocks, least: LEAST_UNITS });
        }
        return warnings;
    }
    if matches!(unit, ComparedUnit::OwnSessions | ComparedUnit::OwnDays) {
        return warnings;
    }
    for (arm, seen) in arms.iter().zip(traffic).filter(|(_, seen)| (1..LEAST_UNITS).contains(&seen.users)) {
        warnings.push(Warning::TooFewUsers { arm: arm.clone(), users: seen.users, least: LEAST_UNITS });
    }
    let users: Vec<usize> = traffic.iter().map(|seen| seen.users).collect();
    let counts: Vec<u64> = users.iter().map(|users| *users as u64).collect();
    if let Some(p) = chi_square(&counts, weights).filter(|p| *p < UNLIKELY) {
        warnings.push(Warning::UnevenUsers { users, p });
    }
    let mut arms_of_user: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    for turn in turns {
        arms_of_user.entry(turn.user).or_default().insert(turn.arm);
    }
    let several = arms_of_user.values().filter(|arms| arms.len() > 1).count();
    if several > 0 {
        warnings.push(Warning::UsersInSeveralArms { users: several });
    }
    let first = session_lengths(0, turns, unit);
    for (index, arm) in arms.iter().enumerate().skip(1) {
        let other = session_lengths(index, turns, unit);
        let resampling = Resampling::of(first.len() + other.len(), 1.0 - UNLIKELY, seed);
        let Some(found) = difference(&first, &other, Statistic::Mean, Pairing::Independent, &resampling) else {
            continue;
        };
        if found.low > 0.0 || found.high < 0.0 {
            let turns_per_session = |index: usize| traffic.get(index).map_or(0.0, |seen| seen.turns_per_session);
            warnings.push(Warning::UnevenSessions {
                arm: arm.clone(),
                turns_per_session: turns_per_session(index),
                first: turns_per_session(0),
            });
        }
    }
    warnings
}

fn session_lengths(arm: usize, turns: &[ArmTurn], unit: ComparedUnit) -> Vec<Sample> {
    let mut lengths: BTreeMap<u64, (u64, f64)> = BTreeMap::new();
    for turn in turns.iter().filter(|turn| turn.arm == arm) {
        let cluster = if unit == ComparedUnit::Users { turn.user } else { turn.session };
        lengths.entry(turn.session).or_insert((cluster, 0.0)).1 += 1.0;
    }
    lengths.into_values().map(|(cluster, value)| Sample { cluster, value }).collect()
}
