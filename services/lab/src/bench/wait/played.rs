//! Conversations with the service, and with the peer.

use super::row::WaitRow;
use super::{Args, PROMPTS};
use crate::bench::cases::{WRITING_S, medians, read_all};
use crate::bench::chat::ChatPlayer;
use crate::bench::realtime::RealtimePlayer;
use crate::bench::service::MeasuredService;
use crate::bench::speaking::{LastPartial, SpeechArgs};
use crate::bench::steps::{Filler, Opening, TurnCost, TurnKind, UserStep};
use anyhow::{Context, Result};
use experiment::median;
use serde_json::Value;
use settings::Settings;
use std::ffi::OsString;
use std::time::Duration;
use terminal::output::progress_bar;

pub struct Waits<'a> {
    pub args: &'a Args,
    pub given: &'a [OsString],
    pub settings: &'a Settings,
    pub speed: Option<&'a Value>, // result of `bench speed`
    pub peer: Option<&'a MeasuredService>,
}

const SYSTEM: usize = 600; // tokens, about, of instructions, and of a turn beside its reply
const TURN_TOKENS: usize = 100;
const SPARE: usize = 600;
const STILL_S: f64 = 0.6; // longer than the wait of a partial transcript before its reply begins early
const LOG_PAIRS: usize = 16; // messages of a log, and words of its questions and answers
const ANSWER_WORDS: usize = 29;
const FIRST_PART: usize = 4; // divisor of a prompt for the part that is counted before
const FEW: usize = 5; // turns beside a history

