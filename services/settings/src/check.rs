//! Checks of several keys against each other. They run at start: otherwise a preset that can never do its work would
//! fail in the middle of a conversation.

use std::fmt::Display;

use crate::experiment::ARMS;
use crate::findings::Findings;
use crate::nearest::hint;
use crate::origin::{SettingsLayer, join};
use crate::personas::Persona;
use crate::preset::{Preset, Thinking};
use crate::settings::Settings;

struct Order {
    section: &'static str,
    smaller: &'static str,
    larger: &'static str,
    numbers: fn(&Settings) -> (u64, u64),
    is_less: bool,
    /// True if the default of the smaller one gives way when the user lowers the larger one: the lower limit holds
    /// anyway.
    gives_way: bool,
    why: &'static str,
}

const fn order(section: &'static str, keys: [&'static str; 2], numbers: fn(&Settings) -> (u64, u64)) -> Order {
    let [smaller, larger] = keys;
    Order {
        section,
        smaller,
        larger,
        numbers,
        is_less: false,
        gives_way: true,
        why: "beyond it, it would mean nothing",
    }
}

fn none_if_zero(limit: u64) -> u64 {
    if limit == 0 { u64::MAX } else { limit }
}

const ORDERS: &[Order] = &[
    Order {
        gives_way: false,
        why: "a message has one frame or more",
        ..order("limits", ["frame_bytes", "message_bytes"], |s| {
            (s.limits.frame_bytes as u64, s.limits.message_bytes as u64)
        })
    },
    Order {
        gives_way: false,
        is_less: true,
        why: "or no ping is ever sent",
        ..order("limits", ["ping_s", "idle_s"], |s| (s.limits.ping_s, s.limits.idle_s))
    },
    Order {
        gives_way: false,
        is_less: true,
        why: "",
        ..order("speech", ["first_clause_chars", "max_sentence_chars"], |s| {
            (s.speech.first_clause_chars as u64, s.speech.max_sentence_chars as u64)
        })
    },
    order("limits", ["connections_per_key", "connections"], |s| {
        (s.limits.connections_per_key as u64, s.limits.connections as u64)
    }),
    order("limits", ["connections_per_address", "connections"], |s| {
        (s.limits.connections_per_address as u64, s.limits.connections as u64)
    }),
    order("limits", ["live_sessions_per_user", "live_sessions"], |s| {
        (s.limits.live_sessions_per_user as u64, s.limits.live_sessions as u64)
    }),
    order("limits", ["body_bytes", "body_bytes_per_address"], |s| {
        (s.limits.body_bytes as u64, s.limits.body_bytes_per_address as u64)
    }),
    order("limits", ["user_bytes_per_minute", "user_bytes"], |s| {
        (s.limits.user_bytes_per_minute, none_if_zero(s.limits.user_bytes))
    }),
    order("prompt", ["kept_bytes_per_user", "kept_bytes"], |s| {
        (s.prompt.kept_bytes_per_user as u64, s.prompt.kept_bytes as u64)
    }),
];

pub(crate) fn settings(settings: &Settings, findings: &Findings) {
    for Order { section, smaller, larger, numbers, is_less, gives_way, why } in ORDERS {
        let (small, large) = numbers(settings);
        let is_right = if *is_less { small < large } else { small <= large };
        let is_default = || findings.origin(section, smaller).is_none_or(|from| from.layer == SettingsLayer::Default);
        if is_right || *gives_way && is_default() {
            continue;
        }
        let (relation, mark) = match (is_less, why.starts_with("or ")) {
            (true, true) => ("less than", ", "),
            (true, false) => ("less than", ""),
            (false, _) => ("at most", ": "),
        };
        let allowed = format!("{smaller} {relation} {larger}{mark}{why}");
        pair(findings, section, (smaller, small), (larger, large), "", &allowed);
    }
}

fn pair<T: Display>(findings: &Findings, section: &str, a: (&str, T), b: (&str, T), of: &str, allowed: &str) {
    let found = format!("{} {} and {} {}{of}", a.0, a.1, b.0, b.1);
    findings.contradiction(&[(section, a.0), (section, b.0)], found, allowed);
}

pub(crate) fn preset(preset: &Preset, findings: &Findings) {
    let Preset { name, ctx_size, reply_reserve_tokens: reserve, compaction, .. } = preset;
    let path = join("presets", name);
    let (path, fills, of) = (path.as_str(), format!("{path}.compaction"), format!(" in preset {name:?}"));
    let stretched = |native: u32| (f64::from(native) * preset.rope.yarn) as u32;
    if let Some(native) = preset.native_ctx.map(stretched).filter(|native| ctx_size > native) {
        let keys = [(path, "ctx_size"), (path, "native_ctx")];
        let found = format!("{ctx_size} tokens for preset {name:?}, whose model has a window of {native}");
        let allowed = format!(
            "at most {native}; for a file that carries YaRN set native_ctx to the window it states, and rope.yarn stretches one that carries none"
        );
        findings.contradiction(&keys, found, &allowed);
    }
    if let Some(budget) = preset.thinking.budget_tokens().filter(|budget| budget >= reserve) {
        let thinking = join(path, "thinking");
        let budget_key = match preset.thinking {
            Thinking::Within { .. } => (thinking.as_str(), "tokens"),
            _ => (path, "thinking"),
        };
        let found = format!("thinking {budget} and reply_reserve_tokens {reserve}{of}");
        let allowed = "thinking less than reply_reserve_tokens, or no room is left to answer";
        findings.contradiction(&[budget_key, (path, "reply_reserve_tokens")], found, allowed);
    }
    let soft = ("soft_fill", compaction.soft_fill);
    let (hard, target) = (("hard_fill", compaction.hard_fill), ("target_fill", compaction.target_fill));
    if soft.1 >= hard.1 {
        pair(findings, &fills, soft, hard, &of, "soft_fill less than hard_fill, or no summary is ready in time");
    }
    if target.1 >= soft.1 {
        let allowed = "target_fill less than soft_fill, or each compaction asks for the next";
        pair(findings, &fills, target, soft, &of, allowed);
    }
    if let Some(found) = preset.unreachable_target() {
        let keys = [
            (path, "ctx_size"),
            (fills.as_str(), "tail_tokens"),
            (fills.as_str(), "summary_tokens"),
            (path, "reply_reserve_tokens"),
            (fills.as_str(), "target_fill"),
        ];
        findings.contradiction(&keys, found, "a target that can be reached: raise it or ctx_size, or lower the others");
    }
}

