//! A summary, from the look at a conversation to the store. Asks the model when it has nothing else to do, once more where
//! something is missing, and takes what was said word for word where that fails too.

use super::standing::{message_of, pin_of};
use super::weigh::{PromptTools, Weighed, passage, results_through, weigh};
use super::{Past, SessionStore, Standing, limits_of};
use crate::clock::wall_ms;
use crate::prompts::prompt_with;
use compaction::{
    Admission, Attempt, AttemptOutcome, AttemptStep, CompactionLimits, CompactionPlan, Fact, PlanMoment,
    RejectionReason, SummaryJob, SummaryPlan, SummaryReply, SummaryRequest,
};
use model::{Answer, Counted, ModelRequest};
use serde_json::{Value, json};
use session::prompt::{Context, Layout, lay_out};
use session::{Delta, Failure, FailureCode, Finish, Item, ItemBody};
use std::collections::HashSet;
use std::sync::Arc;
use store::{MadeBy, NewSummary, SummaryKind, View};

/// What a look at a conversation showed.
pub struct Look {
    pub past: Past,
    pub weighed: Weighed,
    pub plan: CompactionPlan,
    /// Items that the plan takes out of the prompt, and those before them.
    pub covers: HashSet<String>,
    /// The newest item there was.
    pub last_item: Option<String>,
}

/// A smaller view that is not in use yet.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactedView {
    /// None: only results of tools leave.
    pub version: Option<u64>,
    /// What will stand in the prompt.
    pub standing: Standing,
    /// Results of tools that leave with it.
    pub trimmed: Vec<String>,
    /// Behind what the summary tells: the first and the last item that stay out of the prompt without one.
    pub still_owed: Option<[String; 2]>,
    pub tokens_before: u64,
    pub after: Counted,
    pub effort: SummaryEffort,
}

impl CompactedView {
    /// A summary that was made and checked before the last start, and is not in use: the work is not lost.
    pub fn left_over(view: &View, standing: &Standing) -> Option<CompactedView> {
        let newest = view.newest_summary.as_ref()?;
        let is_new = newest.applied_at_ms.is_none() && newest.undone_at_ms.is_none();
        if !is_new
            || newest.kind != SummaryKind::Summary
            || standing.version.is_some_and(|in_use| in_use > newest.version)
            // A part of what left the prompt: it would bring the rest back.
            || view.summary.as_ref().is_some_and(|in_use| newest.to_order_key < in_use.to_order_key)
        {
            return None;
        }
        Some(CompactedView {
            version: Some(newest.version),
            standing: standing.with(newest),
            trimmed: Vec::new(),
            still_owed: None,
            tokens_before: newest.tokens_before,
            after: Counted::exactly(newest.tokens_after),
            effort: SummaryEffort::default(),
        })
    }
}

/// What it took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SummaryEffort {
    /// Requests to the model.
    pub requests: u64,
    pub rejected: Vec<RejectionReason>,
    /// Facts that were put behind a summary that lacked them.
    pub appended: Vec<Fact>,
    /// Facts that are only in the history from then on.
    pub lost: Vec<Fact>,
    /// No summary of the model held: these are words of the conversation.
    pub fell_back: bool,
    pub reused_tokens: u64,
    pub computed_tokens: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Model(#[from] Failure),
    #[error("no summary holds ({})", .0.into_str())]
    GaveUp(RejectionReason),
    #[error("a pin is not in the prompt that was made")]
    PinMissing,
}

pub async fn look(tools: &PromptTools, kept: &SessionStore, gave_up_at: Option<String>) -> Result<Look, Trouble> {
    let limits = limits_of(&tools.preset);
    let mut past = Past::load(&kept.store, &kept.session).await?;
    pin_what_was_asked_for(kept, &limits, &mut past).await?;
    let mut weighed = weigh(tools, &past).await?;
    weighed.view.gave_up_at = gave_up_at;
    let mut plan = compaction::plan(&weighed.view, &weighed.sizes, &limits, PlanMoment::Silence);
    let is_tight = weighed.total.tokens > u64::from(limits.hard_tokens());
    if past.standing.held && !is_tight && !past.standing.owes_summary {
        plan = CompactionPlan::Nothing;
    }
    let through = match &plan {
        CompactionPlan::Trim(trim) => Some(&trim.through),
        CompactionPlan::Summarise(summarise) => Some(&summarise.through),
        _ => None,
    };
    let end = through.and_then(|id| past.items.iter().position(|item| item.id == *id)).map_or(0, |index| index + 1);
    let covers = past.items[..end].iter().map(|item| item.id.clone()).collect();
    let last_item = past.items.last().map(|item| item.id.clone());
    Ok(Look { past, weighed, plan, covers, last_item })
}

