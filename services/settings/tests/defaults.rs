//! The built-in files: they load, every key is documented, and presets agree with the facts of their models.

use std::collections::BTreeMap;
use std::path::Path;

use settings::{KvFormat, LoadedSettings, Settings, SettingsLayer, Sources, Thinking};

fn defaults() -> LoadedSettings {
    Settings::load(&Sources::default()).unwrap()
}

const DEFAULT: &str = include_str!("../../../config/default.toml");

#[test]
fn defaults_load_and_all_come_from_default_toml() {
    let loaded = defaults();
    for value in loaded.origins.iter().filter(|value| !value.section.starts_with("presets.")) {
        assert_eq!(value.origin.layer, SettingsLayer::Default, "{value:?}");
    }
    assert_eq!(loaded.settings.server.host.to_string(), "127.0.0.1");
    assert_eq!(loaded.settings.server.port, 8080);
    assert_eq!(loaded.settings.chosen().unwrap().name, "builtin");
}

/// A file or a server without a preset does not get the numbers of the built-in model.
#[test]
fn a_model_of_ones_own_has_the_default_numbers() {
    let with = |key: &str, value: &str| {
        let sources = Sources { flags: vec![settings::Flag::new("--x", key, value)], ..Sources::default() };
        Settings::load(&sources).unwrap().settings.chosen().unwrap().name.clone()
    };
    assert_eq!(with("model.path", "model.gguf"), "default");
    assert_eq!(with("upstream.url", "http://gpu.local/v1"), "default");
    assert_eq!(with("model.preset", "default"), "default");
    assert_eq!(with("model.preset", "qwen3.5-4b"), "qwen3.5-4b");
    // Numbers for other models need not fit the built-in one.
    let flags = vec![
        settings::Flag::new("--x", "model.preset", "default"),
        settings::Flag::new("--y", "preset.compaction.tail_tokens", 3000),
    ];
    let settings = Settings::load(&Sources { flags, ..Sources::default() }).unwrap().settings;
    let tail = |preset: &str| settings.presets[preset].compaction.tail_tokens;
    assert_eq!((tail("default"), tail("builtin")), (3000, 573));
}

/// Loading refuses a key of the file that no struct reads, and a key of a struct that the file lacks. This shows that
/// loading looks at every key.
#[test]
fn the_file_and_the_structs_have_the_same_keys() {
    let read: Vec<String> = defaults()
        .origins
        .iter()
        .map(|value| (value.section.replace("presets.default", "preset"), &value.key))
        .map(|(section, key)| format!("{section}.{key}"))
        .collect();
    let written: Vec<String> = keys_with_comments(DEFAULT).into_iter().map(|(key, _)| key).collect();
    assert!(written.len() > 80, "only {} keys found in default.toml", written.len());
    for key in &written {
        assert!(read.contains(key), "{key} stands in default.toml and is not read");
    }
    for key in read.iter().filter(|key| !key.starts_with("presets.")) {
        assert!(written.contains(key), "{key} is read and does not stand in default.toml");
    }
}

#[test]
fn every_key_has_a_comment() {
    for (key, comment) in keys_with_comments(DEFAULT) {
        assert!(comment.is_some_and(|comment| comment.trim().len() > 3), "{key} in default.toml has no comment");
    }
}

#[test]
fn the_comment_check_can_fail() {
    let keys = keys_with_comments("[a]\n# Said.\nb = 1\nc = 2\n\n# About a section.\n\nd = 3\n");
    let said: Vec<_> = keys.iter().map(|(key, comment)| (key.as_str(), comment.is_some())).collect();
    assert_eq!(said, [("a.b", true), ("a.c", false), ("a.d", false)]);
}

#[test]
fn every_model_file_of_the_folder_is_in_the_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/models");
    let loaded = defaults();
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let preset = file.trim_end_matches(".toml");
        assert!(loaded.settings.presets.contains_key(preset), "{file} is not listed in built_in.rs");
    }
}

