//! A reply that a cough stopped: the wait for its next words, beside the first words of an ordinary turn.

use super::{FeltBench, TURN_TOKENS};
use crate::bench::steps::Filler;
use anyhow::{Result, bail};
use experiment::median;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use terminal::client::{Arrival, ServiceClient};

const HEARD_PIECES: usize = 8; // pieces of a reply that are heard before the cough
/// A random model may have less to say: then the turn counts as an ordinary one only.
const TRIES: usize = 3;
const REPLY_TOKENS: usize = 48;
const COUGH: Duration = Duration::from_millis(300); // from the cough to the request to resume
const MOST_MS: f64 = 20.0;

#[derive(Serialize)]
struct ResumeRow {
    turn: &'static str,
    turns: usize,
    first_token_ms: Option<f64>,
    longest_ms: Option<f64>,
    computed_tokens: Option<f64>,
    holds: Option<bool>,
}

#[derive(Clone, Copy)]
struct Waited {
    ms: f64,
    computed_tokens: Option<f64>,
}

struct Reply {
    item_id: Value,
    text: String,
    status: String,
    waited: Option<Waited>,
}

pub async fn measure(bench: &FeltBench<'_>) -> Result<Value> {
    let args = bench.args;
    let wanted = args.turns as usize;
    let home = bench.home("resume", wanted * TRIES, REPLY_TOKENS + TURN_TOKENS, &[]).await?;
    let played = async {
        let mut client = home.service.connect(bench.settings, bench.patience(), &[]).await?;
        let session = json!({
            "type": "realtime", "instructions": home.system, "max_output_tokens": REPLY_TOKENS,
            "temperature": 0, "reasoning": { "effort": "none" },
        });
        client.update(session).await?;
        let (mut filler, mut ordinary, mut resumed) = (Filler::with_barge_ins(1, usize::MAX), Vec::new(), Vec::new());
        for _ in 0..wanted * TRIES {
            tokio::time::sleep(Duration::from_secs_f64(args.pause)).await;
            client.create(None, "user", &filler.step(1).says, None).await?;
            let begin = Instant::now();
            client.respond().await?;
            let stopped = listen(&mut client, begin, HEARD_PIECES).await?;
            ordinary.extend(stopped.waited);
            if stopped.status != "cancelled" {
                continue;
            }
            tokio::time::sleep(COUGH).await;
            let heard = stopped.text.chars().count();
            let resume = json!({ "type": "response.resume", "item_id": stopped.item_id, "text_end": heard });
            let begin = Instant::now();
            client.say(resume).await?;
            resumed.extend(listen(&mut client, begin, usize::MAX).await?.waited);
            home.bar.inc(1);
            if resumed.len() == wanted {
                break;
            }
        }
        client.close().await;
        anyhow::Ok((ordinary, resumed))
    }
    .await;
    let peer = args.peer.is_some();
    // The first turn reads the instructions.
    let rows = |(ordinary, resumed): &(Vec<Waited>, Vec<Waited>)| {
        let mut rows = vec![row("ordinary", &ordinary[1..]), holding(row("a reply that goes on", resumed))];
        rows.extend(peer.then(|| row("the peer: none goes on", &[])));
        json!(rows)
    };
    home.end(played, rows).await
}

/// Listens until the reply is over, or coughs after `pieces` pieces.
async fn listen(client: &mut ServiceClient, begin: Instant, pieces: usize) -> Result<Reply> {
    let (mut text, mut heard, mut first, mut computed) = (String::new(), 0, None, None);
    let mut item_id = Value::Null;
    let status = loop {
        let Arrival { at, event } = client.next().await?;
        match event["type"].as_str().unwrap_or_default() {
            "response.output_item.added" => item_id = event["item"]["id"].clone(),
            "response.output_text.delta" => {
                first.get_or_insert_with(|| at.duration_since(begin).as_secs_f64() * 1e3);
                text.push_str(event["delta"].as_str().unwrap_or_default());
                heard += 1;
                if heard == pieces {
                    client.say(json!({ "type": "response.cancel" })).await?;
                }
            }
            "turn.report" => computed = event["computed_tokens"].as_f64(),
            "response.done" => break event["response"]["status"].as_str().unwrap_or_default().to_owned(),
            "error" => bail!("the service reported an error: {}", event["error"]["message"]),
            _ => {}
        }
    };
    // The usage may come behind the reply.
    while computed.is_none() {
        let Some(arrival) = client.next_within(REPORT_WAIT).await? else { break };
        if arrival.event["type"] == "turn.report" {
            computed = arrival.event["computed_tokens"].as_f64();
        }
    }
    let waited = first.map(|ms| Waited { ms, computed_tokens: computed });
    Ok(Reply { item_id, text, status, waited })
}

const REPORT_WAIT: Duration = Duration::from_secs(2);

fn row(turn: &'static str, waited: &[Waited]) -> ResumeRow {
    ResumeRow {
        turn,
        turns: waited.len(),
        first_token_ms: median(waited.iter().map(|waited| waited.ms)),
        longest_ms: waited.iter().map(|waited| waited.ms).reduce(f64::max),
        computed_tokens: waited.iter().filter_map(|waited| waited.computed_tokens).reduce(f64::max),
        holds: None,
    }
}

fn holding(row: ResumeRow) -> ResumeRow {
    let holds = row.first_token_ms.map(|ms| ms <= MOST_MS && row.computed_tokens == Some(0.0));
    ResumeRow { holds, ..row }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_goes_on_computes_nothing_and_comes_at_once() {
        let waited = |ms, tokens| Waited { ms, computed_tokens: Some(tokens) };
        assert_eq!(holding(row("", &[waited(19.0, 0.0), waited(20.0, 0.0)])).holds, Some(true));
        assert_eq!(holding(row("", &[waited(19.0, 1.0)])).holds, Some(false));
        assert_eq!(holding(row("", &[waited(21.0, 0.0)])).holds, Some(false));
        assert_eq!(holding(row("", &[])).holds, None);
    }
}
