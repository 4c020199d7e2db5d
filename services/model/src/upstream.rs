//! An OpenAI-compatible server (llama-server, vLLM, SGLang, another Reprise) in the engine's place.
//!
//! It decides about its cache, so it gets no warm-up. Dropping the connection tells it to stop.

pub(crate) mod count;
mod hostile;
mod sse;
#[cfg(test)]
mod tests;
mod wire;

use crate::answer::{Answer, Writer, channel_for};
use crate::engine_options::sentence_limits;
use crate::error::Error;
use crate::handle::Answerer;
use crate::measure::Measured;
use crate::request::ModelRequest;
use crate::status::{ModelLoad, ModelStatus};
pub use hostile::hostile_answer;

use count::Counter;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt, ready};
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use serde_json::Value;
use session::sentences::SentenceLimits;
use session::{Delta, Failure, FailureCode, Finish, GenerationPurpose, Priority, Prompt, TurnReport, Usage};
use settings::{Preset, Settings};
use sse::Events;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use telemetry::TRACEPARENT;
use tokio_util::sync::CancellationToken;
use wire::Incoming;

pub(crate) struct Upstream {
    client: Client,
    /// Base address, with a slash at its end.
    base: Url,
    key: Option<String>,
    counter: Counter,
    silence: Duration,
    longest: Duration,
    answer_bytes: usize,
    event_bytes: usize,
    sentences: SentenceLimits,
    status: Mutex<ModelStatus>,
    wanted_model: Option<String>,
    /// Window of the model, if the upstream tells it; else 0.
    ctx_size: AtomicU32,
    slots: AtomicU32, // of a llama-server, each with a cache of its own; else 0
    load: [AtomicUsize; 3],
    stopped: CancellationToken,
}

impl Upstream {
    /// Starts the client. It waits for an upstream that is not up yet, and `status` says so meanwhile.
    pub async fn start(settings: &Settings, url: &str, key: Option<String>) -> Result<Arc<Upstream>, Error> {
        let config = &settings.upstream;
        let refused = |why: String| Error::Upstream { url: url.to_owned(), why };
        let base =
            Url::parse(&format!("{}/", url.trim_end_matches('/'))).map_err(|error| refused(error.to_string()))?;
        let connect = Duration::from_millis(config.connect_ms);
        // Once for the process; an error says that it was done before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().connect_timeout(connect).redirect(only_within_its_server());
        let client = client.build().map_err(|error| refused(chain(&error)))?;
        let root = if base.path().ends_with("/v1/") { base.join("..") } else { base.join(".") };
        let root = root.map_err(|error| refused(error.to_string()))?;
        let counter = Counter::new(client.clone(), root, config, settings.limits.body_bytes, COUNTING);
        let status = ModelStatus { model: config.model.clone().unwrap_or_default(), ..ModelStatus::default() };
        let upstream = Arc::new(Upstream {
            client,
            base,
            key,
            counter,
            silence: Duration::from_secs(config.silence_s),
            longest: Duration::from_secs(config.answer_s),
            answer_bytes: config.answer_bytes,
            event_bytes: settings.limits.body_bytes,
            sentences: sentence_limits(settings),
            status: Mutex::new(status),
            wanted_model: config.model.clone(),
            ctx_size: AtomicU32::new(0),
            slots: AtomicU32::new(0),
            load: Default::default(),
            stopped: CancellationToken::new(),
        });
        if let Err(trouble) = upstream.probe().await {
            tracing::warn!(trouble, "the upstream is waited for");
            upstream.clone().wait_for_it(trouble);
        }
        Ok(upstream)
    }

    pub fn ctx_size(&self) -> Option<u32> {
        Some(self.ctx_size.load(Ordering::Relaxed)).filter(|ctx_size| *ctx_size > 0)
    }
}

impl Answerer for Arc<Upstream> {
    fn ask(&self, request: ModelRequest) -> Answer {
        let (writer, answer) = channel_for(&request, self.sentences);
        if self.stopped.is_cancelled() {
            writer.fail(stopped());
        } else if request.raw.is_some() {
            let message =
                "an upstream makes the replies here and reads no raw prompts: ask it itself, or unset upstream.url";
            writer.fail(Failure::new(FailureCode::InvalidRequest, message));
        } else if request.purpose != GenerationPurpose::Reply {
            writer.done(Finish::Warm, Usage::default(), TurnReport::default());
        } else {
            tokio::spawn(self.clone().answer(request, writer));
        }
        answer
    }

