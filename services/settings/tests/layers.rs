//! Order of layers, origins of values, presets of one's own, and the printed configuration.

use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;

use proptest::prelude::*;
use settings::{Error, Flag, LoadedSettings, Settings, Sources, Thinking, print_config};

fn user(text: &str) -> (tempfile::TempDir, Sources) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("reprise.toml"), text).unwrap();
    let sources = Sources { directory: Some(folder.path().to_path_buf()), ..Sources::default() };
    (folder, sources)
}

fn load(text: &str) -> LoadedSettings {
    let (_folder, sources) = user(text);
    Settings::load(&sources).unwrap()
}

fn environment(values: &[(&str, &str)]) -> BTreeMap<String, String> {
    values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[test]
fn each_layer_wins_over_the_one_before() {
    let (_folder, mut sources) = user("server.port = 1\nserver.public = true\n");
    let port = |sources: &Sources| {
        let loaded = Settings::load(sources).unwrap();
        let value = loaded.origins.iter().find(|value| value.section == "server" && value.key == "port").unwrap();
        (loaded.settings.server.port, value.origin.to_string())
    };
    assert!(port(&sources).1.ends_with("reprise.toml:1"));
    sources.environment = environment(&[("REPRISE__SERVER__PORT", "2"), ("PATH", "/bin")]);
    assert_eq!(port(&sources), (2, "environment REPRISE__SERVER__PORT".to_string()));
    sources.flags = vec![Flag::new("--port", "server.port", 3), Flag::new("--set", "server.port", 4)];
    assert_eq!(port(&sources), (4, "flag --set".to_string()));
    assert!(Settings::load(&sources).unwrap().settings.server.public, "the rest of the file still holds");
}

#[test]
fn a_key_with_its_old_name_is_read_and_told_of() {
    let loaded = load("[memory]\ntrail_tokens = 7\n");
    assert_eq!(loaded.settings.memory.recurrence_log_tokens, 7);
    assert!(loaded.old_keys[0].contains("reprise.toml:2"), "{:?}", loaded.old_keys);
    assert!(loaded.old_keys[0].ends_with("memory.trail_tokens is an old name, write memory.recurrence_log_tokens"));
    let both = load("[memory]\ntrail_tokens = 7\nrecurrence_log_tokens = 8\n");
    assert_eq!(both.settings.memory.recurrence_log_tokens, 8, "the new name goes before");
    assert_eq!(load("").old_keys, [""; 0]);
    let environment = environment(&[("REPRISE__MEMORY__TRAIL_TOKENS", "9")]);
    let loaded = Settings::load(&Sources { environment, ..Sources::default() }).unwrap();
    assert_eq!((loaded.settings.memory.recurrence_log_tokens, loaded.old_keys.len()), (9, 1));
}

#[test]
fn text_of_the_environment_becomes_what_the_key_wants() {
    let sources = Sources {
        environment: environment(&[
            ("REPRISE__SERVER__ALLOWED_ORIGINS", "https://a.example, https://b.example"),
            ("REPRISE__SERVER__ALLOWED_HOSTS", r#"["c.example", "d.example"]"#),
            ("REPRISE__SERVER__PUBLIC", "true"),
            ("REPRISE__MEMORY__TOTAL", "8GiB"),
            ("REPRISE__STORE__PATH", "8080"),
            ("REPRISE__LIMITS__IDLE_S", "2h"),
            ("REPRISE__PRESET__COMPACTION__SOFT_FILL", "0.8"),
            ("REPRISE__PRESET__THINKING", "100"),
        ]),
        ..Sources::default()
    };
    let settings = Settings::load(&sources).unwrap().settings;
    assert_eq!(settings.server.allowed_origins, ["https://a.example", "https://b.example"]);
    assert_eq!(settings.server.allowed_hosts, ["c.example", "d.example"]);
    assert!(settings.server.public);
    assert_eq!(settings.memory.total, Some(8 << 30));
    assert_eq!(settings.store.path.to_str(), Some("8080"));
    assert_eq!(settings.limits.idle_s, 7200);
    assert_eq!(settings.presets["default"].compaction.soft_fill, 0.8);
    assert_eq!(settings.presets["qwen3.5-9b"].thinking, Thinking::Budget(100));
}

#[test]
fn the_users_file_is_the_first_that_there_is() {
    let (folder, mut sources) = user("server.port = 1");
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join(".config/reprise")).unwrap();
    fs::write(home.path().join(".config/reprise/config.toml"), "server.port = 2").unwrap();
    let named = home.path().join("named.toml");
    fs::write(&named, "server.port = 3").unwrap();
    sources.environment = environment(&[("HOME", home.path().to_str().unwrap())]);
    let port = |sources: &Sources| Settings::load(sources).unwrap().settings.server.port;
    assert_eq!(port(&sources), 1);
    fs::remove_file(folder.path().join("reprise.toml")).unwrap();
    assert_eq!(port(&sources), 2);
    sources.config_file = Some(named);
    assert_eq!(port(&sources), 3);
    sources.config_file = Some(home.path().join("absent.toml"));
    assert!(matches!(Settings::load(&sources), Err(Error::Read { .. })));
}

#[test]
fn a_preset_of_ones_own_says_only_what_differs() {
    let loaded = load(
        "[preset]\nthinking = \"on\"\n\
         [presets.kitchen]\nbase = \"qwen3.5-9b-64k\"\nkv.v = \"q4\"\n\
         [presets.quiet]\nbase = \"kitchen\"\nthinking = \"off\"\n",
    );
    let settings = loaded.settings;
    let (kitchen, quiet) = (settings.preset("kitchen").unwrap(), settings.preset("quiet").unwrap());
    assert_eq!(kitchen.ctx_size, settings.preset("qwen3.5-9b-64k").unwrap().ctx_size);
    assert_eq!(kitchen.source, settings.preset("qwen3.5-9b").unwrap().source);
    assert_eq!((kitchen.kv.k.into_str(), kitchen.kv.v.into_str()), ("f16", "q4"));
    assert_eq!((kitchen.thinking, quiet.thinking), (Thinking::On, Thinking::Off));
    assert_eq!(quiet.kv, kitchen.kv);
    assert_eq!(settings.preset("qwen3.5-2b").unwrap().thinking, Thinking::On, "[preset] is for all");
}

#[test]
fn a_flag_for_all_presets_wins_over_a_variable_for_one() {
    let mut sources =
        Sources { environment: environment(&[("REPRISE__PRESETS__DEFAULT__THINKING", "on")]), ..Sources::default() };
    let thinking = |sources: &Sources| Settings::load(sources).unwrap().settings.presets["default"].thinking;
    assert_eq!(thinking(&sources), Thinking::On);
    sources.flags = vec![Flag::new("--set", "preset.thinking", "off")];
    assert_eq!(thinking(&sources), Thinking::Off);
}

#[test]
fn a_built_in_preset_can_be_changed() {
    let settings = load("[presets.\"qwen3.5-9b\"]\nctx_size = 40000\n").settings;
    assert_eq!(settings.preset("qwen3.5-9b").unwrap().ctx_size, 40_000);
    assert_eq!(
        settings.preset("qwen3.5-9b-32k").unwrap().ctx_size,
        40_000,
        "-32k is the same preset under another name"
    );
    assert_eq!(settings.preset("qwen3.5-9b-64k").unwrap().ctx_size, 65_536);
}

#[test]
fn the_window_of_the_chosen_preset_can_be_overridden() {
    let sources = Sources {
        flags: vec![
            Flag::new("--preset", "model.preset", "qwen3.5-9b"),
            Flag::new("--ctx-size", "model.ctx_size", 65_536),
            Flag::new("--model", "model.path", "my.gguf"),
        ],
        ..Sources::default()
    };
    let settings = Settings::load(&sources).unwrap().settings;
    assert_eq!(settings.preset("qwen3.5-9b").unwrap().ctx_size, 65_536);
    assert_eq!(settings.preset("qwen3.5-9b-16k").unwrap().ctx_size, 16_384, "others keep theirs");
    let chosen = settings.chosen().unwrap();
    assert_eq!(chosen.compaction.tail_tokens, 13_107, "a share follows the window");
    assert_eq!(chosen.model_path(&settings.model.models_dir).unwrap().to_str(), Some("my.gguf"));
    let other = settings.preset("qwen3.5-2b").unwrap().model_path(&settings.model.models_dir).unwrap();
    assert!(other.ends_with("unsloth/Qwen3.5-2B-GGUF/Qwen3.5-2B-Q4_K_M.gguf"));
}

/// Otherwise a client that fetches the preset's own file would replace the operator's.
#[test]
fn a_model_in_the_folder_of_models_itself_comes_before_a_fetched_one() {
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path().join("models");
    let sources =
        Sources { flags: vec![Flag::new("--models", "model.models_dir", models.display())], ..Sources::default() };
    let settings = Settings::load(&sources).unwrap().settings;
    let preset = settings.preset("qwen3.5-2b").unwrap();
    let repo = preset.source.repo.clone().unwrap();
    let fetched = models.join(&repo).join("Qwen3.5-2B-Q4_K_M.gguf");
    assert_eq!(preset.model_path(&models), Some(fetched.clone()));
    assert_eq!(settings.used_in_place_of(&repo, &fetched), None);
    let flat = models.join("Qwen3.5-2B-Q4_K_M.gguf");
    // A repository of that name is a folder.
    std::fs::create_dir_all(&flat).unwrap();
    assert_eq!(preset.model_path(&models), Some(fetched.clone()));
    std::fs::remove_dir(&flat).unwrap();
    std::fs::write(&flat, b"x").unwrap();
    assert_eq!(preset.model_path(&models), Some(flat.clone()));
    assert_eq!(settings.used_in_place_of(&repo, &fetched), Some(flat));
    assert_eq!(settings.used_in_place_of("someone/else", &fetched), None);
}

#[test]
fn a_folder_of_model_files_adds_and_replaces() {
    let (folder, mut sources) = user("[model]\npreset = \"house\"\n");
    let models = folder.path().join("models");
    fs::create_dir(&models).unwrap();
    fs::write(models.join("house.toml"), "preset.source.path = \"h.gguf\"\npresets.house.ctx_size = 2048\n").unwrap();
    fs::write(models.join("qwen3.5-9b.toml"), "presets.\"qwen3.5-9b\".ctx_size = 1024\n").unwrap();
    sources.flags = vec![Flag::new("--set", "model.presets_dir", models.display())];
    let settings = Settings::load(&sources).unwrap().settings;
    assert_eq!(settings.chosen().unwrap().source.path.as_ref().unwrap().to_str(), Some("h.gguf"));
    assert_eq!(settings.preset("qwen3.5-9b").unwrap().ctx_size, 1024);
    assert!(settings.preset("qwen3.5-9b-64k").is_err(), "the file was replaced, not merged");
    assert!(settings.preset("qwen3.5-2b-64k").is_ok());
    assert!(settings.preset("default").unwrap().source.path.is_none(), "a model's [preset] is for its own presets");
}

#[test]
fn only_a_default_window_gives_way_to_the_model_file() {
    let mut settings = load("").settings;
    let notice = settings.fit_to_model("default", 4096).unwrap();
    assert_eq!(settings.preset("default").unwrap().ctx_size, 4096);
    assert_eq!(settings.presets["default"].compaction.tail_tokens, 819);
    assert_eq!(notice.as_deref(), Some("window 4096 tokens: the model file has no more than that"));
    assert_eq!(settings.fit_to_model("default", 8192).unwrap(), None);

    let mut settings = load("model.ctx_size = 8192\nmodel.preset = \"default\"\n").settings;
    let error = settings.fit_to_model("default", 4096).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "reprise.toml:1: model.ctx_size: found the number 8192; allowed: at most 4096, the window of the model file"
        ),
        "{error}"
    );
}

