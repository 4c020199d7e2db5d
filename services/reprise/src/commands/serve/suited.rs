//! The preset of `model.preset = "auto"`: the one made for the most memory that the machine has, of those whose model is here.

use crate::commands::plan::gpu_here;
use anyhow::Result;
use engine::DeviceFacts;
use engine::network::Network;
use indicatif::HumanCount;
use model::{Bytes, windows};
use settings::{Flag, Preset, Settings};
use std::cmp::Reverse;
use std::path::Path;

/// Preset for the machine. The sentence says why.
pub enum SuitedPreset {
    Here { flags: Vec<Flag>, says: String },
    NotHere { says: String },
}

/// Finds a preset for this machine. `None`: none was made for so little memory.
pub fn for_this_machine(settings: &Settings) -> Result<Option<SuitedPreset>> {
    let (card, _) = gpu_here(settings)?;
    suited(settings, card.as_ref(), model::machine_bytes())
}

// Divisor of a memory's size that may be missing: systems and cards keep some of it to themselves.
const MISSING_SHARE: u64 = 8;

fn suited(settings: &Settings, card: Option<&DeviceFacts>, host_bytes: u64) -> Result<Option<SuitedPreset>> {
    let made_for = |preset: &Preset| if card.is_some() { preset.made_for.gpu } else { preset.made_for.host };
    let there = card.map_or(host_bytes, |card| card.free_bytes as u64);
    let has_it = |preset: &&Preset| (1..=there + there / MISSING_SHARE).contains(&made_for(preset));
    let mut made: Vec<&Preset> = settings.presets.values().filter(has_it).collect();
    made.sort_by_key(|preset| (Reverse(made_for(preset)), &preset.name));
    let memory = card.map_or_else(
        || format!("the {} of this machine", Bytes(there)),
        |card| format!("the {} that are free on {}", Bytes(there), card.name),
    );
    for preset in &made {
        let Some(file) = preset.model_path(&settings.model.models_dir).filter(|file| file.exists()) else { continue };
        let window = match settings.model.ctx_size {
            Some(_) => preset.ctx_size,
            None => match largest_window(settings, preset, &file, card)? {
                Some(window) => window,
                None => continue,
            },
        };
        return Ok(Some(chosen(settings, preset, window, &memory)));
    }
    let first = made.first();
    Ok(first.map(|preset| SuitedPreset::NotHere {
        says: format!(
            "the built-in model answers, which is a demonstration; for {memory}: reprise pull {0}, then ./start.sh (preset {0})",
            preset.name
        ),
    }))
}

fn chosen(settings: &Settings, preset: &Preset, window: u32, memory: &str) -> SuitedPreset {
    const NAME: &str = "model.preset = \"auto\"";
    let mut flags = vec![Flag::new(NAME, "model.preset", &preset.name)];
    if settings.model.ctx_size.is_none() && window < preset.ctx_size {
        flags.push(Flag::new(NAME, "model.ctx_size", window));
    }
    let window = HumanCount(settings.model.ctx_size.unwrap_or(window).into());
    let says = format!("preset {} with {window} tokens suits {memory} ({NAME})", preset.name);
    SuitedPreset::Here { flags, says }
}

const STEP_TOKENS: u32 = 1024; // not a window: windows between a half and the whole are tried in such steps

