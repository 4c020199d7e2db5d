//! Placement of a session: its preset, and its arm of the experiment. A session keeps both, whatever is configured
//! later.

use crate::{Error, ModelChoice, Presets};
use experiment::{Arm, assign};
use settings::{DrawnBy, Experiment, Preset, Settings};
use store::Placement;

/// Places a new session. A client that names a preset gets it, and is in no arm.
pub fn place(
    settings: &Settings,
    presets: &Presets,
    user: &str,
    session: &str,
    choice: &ModelChoice,
    now_ms: i64,
) -> Result<Placement, Error> {
    let running = settings.experiment.as_ref().filter(|experiment| experiment.runs_at(now_ms));
    match running {
        Some(experiment) if choice.is_any_preset => draw(experiment, presets, user, session),
        _ => Ok(placement(&choice.preset, None)),
    }
}

pub fn draw(experiment: &Experiment, presets: &Presets, user: &str, session: &str) -> Result<Placement, Error> {
    let arms: Vec<Arm> =
        experiment.arms.iter().map(|arm| Arm { name: arm.preset.clone(), weight: arm.weight }).collect();
    let who = match experiment.by {
        DrawnBy::User => user.to_owned(),
        DrawnBy::Session => format!("{user}\0{session}"),
    };
    let arm = match experiment.overrides.get(user) {
        Some(arm) => Some(arm),
        None => assign(&experiment.name, &who, &arms).map(|arm| &arm.name),
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
        session: &str,
        model: &str,
        now_ms: i64,
    ) -> Placement {
        place(settings, presets, user, session, &presets.choose(user, model).unwrap(), now_ms).unwrap()
    }

    #[test]
    fn users_are_split_and_stay() {
        let settings = settings("");
        let presets = presets(&settings);
        let of = |user: &str, session: &str| placed(&settings, &presets, user, session, "", DURING_MS);
        let mut counts = std::collections::BTreeMap::new();
        for user in (0..200).map(|user| format!("user_{user}")) {
            let placed = of(&user, "sess_1");
            assert_eq!(placed, of(&user, "sess_2"));
            assert_eq!(placed.experiment.as_deref(), Some("windows"));
            assert_eq!(placed.arm.as_ref(), Some(&placed.preset));
            *counts.entry(placed.preset).or_insert(0) += 1;
        }
        assert!(counts.len() == 2 && counts.values().all(|count| *count > 70), "{counts:?}");
        assert_eq!(of("ann", "sess_1").preset, "qwen3.5-9b-64k");
    }

    #[test]
    fn only_who_asks_for_nothing_while_it_runs_is_drawn() {
        let settings = settings("");
        let presets = presets(&settings);
        let of = |model: &str, now_ms: i64| placed(&settings, &presets, "bob", "sess_1", model, now_ms);
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
    fn sessions_are_drawn_where_everybody_is_one_user() {
        let settings = settings("by = \"session\"");
        let presets = presets(&settings);
        let arms: std::collections::BTreeSet<String> = (0..20)
            .map(|session| placed(&settings, &presets, "local", &format!("sess_{session}"), "", DURING_MS).preset)
            .collect();
        assert_eq!(arms.len(), 2);
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