impl Waits<'_> {
    pub async fn partial(&self) -> Result<Vec<WaitRow>> {
        let service = self.service(self.window()).await?;
        let played = async {
            let mut medians = Vec::new();
            for last in [LastPartial::Equal, LastPartial::TwoWordsDiffer] {
                let turns = self.speaks(&service, last).await?;
                medians.push((self::medians(&turns, TurnKind::Turn), step_ms(self.speed)));
            }
            anyhow::Ok(medians)
        }
        .await;
        service.stop().await;
        let played = played?;
        let [(equal, _), (other, step)] = played[..] else { return Ok(Vec::new()) };
        let note = |(_, computed): (Option<f64>, Option<f64>)| computed_note(computed);
        Ok(vec![
            WaitRow::new("final words equal the last partial transcript", "ms", equal.0)
                .at_most(5.0, Some(1.0))
                .over(Some(0.0))
                .noted(note(equal)),
            WaitRow::new("final words differ in the last two words", "ms", other.0)
                .at_most(40.0, None)
                .over(step)
                .noted(note(other)),
        ])
    }

    pub async fn turns(&self) -> Result<Vec<WaitRow>> {
        let service = self.service(self.window()).await?;
        let played = self.chats(&service).await;
        service.stop().await;
        let ours = played?;
        let theirs = match self.peer {
            Some(peer) => Some(self.chats(peer).await.context("the peer")?),
            None => None,
        };
        let of = |turns: &[TurnCost], kind| medians(turns, kind);
        let ((ordinary, computed), (barge_in, again)) = (of(&ours, TurnKind::Turn), of(&ours, TurnKind::BargeIn));
        let peer = |kind| theirs.as_ref().and_then(|turns| of(turns, kind).0);
        let to_ordinary = |wait: Option<f64>, ordinary: Option<f64>| Some(wait? / ordinary?);
        let floor = |tokens: Option<f64>| Some(tokens? / rate(self.speed, 0)? * 1e3 + step_ms(self.speed)?);
        Ok(vec![
            WaitRow::new("ordinary turn, chat", "ms", ordinary)
                .at_most(70.0, None)
                .over(floor(computed))
                .beside(peer(TurnKind::Turn))
                .noted(computed_note(computed)),
            WaitRow::new("after a barge-in", "x an ordinary turn", to_ordinary(barge_in, ordinary))
                .at_most(1.1, None)
                .over(Some(1.0))
                .beside(to_ordinary(peer(TurnKind::BargeIn), peer(TurnKind::Turn)))
                .noted(barge_in.map_or_else(String::new, |ms| format!("{ms:.0} ms; {}", computed_note(again)))),
        ])
    }

    /// Plays prompts that are new from their first words on, in two messages or in many.
    pub async fn prefill(&self) -> Result<Vec<WaitRow>> {
        let longest = PROMPTS[PROMPTS.len() - 1];
        let service = self.service(longest + longest / 4 + SPARE).await?;
        let played = self.prompts(&service).await;
        service.stop().await;
        let ours = played?;
        let theirs = match self.peer {
            Some(peer) => self.prompts(peer).await.context("the peer")?,
            None => Vec::new(),
        };
        let names = ["prefill in the service, 512 tokens in two messages", "the same, 2,048", "a log of 34 messages"];
        let rows = ours.iter().enumerate().map(|(at, (tokens, rate_here))| {
            // A log is as long as two of the shorter prompts.
            let bench = rate(self.speed, usize::from(at == 1));
            let share = rate_here.zip(bench).map(|(here, bench)| here / bench * 100.0);
            let their_share = theirs.get(at).and_then(|(_, rate)| Some((*rate)? / bench? * 100.0));
            let told = |rate: &Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
            let note = format!("{tokens:.0} tokens, {} tokens/s of {}", told(rate_here), told(&bench));
            WaitRow::new(names[at.min(2)], "% of bench speed", share)
                .at_least(if at == 2 { 90.0 } else { 95.0 }, None)
                .beside(their_share)
                .noted(note)
        });
        Ok(rows.collect())
    }

    /// Kills the service with a long history, and counts its bytes on disk.
    pub async fn restart(&self) -> Result<Vec<WaitRow>> {
        let name = format!("after kill -9, history of {}", self.args.history);
        let disk = "bytes on disk of that history";
        if self.args.target.url.is_some() {
            let none =
                |what: &str, unit| WaitRow::new(what, unit, None).noted("a service that runs elsewhere is not killed");
            return Ok(vec![none(&name, "x a turn there"), none(disk, "MiB")]);
        }
        let history = self.args.history;
        // Words may have more tokens than counted, and a summary would make the history shorter.
        let mut service = self.service(2 * history + SYSTEM + SPARE).await?;
        let played = self.is_killed(&mut service).await;
        let files = service.state_folder().map(|folder| read_all(&folder)).transpose();
        service.stop().await;
        let (turns, (files_ms, mib)) = (played?, files?.unwrap_or_default());
        let (before, _) = medians(&turns, TurnKind::Turn);
        let (after, computed) = medians(&turns, TurnKind::Restart);
        let ratio = after.zip(before).map(|(after, before)| after / before);
        let told = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0} ms"));
        let note = format!("{} to {}; files {files_ms:.0} ms; {}", told(after), told(before), computed_note(computed));
        Ok(vec![
            WaitRow::new(name, "x a turn there", ratio).at_most(1.2, None).noted(note),
            WaitRow::new(disk, "MiB", Some(mib)).at_most(250.0, Some(150.0)),
        ])
    }

    async fn service(&self, window: usize) -> Result<MeasuredService> {
        let needs = [("model.ctx_size", window.to_string())];
        MeasuredService::open(&self.args.target, self.given, self.settings, &needs).await
    }

    fn window(&self) -> usize {
        SYSTEM + SYSTEM / 2 + self.args.turns as usize * (self.args.reply + TURN_TOKENS) + SPARE
    }

    fn opening(&self, filler: &mut Filler, history: usize) -> Opening {
        let (system, history) = (filler.system(SYSTEM), filler.history(history));
        Opening { system, history, reply_tokens: self.args.reply, patience: self.patience() }
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.args.patience)
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_secs_f64(self.args.pause)).await;
    }

    async fn chats(&self, service: &MeasuredService) -> Result<Vec<TurnCost>> {
        let mut filler = Filler::with_barge_ins(self.args.seed, 3);
        let opening = self.opening(&mut filler, 0);
        let mut player = ChatPlayer::new(service, None, opening).await?;
        let bar = progress_bar(self.args.turns, "turn {pos} of {len} [{bar:40}] {eta} left");
        let mut turns = Vec::new();
        for number in 1..=self.args.turns as usize {
            self.pause().await;
            turns.push(player.turn(service, number, filler.step(number)).await?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(turns)
    }

    async fn speaks(&self, service: &MeasuredService, last: LastPartial) -> Result<Vec<TurnCost>> {
        let mut filler = Filler::with_barge_ins(self.args.seed + 1, usize::MAX);
        let opening = self.opening(&mut filler, 0);
        let speech = SpeechArgs { words_per_minute: None, last_partial: last, still: STILL_S };
        let speech = speech.speech(self.settings)?;
        let mut player = RealtimePlayer::new(service, self.settings, Some(speech), opening).await?;
        let bar = progress_bar(self.args.turns, "turn {pos} of {len} [{bar:40}] {eta} left");
        let mut turns = Vec::new();
        for number in 1..=self.args.turns as usize {
            self.pause().await;
            turns.push(player.turn(number, filler.step(1), &mut |_| ()).await?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        player.close().await;
        Ok(turns)
    }

    async fn prompts(&self, service: &MeasuredService) -> Result<Vec<(f64, Option<f64>)>> {
        let mut told = Vec::new();
        for kind in 0..=PROMPTS.len() {
            let (mut rates, mut tokens, mut words) = (Vec::new(), Vec::new(), PROMPTS.get(kind).copied().unwrap_or(0));
            for round in 0..=self.args.rounds {
                self.pause().await;
                let seed = self.args.seed + 1_000 * (kind as u64 + 1) + round;
                // The first one, which is short, gives the number of tokens of the filler's words.
                let asked = if round == 0 { words / FIRST_PART } else { words };
                let turn = self.prompt(service, seed, asked).await?;
                let Some(computed) = turn.computed_tokens.or(turn.prompt_tokens) else { continue };
                if round == 0 {
                    words = (words as f64 * asked as f64 / computed.max(1) as f64) as usize;
                    continue;
                }
                tokens.push(computed as f64);
                rates.extend(turn.first_token_ms.map(|ms| computed as f64 / ms * 1e3));
            }
            told.push((median(tokens).unwrap_or_default(), median(rates)));
        }
        Ok(told)
    }

    /// Sends a prompt of `words` words in two messages; 0: a log.
    async fn prompt(&self, service: &MeasuredService, seed: u64, words: usize) -> Result<TurnCost> {
        let mut filler = Filler::with_barge_ins(seed, usize::MAX);
        let mut opening = Opening {
            // No other prompt begins like it.
            system: format!("{seed} {}", filler.system(words)),
            history: Vec::new(),
            reply_tokens: 1,
            patience: self.patience(),
        };
        if words == 0 {
            let pairs = filler.history(LOG_PAIRS * 70).into_iter().take(LOG_PAIRS);
            let short = |text: String| text.split(' ').take(ANSWER_WORDS).collect::<Vec<_>>().join(" ");
            opening.history = pairs.map(|(said, answered)| (said, short(answered))).collect();
        }
        let step = UserStep { says: filler.step(1).says, ..UserStep::default() };
        ChatPlayer::new(service, None, opening).await?.turn(service, 1, step).await
    }

    async fn is_killed(&self, service: &mut MeasuredService) -> Result<Vec<TurnCost>> {
        let mut filler = Filler::with_barge_ins(self.args.seed + 2, usize::MAX);
        let opening = self.opening(&mut filler, self.args.history);
        let mut player = RealtimePlayer::new(service, self.settings, None, opening).await?;
        let mut turns = Vec::new();
        for number in 1..=FEW {
            tokio::time::sleep(Duration::from_secs_f64(self.args.pause.max(WRITING_S))).await;
            let mut step = filler.step(1);
            if number == FEW {
                service.restart().await?;
                player.go_on(service, self.settings, self.patience()).await?;
                step.kind = TurnKind::Restart;
            }
            turns.push(player.turn(number, step, &mut |_| ()).await?);
        }
        player.close().await;
        Ok(turns)
    }
}

fn computed_note(computed: Option<f64>) -> String {
    computed.map_or_else(String::new, |tokens| format!("{tokens:.0} tokens computed"))
}

fn rate(speed: Option<&Value>, context: usize) -> Option<f64> {
    speed?["contexts"][context]["prefill_tokens_per_s"].as_f64()
}

fn step_ms(speed: Option<&Value>) -> Option<f64> {
    speed?["contexts"][0]["decode"][0]["ms_per_step"].as_f64()
}