/// Returns the largest window up to the preset's, and no less than half of it, that has room, with all layers on the card if
/// there is one.
fn largest_window(
    settings: &Settings,
    preset: &Preset,
    file: &Path,
    card: Option<&DeviceFacts>,
) -> Result<Option<u32>> {
    let precision = model::precision(settings);
    let mut opened = weights::open(file, true)?;
    opened.stretch(preset.rope.yarn)?;
    let network = Network::new(opened, precision);
    let kv = model::kv_formats(preset, precision);
    let native = u32::try_from(network.shape().native_ctx).unwrap_or(u32::MAX);
    let most = preset.ctx_size.min(native);
    let has_room = |window: u32| -> Result<bool> {
        let cells = windows(settings, &network, card, kv, &[window])?;
        Ok(cells.iter().all(|cell| {
            let on_card = cell.plan.device.as_ref().is_some_and(|device| device.ffn_layers == device.layers);
            cell.full_conversations > 0 && (card.is_none() || on_card)
        }))
    };
    if has_room(most)? {
        return Ok(Some(most));
    }
    let (mut fits, mut too_much) = (most / 2 / STEP_TOKENS, most.div_ceil(STEP_TOKENS));
    if fits == 0 || !has_room(fits * STEP_TOKENS)? {
        return Ok(None);
    }
    while too_much - fits > 1 {
        let between = (fits + too_much) / 2;
        if has_room(between * STEP_TOKENS)? { fits = between } else { too_much = between }
    }
    Ok(Some(fits * STEP_TOKENS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Sources;
    use tools::mixture::Mixture;
    use tools::synth::{SynthShape, outline};

    const GIB: usize = 1 << 30;

    // Files that have the sizes of the presets' models alone.
    fn settings(folder: &Path, models: &[&str], more: &[(&str, &str)]) -> Settings {
        let dir = folder.display().to_string();
        let flags =
            [("model.models_dir", dir.as_str()), ("engine.device", "auto")].into_iter().chain(more.iter().copied());
        let flags = flags.map(|(key, value)| Flag::new("--set", key, value)).collect();
        let settings = Settings::load(&Sources { flags, ..Sources::default() }).unwrap().settings;
        for model in models {
            let preset = settings.preset(&format!("qwen3.5-{}", model.to_lowercase())).unwrap();
            let file = preset.model_path(folder).unwrap();
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            outline(&SynthShape::find(model).unwrap(), Mixture::from_name("q4_k_m").unwrap(), &file).unwrap();
        }
        settings
    }

    fn flags_of(found: Option<SuitedPreset>) -> Vec<(String, String)> {
        match found {
            Some(SuitedPreset::Here { flags, .. }) => flags.into_iter().map(|flag| (flag.key, flag.value)).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn each_preset_fits_what_it_was_made_for() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), &["4B", "9B", "35B-A3B"], &[]);
        for (name, gib, has_card) in [
            ("gpu-8gb", 8, true),
            ("gpu-12gb", 12, true),
            ("gpu-16gb", 16, true),
            ("gpu-24gb", 24, true),
            ("host-8gb", 8, false),
            ("host-16gb", 16, false),
        ] {
            let card = has_card.then(|| DeviceFacts::imagined(gib * GIB));
            let total = (gib * GIB) as u64 / 4 * 3;
            let mut settings = settings.clone();
            settings.memory.total = Some(if has_card { 64 << 30 } else { total });
            let flags = flags_of(suited(&settings, card.as_ref(), (gib * GIB) as u64).unwrap());
            assert_eq!(flags, [("model.preset".to_owned(), name.to_owned())], "all of its window, on {gib} GiB");
        }
    }

    #[test]
    fn a_window_gives_way_to_the_memory_and_a_preset_to_the_models_here() {
        let folder = tempfile::tempdir().unwrap();
        let small = settings(folder.path(), &["9B"], &[("memory.total", "16GiB")]);
        let found = |settings: &Settings, bytes: usize| {
            flags_of(suited(settings, Some(&DeviceFacts::imagined(bytes)), 64 << 30).unwrap())
        };
        // A card of 8 GB whose driver keeps some for itself.
        let flags = found(&small, 15 * GIB / 2);
        assert_eq!(flags[0], ("model.preset".to_owned(), "gpu-8gb".to_owned()));
        let window: u32 = flags[1].1.parse().unwrap();
        assert!(flags[1].0 == "model.ctx_size" && (100_000..196_608).contains(&window), "{flags:?}");
        // The model of the preset for 24 GB is not here.
        assert_eq!(found(&small, 24 * GIB), [("model.preset".to_owned(), "gpu-16gb".to_owned())]);
        assert!(found(&small, 3 * GIB).is_empty());
        let mut own = small.clone();
        own.model.ctx_size = Some(20_000);
        assert_eq!(
            found(&own, 15 * GIB / 2),
            [("model.preset".to_owned(), "gpu-8gb".to_owned())],
            "a window of the user"
        );
    }

    #[test]
    fn a_machine_without_a_model_hears_which_one_suits_it() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), &[], &[]);
        let Some(SuitedPreset::NotHere { says }) = suited(&settings, None, 15 << 30).unwrap() else { panic!() };
        assert!(says.contains("reprise pull host-16gb") && says.contains("15.0 GiB"), "{says}");
        assert!(suited(&settings, None, 2 << 30).unwrap().is_none());
    }
}
