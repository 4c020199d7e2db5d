//! A model that thinks for long: its first word by itself, with a budget in milliseconds, and when the user wants it.

use super::{FeltBench, TURN_TOKENS};
use crate::bench::steps::Filler;
use anyhow::{Context, Result, bail};
use experiment::median;
use reqwest::{Client, Method};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use terminal::client::{Arrival, ServiceClient};

const THOUGHT_TOKENS: usize = 256; // tokens of a thought without an end
const FIRST_WORD_MS: u64 = 800;
const STOP_AFTER: Duration = Duration::from_millis(150); // from the request until the user wants the answer
const MOST_STEPS: f64 = 2.0; // the step that runs when the wish comes, and the one behind it

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    ByItself,
    InTime,
    ByEvent,
    ByPost,
}

#[derive(Serialize)]
struct ThinkingRow {
    thinking: &'static str,
    turns: usize,
    first_word_ms: Option<f64>, // from the request
    longest_ms: Option<f64>,
    after_stop_ms: Option<f64>, // from the wish
    step_ms: Option<f64>,       // between two words
    holds: Option<bool>,
}

#[derive(Clone, Copy)]
struct Thought {
    ends: Ends,
    first_word_ms: f64,
    after_stop_ms: Option<f64>,
    step_ms: Option<f64>,
}

pub async fn measure(bench: &FeltBench<'_>) -> Result<Value> {
    let within = [("preset.thinking.first_word_ms", FIRST_WORD_MS.to_string())];
    let mut thoughts = play(bench, &[Ends::InTime], &within).await?.1;
    let budget = [("preset.thinking", THOUGHT_TOKENS.to_string())];
    let (mut told, longer) = play(bench, &[Ends::ByItself, Ends::ByEvent, Ends::ByPost], &budget).await?;
    thoughts.extend(longer);
    let mut rows = vec![
        row("up to 256 tokens", Ends::ByItself, &thoughts),
        row("first_word_ms = 800", Ends::InTime, &thoughts),
        row("response.stop_thinking", Ends::ByEvent, &thoughts),
        row("POST .../stop_thinking", Ends::ByPost, &thoughts),
    ];
    rows.extend(bench.args.peer.is_some().then(|| row("the peer: none ends", Ends::ByItself, &[])));
    told["rows"] = json!(rows);
    Ok(told)
}

async fn play(bench: &FeltBench<'_>, ends: &[Ends], needs: &[(&str, String)]) -> Result<(Value, Vec<Thought>)> {
    let args = bench.args;
    let turns = args.turns as usize * ends.len();
    // Later prompts hold no thoughts.
    let tokens = THOUGHT_TOKENS + args.reply;
    let home = bench.home("thinking", turns, args.reply + TURN_TOKENS, needs).await?;
    let service = &home.service;
    let played = async {
        let http = Client::builder().read_timeout(bench.patience()).build().context("cannot make an HTTP client")?;
        let mut client = service.connect(bench.settings, bench.patience(), &[]).await?;
        client.update(json!({ "type": "realtime", "instructions": home.system, "max_output_tokens": tokens })).await?;
        let path = format!("/v1/sessions/{}/stop_thinking", client.session_id());
        let (mut filler, mut thoughts) = (Filler::with_barge_ins(1, usize::MAX), Vec::new());
        for turn in 0..turns {
            tokio::time::sleep(Duration::from_secs_f64(args.pause)).await;
            client.create(None, "user", &filler.step(1).says, None).await?;
            let ends = ends[turn % ends.len()];
            let post = service.address.request(&http, Method::POST, &path);
            thoughts.push(think(&mut client, ends, post, args.reply).await?);
            home.bar.inc(1);
        }
        client.close().await;
        anyhow::Ok(thoughts)
    }
    .await;
    let mut thoughts = Vec::new();
    let told = home.end(played, |played| {
        // The first turn reads the instructions.
        thoughts.extend(played.iter().skip(1).flatten().copied());
        Value::Null
    });
    let told = told.await?;
    Ok((told, thoughts))
}