/// Only results of tools leave: no model is needed for that.
pub fn trimmed(look: &Look, through: &str, expected_tokens: u32) -> CompactedView {
    let mut standing = look.past.standing.clone();
    let results = results_through(&look.past.items, through);
    let trimmed: Vec<String> = results.into_iter().filter(|id| !standing.trimmed.contains(id)).collect();
    standing.trimmed.extend(trimmed.iter().cloned());
    let total = look.weighed.total;
    let (tokens_before, after) = (total.tokens, total.part(u64::from(expected_tokens)));
    let effort = SummaryEffort::default();
    CompactedView { version: None, standing, trimmed, still_owed: None, tokens_before, after, effort }
}

/// Asks for a summary, checks it, and keeps it in the store. It is not in use then.
pub async fn make(
    tools: &PromptTools,
    kept: &SessionStore,
    look: &Look,
    plan: SummaryPlan,
) -> Result<CompactedView, Trouble> {
    let Look { past, weighed, .. } = look;
    let limits = limits_of(&tools.preset);
    let job = SummaryJob {
        view: weighed.view.clone(),
        sizes: weighed.sizes,
        limits,
        pins: past.standing.pins.iter().map(pin_of).collect(),
    };
    let mut effort = SummaryEffort::default();
    let mut counted = Counted::exactly(0);
    let (mut attempt, mut step) = Attempt::begin(job, plan);
    let outcome = loop {
        step = match step {
            AttemptStep::Ask(request) => {
                effort.requests += 1;
                match ask(tools, past, &request, effort.requests > 1).await {
                    Ok(said) => {
                        effort.reused_tokens += said.reused_tokens;
                        effort.computed_tokens += said.computed_tokens;
                        attempt.replied(said.reply)
                    }
                    // Another time it may well answer, and until then nothing is lost.
                    Err(failure) if is_passing(&failure) => return Err(failure.into()),
                    Err(failure) => {
                        tracing::warn!(%failure, "the model cannot be asked for a summary");
                        attempt.failed()
                    }
                }
            }
            AttemptStep::Measure(outcome) => {
                let (standing, shown) = after(past, &outcome);
                let context = standing.context(&shown, &limits, tools.preset.recall > 0);
                check_pins(&standing, &context)?;
                counted = tools.count(&past.config, &shown, &context).await?;
                attempt.measured(u32::try_from(counted.tokens).unwrap_or(u32::MAX))
            }
            AttemptStep::Swap(outcome) => break outcome,
            AttemptStep::GiveUp(reason) => return Err(Trouble::GaveUp(reason)),
        };
    };
    let (mut standing, _) = after(past, &outcome);
    effort.take(&outcome);
    let tokens_before = weighed.total.tokens;
    let new = new_summary(past, &outcome, &standing, &effort, [tokens_before, counted.tokens]);
    let version = kept.store.add_summary(&kept.session, new).await?;
    (standing.version, standing.text_version, standing.newest_version) = (Some(version), Some(version), version);
    let still_owed = still_owed(past, &outcome);
    let trimmed = Vec::new();
    Ok(CompactedView { version: Some(version), standing, trimmed, still_owed, tokens_before, after: counted, effort })
}

/// What will stand in the prompt, and the words behind it.
fn after(past: &Past, outcome: &AttemptOutcome) -> (Standing, Vec<Arc<Item>>) {
    let mut standing = past.standing.clone();
    standing.text.clone_from(&outcome.summary);
    let still_owed = still_owed(past, outcome);
    let [_, through] = still_owed.clone().unwrap_or_else(|| [String::new(), outcome.through.clone()]);
    let cut = past.items.iter().position(|item| item.id == through).map_or(0, |index| index + 1);
    standing.covered_through = Some(through);
    (standing.owes_summary, standing.held) = (still_owed.is_some(), false);
    standing.place_pins();
    let shown = past.items[..past.leading].iter().chain(&past.items[cut.max(past.leading)..]).cloned().collect();
    (standing, shown)
}

