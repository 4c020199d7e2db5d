//! Facts quoted behind a summary, or in its place.

use super::{AttemptOutcome, SummaryReply};
use crate::check::Fact;
use crate::types::{CompactionLimits, Speaker};
use crate::wording;
use remember::{escape, estimate_tokens};

pub fn with_facts(reply: &SummaryReply, missing: &[Fact], limits: &CompactionLimits) -> AttemptOutcome {
    append(reply.text.trim(), missing, limits.summary_tokens.saturating_sub(reply.tokens))
}

/// Joins the summary before and the facts since then. If both together have no room, each gets half of it.
pub fn without_model(earlier: &str, missing: &[Fact], limits: &CompactionLimits) -> AttemptOutcome {
    let news: Vec<Fact> = missing.iter().filter(|fact| fact.said_by != Speaker::Context).cloned().collect();
    let wanted: u64 = quoted(&news).iter().map(|line| u64::from(line_tokens(line))).sum();
    let all = limits.summary_tokens;
    let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).saturating_add(HEADING_TOKENS).min(all / 2);
    let (mut kept, mut left) = (String::new(), all - wanted);
    for line in earlier.lines().filter(|line| !line.trim().is_empty()) {
        let tokens = line_tokens(line);
        if tokens <= left {
            left -= tokens;
            kept.push_str(line);
            kept.push('\n');
        }
    }
    AttemptOutcome { fell_back: true, ..append(kept.trim(), &news, wanted + left) }
}

fn append(summary: &str, missing: &[Fact], room_tokens: u32) -> AttemptOutcome {
    let heading = wording::FACTS.lines().next().unwrap_or_default();
    let mut left = room_tokens.saturating_sub(HEADING_TOKENS);
    let (mut lines, mut lost): (Vec<String>, Vec<Fact>) = (Vec::new(), Vec::new());
    for fact in missing {
        let line = quote(fact);
        if lines.contains(&line) || summary.contains(&line) {
            continue;
        }
        let tokens = line_tokens(&line);
        if tokens > left {
            lost.push(fact.clone());
            continue;
        }
        left -= tokens;
        lines.push(line);
    }
    let appended = missing.iter().filter(|fact| !lost.contains(fact)).cloned().collect();
    let lines = lines.join("\n");
    let text = match summary.lines().position(|line| line.trim() == heading) {
        _ if lines.is_empty() => summary.to_owned(),
        Some(at) => {
            let mut all: Vec<&str> = summary.lines().collect();
            all.insert(at + 1, &lines);
            all.join("\n")
        }
        None => format!("{summary}\n{}", wording::fill(wording::FACTS, &[("lines", &lines)])),
    };
    AttemptOutcome { summary: text.trim().to_owned(), appended, lost, ..AttemptOutcome::default() }
}

fn quoted(facts: &[Fact]) -> Vec<String> {
    let mut lines: Vec<String> = facts.iter().map(quote).collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

fn quote(fact: &Fact) -> String {
    let sentence = escape(&fact.sentence);
    match fact.said_by {
        Speaker::User => format!("- User: \"{sentence}\""),
        Speaker::Assistant => format!("- Assistant: \"{sentence}\""),
        Speaker::Context => format!("- {sentence}"),
    }
}

fn line_tokens(line: &str) -> u32 {
    estimate_tokens(line).saturating_add(1)
}

const HEADING_TOKENS: u32 = 4;