/// Plays one turn, whose answer the client ends after `most_words` words. `None`: the model said nothing.
async fn think(
    client: &mut ServiceClient,
    ends: Ends,
    post: reqwest::RequestBuilder,
    most_words: usize,
) -> Result<Option<Thought>> {
    let begin = Instant::now();
    client.respond().await?;
    // Events that come meanwhile keep their time.
    let mut stopped = None;
    if matches!(ends, Ends::ByEvent | Ends::ByPost) {
        tokio::time::sleep(STOP_AFTER).await;
        stopped = Some(Instant::now());
    }
    match ends {
        Ends::ByEvent => client.say(json!({ "type": "response.stop_thinking" })).await?,
        Ends::ByPost => drop(post.send().await.context("the call that ends the thinking")?),
        Ends::ByItself | Ends::InTime => {}
    }
    let mut words: Vec<Instant> = Vec::new();
    loop {
        let Arrival { at, event } = client.next().await?;
        match event["type"].as_str().unwrap_or_default() {
            "response.output_text.delta" => {
                words.push(at);
                // A thought that ended early leaves more tokens for the answer than the window of this table has.
                if words.len() == most_words {
                    client.say(json!({ "type": "response.cancel" })).await?;
                }
            }
            "response.done" => break,
            // The turn after a wish repeats it if the thought had ended before.
            "error" if stopped.is_none() && event["error"]["code"] != "stop_thinking_not_active" => {
                bail!("the service reported an error: {}", event["error"]["message"])
            }
            _ => {}
        }
    }
    let Some(first) = words.first().copied() else { return Ok(None) };
    let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
    Ok(Some(Thought {
        ends,
        first_word_ms: ms(begin, first),
        after_stop_ms: stopped.filter(|stopped| *stopped <= first).map(|stopped| ms(stopped, first)),
        step_ms: median(words.windows(2).map(|pair| ms(pair[0], pair[1]))),
    }))
}

fn row(thinking: &'static str, ends: Ends, thoughts: &[Thought]) -> ThinkingRow {
    let of = || thoughts.iter().filter(|thought| thought.ends == ends);
    let longest_ms = of().map(|thought| thought.first_word_ms).reduce(f64::max);
    let after_stop_ms = median(of().filter_map(|thought| thought.after_stop_ms));
    let step_ms = median(thoughts.iter().filter_map(|thought| thought.step_ms));
    let holds = match ends {
        Ends::ByItself => None,
        Ends::InTime => longest_ms.zip(step_ms).map(|(ms, step)| ms <= FIRST_WORD_MS as f64 + step),
        Ends::ByEvent | Ends::ByPost => after_stop_ms.zip(step_ms).map(|(ms, step)| ms <= MOST_STEPS * step),
    };
    ThinkingRow {
        thinking,
        turns: of().count(),
        first_word_ms: median(of().map(|thought| thought.first_word_ms)),
        longest_ms,
        after_stop_ms,
        step_ms,
        holds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_to_come_in_time_and_within_a_step_of_the_wish() {
        let thought =
            |ends, first_word_ms, after_stop_ms| Thought { ends, first_word_ms, after_stop_ms, step_ms: Some(20.0) };
        let holds = |ends, ms, after| row("", ends, &[thought(ends, ms, after)]).holds;
        assert_eq!(holds(Ends::ByItself, 9_000.0, None), None);
        assert_eq!((holds(Ends::InTime, 820.0, None), holds(Ends::InTime, 821.0, None)), (Some(true), Some(false)));
        assert_eq!(holds(Ends::ByEvent, 440.0, Some(40.0)), Some(true));
        assert_eq!(holds(Ends::ByPost, 441.0, Some(41.0)), Some(false));
        assert_eq!(holds(Ends::ByPost, 300.0, None), None);
    }
}