#[test]
fn a_window_that_gave_way_must_still_reach_its_target() {
    let mut settings = load("preset.compaction.tail_tokens = 3000\nmodel.preset = \"default\"\n").settings;
    let error = settings.fit_to_model("default", 4096).unwrap_err().to_string();
    assert!(error.contains("3572 tokens stay") && error.contains("ctx_size 4096 is only 2048"), "{error}");
}

#[test]
fn a_preset_that_does_not_exist_is_told_with_the_nearest() {
    let error = load("").settings.preset("qwen3.5-9b-65k").unwrap_err().to_string();
    assert!(
        error.starts_with(
            "there is no preset \"qwen3.5-9b-65k\" (did you mean \"qwen3.5-9b-64k\"?); there are: builtin, builtin-1k, builtin-2k, default,"
        ),
        "{error}"
    );
}

#[test]
fn printed_config_names_origins_and_loads_as_the_same_settings() {
    let (_folder, mut sources) =
        user("[model]\npreset = \"kitchen\"\n[preset]\nthinking = 64\n[presets.kitchen]\nbase = \"qwen3.5-4b-128k\"\n");
    sources.flags = vec![Flag::new("--port", "server.port", 81), Flag::new("--ctx-size", "model.ctx_size", 100_000)];
    let loaded = Settings::load(&sources).unwrap();
    let printed = print_config(&loaded);
    for (key, value, origin) in [
        ("host", "\"127.0.0.1\"", "default"),
        ("port", "81", "flag --port"),
        ("k", "\"q8\"", "qwen3.5-4b.toml"),
        ("ctx_size", "100000", "flag --ctx-size"),
        ("thinking", "64", "reprise.toml:4, preset.thinking"),
    ] {
        let line =
            printed.lines().rev().find(|line| line.starts_with(&format!("{key} = {value} "))).unwrap_or_default();
        assert!(line.contains("  # ") && line.contains(origin), "{key} should come from {origin}:\n{printed}");
    }

    let (_folder, again) = user(&printed);
    let again = Settings::load(&again).unwrap();
    assert_eq!(without_comments(&print_config(&again)), without_comments(&printed));
    assert_eq!((&again.settings.server, &again.settings.limits), (&loaded.settings.server, &loaded.settings.limits));
}

