//! Instructions in which a clock changes at every turn: at the top, in the middle, and not at all; of an API client,
//! whose instructions stay as they are, and of a voice integration, for which notes carry the changes.

use super::{FeltBench, FeltHome, PROMPT_TOKENS, TURN_TOKENS};
use crate::bench::chat::ChatPlayer;
use crate::bench::home::household::system;
use crate::bench::service::MeasuredService;
use crate::bench::steps::{Filler, Opening, TurnCost};
use anyhow::{Context, Result};
use experiment::median;
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Clock {
    Unchanged,
    Top,
    Middle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum FeltClient {
    Exact,
    Notes,
    Peer,
}

const CLOCKS: [Clock; 3] = [Clock::Unchanged, Clock::Top, Clock::Middle];
/// Most ordinary turns, with unchanged instructions, that a turn may take.
const MOST_ORDINARY_TURNS: f64 = 1.3;
const LEAST_REUSED_SHARE: f64 = 0.95;
const FIRST_COUNTED: usize = 3; // the first turns have nothing to reuse yet
const PEER_PROMPT_TOKENS: usize = 6_000; // of the instructions, if a peer reads them too

#[derive(Serialize)]
struct HeadRow {
    clock: Clock,
    client: FeltClient,
    turns: usize, // counted turns
    prompt_tokens: Option<u64>,
    reused_share: Option<f64>, // of the turn that reused least
    computed_tokens: Option<u64>,
    first_token_ms: Option<f64>,
    ratio: Option<f64>, // to a turn of the same client with unchanged instructions
    would_save_tokens: Option<u64>,
    holds: Option<bool>,
}

struct Played {
    clock: Clock,
    client: FeltClient,
    turns: Vec<TurnCost>,
}

pub async fn measure(bench: &FeltBench<'_>) -> Result<Value> {
    let args = bench.args;
    let peer = bench.peer().await?;
    let prompt = args.prompt.unwrap_or(if peer.is_some() { PEER_PROMPT_TOKENS } else { PROMPT_TOKENS });
    let turn_tokens = 2 * args.reply + TURN_TOKENS;
    let home = bench.home_of("heads", prompt, args.turns as usize, turn_tokens, &[]).await?;
    let theirs = if peer.is_some() { args.peer_turns } else { 0 };
    home.bar.set_length((2 * args.turns + theirs) * CLOCKS.len() as u64);
    let played = async {
        let mut played = Vec::new();
        for clock in CLOCKS {
            for client in [FeltClient::Exact, FeltClient::Notes] {
                played.push(play(bench, &home.service, clock, client, args.turns, &home).await?);
            }
            if let Some(peer) = &peer {
                let client = FeltClient::Peer;
                played.push(play(bench, peer, clock, client, theirs, &home).await.context("the peer")?);
            }
        }
        anyhow::Ok(played)
    }
    .await;
    let turns: Value = played.iter().flatten().flat_map(of_played).collect();
    let mut told = home.end(played, |played| json!(rows(played))).await?;
    told["turns"] = turns;
    Ok(told)
}

async fn play(
    bench: &FeltBench<'_>,
    service: &MeasuredService,
    clock: Clock,
    client: FeltClient,
    many: u64,
    home: &FeltHome,
) -> Result<Played> {
    let args = bench.args;
    let head = |turn: usize| instructions(home.entities, clock, client, turn);
    let opening =
        Opening { system: head(0), history: Vec::new(), reply_tokens: args.reply, patience: bench.patience() };
    let mut player = ChatPlayer::new(service, None, opening).await?;
    if client == FeltClient::Notes {
        player.agent = "HomeAssistant/reprise-bench";
    }
    let (mut filler, mut turns) = (Filler::with_barge_ins(1, usize::MAX), Vec::new());
    for turn in 1..=many as usize {
        tokio::time::sleep(std::time::Duration::from_secs_f64(args.pause)).await;
        let mut step = filler.step(1);
        step.system = Some(head(turn));
        turns.push(player.turn(service, turn, step).await?);
        home.bar.inc(1);
    }
    Ok(Played { clock, client, turns })
}

/// Writes the instructions. No two conversations of the table share a line of their home.
fn instructions(entities: usize, clock: Clock, client: FeltClient, turn: usize) -> String {
    // An integration's words about its room would make any client a voice integration.
    let home = system(entities, "kitchen").replace("You are in area", "The user stands in area");
    let home = home.replace("names:", &format!("{client:?} {clock:?}:"));
    let turn = if clock == Clock::Unchanged { 0 } else { turn };
    let time = format!("It is {:02}:{:02}.", 8 + turn / 60, turn % 60);
    let mut lines: Vec<&str> = home.lines().collect();
    let at = if clock == Clock::Middle { lines.len() / 2 } else { 0 };
    lines.insert(at, &time);
    lines.join("\n")
}

fn rows(played: &[Played]) -> Vec<HeadRow> {
    let wait = |played: &Played| median(counted(played).filter_map(|turn| turn.first_token_ms));
    let ordinary = |client: FeltClient| {
        played.iter().find(|played| played.client == client && played.clock == Clock::Unchanged).and_then(wait)
    };
    let row = |played: &Played| {
        let share = |turn: &TurnCost| Some(turn.cached_tokens? as f64 / turn.prompt_tokens?.max(1) as f64);
        let reused_share = counted(played).filter_map(share).reduce(f64::min);
        let first_token_ms = wait(played);
        let ratio = first_token_ms.zip(ordinary(played.client)).map(|(wait, ordinary)| wait / ordinary);
        let holds = |(share, ratio)| share >= LEAST_REUSED_SHARE && ratio <= MOST_ORDINARY_TURNS;
        HeadRow {
            clock: played.clock,
            client: played.client,
            turns: counted(played).count(),
            prompt_tokens: played.turns.last().and_then(|turn| turn.prompt_tokens),
            reused_share,
            computed_tokens: counted(played).filter_map(|turn| turn.computed_tokens).max(),
            first_token_ms,
            ratio,
            would_save_tokens: counted(played).filter_map(|turn| turn.would_save_tokens).min(),
            holds: reused_share.zip(ratio).filter(|_| played.client == FeltClient::Notes).map(holds),
        }
    };
    played.iter().map(row).collect()
}

fn counted(played: &Played) -> impl Iterator<Item = &TurnCost> {
    played.turns.iter().filter(|turn| turn.turn >= FIRST_COUNTED)
}

fn of_played(played: &Played) -> impl Iterator<Item = Value> {
    played.turns.iter().map(|turn| {
        let mut told = json!(turn);
        (told["clock"], told["client"]) = (json!(played.clock), json!(played.client));
        told
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::steps::TurnKind;

    #[test]
    fn only_the_clock_differs_between_two_turns() {
        let differ = |clock| {
            let [one, other] = [1, 2].map(|turn| instructions(60, clock, FeltClient::Notes, turn));
            let lines = one.lines().zip(other.lines());
            lines.enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at).collect::<Vec<_>>()
        };
        assert_eq!(differ(Clock::Unchanged), Vec::<usize>::new());
        assert_eq!(differ(Clock::Top), [0]);
        assert!(differ(Clock::Middle).len() == 1 && differ(Clock::Middle)[0] > 60);
        assert!(!instructions(9, Clock::Top, FeltClient::Exact, 1).contains("You are in area"));
    }

    #[test]
    fn turns_are_compared_with_those_of_the_same_client_from_the_third_on() {
        let turn = |number, cached, ms| TurnCost {
            prompt_tokens: Some(100),
            cached_tokens: Some(cached),
            first_token_ms: Some(ms),
            ..TurnCost::new(number, TurnKind::Turn)
        };
        let played = |clock, client, cached, ms: f64| Played {
            clock,
            client,
            turns: vec![turn(1, 0, 900.0), turn(2, 0, 900.0), turn(3, cached, ms), turn(4, cached + 1, ms)],
        };
        let rows = rows(&[
            played(Clock::Unchanged, FeltClient::Notes, 96, 10.0),
            played(Clock::Top, FeltClient::Notes, 95, 13.0),
            played(Clock::Top, FeltClient::Exact, 0, 500.0),
            played(Clock::Middle, FeltClient::Notes, 94, 11.0),
        ]);
        let told: Vec<_> = rows.iter().map(|row| (row.reused_share, row.ratio, row.holds)).collect();
        assert_eq!(told[..2], [(Some(0.96), Some(1.0), Some(true)), (Some(0.95), Some(1.3), Some(true))]);
        assert_eq!(told[2], (Some(0.0), None, None));
        assert_eq!((told[3].0, told[3].2), (Some(0.94), Some(false)));
    }
}
