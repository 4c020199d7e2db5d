//! The body of a legacy completion: prompts that no template renders.

use crate::ApiError;
use crate::json::{check_request_names, read_body};
use crate::options::{Stop, StreamOptions, TOP_LOGPROBS, logit_bias, number, priority, seed, stop, within};
use fields::{FieldError, KnownFields, Read, read, unsupported, wrong};
use model::RawPrompt;
use replies::RawRequest;
use replies::identity::{BodyClues, Scope};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use session::{GenerationOptions, Priority, ResponseFormat, SamplingOverrides};
use settings::{LimitSettings, Settings};
use std::sync::LazyLock;

/// Body of a legacy completion, with OpenAI's fields and some of other servers.
#[derive(Deserialize, JsonSchema)]
pub struct CompletionsBody {
    model: Option<String>,
    /// Text, a list of texts, tokens, or a list of lists of tokens.
    #[expect(dead_code, reason = "read entry by entry, because it may be millions of tokens")]
    #[schemars(with = "GivenPrompt")]
    prompt: IgnoredAny,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// Tokens of the reply, 16 unless it is said; 0 with `echo` only reports the prompt.
    max_tokens: Option<u64>,
    /// True if the text begins with the prompt.
    echo: Option<bool>,
    /// Number of likeliest tokens to report at each token, with `echo` also at those of the prompt.
    logprobs: Option<u64>,
    n: Option<u64>,
    /// Refused unless it is `n`: all replies are returned.
    best_of: Option<u64>,
    /// Refused: the model writes no middles.
    suffix: Option<String>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u64>,
    min_p: Option<f64>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    repetition_penalty: Option<f64>,
    logit_bias: Option<Map<String, Value>>,
    /// Any whole number, also a negative one.
    #[schemars(with = "Option<i64>")]
    seed: Option<Value>,
    stop: Option<Stop>,
    ignore_eos: Option<bool>,
    /// `priority`: a user waits. `flex`: in the background, as prompts that are echoed always are.
    service_tier: Option<String>,
    /// Name of a person, if a rule reads it.
    user: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the schema of what is read entry by entry")]
enum GivenPrompt {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    Lists(Vec<Vec<u32>>),
}

#[derive(Debug)]
pub struct CompletionsRequest {
    pub model: String,
    pub stream: bool,
    pub include_usage: bool,
    pub prompts: Vec<RawPrompt>,
    pub raw: RawRequest,
    pub clues: BodyClues,
    /// Fields that are not read.
    pub unread: Vec<String>,
}

/// Tokens of a reply where the request does not say, as OpenAI has it.
const USUAL_TOKENS: u64 = 16;

pub fn parse(body: &[u8], settings: &Settings) -> Result<CompletionsRequest, ApiError> {
    let body = read_body(body)?;
    let fields: CompletionsBody = read(&body)?;
    let limits = &settings.limits;
    check_request_names(&fields.model, [&fields.user, &None, &None], limits.id_chars)?;
    let unread = FIELDS.unread(&body);
    let prompts = prompts(&body["prompt"], limits)?;
    drop(body);
    let choices = within("n", fields.n, 1..=limits.choices as u64)?.unwrap_or(1);
    if fields.best_of.is_some_and(|best_of| best_of != choices) {
        return Err(
            unsupported("best_of", "all replies are returned here: leave best_of out, or say how many with n").into()
        );
    }
    if fields.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty()) {
        return Err(unsupported("suffix", "the model writes no text before a suffix: leave suffix out").into());
    }
    let echo = fields.echo.unwrap_or(false);
    let max_tokens = within("max_tokens", fields.max_tokens, 0..=u64::from(u32::MAX))?.unwrap_or(USUAL_TOKENS) as u32;
    if max_tokens == 0 && !echo {
        return Err(wrong("max_tokens", "max_tokens of 0 needs echo: there would be no text").into());
    }
    if echo && choices > 1 {
        return Err(wrong("n", "with echo a prompt has one reply: leave n out").into());
    }
    let logprobs = within("logprobs", fields.logprobs, 0..=TOP_LOGPROBS)?.map(|top| top as usize);
    let prompt_logprobs = echo.then_some(logprobs.unwrap_or(0));
    check_reported(&prompts, prompt_logprobs, limits)?;
    let client = BodyClues { user: fields.user.clone(), ..BodyClues::default() };
    let model = fields.model.clone().unwrap_or_default();
    let raw = RawRequest {
        max_tokens,
        options: GenerationOptions {
            sampling: sampling(&fields)?,
            seed: fields.seed.as_ref().map(seed).transpose()?,
            logprobs,
            ignore_eos: fields.ignore_eos.unwrap_or(false),
            stop: stop(fields.stop, limits)?,
            response_format: ResponseFormat::Text,
        },
        prompt_logprobs,
        choices: choices as usize,
        // A harness waits, and no user does.
        priority: if echo { Priority::Background } else { priority(fields.service_tier.as_deref()) },
        scope: Scope::default(),
    };
    let include_usage = fields.stream_options.and_then(|options| options.include_usage).unwrap_or(false);
    let (stream, clues) = (fields.stream.unwrap_or(false), BodyClues { model: model.clone(), ..client });
    Ok(CompletionsRequest { model, stream, include_usage, prompts, raw, clues, unread })
}