/// What left the prompt may be more than one request can tell. The rest of it stays out, and is told next.
fn still_owed(past: &Past, outcome: &AttemptOutcome) -> Option<[String; 2]> {
    let next = past.items.iter().position(|item| item.id == outcome.through)? + 1;
    let first = past.items.get(next).filter(|_| next < past.shown_from)?;
    Some([first.id.clone(), past.dropped_through()?.to_owned()])
}

fn is_passing(failure: &Failure) -> bool {
    use FailureCode::{Busy, EngineFailed, Unavailable, UpstreamFailed, UpstreamTimeout};
    matches!(failure.code, Busy | EngineFailed | Unavailable | UpstreamFailed | UpstreamTimeout)
}

impl SummaryEffort {
    fn take(&mut self, outcome: &AttemptOutcome) {
        self.rejected.clone_from(&outcome.rejected);
        (self.appended, self.lost) = (outcome.appended.clone(), outcome.lost.clone());
        self.fell_back = outcome.fell_back;
    }
}

fn new_summary(
    past: &Past,
    outcome: &AttemptOutcome,
    standing: &Standing,
    effort: &SummaryEffort,
    [tokens_before, tokens_after]: [u64; 2],
) -> NewSummary {
    let to_item = outcome.through.clone();
    let from_item = past.items.get(past.leading).map_or_else(|| to_item.clone(), |item| item.id.clone());
    NewSummary {
        kind: SummaryKind::Summary,
        made_by: if effort.fell_back { MadeBy::Fallback } else { MadeBy::Model },
        based_on: past.base.text_version,
        from_item,
        to_item,
        through_seq: past.last_seq,
        text: standing.text.clone(),
        pins: placed_pins(standing),
        checks: checks(effort),
        tokens_before,
        tokens_after,
        arm: None,
        created_at_ms: wall_ms(),
    }
}

/// In the order in which they were made.
pub fn placed_pins(standing: &Standing) -> Value {
    let placed = standing.pins.iter().filter(|pin| standing.placed_pins.contains(&pin.id));
    json!(placed.map(|pin| &pin.id).collect::<Vec<_>>())
}

fn checks(effort: &SummaryEffort) -> Value {
    let facts = |facts: &[Fact]| -> Vec<Value> {
        let fact = |fact: &Fact| json!({ "kind": fact.kind.into_str(), "text": fact.text, "source": fact.source });
        facts.iter().map(fact).collect()
    };
    json!({
        "requests": effort.requests,
        "rejected": effort.rejected.iter().map(|reason| reason.into_str()).collect::<Vec<_>>(),
        "appended_facts": facts(&effort.appended),
        "lost_facts": facts(&effort.lost),
        "reused_tokens": effort.reused_tokens,
        "computed_tokens": effort.computed_tokens,
    })
}

fn check_pins(standing: &Standing, context: &Context) -> Result<(), Trouble> {
    let text: String = context.preface.iter().map(|message| message.text()).collect();
    let pins: Vec<_> = standing.pins.iter().map(pin_of).collect();
    if compaction::missing_pins(&text, &pins).is_empty() { Ok(()) } else { Err(Trouble::PinMissing) }
}

struct Said {
    reply: SummaryReply,
    reused_tokens: u64,
    computed_tokens: u64,
}

/// The prompt is the conversation's as the model has read it, up to the plan's cut, so that only the request and the
/// summary are computed.
async fn ask(tools: &PromptTools, past: &Past, request: &SummaryRequest, again: bool) -> Result<Said, Failure> {
    let cut = past.items.iter().position(|item| item.id == request.through).map_or(0, |index| index + 1);
    let items: Vec<_> = past.items[..cut].iter().map(|item| without_words(item, &request.left_out)).collect();
    let mut context = past.base.context(&past.items, &limits_of(&tools.preset), tools.preset.recall > 0);
    // They stand behind the conversation.
    context.notes.clear();
    let wording = &tools.wording;
    let layout = Layout { instructions: &past.config.instructions, context: &context, partial: None, wording };
    let mut messages = lay_out(&items, &layout).messages;
    messages.extend(request.messages.iter().map(message_of));
    let prompt = prompt_with(&past.config, &context, messages);
    let mut ask = ModelRequest::for_summary(prompt, tools.preset.clone(), request.max_tokens, again);
    ask.past_owner = tools.past_owner;
    read(tools.model.ask(ask)).await
}

