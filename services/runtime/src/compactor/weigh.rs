//! Tokens of each part of a conversation's prompt, in the words of the `compaction` crate.

use super::shown_past::message_of;
use super::{Past, ShownPast};
use crate::prompts::SessionTools;
use compaction::{Passage, PassageKind, PromptSizes, PromptView};
use model::Counted;
use prompt::{Audience, Layout, PLACEHOLDER, lay_out, leading, with_tools};
use session::{Context, Failure, Item, ItemBody, Message, MessageRole, Role, SessionConfig};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Weighed {
    pub view: PromptView,
    pub sizes: PromptSizes,
    pub total: Counted,
}

pub async fn weigh(tools: &SessionTools, past: &Past) -> Result<Weighed, Failure> {
    let shown = past.shown();
    let context = tools.context(&past.shown_past, &shown);
    let mut weighed = weigh_shown(tools, &past.config, &past.shown_past, &shown, &context, Some(PLACEHOLDER)).await?;
    if let Some(dropped_through) = past.dropped_through() {
        // What left the prompt is weighed as it stood there.
        let all = tools.measure(&past.config, &past.items, &context, Some(PLACEHOLDER)).await?;
        let left = past.leading..past.shown_from;
        let passages = left.map(|index| passage(&past.items[index], all.items[index]));
        weighed.view.passages.splice(..0, passages);
        weighed.view.dropped_through = Some(dropped_through.to_owned());
        weighed.view.summary.clone_from(&past.base.text);
    }
    Ok(weighed)
}

/// Weighs a prompt of these items, instructions first. `partial`: what the user says next.
pub async fn weigh_shown(
    tools: &SessionTools,
    config: &SessionConfig,
    shown_past: &ShownPast,
    shown: &[Arc<Item>],
    context: &Context,
    partial: Option<&str>,
) -> Result<Weighed, Failure> {
    let measured = tools.measure(config, shown, context, partial).await?;
    let leading = leading(shown);
    let passages: Vec<Passage> =
        (leading..shown.len()).map(|index| passage(&shown[index], measured.items[index])).collect();
    let trimmed = shown.iter().rfind(|item| context.trimmed.contains(&item.id));
    let trimmed_through = trimmed.map(|item| item.id.clone());
    let context_tokens = measured.preface;
    // Every pin stands beside the next summary.
    let mut all_pins = shown_past.clone();
    all_pins.place_pins();
    all_pins.text.clear();
    let pins = all_pins.memory(&tools.limits).as_ref().map(message_of);
    let [pins_tokens, instruction_tokens, marker_tokens] = tools.rule(config, pins).await?;
    let said: u64 = passages.iter().map(|passage| u64::from(passage.tokens)).sum();
    let summary_tokens = if shown_past.text.is_empty() { 0 } else { context_tokens.saturating_sub(pins_tokens) };
    let sizes = PromptSizes {
        fixed_tokens: few(measured.total.tokens.saturating_sub(said + context_tokens)),
        context_tokens: few(context_tokens),
        pins_tokens: few(pins_tokens),
        summary_tokens: few(summary_tokens),
        instruction_tokens: few(instruction_tokens),
        marker_tokens: few(marker_tokens),
    };
    let view = PromptView { passages, summary: shown_past.text.clone(), trimmed_through, ..PromptView::default() };
    Ok(Weighed { view, sizes, total: measured.total })
}

struct MeasuredItems {
    total: Counted,
    preface: u64,
    items: Vec<u64>,
}

impl SessionTools {
    pub fn context(&self, shown_past: &ShownPast, items: &[Arc<Item>]) -> Context {
        let may_recall = self.preset.recall_tool_calls() > 0;
        let context = shown_past.context(items, &self.limits, may_recall);
        Context { recall: context.recall || may_recall && !self.facts.now().ids.is_empty(), ..context }
    }

    async fn measure(
        &self,
        config: &SessionConfig,
        items: &[Arc<Item>],
        context: &Context,
        partial: Option<&str>,
    ) -> Result<MeasuredItems, Failure> {
        let told = self.facts.now();
        let layout = Layout { partial, ..self.layout(config, context, &told, Audience::Count) };
        let laid_out = lay_out(items, &layout);
        let preface = laid_out.marks.remembered..laid_out.marks.context;
        let measured = self.model.measure(&laid_out.prompt, &self.preset).await?;
        // A message may tell several items: what was said, and the calls that were made with it.
        let mut bytes_of_message = vec![0; measured.messages.len()];
        let places = || laid_out.message_of_item.iter().zip(items);
        for (message, item) in places() {
            if let Some(bytes) = message.and_then(|message| bytes_of_message.get_mut(message)) {
                *bytes += bytes_of(item);
            }
        }
        let share = |(message, item): (&Option<usize>, &Arc<Item>)| {
            let tokens =
                message.and_then(|message| Some((measured.messages.get(message)?, bytes_of_message.get(message)?)));
            tokens.map_or(0, |(tokens, bytes)| (tokens * bytes_of(item)).div_ceil((*bytes).max(1)))
        };
        let items = places().map(share).collect();
        Ok(MeasuredItems { total: measured.total, preface: measured.messages[preface].iter().sum(), items })
    }

    /// Counts the tokens beside a conversation: pins, the request for a summary, the marker for turns that were left
    /// out.
    pub(super) async fn rule(&self, config: &SessionConfig, pins: Option<Message>) -> Result<[u64; 3], Failure> {
        let said = || Message::new(MessageRole::User, PLACEHOLDER);
        let request = message_of(&compaction::summary_request(&self.limits));
        let mut messages = vec![said(), request, Message::new(MessageRole::Tool, compaction::LEFT_OUT), said()];
        let has_pins = pins.is_some();
        messages.extend(pins);
        messages.push(said());
        let prompt = with_tools(config, &Context::default(), messages, &self.wording);
        let measured = self.model.measure(&prompt, &self.preset).await?;
        let pins = if has_pins { measured.messages[4] } else { 0 };
        Ok([pins, measured.messages[1], measured.messages[2]])
    }

    pub async fn count(
        &self,
        config: &SessionConfig,
        items: &[Arc<Item>],
        context: &Context,
    ) -> Result<Counted, Failure> {
        let prompt = self.prompt(config, items, context, Some(PLACEHOLDER)).prompt;
        Ok(self.model.measure(&prompt, &self.preset).await?.total)
    }
}

pub fn passage(item: &Item, tokens: u64) -> Passage {
    let (kind, text) = match &item.body {
        ItemBody::Message { role: Role::System, .. } => (PassageKind::System, item.text()),
        ItemBody::Message { role: Role::User, .. } => (PassageKind::User, item.text()),
        ItemBody::Message { role: Role::Assistant, .. } => (PassageKind::Assistant, item.text()),
        ItemBody::FunctionCall { call_id, name, arguments } => {
            (PassageKind::Call { call_id: call_id.clone() }, format!("{name} {arguments}"))
        }
        ItemBody::FunctionCallOutput { call_id, output } => {
            (PassageKind::Output { call_id: call_id.clone() }, output.clone())
        }
    };
    Passage { id: item.id.clone(), kind, text, tokens: few(tokens) }
}

fn bytes_of(item: &Item) -> u64 {
    1 + item.body.text_bytes() as u64
}

fn few(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

pub fn results_through(items: &[Arc<Item>], through: &str) -> Vec<String> {
    let end = items.iter().position(|item| item.id == through).map_or(0, |index| index + 1);
    let results = items[..end].iter().filter(|item| matches!(item.body, ItemBody::FunctionCallOutput { .. }));
    results.map(|item| item.id.clone()).collect()
}
