//! Answers of other machines and models: a hub, an upstream, a model that extracts facts or makes a summary.

use super::told::told;
use compaction::{
    Attempt, AttemptStep, CompactionLimits, CompactionPlan, Passage, PassageKind, PlanMoment, PromptSizes, PromptView,
    SummaryJob, SummaryReply, context_message,
};
use hub::{Listing, ModelFiles, Name};
use remember::{FactChange, LearnedChange, ShownFact, estimate_tokens, extract, learn_request, learned};
use serde_json::{Value, json};
use session::Tool;
use std::path::{Component, Path};
use std::sync::LazyLock;

type Tried = Result<bool, String>;

pub fn hub(bytes: &[u8]) -> Tried {
    let listing = match Listing::parse(bytes) {
        Ok(listing) => listing,
        Err(message) => return told(&message),
    };
    let wanted = listing.files.last().map(|file| file.path.clone());
    let mut is_taken = false;
    for file in [None, wanted.as_deref()] {
        let files = match hub::choose("owner/repo", &listing, file) {
            Ok(files) => files,
            Err(error) => {
                told(&error.to_string())?;
                continue;
            }
        };
        is_taken = true;
        let name = Name { repo: "owner/repo".to_owned(), file: None, revision: None, hub: None };
        let (folder, files) = (Path::new("models"), ModelFiles::new(&name, files, Path::new("models")));
        let (_, model) = (files.bytes(), files.model());
        let paths = files.places().map(|(_, path)| path).chain([model]);
        for path in paths {
            let is_inside =
                path.starts_with(folder) && path.components().all(|part| matches!(part, Component::Normal(_)));
            if !is_inside {
                return Err(format!("{} is not in the folder of models", path.display()));
            }
        }
    }
    Ok(is_taken)
}

pub fn tools() -> Vec<Tool> {
    let tool = |name: &str, parameters: Value| Tool {
        name: name.to_owned(),
        parameters: Some(parameters.to_string().into()),
        ..Tool::default()
    };
    vec![
        tool(
            "set_light",
            json!({"type": "object", "properties": {
            "room": {"type": "string"}, "percent": {"type": "integer"}, "on": {"type": "boolean"}}}),
        ),
        tool(
            "timer",
            json!({"properties": {
            "labels": {"type": "array"}, "more": {"type": "object"}, "any": {"type": ["null", "number"]}}}),
        ),
    ]
}

/// An upstream's stream, in two ways to cut it.
pub fn upstream(bytes: &[u8]) -> Tried {
    static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(tools);
    let of_pieces = |piece_bytes| model::hostile_answer(bytes, piece_bytes, &TOOLS);
    match (of_pieces(usize::MAX), of_pieces(3)) {
        (Ok(whole), Ok(cut)) if whole == cut => Ok(whole.finish.is_some()),
        (Err(whole), Err(cut)) if whole == cut => told(&whole.message),
        (whole, cut) => Err(format!("cut, it is another: {whole:?} and {cut:?}")),
    }
}

/// Reads words of a person and, behind a zero byte, a model's answer about them. No line of either becomes more than it
/// was.
pub fn memories(bytes: &[u8]) -> Tried {
    let text = String::from_utf8_lossy(bytes);
    let (said, answer) = text.split_once('\0').unwrap_or((&text, &text));
    let lessons = extract(said, Some(answer));
    let said: Vec<&str> = said.lines().collect();
    let known = [ShownFact { text: "My dog is called Rex.", about: "dog|called" }];
    let request = learn_request(&said, &known);
    if request.len() > text.len() * 8 + 4096 {
        return Err(format!("a request of {} bytes", request.len()));
    }
    let found = learned(answer, &said, &known);
    for (index, change) in &found {
        let is_right = match change {
            LearnedChange::Keep(statement) => statement.text.lines().count() <= 1,
            LearnedChange::Replace(fact, statement) => *fact == 0 && statement.text.lines().count() <= 1,
            LearnedChange::Forget(fact) => *fact == 0,
        };
        if said.get(*index).is_none() || !is_right {
            return Err(format!("this was not said: {change:?}"));
        }
    }
    let is_kept = lessons.iter().any(|lesson| matches!(lesson, FactChange::Keep(_)));
    Ok(is_kept || !found.is_empty())
}

/// A model's summaries, one after the other between zeros, of a conversation that begins the input.
pub fn summaries(bytes: &[u8]) -> Tried {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split('\0');
    let said = parts.next().unwrap_or_default();
    let passage = |(at, line): (usize, &str)| {
        let kind = if at % 2 == 0 { PassageKind::User } else { PassageKind::Assistant };
        Passage { id: format!("p{at}"), kind, text: line.to_owned(), tokens: estimate_tokens(line).max(50) }
    };
    let passages: Vec<Passage> = said.lines().take(200).enumerate().map(passage).collect();
    let tokens: u32 = passages.iter().map(|passage| passage.tokens).sum();
    let ctx_size = tokens + 200;
    let limits = CompactionLimits {
        ctx_size,
        soft_fill: 0.5,
        hard_fill: 0.9,
        target_fill: 0.4,
        tail_tokens: ctx_size / 10,
        summary_tokens: ctx_size / 8,
        reply_reserve_tokens: ctx_size / 20,
    };
    let view = PromptView { passages, ..PromptView::default() };
    let sizes = PromptSizes { fixed_tokens: 20, instruction_tokens: 20, marker_tokens: 5, ..PromptSizes::default() };
    let CompactionPlan::Summarise(plan) = compaction::plan(&view, &sizes, &limits, PlanMoment::Silence) else {
        return Ok(false);
    };
    let job = SummaryJob { view, sizes, limits, pins: Vec::new() };
    let (mut attempt, mut step) = Attempt::begin(job, plan);
    for _ in 0..64 {
        step = match step {
            AttemptStep::Ask(_) => match parts.next() {
                Some(text) => attempt.replied(SummaryReply {
                    text: text.to_owned(),
                    tokens: estimate_tokens(text),
                    finished: !text.is_empty(),
                }),
                None => attempt.failed(),
            },
            AttemptStep::Measure(outcome) => attempt.measured(tokens / 3 + estimate_tokens(&outcome.summary)),
            AttemptStep::Swap(outcome) => {
                context_message(&outcome.summary, &[], &attempt.job.limits);
                return Ok(!outcome.fell_back);
            }
            AttemptStep::GiveUp(_) => return Ok(false),
        };
    }
    Err("the attempt does not end".to_owned())
}