async fn read(mut answer: Answer) -> Result<Said, Failure> {
    let mut text = String::new();
    while let Some(delta) = answer.next().await {
        match delta {
            Delta::Text { text: more, .. } => text.push_str(&more),
            Delta::Done { finish, usage, report } => {
                let (usage, report) = (usage.unwrap_or_default(), report.unwrap_or_default());
                let tokens = u32::try_from(usage.output_tokens).unwrap_or(u32::MAX);
                return Ok(Said {
                    reply: SummaryReply { text: text.trim().to_owned(), tokens, finished: finish == Finish::Stop },
                    reused_tokens: report.reused_tokens,
                    computed_tokens: report.computed_tokens,
                });
            }
            Delta::Failed(failure) => return Err(failure),
            _ => {}
        }
    }
    Err(Failure::new(FailureCode::EngineFailed, "the summary broke off; it is asked for again later"))
}

/// The item as the request shows it.
fn without_words(item: &Arc<Item>, left_out: &[String]) -> Arc<Item> {
    if !left_out.contains(&item.id) {
        return item.clone();
    }
    let mut item = Item::clone(item);
    match &mut item.body {
        ItemBody::Message { parts, .. } => {
            parts.truncate(1);
            parts.iter_mut().for_each(|part| *part = compaction::LEFT_OUT.to_owned());
        }
        ItemBody::FunctionCall { arguments, .. } => *arguments = "{}".to_owned(),
        ItemBody::FunctionCallOutput { output, .. } => *output = compaction::LEFT_OUT.to_owned(),
    }
    Arc::new(item)
}

/// What the user asked to be kept word for word and is no pin yet: said before this was looked for, or right before a
/// crash.
async fn pin_what_was_asked_for(
    kept: &SessionStore,
    limits: &CompactionLimits,
    past: &mut Past,
) -> Result<(), store::Error> {
    let known = kept.store.pins(&kept.session, true).await?;
    let mut before = None;
    let mut all = Vec::new();
    for item in &past.items {
        all.extend(wishes(item, before));
        if item.is_said_by_user() {
            before = Some(&**item);
        }
    }
    all.retain(|wish| !known.iter().any(|pin| pin.source_item.as_ref() == Some(&wish.item_id)));
    let (added, _) = pin_wishes(kept, limits, all, &mut past.standing.pins).await?;
    if added {
        past.base.pins.clone_from(&past.standing.pins);
    }
    Ok(())
}

/// What the user asked to be kept word for word, and where it was said.
#[derive(Debug)]
pub struct PinWish {
    pub text: String,
    pub item_id: String,
}

/// What this item asks to be kept: of its own words, or what the user said `before`.
pub fn wishes(item: &Item, before: Option<&Item>) -> Vec<PinWish> {
    let asking = passage(item, 0);
    let wish = |text, item: &Item| PinWish { text, item_id: item.id.clone() };
    let mut wishes: Vec<PinWish> = compaction::detect_pins(&asking).into_iter().map(|text| wish(text, item)).collect();
    if let Some(before) = before
        && let Some(text) = compaction::detect_pin_before(&asking, &passage(before, 0))
    {
        wishes.push(wish(text, before));
    }
    wishes
}

/// Pins what there is room for beside the pins that there are. Whether there was something, and what found no room.
pub async fn pin_wishes(
    kept: &SessionStore,
    limits: &CompactionLimits,
    wishes: Vec<PinWish>,
    pins: &mut Vec<store::Pin>,
) -> Result<(bool, Vec<PinWish>), store::Error> {
    let (mut added, mut refused) = (false, Vec::new());
    for wish in wishes {
        let there: Vec<_> = pins.iter().map(pin_of).collect();
        match compaction::admit(&there, &wish.text, limits) {
            Admission::Add => {
                let (text, source) = (&wish.text, Some(&*wish.item_id));
                pins.push(kept.store.add_pin(&kept.session, text, source, MadeBy::Model, wall_ms()).await?);
                added = true;
            }
            Admission::Known => {}
            Admission::Full => refused.push(wish),
        }
    }
    Ok((added, refused))
}