/// Names that the user chooses: from a file, added to by the environment, replaced by a flag.
#[test]
fn an_experiment_from_every_layer() {
    let file = "[experiment]\nname = \"windows\"\nstart = 2026-12-01\nend = \"2026-12-24T18:00+01:00\"\n\
                arms = { \"qwen3.5-9b-32k\" = 1, \"qwen3.5-9b-64k\" = 0.5 }\noverrides = { ann = \"qwen3.5-9b-64k\" }\n";
    let (_folder, mut sources) = user(file);
    let load = |sources: &Sources| Settings::load(sources).unwrap();
    let arms = |sources: &Sources| -> Vec<(String, f64)> {
        let experiment = load(sources).settings.experiment.unwrap();
        experiment.arms.into_iter().map(|arm| (arm.preset, arm.weight)).collect()
    };
    let experiment = load(&sources).settings.experiment.unwrap();
    assert_eq!((experiment.start_ms, experiment.end_ms), (Some(1_796_083_200_000), Some(1_798_131_600_000)));
    assert!(experiment.runs_at(1_796_083_200_000) && !experiment.runs_at(1_798_131_600_000));
    assert_eq!(experiment.overrides["ann"], "qwen3.5-9b-64k");
    let two = [("qwen3.5-9b-32k".to_string(), 1.0), ("qwen3.5-9b-64k".to_string(), 0.5)];
    assert_eq!(arms(&sources), two);

    let printed = print_config(&load(&sources));
    let (_other_folder, again) = user(&printed);
    assert_eq!(load(&again).settings.experiment, Some(experiment), "{printed}");

    sources.environment.insert("REPRISE__EXPERIMENT__ARMS__DEFAULT".to_string(), "2".to_string());
    assert_eq!(arms(&sources).len(), 3);
    sources.flags.push(Flag::new("--set", "experiment.arms", "qwen3.5-9b, qwen3.5-9b-64k=3"));
    assert_eq!(arms(&sources), [("qwen3.5-9b".to_string(), 1.0), ("qwen3.5-9b-64k".to_string(), 3.0)]);
    assert_eq!(load(&Sources::default()).settings.experiment, None);
}