    /// Measures the total by the upstream's count, if it has one, and the parts by a public tokenizer.
    fn measure<'a>(&'a self, prompt: &'a Prompt, preset: &'a Preset) -> BoxFuture<'a, Result<Measured, Failure>> {
        let model = self.status.lock().model.clone();
        Box::pin(async move {
            let total = self.counter.count(prompt, preset, &model, self.key.as_deref()).await?;
            Ok(Measured::from_weights(total, &count::weights(prompt).await?))
        })
    }

    fn status(&self) -> ModelStatus {
        let mut status = self.status.lock().clone();
        status.load = ModelLoad::of(|priority| self.open(priority).load(Ordering::Relaxed));
        status
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.stopped.cancel();
        let mut status = self.status.lock();
        (status.ready, status.trouble) = (false, Some("the service stops".to_owned()));
        ready(()).boxed()
    }
}

const COUNTING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_secs(2);

impl Upstream {
    async fn answer(self: Arc<Upstream>, request: ModelRequest, writer: Writer) {
        self.open(request.priority).fetch_add(1, Ordering::Relaxed);
        let asked = Instant::now();
        let mut incoming = Incoming::new(&request.prompt.tools, self.event_bytes);
        let mut first = None;
        let is_bound = request.effective_thinking().first_word_ms().is_some();
        let hurried = async {
            if !is_bound {
                writer.thinking_stopped().await;
            }
            static ONCE: Once = Once::new();
            ONCE.call_once(|| {
                tracing::warn!("an upstream's thinking cannot be ended: it says its words when it has thought")
            });
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            () = hurried => Ok(Finish::Cancelled),
            ended = self.converse(&request, &mut incoming, &mut first, &writer) => ended,
            () = tokio::time::sleep(self.longest) => Err(self.endless()),
            () = writer.cancelled() => Ok(Finish::Cancelled),
            () = self.stopped.cancelled() => Err(stopped()),
        };
        self.open(request.priority).fetch_sub(1, Ordering::Relaxed);
        match ended {
            Ok(finish) => {
                let usage = incoming.usage();
                writer.done(finish, usage, report(asked, first, &usage));
            }
            Err(mut failure) => {
                failure.message = self.without_key(failure.message);
                if matches!(failure.code, FailureCode::UpstreamFailed | FailureCode::UpstreamTimeout) {
                    tracing::warn!(%failure, "the upstream failed");
                }
                writer.fail(failure);
            }
        }
    }

    async fn converse(
        self: &Arc<Upstream>,
        request: &ModelRequest,
        incoming: &mut Incoming,
        first: &mut Option<Instant>,
        writer: &Writer,
    ) -> Result<Finish, Failure> {
        let model = self.status.lock().model.clone();
        let body = wire::body(request, &model, self.own_slot(request.priority));
        let mut post = self.client.post(self.url("chat/completions")?).json(&body);
        if let Some(key) = &self.key {
            post = post.bearer_auth(key);
        }
        if let Some(place) = writer.place_in_trace() {
            post = post.header(TRACEPARENT, place.to_string());
        }
        let response = self.in_time(post.send()).await?.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if let Some(why) = redirected(&response) {
            return Err(Failure::new(FailureCode::UpstreamFailed, why));
        }
        if !status.is_success() {
            let body = self.in_time(whole(response, self.event_bytes)).await?.unwrap_or_default();
            let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
            let said: Value = serde_json::from_slice(&body).unwrap_or_else(|_| text());
            let error = said.get("error").cloned().unwrap_or(said);
            return Err(wire::failure_of(Some(status.as_u16()), &error));
        }
        let mut deltas = Vec::new();
        let mut tell = |incoming: &Incoming, deltas: &mut Vec<Delta>| {
            if incoming.begun {
                first.get_or_insert_with(Instant::now);
            }
            for delta in deltas.drain(..) {
                writer.push(delta);
            }
        };
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.starts_with("application/json") {
            let body = self.in_time(whole(response, self.event_bytes)).await?.map_err(|why| nonsense(&why))?;
            let answer: Value = serde_json::from_slice(&body).map_err(|error| nonsense(&error.to_string()))?;
            incoming.chunk(&answer, &mut deltas)?;
            tell(incoming, &mut deltas);
        } else {
            self.read(response, incoming, &mut |incoming, deltas| tell(incoming, deltas)).await?;
        }
        let finished = incoming.finish(&mut deltas);
        tell(incoming, &mut deltas);
        match finished {
            Some(finish) => Ok(finish),
            None => {
                Err(Failure::new(FailureCode::UpstreamFailed, "the upstream broke off in the middle of its answer"))
            }
        }
    }

