//! `POST /v1/completions`: the older door, for harnesses. A prompt is read as it is, without a template, and its own tokens
//! can be reported with their log probabilities.

mod parse;
mod render;

use crate::entry::Preparation;
use crate::{ApiError, unread};
use access::Caller;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::future::{ready, try_join_all};
use futures_util::stream::{BoxStream, iter, once, select_all};
use futures_util::{StreamExt, TryStreamExt};
use model::RawPrompt;
use parking_lot::Mutex;
use parse::CompletionsRequest;
pub use parse::{CompletionsBody, parse};
use render::{RawAnswer, RawReply, RawUsage};
use replies::{Completion, Completions, RawRequest};
use runtime::{HeldShare, ModelChoice, heavy};
use session::{Failure, FailureCode, Usage};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

pub async fn completions(
    State(replies): State<Completions>,
    Extension(caller): Extension<Caller>,
    Preparation(preparation): Preparation,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let CompletionsRequest { model, stream, include_usage, prompts, mut raw, clues, unread } =
        heavy::run(body.len(), || parse::parse(&body, &replies.settings)).await?;
    drop(body);
    // A batch may take minutes: each prompt takes memory for its own preparation, when its turn comes. Meanwhile they wait.
    let bytes = prompts.iter().map(RawPrompt::bytes).sum();
    let held = replies.runtime.held().taken(bytes).ok_or(runtime::Error::NoRoom)?;
    drop(preparation);
    unread::note("completions", &caller.identity.user, unread);
    raw.scope = replies.persons.scope(&caller, &headers, &clues, &mut []).await?;
    let choice = replies.runtime.presets().choose(&caller.identity.user, &model)?;
    let id = store::new_id("cmpl")?.replacen('_', "-", 1);
    let name = choice.name.clone();
    tracing::debug!(id, user = %caller.identity.user, model = name, stream, prompts = prompts.len(), "completions begin");
    let usage = Mutex::new(RawUsage { usage: Usage::default(), left: prompts.len() * raw.choices });
    let created = runtime::wall_ms() / 1000;
    let has_logprobs = raw.options.logprobs.is_some();
    let answer = Arc::new(RawAnswer { id, created, model: name, include_usage, has_logprobs, usage });
    let batch = Arc::new(Batch { replies, choice, raw, answer, _held: held });
    if stream { streamed(batch, prompts).await } else { whole(batch, prompts).await }
}

struct Batch {
    replies: Completions,
    choice: ModelChoice,
    raw: RawRequest,
    answer: Arc<RawAnswer>,
    /// Room of the prompts in memory.
    _held: HeldShare,
}

impl Batch {
    fn ask(&self, at: usize, prompt: RawPrompt) -> Result<Vec<(Completion, RawReply)>, ApiError> {
        let completions = self.replies.ask_raw(&self.answer.id, &self.choice, &self.raw, prompt)?;
        let reply = |choice| RawReply::new(self.answer.clone(), at * self.raw.choices + choice, choice == 0);
        Ok(completions.into_iter().enumerate().map(|(choice, completion)| (completion, reply(choice))).collect())
    }

    async fn stream(&self, at: usize, prompt: RawPrompt) -> Result<BoxStream<'static, String>, ApiError> {
        let streams = self.ask(at, prompt)?.into_iter().map(|(completion, reply)| replies::streamed(completion, reply));
        let streams = try_join_all(streams).await.map_err(refusal)?;
        Ok(select_all(streams.into_iter().map(Box::pin)).boxed())
    }
}

async fn whole(batch: Arc<Batch>, prompts: Vec<RawPrompt>) -> Result<Response, ApiError> {
    // As many as the engine computes in one batch: more would only take the places of other clients.
    let at_once = batch.replies.settings.engine.max_sequences;
    let answered = iter(prompts.into_iter().enumerate()).map(|(at, prompt)| {
        let batch = batch.clone();
        async move {
            let wholes =
                batch.ask(at, prompt)?.into_iter().map(|(completion, reply)| replies::whole(completion, reply));
            try_join_all(wholes).await.map_err(refusal)
        }
    });
    let answered: Vec<Vec<RawReply>> = answered.buffered(at_once).try_collect().await?;
    let all: Vec<RawReply> = answered.into_iter().flatten().collect();
    let bytes = BYTES_OF_A_LOGPROB * all.iter().map(RawReply::logprobs).sum::<usize>();
    let body = heavy::run(bytes, || RawReply::whole_of(&batch.answer, all)).await;
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Estimate for the weight of an answer.
const BYTES_OF_A_LOGPROB: usize = 64;

async fn streamed(batch: Arc<Batch>, prompts: Vec<RawPrompt>) -> Result<Response, ApiError> {
    let mut prompts = prompts.into_iter().enumerate();
    let Some((at, prompt)) = prompts.next() else { return Err(ApiError::bad("invalid_value", "prompt is empty")) };
    // Its refusal has a status of its own.
    let first = batch.stream(at, prompt).await?;
    let comment_ms = batch.replies.settings.limits.comment_ms;
    let others = iter(prompts).then(move |(at, prompt)| {
        let batch = batch.clone();
        async move {
            let streamed = batch.stream(at, prompt).await;
            streamed.unwrap_or_else(|error| once(ready(error.frame())).boxed())
        }
    });
    let pieces = first.chain(others.flatten());
    let events = pieces.map(|data| Ok::<_, Infallible>(SseEvent::default().data(data)));
    let empty = KeepAlive::new().event(SseEvent::default());
    Ok(Sse::new(events).keep_alive(empty.interval(Duration::from_millis(comment_ms))).into_response())
}

fn refusal(failure: Failure) -> ApiError {
    let is_long = failure.code == FailureCode::PromptTooLong;
    let error = ApiError::from(failure);
    if is_long { error.param("prompt") } else { error }
}
