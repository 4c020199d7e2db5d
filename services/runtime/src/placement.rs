//! Placement of a session: its preset, and its arm of the experiment. A session keeps both, whatever is configured
//! later.

use crate::{Error, ModelChoice, Presets};
use experiment::{Arm, assign, assign_in_turn, assign_next};
use settings::{Experiment, ExperimentUnit, Preset, Settings};
use store::{ExperimentCounts, Placement};

/// Places a new session. A client that names a preset gets it, and is in no arm.
pub fn place(
    settings: &Settings,
    presets: &Presets,
    user: &str,
    counts: ExperimentCounts,
    choice: &ModelChoice,
    now_ms: i64,
) -> Result<Placement, Error> {
    match running(settings, choice, now_ms) {
        Some(experiment) => draw(experiment, presets, user, counts, now_ms),
        _ => Ok(placement(&choice.preset, None)),
    }
}

pub fn running<'s>(settings: &'s Settings, choice: &ModelChoice, now_ms: i64) -> Option<&'s Experiment> {
    settings.experiment.as_ref().filter(|experiment| experiment.runs_at(now_ms) && choice.is_any_preset)
}

/// Number of users with sessions from which on arms are drawn for users by default: eight for each of two arms.
pub const MANY_USERS: u64 = 16;

pub const DAY_MS: i64 = 86_400_000;

pub fn draw(
    experiment: &Experiment,
    presets: &Presets,
    user: &str,
    counts: ExperimentCounts,
    now_ms: i64,
) -> Result<Placement, Error> {
    let arms: Vec<Arm> =
        experiment.arms.iter().map(|arm| Arm { name: arm.preset.clone(), weight: arm.weight }).collect();
    let ExperimentCounts { users, sessions_of_user, sessions_ever } = &counts;
    let drawn = || match experiment.unit {
        ExperimentUnit::User => assign(&experiment.name, user, &arms),
        ExperimentUnit::Auto if *users >= MANY_USERS => assign(&experiment.name, user, &arms),
        ExperimentUnit::Auto | ExperimentUnit::Session => {
            assign_next(&experiment.name, user, sessions_of_user, *sessions_ever, &arms)
        }
        ExperimentUnit::Day => {
            let day = u64::try_from(now_ms.div_euclid(DAY_MS)).unwrap_or(0);
            assign_in_turn(&experiment.name, user, day, &arms)
        }
    };
    let arm = match experiment.overrides.get(user) {
        Some(arm) => Some(arm),
        None => drawn().map(|arm| &arm.name),
    };
    match arm {
        Some(arm) => Ok(placement(presets.named(arm)?, Some((experiment, arm)))),
        None => Ok(placement(&presets.chosen, None)),
    }
}

/// Checks that all arms are presets of the model that runs: they share one copy of its weights.
pub fn check(settings: &Settings, presets: &Presets) -> Result<(), Error> {
    let arms = settings.experiment.iter().flat_map(|experiment| &experiment.arms);
    for arm in arms {
        if !presets.iter().any(|preset| preset.name == arm.preset) {
            let there_are = presets.names();
            return Err(Error::ArmOfAnotherModel { arm: arm.preset.clone(), there_are });
        }
    }
    Ok(())
}