    async fn read(
        &self,
        response: Response,
        incoming: &mut Incoming,
        tell: &mut impl FnMut(&Incoming, &mut Vec<Delta>),
    ) -> Result<(), Failure> {
        let mut events = Events::new(self.event_bytes);
        let mut bytes = response.bytes_stream();
        let mut left_bytes = self.answer_bytes;
        let (mut datas, mut deltas) = (Vec::new(), Vec::new());
        loop {
            let mut is_over = false;
            match self.in_time(bytes.next()).await? {
                Some(Ok(part)) => {
                    left_bytes = left_bytes.checked_sub(part.len()).ok_or_else(|| self.endless())?;
                    events.push(&part, &mut datas).map_err(|_| nonsense("an event without end"))?;
                }
                // A server that hangs up after its last chunk has said everything.
                Some(Err(_)) if incoming.is_finished() => is_over = true,
                Some(Err(error)) => {
                    let message = format!("the connection to the upstream broke: {}", chain(&error));
                    return Err(Failure::new(FailureCode::UpstreamFailed, message));
                }
                None => {
                    events.finish(&mut datas);
                    is_over = true;
                }
            }
            for data in datas.drain(..) {
                if data.trim() == DONE {
                    is_over = true;
                    break;
                }
                let chunk: Value = serde_json::from_str(&data).map_err(|error| nonsense(&error.to_string()))?;
                incoming.chunk(&chunk, &mut deltas)?;
            }
            tell(incoming, &mut deltas);
            if is_over {
                return Ok(());
            }
        }
    }

    async fn probe(&self) -> Result<(), String> {
        let mut request = self.client.get(self.url("models").map_err(|failure| failure.message)?).timeout(COUNTING);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.map_err(|error| chain(&error))?;
        if let Some(why) = redirected(&response) {
            return Err(why);
        }
        if !response.status().is_success() {
            return Err(format!(
                "it answers {} to /models; check upstream.url and upstream.key_env",
                response.status()
            ));
        }
        let list = whole(response, self.event_bytes).await?;
        let list: Value = serde_json::from_slice(&list).map_err(|error| error.to_string())?;
        let models = list["data"].as_array().map_or(&[][..], Vec::as_slice);
        let first = models.first().and_then(|model| model["id"].as_str());
        let Some(model) = self.wanted_model.as_deref().or(first) else {
            return Err("it lists no model; set upstream.model".to_owned());
        };
        let known = models.iter().find(|known| known["id"] == model);
        let ctx_size =
            known.and_then(|known| known["max_model_len"].as_u64()).and_then(|size| u32::try_from(size).ok());
        self.ctx_size.store(ctx_size.unwrap_or(0), Ordering::Relaxed);
        let slots = self.counter.slots(self.key.as_deref()).await;
        self.slots.store(slots.unwrap_or(0), Ordering::Relaxed);
        let mut status = self.status.lock();
        (status.ready, status.trouble, status.model) = (true, None, model.to_owned());
        Ok(())
    }