/// Checks the door of Wyoming, after the personas are read. A program that reaches one of its ports talks without a
/// key.
pub(crate) fn wyoming(settings: &Settings, findings: &Findings) {
    if !settings.wyoming_needs_leave() {
        return;
    }
    let own = settings.wyoming.port.map(|port| (port, "wyoming".to_string(), "port"));
    let of = |persona: &Persona| (persona.wyoming_port, join("personas", &persona.name), "wyoming_port");
    let ports = own.into_iter().chain(settings.personas.values().map(of));
    for (port, section, key) in ports.filter(|(port, ..)| *port > 0) {
        let reasons = [("wyoming", "host"), ("server", "host"), ("server", "public"), ("auth", "required")];
        let keys = [&[(section.as_str(), key)][..], &reasons].concat();
        let found = format!("port {port}, by which programs would talk without a key where keys are demanded");
        let allowed = "0; or without_key = true in [wyoming], where every program that reaches the port may talk";
        findings.contradiction(&keys, found, allowed);
    }
}

pub(crate) fn experiment(settings: &Settings, findings: &Findings) {
    let Some(experiment) = &settings.experiment else { return };
    if let (Some(start), Some(end)) = (experiment.start_ms, experiment.end_ms)
        && start >= end
    {
        let keys = [("experiment", "start"), ("experiment", "end")];
        findings.contradiction(&keys, "an end that is not after the start".into(), "a start before the end");
    }
    let weighted = experiment.arms.iter().filter(|arm| arm.weight > 0.0).count();
    if weighted < 2 {
        let found = match experiment.arms.len() {
            0 => "no arm".to_string(),
            _ => format!("{weighted} arm with a weight above 0"),
        };
        let keys = [("experiment", "name"), ("experiment", "arms")];
        findings.contradiction(&keys, found, &format!("two arms or more: {ARMS}"));
    }
    for arm in experiment.arms.iter().filter(|arm| !settings.presets.contains_key(&arm.preset)) {
        let near = near(&arm.preset, settings.presets.keys());
        let found = format!("the arm {:?}, which is no preset{near}", arm.preset);
        findings.contradiction(&[("experiment", "arms")], found, &settings.preset_names());
    }
    let names = || experiment.arms.iter().map(|arm| &arm.preset);
    for (user, arm) in experiment.overrides.iter().filter(|(_, arm)| !names().any(|name| name == *arm)) {
        let found = format!("the arm {arm:?} for {}{}", join("", user), near(arm, names()));
        let allowed = names().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        findings.contradiction(&[("experiment", "overrides")], found, &allowed);
    }
}

fn near<'a>(word: &str, allowed: impl Iterator<Item = &'a String>) -> String {
    hint(word, allowed.map(String::as_str)).map(|hint| format!(" ({hint}?)")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{Flag, Sources};

    #[test]
    fn every_order_that_is_broken_is_told_with_both_keys() {
        let load = |section: &str, numbers: &[(&str, u64)]| {
            let flag = |(key, value): &(&str, u64)| Flag::new("--set", &format!("{section}.{key}"), value);
            let flags = numbers.iter().map(flag).collect();
            Settings::load(&Sources { flags, ..Sources::default() })
        };
        let defaults = load("", &[]).unwrap().settings;
        for Order { section, smaller, larger, numbers, is_less, gives_way, .. } in ORDERS {
            let (small, large) = numbers(&defaults);
            assert!(small < large, "{smaller} and {larger}");
            let apart = u64::from(*is_less);
            let is_right = |base: &u64| load(section, &[(smaller, *base), (larger, base + apart)]).is_ok();
            let base = [small, large].into_iter().find(is_right);
            let base = base.unwrap_or_else(|| panic!("{smaller} and {larger} may be {apart} apart"));
            let (a, b) = (base, base + apart - 1);
            let told = load(section, &[(smaller, a), (larger, b)]).unwrap_err().to_string();
            let both = format!("found {smaller} {a} and {larger} {b}; allowed: {smaller} ");
            assert!(told.contains(&both), "{told}");
            // The larger one alone: a limit of all holds, whatever the default of one client is.
            assert_eq!(load(section, &[(larger, small - 1)]).is_ok(), *gives_way, "{larger} {}", small - 1);
        }
    }
}
