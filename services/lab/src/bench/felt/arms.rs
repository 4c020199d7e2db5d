//! Several replies to one prompt: their wait beside that of one.

use super::FeltBench;
use crate::bench::service::MeasuredService;
use crate::bench::steps::Filler;
use anyhow::{Context, Result, bail};
use eventsource_stream::Eventsource;
use experiment::median;
use futures_util::StreamExt;
use indicatif::ProgressBar;
use reqwest::{Client, Method};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const ARMS: [usize; 3] = [1, 2, 4];
const SENTENCE_TOKENS: usize = 12; // tokens, about, of a first sentence
const MOST_OF_ONE: f64 = 1.15;

#[derive(Serialize)]
struct ArmsRow {
    of: &'static str,
    arms: usize,
    first_token_ms: Option<f64>,
    sentence_ms: Option<f64>, // until each arm has its first sentence
    ratio: Option<f64>,       // to one arm
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
    let requests = args.turns as usize * ARMS.len();
    // Each is a conversation of its own.
    let home = bench.home("arms", requests, 0, &[]).await?;
    let peer = bench.peer().await?;
    let played = async {
        let ours = play(bench, &home.service, &home.system, args.turns, &home.bar).await?;
        let theirs = match &peer {
            // A server may not know of arms.
            Some(peer) => Some(play(bench, peer, &home.system, args.peer_turns, &home.bar).await),
            None => None,
        };
        anyhow::Ok((ours, theirs))
    }
    .await;
    let why = match &played {
        Ok((_, Some(Err(why)))) => Some(format!("the peer: {why:#}")),
        _ => None,
    };
    let rows = |(ours, theirs): &(Vec<Asked>, Option<Result<Vec<Asked>>>)| {
        let mut rows: Vec<ArmsRow> = ARMS.map(|arms| row("service", arms, ours)).into();
        match theirs {
            Some(Ok(theirs)) => rows.extend(ARMS.map(|arms| row("peer", arms, theirs))),
            Some(Err(_)) => rows.push(row("peer: none", 0, &[])),
            None => {}
        }
        json!(rows)
    };
    let mut told = home.end(played, rows).await?;
    told["peer_refuses"] = json!(why);
    Ok(told)
}

async fn play(
    bench: &FeltBench<'_>,
    service: &MeasuredService,
    system: &str,
    turns: u64,
    bar: &ProgressBar,
) -> Result<Vec<Asked>> {
    let http = Client::builder().read_timeout(bench.patience()).build().context("cannot make an HTTP client")?;
    let models = service.address.get(&http, "/v1/models").await?;
    let model = models["data"][0]["id"].as_str().context("the service lists no model")?;
    let mut filler = Filler::with_barge_ins(1, usize::MAX);
    let mut asked = Vec::new();
    for _ in 0..turns {
        for arms in ARMS {
            tokio::time::sleep(Duration::from_secs_f64(bench.args.pause)).await;
            asked.push(ask(service, &http, model, [system, &filler.step(1).says], arms).await?);
            bar.inc(1);
        }
    }
    // The first round reads the instructions.
    Ok(asked.split_off(ARMS.len()))
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
        bail!("the service refused the request: {}", response.text().await.unwrap_or_default());
    }
    let mut events = response.bytes_stream().eventsource();
    let (mut first_token_ms, mut ended) = (None, 0);
    while let Some(event) = events.next().await {
        let event = event.context("the reply ended in the middle")?;
        if event.data == "[DONE]" {
            break;
        }
        let event: Value = serde_json::from_str(&event.data).context("the service sent an event that is not JSON")?;
        for choice in event["choices"].as_array().into_iter().flatten() {
            if choice["delta"]["content"].as_str().is_some_and(|piece| !piece.is_empty()) {
                first_token_ms.get_or_insert_with(|| begin.elapsed().as_secs_f64() * 1e3);
            }
            ended += usize::from(!choice["finish_reason"].is_null());
        }
    }
    let sentence_ms = begin.elapsed().as_secs_f64() * 1e3;
    if ended != arms {
        bail!("{ended} of {arms} replies ended");
    }
    Ok(Asked { arms, first_token_ms: first_token_ms.unwrap_or(sentence_ms), sentence_ms })
}

fn row(of: &'static str, arms: usize, asked: &[Asked]) -> ArmsRow {
    let with = |arms: usize| asked.iter().filter(move |asked| asked.arms == arms);
    let sentence = |arms: usize| median(with(arms).map(|asked| asked.sentence_ms));
    let ratio = sentence(arms).zip(sentence(1)).map(|(all, one)| all / one);
    ArmsRow {
        of,
        arms,
        first_token_ms: median(with(arms).map(|asked| asked.first_token_ms)),
        sentence_ms: sentence(arms),
        ratio,
        holds: ratio.filter(|_| arms > 1 && of == "service").map(|ratio| ratio <= MOST_OF_ONE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_compared_with_one() {
        let asked = |arms, sentence_ms| Asked { arms, first_token_ms: 1.0, sentence_ms };
        let asked = [asked(1, 100.0), asked(2, 114.0), asked(4, 130.0)];
        let told: Vec<_> = ARMS.iter().map(|arms| row("service", *arms, &asked).holds).collect();
        assert_eq!(told, [None, Some(true), Some(false)]);
    }
}
