//! Summary of a conversation, from the plan to the store.
//!
//! The model makes it when it has nothing else to do, and once more if something is missing. If that fails too, the
//! summary quotes what was said.

use super::room::left_out;
use super::shown_past::{message_of, pin_of};
use super::weigh::{Weighed, passage, results_through, weigh};
use super::{Past, ShownPast};
use crate::clock::wall_ms;
use crate::heavy;
use crate::metrics;
use crate::prompts::SessionTools;
use compaction::{
    Admission, Attempt, AttemptOutcome, AttemptStep, CompactionPlan, Fact, PlanMoment, RejectionReason, SummaryJob,
    SummaryPlan, SummaryReply, SummaryRequest,
};
use model::{Answer, Counted, ModelRequest};
use prompt::{Audience, Layout, lay_out};
use serde_json::{Value, json};
use session::{Context, Delta, Failure, FailureCode, Finish, Item, ItemBody, Message};
use std::collections::HashSet;
use std::sync::Arc;
use store::{MadeBy, Summary, SummaryKind, View};

pub struct Look {
    pub past: Past,
    pub weighed: Weighed,
    pub plan: CompactionPlan,
    pub covers: HashSet<String>,
    pub last_item: Option<String>,
}

/// Smaller view of a conversation that is not in use yet.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactedView {
    /// Version of its summary. `None`: only results of tools leave the prompt.
    pub version: Option<u64>,
    pub shown_past: ShownPast,
    pub trimmed: Vec<String>,
    /// First and last item that stay out of the prompt without a summary, behind the covered ones.
    pub still_owed: Option<[String; 2]>,
    pub tokens_before: u64,
    pub after: Counted,
}

impl CompactedView {
    pub fn left_over(view: &View, shown_past: &ShownPast) -> Option<CompactedView> {
        let newest = view.newest_summary.as_ref()?;
        let is_new = newest.applied_at_ms.is_none() && newest.undone_at_ms.is_none();
        if !is_new
            || newest.kind != SummaryKind::Summary
            // A person took back what it continues.
            || newest.based_on != shown_past.text_version
            || shown_past.version.is_some_and(|in_use| in_use > newest.version)
            // A part of what left the prompt: it would bring the rest back.
            || view.summary.as_ref().is_some_and(|in_use| newest.to_order_key < in_use.to_order_key)
        {
            return None;
        }
        Some(CompactedView {
            version: Some(newest.version),
            shown_past: shown_past.with(newest),
            trimmed: Vec::new(),
            still_owed: None,
            tokens_before: newest.tokens_before,
            after: Counted::exactly(newest.tokens_after),
        })
    }
}

