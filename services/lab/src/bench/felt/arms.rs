//! Several replies to one prompt: what all of them wait, beside one.

use super::FeltBench;
use crate::bench::home::HomeSize;
use crate::bench::home::household::system;
use crate::bench::service::MeasuredService;
use crate::bench::steps::Filler;
use crate::output::progress_bar;
use anyhow::{Context, Result, bail};
use eventsource_stream::Eventsource;
use experiment::median;
use futures_util::StreamExt;
use reqwest::{Client, Method};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const ARMS: [usize; 3] = [1, 2, 4];
/// About a first sentence.
const SENTENCE_TOKENS: usize = 12;
const MOST_OF_ONE: f64 = 1.15;
const SPARE: usize = 400;

#[derive(Serialize)]
struct ArmsRow {
    arms: usize,
    first_token_ms: Option<f64>,
    /// Until each arm has its first sentence.
    sentence_ms: Option<f64>,
    /// To one arm.
    ratio: Option<f64>,
    holds: Option<bool>,
}

#[derive(Clone, Copy)]
struct Asked {
    arms: usize,
    first_token_ms: f64,
    sentence_ms: f64,
}

pub async fn measure(bench: &FeltBench<'_>) -> Result<Value> {
    let args = bench.args;
    let HomeSize { entities, prompt_tokens } = HomeSize::of(&args.target, args.prompt, 0, bench.settings).await?;
    let service = bench.service(&[("model.ctx_size", (prompt_tokens + SPARE).to_string())]).await?;
    let mut told = bench.about("arms", &service);
    let bar = progress_bar(args.turns * ARMS.len() as u64, "request {pos} of {len} [{bar:40}] {eta} left");
    let played = async {
        let http = Client::builder().read_timeout(bench.patience()).build().context("the HTTP client")?;
        let models = service.address.get(&http, "/v1/models").await?;
        let model = models["data"][0]["id"].as_str().context("the service lists no model")?;
        let (system, mut filler) = (system(entities, "kitchen"), Filler::with_barge_ins(1, usize::MAX));
        let mut asked = Vec::new();
        for _ in 0..args.turns {
            for arms in ARMS {
                tokio::time::sleep(Duration::from_secs_f64(args.pause)).await;
                asked.push(ask(&service, &http, model, [&system, &filler.step(1).says], arms).await?);
                bar.inc(1);
            }
        }
        anyhow::Ok(asked)
    }
    .await;
    service.stop().await;
    bar.finish_and_clear();
    // The first round reads the instructions.
    let asked = &played?[ARMS.len()..];
    told["prompt_tokens"] = json!(prompt_tokens);
    told["rows"] = json!(ARMS.map(|arms| row(arms, asked)));
    Ok(told)
}

async fn ask(
    service: &MeasuredService,
    http: &Client,
    model: &str,
    [system, says]: [&str; 2],
    arms: usize,
) -> Result<Asked> {
    let body = json!({
        "model": model,
        "messages": [{ "role": "system", "content": system }, { "role": "user", "content": says }],
        "n": arms, "seed": 1, "temperature": 0.7, "max_tokens": SENTENCE_TOKENS, "ignore_eos": true, "stream": true,
        "chat_template_kwargs": { "enable_thinking": false },
    });
    let begin = Instant::now();
    let request = service.address.request(http, Method::POST, "/v1/chat/completions").json(&body);
    let response = request.send().await.context("chat completions")?;
    if !response.status().is_success() {
        bail!("the service refuses: {}", response.text().await.unwrap_or_default());
    }
    let mut events = response.bytes_stream().eventsource();
    let (mut first_token_ms, mut ended) = (None, 0);
    while let Some(event) = events.next().await {
        let event = event.context("the reply breaks off")?;
        if event.data == "[DONE]" {
            break;
        }
        let event: Value = serde_json::from_str(&event.data).context("the service sends no JSON")?;
        for choice in event["choices"].as_array().into_iter().flatten() {
            if choice["delta"]["content"].as_str().is_some_and(|piece| !piece.is_empty()) {
                first_token_ms.get_or_insert_with(|| begin.elapsed().as_secs_f64() * 1e3);
            }
            ended += usize::from(!choice["finish_reason"].is_null());
        }
    }
    let sentence_ms = begin.elapsed().as_secs_f64() * 1e3;
    if ended != arms {
        bail!("{ended} of {arms} replies came to an end");
    }
    Ok(Asked { arms, first_token_ms: first_token_ms.unwrap_or(sentence_ms), sentence_ms })
}

fn row(arms: usize, asked: &[Asked]) -> ArmsRow {
    let of = |arms: usize| asked.iter().filter(move |asked| asked.arms == arms);
    let sentence = |arms: usize| median(of(arms).map(|asked| asked.sentence_ms));
    let ratio = sentence(arms).zip(sentence(1)).map(|(all, one)| all / one);
    ArmsRow {
        arms,
        first_token_ms: median(of(arms).map(|asked| asked.first_token_ms)),
        sentence_ms: sentence(arms),
        ratio,
        holds: ratio.filter(|_| arms > 1).map(|ratio| ratio <= MOST_OF_ONE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_compared_with_one() {
        let asked = |arms, sentence_ms| Asked { arms, first_token_ms: 1.0, sentence_ms };
        let asked = [asked(1, 100.0), asked(2, 114.0), asked(4, 130.0)];
        let told: Vec<_> = ARMS.iter().map(|arms| row(*arms, &asked).holds).collect();
        assert_eq!(told, [None, Some(true), Some(false)]);
    }
}
