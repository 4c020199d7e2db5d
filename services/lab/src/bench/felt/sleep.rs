//! A service that its users leave alone gives its memory back; and what the first turn after that waits.

use super::FeltBench;
use crate::bench::chat::ChatPlayer;
use crate::bench::home::HomeSize;
use crate::bench::home::household::system;
use crate::bench::service::MeasuredService;
use crate::bench::steps::{Filler, Opening, TurnCost};
use crate::output::progress_bar;
use anyhow::{Result, bail};
use experiment::median;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Each is a sleep that is waited for.
const SLEEPS: usize = 3;
/// What the service may have in memory while it sleeps.
const MOST_ASLEEP_BYTES: u64 = 60 << 20;
/// About what a turn takes beside its reply, and for what templates write around.
const TURN_TOKENS: usize = 250;
const SPARE: usize = 400;
const LOOK: Duration = Duration::from_millis(50);

#[derive(Serialize)]
struct SleepRow {
    turn: &'static str,
    first_token_ms: Option<f64>,
    /// To an ordinary turn.
    ratio: Option<f64>,
    computed_tokens: Option<f64>,
    /// Before the turn.
    rss_bytes: Option<u64>,
    holds: Option<bool>,
}

pub async fn measure(bench: &FeltBench<'_>) -> Result<Value> {
    let args = bench.args;
    let HomeSize { entities, prompt_tokens } = HomeSize::of(&args.target, args.prompt, 0, bench.settings).await?;
    let turns = args.turns as usize + SLEEPS;
    let window = prompt_tokens + turns * (args.reply + TURN_TOKENS) + SPARE;
    let idle_s = args.pause.ceil() as u64 + 1;
    let needs = [("model.ctx_size", window.to_string()), ("memory.idle_s", idle_s.to_string())];
    let service = bench.service(&needs).await?;
    let mut told = bench.about("sleep", &service);
    let system = system(entities, "kitchen");
    let opening = Opening { system, history: Vec::new(), reply_tokens: args.reply, patience: bench.patience() };
    let bar = progress_bar(turns as u64, "turn {pos} of {len} [{bar:40}] {eta} left");
    let played = async {
        let mut player = ChatPlayer::new(&service, None, opening).await?;
        let mut filler = Filler::with_barge_ins(1, usize::MAX);
        let (mut ordinary, mut waking) = (Vec::new(), Vec::new());
        for turn in 1..=turns {
            let sleeps = turn > args.turns as usize;
            match sleeps {
                true => falls_asleep(&service, bench.patience()).await?,
                false => tokio::time::sleep(Duration::from_secs_f64(args.pause)).await,
            }
            let rss_bytes = service.memory().map(|memory| memory.rss_bytes);
            let cost = player.turn(&service, turn, filler.step(1)).await?;
            if sleeps { &mut waking } else { &mut ordinary }.push((cost, rss_bytes));
            bar.inc(1);
        }
        anyhow::Ok((ordinary, waking))
    }
    .await;
    service.stop().await;
    bar.finish_and_clear();
    let (ordinary, waking) = played?;
    told["prompt_tokens"] = json!(prompt_tokens);
    // The first turn reads the instructions.
    told["rows"] = json!(rows(&ordinary[1..], &waking));
    Ok(told)
}

async fn falls_asleep(service: &MeasuredService, patience: Duration) -> Result<()> {
    let (http, since) = (reqwest::Client::new(), Instant::now());
    while service.address.get(&http, "/healthz").await?["asleep"] != json!(true) {
        if since.elapsed() > patience {
            bail!("the service does not fall asleep: start one of its own, without --url");
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

type MeasuredTurn = (TurnCost, Option<u64>);

fn rows(ordinary: &[MeasuredTurn], waking: &[MeasuredTurn]) -> [SleepRow; 2] {
    let wait = |turns: &[MeasuredTurn]| median(turns.iter().filter_map(|(turn, _)| turn.first_token_ms));
    let row = |turn, turns: &[MeasuredTurn]| SleepRow {
        turn,
        first_token_ms: wait(turns),
        ratio: wait(turns).zip(wait(ordinary)).map(|(wait, ordinary)| wait / ordinary),
        computed_tokens: median(turns.iter().filter_map(|(turn, _)| Some(turn.computed_tokens? as f64))),
        rss_bytes: turns.iter().filter_map(|(_, rss_bytes)| *rss_bytes).max(),
        holds: None,
    };
    let asleep = row("the first after a sleep", waking);
    let holds = asleep.rss_bytes.map(|bytes| bytes <= MOST_ASLEEP_BYTES);
    [row("ordinary", ordinary), SleepRow { holds, ..asleep }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::steps::TurnKind;

    #[test]
    fn turns_after_a_sleep_are_compared_with_ordinary_ones() {
        let turn = |ms, rss_bytes| {
            (TurnCost { first_token_ms: Some(ms), ..TurnCost::new(1, TurnKind::Turn) }, Some(rss_bytes))
        };
        let [ordinary, waking] = rows(&[turn(10.0, 900 << 20)], &[turn(25.0, 50 << 20), turn(25.0, 61 << 20)]);
        assert_eq!((ordinary.ratio, ordinary.holds), (Some(1.0), None));
        assert_eq!((waking.ratio, waking.rss_bytes, waking.holds), (Some(2.5), Some(61 << 20), Some(false)));
    }
}
