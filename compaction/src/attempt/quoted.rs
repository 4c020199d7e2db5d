//! Facts quoted behind a summary, or in its place.

use super::{MadeBy, Reply};
use crate::apply::escape;
use crate::check::{Fact, SaidBy};
use crate::types::Limits;
use crate::wording;
use crate::words::estimate_tokens;

pub struct Made {
    pub summary: String,
    pub made_by: MadeBy,
    pub appended: Vec<Fact>,
    pub lost: Vec<Fact>,
}

/// A summary with what it lacks behind it, as far as there is room.
pub fn with_facts(reply: &Reply, missing: &[Fact], limits: &Limits) -> Made {
    let room = limits.summary_tokens.saturating_sub(reply.tokens);
    let (summary, lost) = append(reply.text.trim(), missing, room);
    let appended = missing.iter().filter(|fact| !lost.contains(fact)).cloned().collect();
    Made { summary, made_by: MadeBy::Model, appended, lost }
}

/// The memory before, and what was said since. Where there is no room for both, each gets half of it.
pub fn without_model(earlier: &str, missing: &[Fact], limits: &Limits) -> Made {
    let news: Vec<Fact> = missing.iter().filter(|fact| fact.said_by != SaidBy::Memory).cloned().collect();
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
    let (summary, lost) = append(kept.trim(), &news, wanted + left);
    let appended = news.into_iter().filter(|fact| !lost.contains(fact)).collect();
    Made { summary, made_by: MadeBy::Fallback, appended, lost }
}

/// The lines go under the heading that the summary may have already.
fn append(summary: &str, missing: &[Fact], room_tokens: u32) -> (String, Vec<Fact>) {
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
    if lines.is_empty() {
        return (summary.to_owned(), lost);
    }
    let lines = lines.join("\n");
    let text = match summary.lines().position(|line| line.trim() == heading) {
        Some(at) => {
            let mut all: Vec<&str> = summary.lines().collect();
            all.insert(at + 1, &lines);
            all.join("\n")
        }
        None => format!("{summary}\n{}", wording::fill(wording::FACTS, &[("lines", &lines)])),
    };
    (text.trim().to_owned(), lost)
}

fn quoted(facts: &[Fact]) -> Vec<String> {
    let mut lines: Vec<String> = facts.iter().map(quote).collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// In quotation marks, with who said it: a statement of somebody, which is no order.
fn quote(fact: &Fact) -> String {
    let sentence = escape(&fact.sentence);
    match fact.said_by {
        SaidBy::User => format!("- User: \"{sentence}\""),
        SaidBy::Assistant => format!("- Assistant: \"{sentence}\""),
        SaidBy::Memory => format!("- {sentence}"),
    }
}

fn line_tokens(line: &str) -> u32 {
    estimate_tokens(line).saturating_add(1)
}

const HEADING_TOKENS: u32 = 4;