fn without_comments(text: &str) -> Vec<&str> {
    text.lines().map(|line| line.split('#').next().unwrap_or_default().trim_end()).collect()
}

/// Makes values: loading takes any value for any key, or refuses it with a mistake that names the key.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        (-10.0f64..1e6).prop_map(|number| format!("{number:?}")),
        "[a-zA-Z0-9%. -]{0,12}".prop_map(|text| format!("{text:?}")),
        Just("true".to_string()),
        Just("[\"a\", 1]".to_string()),
        Just("{ a = 1 }".to_string()),
    ]
}

static KEYS: LazyLock<Vec<(String, String)>> =
    LazyLock::new(|| load("").origins.into_iter().map(|value| (value.section, value.key)).collect());

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_value_for_any_key_is_taken_or_refused(at in any::<prop::sample::Index>(), value in value()) {
        let (section, key) = &KEYS[at.index(KEYS.len())];
        let (_folder, sources) = user(&format!("[{section}]\n{key} = {value}\n"));
        if let Err(error) = Settings::load(&sources) {
            let error = error.to_string();
            prop_assert!(error.contains(key.as_str()) && error.contains("reprise.toml:2"), "{error}");
        }
    }
}

#[test]
fn rules_of_persons_are_read_from_each_layer() {
    use settings::{RuleClue, RuleName, WantedText};
    let written = "[[remember.who]]\nperson = \"Anna\"\nkey = \"phone\"\nprivate = true\n\n\
                   [[remember.who]]\nperson = \"*\"\nheader = \"X-Name\"\ncontinue_minutes = 30\n";
    let inline = "remember.who = [{ person = \"Anna\", key = \"phone\", private = true }, \
                  { person = \"*\", header = \"X-Name\", continue_minutes = 30 }]";
    let rules = load(written).settings.remember.who;
    assert_eq!(load(inline).settings.remember.who, rules);
    let (_folder, mut sources) = user("");
    let value = inline.split_once("= ").unwrap().1;
    sources.environment = environment(&[("REPRISE__REMEMBER__WHO", value)]);
    let of_environment = Settings::load(&sources).unwrap();
    assert_eq!(of_environment.settings.remember.who, rules);
    let [anna, other] = rules.as_slice() else { panic!("{rules:?}") };
    assert_eq!((&anna.person, anna.is_private), (&RuleName::Named("anna".into()), true));
    assert_eq!(anna.conditions[0].wanted, WantedText::Exactly("phone".into()));
    assert_eq!((&other.person, other.continue_minutes), (&RuleName::Found, Some(30)));
    assert_eq!(other.conditions[0].clue, RuleClue::Header("x-name".into()));
    let (_other_folder, again) = user(&print_config(&of_environment));
    assert_eq!(Settings::load(&again).unwrap().settings.remember.who, rules);
    assert_eq!(load("").settings.remember.who.len(), 4, "a list of the user takes the place of the default one");
}
