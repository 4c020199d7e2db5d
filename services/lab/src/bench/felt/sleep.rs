//! A service without users gives its memory back; and the wait of the first turn after that.

use super::{FeltBench, TURN_TOKENS};
use crate::bench::chat::ChatPlayer;
use crate::bench::service::MeasuredService;
use crate::bench::steps::{Filler, Opening, TurnCost};
use anyhow::{Result, bail};
use experiment::median;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SLEEPS: usize = 3; // each must be waited for
const MOST_ASLEEP_BYTES: u64 = 60 << 20; // most memory of a sleeping service
/// Most ordinary turns that the first one may take beside the time to read the files.
const MOST_ORDINARY_TURNS: f64 = 1.3;
const LOOK: Duration = Duration::from_millis(50);
/// The service gives memory back a second time, some seconds later, when its last replies are dropped.
const ASLEEP_FOR: Duration = Duration::from_secs(6);

#[derive(Serialize)]
struct SleepRow {
    turn: &'static str,
    first_token_ms: Option<f64>,
    ratio: Option<f64>, // to an ordinary turn
    /// Time until the model was open and the turn began: its files are read meanwhile.
    opening_ms: Option<f64>,
    ratio_without_opening: Option<f64>, // the rest of the turn, to an ordinary turn
    computed_tokens: Option<f64>,
    rss_bytes: Option<u64>, // before the turn
    holds: Option<bool>,
}

pub async fn measure(bench: &FeltBench<'_>) -> Result<Value> {
    let args = bench.args;
    let turns = args.turns as usize + SLEEPS;
    let idle_s = args.pause.ceil() as u64 + 1;
    let needs = [("memory.idle_s", idle_s.to_string())];
    let home = bench.home("sleep", turns, args.reply + TURN_TOKENS, &needs).await?;
    let service = &home.service;
    let played = async {
        let (system, patience) = (home.system.clone(), bench.patience());
        let opening = Opening { system, history: Vec::new(), reply_tokens: args.reply, patience };
        let mut player = ChatPlayer::new(service, None, opening).await?;
        let mut filler = Filler::with_barge_ins(1, usize::MAX);
        let (mut ordinary, mut waking) = (Vec::new(), Vec::new());
        for turn in 1..=turns {
            let sleeps = turn > args.turns as usize;
            match sleeps {
                true => falls_asleep(service, patience).await?,
                false => tokio::time::sleep(Duration::from_secs_f64(args.pause)).await,
            }
            let rss_bytes = service.memory().map(|memory| memory.rss_bytes);
            let cost = player.turn(service, turn, filler.step(1)).await?;
            if sleeps { &mut waking } else { &mut ordinary }.push((cost, rss_bytes));
            home.bar.inc(1);
        }
        anyhow::Ok((ordinary, waking))
    }
    .await;
    let peer = args.peer.is_some();
    // The first turn reads the instructions.
    let rows = |(ordinary, waking): &(Vec<MeasuredTurn>, Vec<MeasuredTurn>)| {
        let mut rows: Vec<SleepRow> = rows(&ordinary[1..], waking).into();
        rows.extend(peer.then(|| row("the peer: none", &[], &[])));
        json!(rows)
    };
    home.end(played, rows).await
}

async fn falls_asleep(service: &MeasuredService, patience: Duration) -> Result<()> {
    let (http, since) = (reqwest::Client::new(), Instant::now());
    while service.address.get(&http, "/healthz").await?["asleep"] != json!(true) {
        if since.elapsed() > patience {
            bail!("the service did not fall asleep in time; leave out --url to measure one that does");
        }
        tokio::time::sleep(LOOK).await;
    }
    tokio::time::sleep(ASLEEP_FOR).await;
    Ok(())
}

type MeasuredTurn = (TurnCost, Option<u64>);

fn rows(ordinary: &[MeasuredTurn], waking: &[MeasuredTurn]) -> [SleepRow; 2] {
    let asleep = row("the first after a sleep", waking, ordinary);
    let fits = asleep.rss_bytes.map(|bytes| bytes <= MOST_ASLEEP_BYTES);
    let is_soon = asleep.ratio_without_opening.map(|ratio| ratio <= MOST_ORDINARY_TURNS);
    let holds = fits.zip(is_soon).map(|(fits, is_soon)| fits && is_soon);
    [row("ordinary", ordinary, ordinary), SleepRow { holds, ..asleep }]
}

fn row(turn: &'static str, turns: &[MeasuredTurn], ordinary: &[MeasuredTurn]) -> SleepRow {
    let wait = |turns: &[MeasuredTurn]| median(turns.iter().filter_map(|(turn, _)| turn.first_token_ms));
    let queue = |turns: &[MeasuredTurn]| median(turns.iter().filter_map(|(turn, _)| turn.queue_ms));
    let opening_ms = queue(turns);
    let to_ordinary =
        |wait: Option<f64>, ordinary: Option<f64>| wait.zip(ordinary).map(|(wait, ordinary)| wait / ordinary);
    // Each turn without its own opening.
    let without = |turns: &[MeasuredTurn]| {
        median(turns.iter().filter_map(|(turn, _)| Some(turn.first_token_ms? - turn.queue_ms?)))
    };
    SleepRow {
        turn,
        first_token_ms: wait(turns),
        ratio: to_ordinary(wait(turns), wait(ordinary)),
        opening_ms,
        ratio_without_opening: to_ordinary(without(turns), wait(ordinary)),
        computed_tokens: median(turns.iter().filter_map(|(turn, _)| Some(turn.computed_tokens? as f64))),
        rss_bytes: turns.iter().filter_map(|(_, rss_bytes)| *rss_bytes).max(),
        holds: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::steps::TurnKind;

    #[test]
    fn turns_after_a_sleep_are_compared_with_ordinary_ones() {
        let turn = |ms, queue, mib: u64| {
            let cost = TurnCost { first_token_ms: Some(ms), queue_ms: Some(queue), ..TurnCost::new(1, TurnKind::Turn) };
            (cost, Some(mib << 20))
        };
        let ordinary = [turn(10.0, 0.0, 900)];
        for (ms, mib, holds) in [(25.0, 50, true), (26.0, 50, false), (25.0, 61, false)] {
            let [normal, first] = rows(&ordinary, &[turn(ms, 12.0, mib), turn(ms, 12.0, 50)]);
            assert_eq!((normal.ratio, normal.holds), (Some(1.0), None));
            assert_eq!((first.opening_ms, first.rss_bytes), (Some(12.0), Some(mib << 20)));
            assert_eq!((first.ratio, first.holds), (Some(ms / 10.0), Some(holds)), "{ms} {mib}");
        }
    }
}