static FIELDS: LazyLock<KnownFields> = LazyLock::new(KnownFields::of::<CompletionsBody>);

/// Reads the prompts entry by entry: as a tree of values tokens would take ten times their memory once more.
fn prompts(given: &Value, limits: &LimitSettings) -> Read<Vec<RawPrompt>> {
    let shape = |path: &str| {
        wrong(path, format!("{path} must be text, a list of texts, a list of tokens, or a list of lists of tokens"))
    };
    let list = match given {
        Value::Null => return Err(FieldError::missing("prompt")),
        Value::String(text) => return Ok(vec![text_prompt("prompt", text)?]),
        Value::Array(list) => list,
        _ => return Err(shape("prompt")),
    };
    match list.first() {
        None => return Err(wrong("prompt", "prompt is empty: send text or tokens")),
        Some(Value::Number(_)) => return Ok(vec![token_prompt("prompt", list)?]),
        Some(_) if list.len() > limits.prompts => {
            return Err(FieldError::too_large("prompt", limits.prompts, "prompts (limits.prompts)"));
        }
        Some(_) => {}
    }
    let entry = |(at, entry): (usize, &Value)| match entry {
        Value::String(text) => text_prompt(&format!("prompt[{at}]"), text),
        Value::Array(tokens) => token_prompt(&format!("prompt[{at}]"), tokens),
        _ => Err(shape("prompt")),
    };
    list.iter().enumerate().map(entry).collect()
}

fn text_prompt(path: &str, text: &str) -> Read<RawPrompt> {
    match text.is_empty() {
        true => Err(wrong(path, format!("{path} is empty: send text or tokens"))),
        false => Ok(RawPrompt::Text(text.to_owned())),
    }
}

fn token_prompt(path: &str, tokens: &[Value]) -> Read<RawPrompt> {
    if tokens.is_empty() {
        return Err(wrong(path, format!("{path} is empty: send text or tokens")));
    }
    let number = |token: &Value| token.as_u64().and_then(|token| u32::try_from(token).ok());
    let tokens: Option<Vec<u32>> = tokens.iter().map(number).collect();
    tokens.map(RawPrompt::Tokens).ok_or_else(|| wrong(path, format!("{path} must hold numbers of tokens alone")))
}

/// Refuses more log probabilities of prompts than one answer may hold.
fn check_reported(prompts: &[RawPrompt], prompt_logprobs: Option<usize>, limits: &LimitSettings) -> Read<()> {
    let Some(top) = prompt_logprobs else { return Ok(()) };
    let tokens = prompts.iter().map(RawPrompt::most_tokens).sum::<usize>();
    match tokens.saturating_mul(top + 1) <= limits.prompt_logprobs {
        true => Ok(()),
        false => {
            let unit = "log probabilities of its tokens (limits.prompt_logprobs), a token for each byte of a text";
            Err(FieldError::too_large("prompt", limits.prompt_logprobs, unit))
        }
    }
}

/// Reads the sampling. What a request does not say is the model's own distribution, and not the preset's choice for talk.
fn sampling(fields: &CompletionsBody) -> Read<SamplingOverrides> {
    let top_k = within("top_k", fields.top_k, 0..=1_000_000)?.map(|top_k| top_k as u32);
    let [presence, frequency] =
        [("presence_penalty", fields.presence_penalty), ("frequency_penalty", fields.frequency_penalty)]
            .map(|(name, value)| number(name, value, -2.0..=2.0));
    Ok(SamplingOverrides {
        temperature: number("temperature", fields.temperature, 0.0..=2.0)?.or(Some(1.0)),
        top_p: number("top_p", fields.top_p, 0.0..=1.0)?.or(Some(1.0)),
        top_k: top_k.or(Some(0)),
        min_p: number("min_p", fields.min_p, 0.0..=1.0)?.or(Some(0.0)),
        presence_penalty: presence?.or(Some(0.0)),
        frequency_penalty: frequency?.or(Some(0.0)),
        repetition_penalty: number("repetition_penalty", fields.repetition_penalty, 0.1..=10.0)?.or(Some(1.0)),
        logit_bias: logit_bias(fields.logit_bias.as_ref())?,
    })
}
