//! What several keys must say together. Found at start, because a preset that can never do its work would otherwise
//! fail in the middle of somebody's conversation.

use crate::preset::{Preset, Thinking};
use crate::reader::Findings;
use crate::settings::Settings;

pub(crate) fn settings(settings: &Settings, findings: &Findings) {
    let limits = &settings.limits;
    let (frame, message) = (limits.frame_bytes, limits.message_bytes);
    if frame > message {
        let keys = [("limits", "frame_bytes"), ("limits", "message_bytes")];
        let found = format!("frame_bytes {frame} and message_bytes {message}");
        findings.contradiction(&keys, found, "frame_bytes at most message_bytes: a message has one frame or more");
    }
    let (ping, idle) = (limits.ping_s, limits.idle_s);
    if ping >= idle {
        let keys = [("limits", "ping_s"), ("limits", "idle_s")];
        let found = format!("ping_s {ping} and idle_s {idle}");
        findings.contradiction(&keys, found, "ping_s less than idle_s, or no ping is ever sent");
    }
    let (first, longest) = (settings.speech.first_clause_chars, settings.speech.max_sentence_chars);
    if first >= longest {
        let keys = [("speech", "first_clause_chars"), ("speech", "max_sentence_chars")];
        let found = format!("first_clause_chars {first} and max_sentence_chars {longest}");
        findings.contradiction(&keys, found, "first_clause_chars less than max_sentence_chars");
    }
}

pub(crate) fn preset(preset: &Preset, path: &str, findings: &Findings) {
    let Preset { name, ctx_size, reply_reserve_tokens: reserve, compaction, .. } = preset;
    let fills = format!("{path}.compaction");
    if let Some(native) = preset.native_ctx.filter(|native| ctx_size > native) {
        let keys = [(path, "ctx_size"), (path, "native_ctx")];
        let found = format!("{ctx_size} tokens for preset {name:?}, whose model has a window of {native}");
        let allowed = format!("at most {native}; for a file that carries YaRN set native_ctx to the window it states");
        findings.contradiction(&keys, found, &allowed);
    }
    if let Thinking::Budget(budget) = preset.thinking
        && budget >= *reserve
    {
        let keys = [(path, "thinking"), (path, "reply_reserve_tokens")];
        let found = format!("thinking {budget} and reply_reserve_tokens {reserve} in preset {name:?}");
        findings.contradiction(&keys, found, "thinking less than reply_reserve_tokens, or no room is left to answer");
    }

    let (soft, hard, target) = (compaction.soft_fill, compaction.hard_fill, compaction.target_fill);
    if soft >= hard {
        let keys = [(fills.as_str(), "soft_fill"), (fills.as_str(), "hard_fill")];
        let found = format!("soft_fill {soft} and hard_fill {hard} in preset {name:?}");
        findings.contradiction(&keys, found, "soft_fill less than hard_fill, or no summary is ready in time");
    }
    if target >= soft {
        let keys = [(fills.as_str(), "target_fill"), (fills.as_str(), "soft_fill")];
        let found = format!("target_fill {target} and soft_fill {soft} in preset {name:?}");
        findings.contradiction(&keys, found, "target_fill less than soft_fill, or each compaction asks for the next");
    }

    if let Some(found) = unreachable_target(preset) {
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

/// Why no compaction can ever bring this preset down to its target fill, if so.
pub(crate) fn unreachable_target(preset: &Preset) -> Option<String> {
    let Preset { name, ctx_size, reply_reserve_tokens: reserve, compaction, .. } = preset;
    let (tail, summary, target) = (compaction.tail_tokens, compaction.summary_tokens, compaction.target_fill);
    // In u64: three numbers of a hostile file must not wrap around into something that fits.
    let needed = u64::from(tail) + u64::from(summary) + u64::from(*reserve);
    let room = (target * f64::from(*ctx_size)) as u64;
    (needed > room).then(|| {
        format!(
            "preset {name:?}, where {needed} tokens stay after every compaction (tail_tokens {tail} + summary_tokens \
             {summary} + reply_reserve_tokens {reserve}) and target_fill {target} of ctx_size {ctx_size} is only {room}"
        )
    })
}