pub fn placement(preset: &Preset, arm: Option<(&Experiment, &str)>) -> Placement {
    Placement {
        preset: preset.name.clone(),
        ctx_size: u64::from(preset.ctx_size),
        experiment: arm.map(|(experiment, _)| experiment.name.clone()),
        arm: arm.map(|(_, arm)| arm.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Sources;
    use std::collections::BTreeMap;

    const FILE: &str = r#"
        [model]
        preset = "qwen3.5-9b-16k"
        [experiment]
        name = "windows"
        arms = { "qwen3.5-9b-32k" = 1, "qwen3.5-9b-64k" = 1 }
        overrides = { ann = "qwen3.5-9b-64k" }
        start = "2026-12-01"
        end = "2026-12-24"
    "#;
    const DURING_MS: i64 = 1_796_500_000_000;

    fn settings(more: &str) -> Settings {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reprise.toml");
        std::fs::write(&file, format!("{FILE}\n{more}")).unwrap();
        Settings::load(&Sources { config_file: Some(file), ..Sources::default() }).unwrap().settings
    }

    fn presets(settings: &Settings) -> Presets {
        let all = settings.presets.values().filter(|preset| preset.model == "qwen3.5-9b").cloned();
        Presets::new(all, settings.chosen().unwrap().clone(), "qwen3.5-9b")
    }

    fn placed(
        settings: &Settings,
        presets: &Presets,
        user: &str,
        sessions_of_user: u64,
        model: &str,
        now_ms: i64,
    ) -> Placement {
        let counts = ExperimentCounts { users: 3, sessions_ever: sessions_of_user, ..ExperimentCounts::default() };
        place(settings, presets, user, counts, &presets.choose(user, model).unwrap(), now_ms).unwrap()
    }

    #[test]
    fn users_are_split_and_stay() {
        let settings = settings("unit = \"user\"");
        let presets = presets(&settings);
        let of = |user: &str, sessions: u64| placed(&settings, &presets, user, sessions, "", DURING_MS);
        let mut counts = BTreeMap::new();
        for user in (0..200).map(|user| format!("user_{user}")) {
            let placed = of(&user, 1);
            assert_eq!(placed, of(&user, 2));
            assert_eq!(placed.experiment.as_deref(), Some("windows"));
            assert_eq!(placed.arm.as_ref(), Some(&placed.preset));
            *counts.entry(placed.preset).or_insert(0) += 1;
        }
        assert!(counts.len() == 2 && counts.values().all(|count| *count > 70), "{counts:?}");
        assert_eq!(of("ann", 1).preset, "qwen3.5-9b-64k");
    }

    #[test]
    fn only_who_asks_for_nothing_while_it_runs_is_drawn() {
        let settings = settings("");
        let presets = presets(&settings);
        let of = |model: &str, now_ms: i64| placed(&settings, &presets, "bob", 0, model, now_ms);
        for model in ["", "gpt-realtime"] {
            assert!(of(model, DURING_MS).arm.is_some(), "{model}");
        }
        for (model, now_ms) in
            [("", DURING_MS - 30 * 86_400_000), ("", DURING_MS + 30 * 86_400_000), ("qwen3.5-9b-32k", DURING_MS)]
        {
            let placed = of(model, now_ms);
            assert_eq!((placed.experiment, placed.arm), (None, None));
            assert_eq!(placed.preset, if model.is_empty() { "qwen3.5-9b-16k" } else { model });
        }
    }

    #[test]
    fn few_users_meet_both_arms_in_turn() {
        let arms_of = |unit: &str, users: u64| {
            let settings = settings(unit);
            let presets = presets(&settings);
            let choice = presets.choose("bob", "").unwrap();
            let day = |number: u64| DURING_MS - DURING_MS % DAY_MS + number as i64 / 2 * DAY_MS + number as i64 % 2;
            let mut met: Vec<String> = Vec::new();
            for number in 0..12 {
                let had = |arm: &String| met.iter().filter(|met| *met == arm).count() as u64;
                let sessions_of_user = met.iter().map(|arm| (arm.clone(), had(arm))).collect::<BTreeMap<_, _>>();
                let sessions_of_user = sessions_of_user.into_iter().collect();
                let counts = ExperimentCounts { users, sessions_of_user, sessions_ever: 7 * number };
                met.push(place(&settings, &presets, "bob", counts, &choice, day(number)).unwrap().preset);
            }
            met
        };
        let differ = |arms: &[String]| arms.chunks(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(differ(&arms_of("", 3)), 6, "each block of two sessions has both arms");
        assert_eq!(differ(&arms_of("unit = \"session\"", 100)), 6);
        let of_user = arms_of("", MANY_USERS);
        assert!(of_user.iter().all(|arm| *arm == of_user[0]), "{of_user:?}");
        // Two sessions a day here.
        let of_days = arms_of("unit = \"day\"", 3);
        assert_eq!(differ(&of_days), 0, "{of_days:?}");
        assert!(of_days.iter().any(|arm| *arm != of_days[0]), "{of_days:?}");
        assert_eq!(arms_of("by = \"session\"", 3), arms_of("unit = \"session\"", 3), "the old name of the key");
    }

    #[test]
    fn arms_of_another_model_are_refused() {
        let settings = settings("");
        assert_eq!(check(&settings, &presets(&settings)), Ok(()));
        let other = settings.presets["qwen3.5-4b"].clone();
        let error = check(&settings, &Presets::new([other.clone()], other, "qwen3.5-4b")).unwrap_err().to_string();
        assert!(error.contains("\"qwen3.5-9b-32k\"") && error.contains("qwen3.5-4b"), "{error}");
    }
}