struct SummaryEffort {
    requests: u64,
    reused_tokens: u64,
    computed_tokens: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Model(#[from] Failure),
    #[error("no summary holds ({})", .0.into_str())]
    GaveUp(RejectionReason),
    #[error("a pin is not in the prompt that was made")]
    PinMissing,
    #[error("what stands behind the summary was not read")]
    Unread,
}

pub async fn look(tools: &SessionTools, gave_up_at: Option<String>) -> Result<Look, CompactionError> {
    let mut past = Past::for_summary(tools).await?;
    let (mut weighed, mut plan) = plan_for(tools, &mut past, gave_up_at.clone()).await?;
    if plan.through().is_some_and(|through| !past.has_read_behind(through)) {
        past = Past::load(tools).await?;
        (weighed, plan) = plan_for(tools, &mut past, gave_up_at).await?;
    }
    let through = plan.through();
    let end = through.and_then(|id| past.items.iter().position(|item| item.id == id)).map_or(0, |index| index + 1);
    let covers = past.items[..end].iter().map(|item| item.id.clone()).collect();
    let last_item = past.items.last().map(|item| item.id.clone());
    Ok(Look { past, weighed, plan, covers, last_item })
}

async fn plan_for(
    tools: &SessionTools,
    past: &mut Past,
    gave_up_at: Option<String>,
) -> Result<(Weighed, CompactionPlan), CompactionError> {
    let limits = &tools.limits;
    pin_what_was_asked_for(tools, past).await?;
    let mut weighed = weigh(tools, past).await?;
    weighed.view.gave_up_at = gave_up_at;
    let mut plan = compaction::plan(&weighed.view, &weighed.sizes, limits, PlanMoment::Silence);
    let is_tight = weighed.total.tokens > u64::from(limits.hard_tokens());
    if past.shown_past.was_undone && !is_tight && !past.shown_past.owes_summary {
        plan = CompactionPlan::Nothing;
    }
    Ok((weighed, plan))
}

pub fn trimmed(look: &Look, through: &str, expected_tokens: u32) -> CompactedView {
    let mut shown_past = look.past.shown_past.clone();
    let results = results_through(&look.past.items, through);
    let trimmed: Vec<String> = results.into_iter().filter(|id| !shown_past.trimmed.contains(id)).collect();
    shown_past.trimmed.extend(trimmed.iter().cloned());
    let total = look.weighed.total;
    let (tokens_before, after) = (total.tokens, total.part(u64::from(expected_tokens)));
    CompactedView { version: None, shown_past, trimmed, still_owed: None, tokens_before, after }
}

/// Makes a summary: asks for it, checks it and stores it. It is not in use then.
pub async fn make(tools: &SessionTools, look: &Look, plan: SummaryPlan) -> Result<CompactedView, CompactionError> {
    let Look { past, weighed, .. } = look;
    let job = SummaryJob {
        view: weighed.view.clone(),
        sizes: weighed.sizes,
        limits: tools.limits,
        pins: past.shown_past.pins.iter().map(pin_of).collect(),
    };
    let mut effort = SummaryEffort { requests: 0, reused_tokens: 0, computed_tokens: 0 };
    let mut counted = Counted::exactly(0);
    // Each step may look through all that the summary covers.
    let bytes = weighed.view.passages.iter().map(|passage| passage.text.len()).sum();
    let (mut attempt, mut step) = heavy::run(bytes, || Attempt::begin(job, plan)).await;
    let outcome = loop {
        step = match step {
            AttemptStep::Ask(request) => {
                effort.requests += 1;
                match ask(tools, past, &request, &mut effort).await {
                    Ok(reply) => heavy::run(bytes, || attempt.replied(reply)).await,
                    // Another time it may well answer, and until then nothing is lost.
                    Err(failure) if is_passing(&failure) => return Err(failure.into()),
                    Err(failure) => {
                        tracing::warn!(%failure, "the model could not be asked for a summary");
                        heavy::run(bytes, || attempt.failed()).await
                    }
                }
            }
            AttemptStep::Measure(outcome) => {
                counted = count_after(tools, past, &outcome).await?;
                let tokens = u32::try_from(counted.tokens).unwrap_or(u32::MAX);
                heavy::run(bytes, || attempt.measured(tokens)).await
            }
            AttemptStep::Swap(outcome) => break outcome,
            AttemptStep::GiveUp(reason) => return Err(CompactionError::GaveUp(reason)),
        };
    };
    // Turns may have left the prompt meanwhile: they stay out, and those behind the summary are told next.
    let now = Past::for_summary(tools).await?;
    let in_use = &now.shown_past;
    if in_use.text_version != past.shown_past.text_version {
        // A person wrote, took back or brought back a summary, of which this one knows nothing.
        return Err(store::Error::StaleSummary { version: in_use.newest_version }.into());
    }
    let is_as_it_was = now.shown_past.version == past.shown_past.version;
    let past = if is_as_it_was { past } else { &now };
    if !past.has_read_behind(&outcome.through) {
        return Err(CompactionError::Unread);
    }
    if !is_as_it_was {
        counted = count_after(tools, past, &outcome).await?;
    }
    let (mut shown_past, _) = after(past, &outcome);
    let tokens_before = weighed.total.tokens;
    let to_item = outcome.through.clone();
    let from_item = past.items.get(past.leading).map_or_else(|| to_item.clone(), |item| item.id.clone());
    let new = Summary {
        kind: SummaryKind::Summary,
        made_by: if outcome.fell_back { MadeBy::Fallback } else { MadeBy::Model },
        based_on: past.base.text_version,
        through_seq: past.last_seq,
        checks: checks(&outcome, &effort),
        ..left_out(&shown_past, [from_item, to_item], [tokens_before, counted.tokens])
    };
    let version = tools.store.add_summary(&tools.session, new).await?;
    metrics::summary_made(&outcome.rejected, outcome.fell_back);
    let SummaryEffort { requests, reused_tokens, computed_tokens } = effort;
    tracing::info!(version, requests, reused_tokens, computed_tokens, "a summary was made");
    (shown_past.version, shown_past.text_version, shown_past.newest_version) = (Some(version), Some(version), version);
    let still_owed = still_owed(past, &outcome);
    let (version, trimmed) = (Some(version), Vec::new());
    Ok(CompactedView { version, shown_past, trimmed, still_owed, tokens_before, after: counted })
}

async fn count_after(tools: &SessionTools, past: &Past, outcome: &AttemptOutcome) -> Result<Counted, CompactionError> {
    let (shown_past, shown) = after(past, outcome);
    let context = tools.context(&shown_past, &shown);
    check_pins(&shown_past, &context)?;
    Ok(tools.count(&past.config, &shown, &context).await?)
}

fn after(past: &Past, outcome: &AttemptOutcome) -> (ShownPast, Vec<Arc<Item>>) {
    let mut shown_past = past.shown_past.clone();
    shown_past.text.clone_from(&outcome.summary);
    let still_owed = still_owed(past, outcome);
    let cut = match &still_owed {
        Some(_) => past.shown_from,
        None => past.items.iter().position(|item| item.id == outcome.through).map_or(0, |index| index + 1),
    };
    shown_past.covered_through =
        Some(still_owed.as_ref().map_or_else(|| outcome.through.clone(), |[_, last]| last.clone()));
    (shown_past.owes_summary, shown_past.was_undone) = (still_owed.is_some(), false);
    shown_past.place_pins();
    let shown = past.items[..past.leading].iter().chain(&past.items[cut.max(past.leading)..]).cloned().collect();
    (shown_past, shown)
}

/// Returns the ends of the turns that no summary covers: more left the prompt than one request can hold. The next
/// summary covers them.
fn still_owed(past: &Past, outcome: &AttemptOutcome) -> Option<[String; 2]> {
    let next = past.items.iter().position(|item| item.id == outcome.through)? + 1;
    let first = past.items.get(next).filter(|_| next < past.shown_from)?;
    let last = if past.is_whole { past.dropped_through() } else { past.shown_past.covered_through.as_deref() };
    Some([first.id.clone(), last?.to_owned()])
}

fn is_passing(failure: &Failure) -> bool {
    use FailureCode::{Busy, EngineFailed, Unavailable, UpstreamFailed, UpstreamTimeout};
    matches!(failure.code, Busy | EngineFailed | Unavailable | UpstreamFailed | UpstreamTimeout)
}

fn checks(outcome: &AttemptOutcome, effort: &SummaryEffort) -> Value {
    let facts = |facts: &[Fact]| -> Vec<Value> {
        let fact = |fact: &Fact| json!({ "kind": fact.kind.into_str(), "text": fact.text, "source": fact.source });
        facts.iter().map(fact).collect()
    };
    json!({
        "requests": effort.requests,
        "rejected": outcome.rejected.iter().map(|reason| reason.into_str()).collect::<Vec<_>>(),
        "appended_facts": facts(&outcome.appended),
        "lost_facts": facts(&outcome.lost),
        "reused_tokens": effort.reused_tokens,
        "computed_tokens": effort.computed_tokens,
    })
}

fn check_pins(shown_past: &ShownPast, context: &Context) -> Result<(), CompactionError> {
    let text: String = context.preface.iter().map(|message| message.text()).collect();
    let pins: Vec<_> = shown_past.pins.iter().map(pin_of).collect();
    if compaction::missing_pins(&text, &pins).is_empty() { Ok(()) } else { Err(CompactionError::PinMissing) }
}

/// Asks the model behind the prompt that it has read, up to the plan's cut, so that it computes only the request and
/// the summary.
async fn ask(
    tools: &SessionTools,
    past: &Past,
    request: &SummaryRequest,
    effort: &mut SummaryEffort,
) -> Result<SummaryReply, Failure> {
    let cut = past.items.iter().position(|item| item.id == request.through).map_or(0, |index| index + 1);
    let items: Vec<_> = past.items[..cut].iter().map(|item| without_words(item, &request.left_out)).collect();
    let context = tools.context(&past.base, &past.items);
    let told = tools.facts.now();
    let asked: Vec<Message> = request.messages.iter().map(message_of).collect();
    let layout = Layout { request: &asked, ..tools.layout(&past.config, &context, &told, Audience::Everyone) };
    let prompt = lay_out(&items, &layout).prompt;
    let mut ask = ModelRequest::for_summary(prompt, tools.preset.clone(), request.max_tokens, effort.requests > 1);
    tools.take(&mut ask);
    read(tools.model.ask(ask), effort).await
}

async fn read(mut answer: Answer, effort: &mut SummaryEffort) -> Result<SummaryReply, Failure> {
    let mut text = String::new();
    while let Some(delta) = answer.next().await {
        match delta {
            Delta::Text { text: more, .. } => text.push_str(&more),
            Delta::Done { finish, usage, report } => {
                let (usage, report) = (usage.unwrap_or_default(), report.unwrap_or_default());
                let tokens = u32::try_from(usage.output_tokens).unwrap_or(u32::MAX);
                effort.reused_tokens += report.reused_tokens;
                effort.computed_tokens += report.computed_tokens;
                return Ok(SummaryReply { text: text.trim().to_owned(), tokens, finished: finish == Finish::Stop });
            }
            Delta::Failed(failure) => return Err(failure),
            _ => {}
        }
    }
    Err(Failure::new(FailureCode::EngineFailed, "the summary was cut off; it is asked for again later"))
}

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

/// Pins the wishes that no pin holds yet: they are older than pinning, or came right before a crash.
async fn pin_what_was_asked_for(tools: &SessionTools, past: &mut Past) -> Result<(), store::Error> {
    let known = tools.store.pins(&tools.session, true).await?;
    let bytes = past.items.iter().map(|item| item.body.text_bytes()).sum();
    let mut all = heavy::run(bytes, || {
        let (mut before, mut all) = (None, Vec::new());
        for (at, item) in past.items.iter().enumerate() {
            if at == past.shown_from && !past.is_whole {
                before = None;
            }
            all.extend(wishes(item, before));
            if item.is_said_by_user() {
                before = Some(&**item);
            }
        }
        all
    })
    .await;
    all.retain(|wish| !known.iter().any(|pin| pin.source_item.as_ref() == Some(&wish.item_id)));
    pin_wishes(tools, all, &mut past.shown_past.pins).await?;
    past.base.pins.clone_from(&past.shown_past.pins);
    Ok(())
}

#[derive(Debug)]
pub struct PinWish {
    pub text: String,
    pub item_id: String,
}

/// Lists the wishes of an item: of its own words, or of the user's message before it.
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

pub async fn pin_wishes(
    tools: &SessionTools,
    wishes: Vec<PinWish>,
    pins: &mut Vec<store::Pin>,
) -> Result<Vec<PinWish>, store::Error> {
    let mut refused = Vec::new();
    for wish in wishes {
        let there: Vec<_> = pins.iter().map(pin_of).collect();
        match compaction::admit(&there, &wish.text, &tools.limits) {
            Admission::Add => {
                let (text, source) = (&wish.text, Some(&*wish.item_id));
                pins.push(tools.store.add_pin(&tools.session, text, source, MadeBy::Model, wall_ms()).await?);
            }
            Admission::Known => {}
            Admission::Full => refused.push(wish),
        }
    }
    Ok(refused)
}