/// Facts: ctx_size by name, native window, and the source to pull.
#[test]
fn every_size_has_every_window() {
    let settings = defaults().settings;
    let models = [
        ("Qwen3.5-0.8B", "Q4_K_M"),
        ("Qwen3.5-2B", "Q4_K_M"),
        ("Qwen3.5-4B", "Q4_K_M"),
        ("Qwen3.5-9B", "Q4_K_M"),
        ("Qwen3.5-27B", "Q4_K_M"),
        ("Qwen3.5-35B-A3B", "Q4_K_M"),
        ("Qwen3.6-27B", "Q4_K_M"),
        ("Qwen3.6-35B-A3B", "UD-Q4_K_M"),
    ];
    let windows =
        [("", 32_768), ("-16k", 16_384), ("-32k", 32_768), ("-64k", 65_536), ("-128k", 131_072), ("-262k", 262_144)];
    for (model, types) in models {
        for (suffix, ctx_size) in windows {
            let name = format!("{}{suffix}", model.to_lowercase());
            let preset = settings.preset(&name).unwrap();
            assert_eq!(settings.preset(&name).unwrap().ctx_size, ctx_size, "{name}");
            assert_eq!(preset.native_ctx, Some(262_144), "{name}");
            assert_eq!(preset.model, model.to_lowercase());
            assert_eq!(preset.source.repo.as_deref(), Some(format!("unsloth/{model}-GGUF").as_str()));
            assert_eq!(preset.source.file.as_deref(), Some(format!("{model}-{types}.gguf").as_str()));
            assert_eq!(preset.thinking, Thinking::Off);
        }
    }
    // A folder to import: a machine that holds one has room for more than 16,384 tokens.
    let folders = ["Qwen3.5-122B-A10B", "Qwen3.5-397B-A17B"];
    let large = windows.into_iter().filter(|(suffix, _)| *suffix != "-16k");
    for (model, (suffix, ctx_size)) in folders.iter().flat_map(|model| large.clone().map(move |window| (model, window)))
    {
        let preset = settings.preset(&format!("{}{suffix}", model.to_lowercase())).unwrap();
        assert_eq!((preset.ctx_size, preset.native_ctx), (ctx_size, Some(262_144)), "{model}{suffix}");
        assert_eq!(preset.source.repo.as_deref(), Some(format!("Qwen/{model}").as_str()));
        assert_eq!(preset.source.file, None);
    }
    let all = models.len() * windows.len() + folders.len() * large.count() + FOR_MEMORY.len() + 4;
    assert_eq!(settings.presets.len(), all, "and \"default\" and three of \"builtin\"");
}

/// Presets for a card's or a machine's memory: model, window, formats of keys and values.
const FOR_MEMORY: [(&str, &str, u32, [KvFormat; 2]); 6] = [
    ("gpu-8gb", "qwen3.5-9b", 196_608, [KvFormat::Q8, KvFormat::Q4]),
    ("gpu-12gb", "qwen3.5-9b", 262_144, [KvFormat::Q8; 2]),
    ("gpu-16gb", "qwen3.5-9b", 262_144, [KvFormat::F16; 2]),
    ("gpu-24gb", "qwen3.5-35b-a3b", 262_144, [KvFormat::Q8; 2]),
    ("host-8gb", "qwen3.5-4b", 131_072, [KvFormat::Q8, KvFormat::Q4]),
    ("host-16gb", "qwen3.5-4b", 262_144, [KvFormat::Q8; 2]),
];

#[test]
fn every_memory_has_a_preset() {
    let settings = defaults().settings;
    for (name, model, ctx_size, kv) in FOR_MEMORY {
        let preset = settings.preset(name).unwrap();
        let own = settings.preset(model).unwrap();
        assert_eq!((&preset.model, &preset.source), (&own.model, &own.source), "{name}");
        assert_eq!((preset.ctx_size, [preset.kv.k, preset.kv.v]), (ctx_size, kv), "{name}");
        let gib: u64 = name.split(['-', 'g']).find_map(|word| word.parse().ok()).unwrap();
        let bytes = [preset.made_for.gpu, preset.made_for.host];
        assert_eq!(bytes, if name.starts_with("gpu") { [gib << 30, 0] } else { [0, gib << 30] }, "{name}");
    }
}

#[test]
fn shares_are_of_the_window_and_numbers_stay() {
    let settings = defaults().settings;
    let small = settings.preset("qwen3.5-9b-16k").unwrap();
    assert_eq!(
        (small.reply_reserve_tokens, small.compaction.tail_tokens, small.compaction.summary_tokens),
        (1310, 3276, 983)
    );
    let large = settings.preset("qwen3.5-9b-262k").unwrap();
    assert_eq!((large.reply_reserve_tokens, large.compaction.tail_tokens), (8192, 24_576));
    assert_eq!((large.kv.k, large.kv.v), (KvFormat::Q8, KvFormat::Q8));
    assert_eq!(small.kv.k, KvFormat::F16);
}

#[test]
fn sampling_is_what_the_makers_recommend() {
    let settings = defaults().settings;
    let preset = settings.preset("qwen3.5-9b").unwrap();
    let numbers = |thinking| {
        let s = preset.sampling_for(thinking);
        (s.temperature, s.top_p, s.top_k, s.presence_penalty)
    };
    assert_eq!(numbers(false), (0.7, 0.8, 20, 1.5));
    assert_eq!(numbers(true), (1.0, 0.95, 20, 1.5));
}

fn keys_with_comments(text: &str) -> Vec<(String, Option<String>)> {
    let mut section = String::new();
    let mut comment: Option<String> = None;
    let mut keys = Vec::new();
    for line in text.lines() {
        if let Some(said) = line.strip_prefix('#') {
            comment.get_or_insert_default().push_str(said);
        } else if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_string();
            comment = None;
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with(' ')) {
            keys.push((format!("{section}.{key}"), comment.take()));
        } else {
            comment = None;
        }
    }
    let names: BTreeMap<_, _> = keys.iter().map(|(key, _)| (key, ())).collect();
    assert_eq!(names.len(), keys.len(), "a key stands twice");
    keys
}