    fn wait_for_it(self: Arc<Upstream>, trouble: String) {
        let mut status = self.status.lock();
        let is_waited_for = status.trouble.replace(trouble).is_some();
        status.ready = false;
        drop(status);
        if is_waited_for {
            return;
        }
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(AGAIN) => {}
                    () = self.stopped.cancelled() => return,
                }
                match self.probe().await {
                    Ok(()) => return tracing::info!("the upstream is there"),
                    Err(trouble) => self.status.lock().trouble = Some(trouble),
                }
            }
        });
    }

    fn without_key(&self, text: String) -> String {
        let Some(key) = self.key.as_deref().filter(|key| !key.is_empty()) else { return text };
        let mut text = text.replace(key, "(the key)");
        // The words end where they were cut, and that may be within the key.
        let ends = |length: &usize| key.get(..*length).is_some_and(|begin| text.ends_with(begin));
        if let Some(length) = (FEWEST_OF_KEY..key.len()).rev().find(ends) {
            text.truncate(text.len() - length);
        }
        text
    }

    fn unreachable(self: &Arc<Upstream>, error: &reqwest::Error) -> Failure {
        let why = chain(error);
        if error.is_connect() {
            self.clone().wait_for_it(format!("the upstream cannot be reached: {why}"));
        }
        let code = if error.is_timeout() { FailureCode::UpstreamTimeout } else { FailureCode::Unavailable };
        Failure::new(code, format!("the upstream {} cannot be reached: {why}; is it running?", self.base))
    }

    fn endless(&self) -> Failure {
        let message = format!(
            "the upstream's answer did not end within {} s and {} bytes (upstream.answer_s, upstream.answer_bytes)",
            self.longest.as_secs(),
            self.answer_bytes
        );
        Failure::new(FailureCode::UpstreamFailed, message)
    }

    async fn in_time<T>(&self, what: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::time::timeout(self.silence, what).await.map_err(|_| {
            let seconds = self.silence.as_secs();
            let message = format!("the upstream was silent for {seconds} s (upstream.silence_s)");
            Failure::new(FailureCode::UpstreamTimeout, message)
        })
    }

    fn own_slot(&self, priority: Priority) -> Option<u32> {
        // A summary's prompt begins as its conversation's does, so llama-server would give it the conversation's slot, and the
        // next turn would be read from the beginning.
        let slots = self.slots.load(Ordering::Relaxed);
        (priority == Priority::Background && slots > 1).then(|| slots - 1)
    }

    fn open(&self, priority: Priority) -> &AtomicUsize {
        &self.load[match priority {
            Priority::Talk => 0,
            Priority::Speculate => 1,
            Priority::Background => 2,
        }]
    }

    fn url(&self, path: &str) -> Result<Url, Failure> {
        self.base.join(path).map_err(|error| Failure::new(FailureCode::UpstreamFailed, error.to_string()))
    }
}

const DONE: &str = "[DONE]";

/// Follows redirects within the server that the configuration names. What was said goes to no other.
fn only_within_its_server() -> Policy {
    const MOST: usize = 3;
    Policy::custom(|attempt| {
        let first = attempt.previous().first().map(Url::origin);
        match first == Some(attempt.url().origin()) && attempt.previous().len() <= MOST {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    })
}

fn redirected(response: &Response) -> Option<String> {
    let to = response.headers().get("location").filter(|_| response.status().is_redirection())?;
    let to = String::from_utf8_lossy(to.as_bytes());
    Some(format!(
        "the upstream {} redirects to {to}; set upstream.url to that address if it may read what is said",
        response.url()
    ))
}

fn report(asked: Instant, first: Option<Instant>, usage: &Usage) -> TurnReport {
    let ms = |to: Instant| to.duration_since(asked).as_secs_f64() * 1e3;
    let (first_token_ms, total_ms) = (first.map(ms), ms(Instant::now()));
    TurnReport {
        reused_tokens: usage.cached_tokens,
        computed_tokens: usage.input_tokens.saturating_sub(usage.cached_tokens),
        // Only the upstream knows how much of this was waiting.
        prefill_ms: first_token_ms.unwrap_or(0.0),
        decode_ms: first_token_ms.map_or(0.0, |first| total_ms - first),
        first_token_ms,
        total_ms,
        ..TurnReport::default()
    }
}

fn stopped() -> Failure {
    Failure::new(FailureCode::Unavailable, "the service stops; connect again in a moment")
}

// Letters of a key that tell nothing by themselves: `sk-`.
const FEWEST_OF_KEY: usize = 4;

fn nonsense(why: &str) -> Failure {
    Failure::new(FailureCode::UpstreamFailed, format!("the upstream says what is no chat completion: {why}"))
}

async fn whole(mut response: Response, limit_bytes: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| chain(&error))? {
        if body.len() + piece.len() > limit_bytes {
            return Err(format!("its answer has more than {limit_bytes} bytes (limits.body_bytes)"));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// Words an error with its causes: the first alone says little.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
