//! Memory of a home's assistant: the next conversation must know facts of an earlier one, and none that was corrected,
//! taken back, or told by another person.

use super::BenchOutput;
use crate::ab::ReplayPlayer;
use crate::household::{HomeQuestion, household};
use anyhow::{Context, Result};
use futures_util::future::{BoxFuture, FutureExt, ready};
use model::{Answer, Answerer, Counted, Measured, Model, ModelRequest, ModelStatus, PreparationMemory, channel_for};
use runtime::{NewSession, Presets, Runtime, RuntimeParts, wall_ms};
use serde_json::json;
use session::sentences::SentenceLimits;
use session::{Delta, Failure, Finish, GenerationPurpose, Message, Priority, Prompt, TurnReport, Usage};
use settings::{KeptConversations, Preset, Settings};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Store, StoreOptions};
use terminal::output::progress_bar;
use tokio::time::Instant;

/// Measures what a home's assistant remembers from one conversation to the next
///
/// Three people in two rooms tell, correct and take back facts in 30 conversations and ask for them later. Without
/// --model the prompts themselves are checked: a model that reads well can answer from them. With --model its answers
/// are.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A preset, GGUF file or folder that answers [default: none, the prompts are checked]
    #[arg(long)]
    model: Option<String>,
    #[arg(long, default_value_t = 30)]
    talks: usize,
    /// Number of times that another's fact could have leaked, after which the questions end
    #[arg(long, default_value_t = 500)]
    tries: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: BenchOutput,
}

pub const USER: &str = "home";
pub const PATIENCE: Duration = Duration::from_secs(600);
const REPLY_TOKENS: u32 = 48;

#[derive(Debug, Default)]
struct HouseholdTally {
    /// Facts in questions of a later conversation, and those that the model saw.
    asked: usize,
    in_block: usize,
    in_note: usize,
    missed: Vec<String>,
    /// Questions in which a wrong or forgotten fact was shown.
    wrong: Vec<String>,
    /// Times in which another's fact could have been shown, and was.
    tries: usize,
    foreign: Vec<String>,
    talks: usize,
    turns: usize,
    notes_for_nothing: usize,
}

pub async fn run(args: &Args, settings: &Settings) -> Result<()> {
    let (tally, learned) = play(args, settings).await?;
    let known = tally.in_block + tally.in_note;
    let measured = json!({
        "measured": if args.model.is_some() { "answers" } else { "prompts" },
        "model": args.model, "seed": args.seed, "conversations": tally.talks, "turns": tally.turns,
        "facts_learned": learned, "asked": tally.asked, "known": known,
        "known_share": known as f64 / tally.asked.max(1) as f64,
        "in_the_block": tally.in_block, "in_a_note_or_answer": tally.in_note,
        "wrong_or_forgotten_shown": tally.wrong.len(), "tries_of_others_facts": tally.tries,
        "others_facts_shown": tally.foreign.len(), "notes_where_nothing_is_asked": tally.notes_for_nothing,
        "missed": tally.missed, "wrong": tally.wrong, "foreign": tally.foreign,
    });
    args.output.tell(&measured, &[], &[])
}

async fn play(args: &Args, settings: &Settings) -> Result<(HouseholdTally, usize)> {
    let mut settings = settings.clone();
    settings.remember.conversations = KeptConversations::Named;
    let home = Home::open(args.model.as_deref(), settings).await?;
    let talks = household(args.seed, args.talks, args.tries);
    let turns = talks.iter().map(|talk| talk.turns.len() as u64).sum();
    let bar = progress_bar(turns, "turn {pos} of {len} [{bar:40}] {eta} left");
    let mut tally = HouseholdTally::default();
    for (number, talk) in talks.iter().enumerate() {
        let new = NewSession {
            user: USER,
            person: talk.person,
            room: talk.room,
            model: &home.preset.name,
            ..NewSession::default()
        };
        let mut player = ReplayPlayer::begin_session(&home.runtime, new, PATIENCE).await?;
        for (turn, said) in talk.turns.iter().enumerate() {
            let reply = player.turn(&format!("said_{number}_{turn}"), &said.says, false, Some(REPLY_TOKENS)).await?;
            if let Some(failed) = reply.failed {
                anyhow::bail!("{:?} was not answered: {failed}", said.says);
            }
            let shown = home.shown(&reply.text);
            tally.turn(&format!("day {}, {}: {}", talk.day, talk.person, said.says), said.asks.as_ref(), &shown);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let learned = home.store.facts(USER, None).await?.len();
    home.stop().await?;
    tally.talks = talks.len();
    Ok((tally, learned))
}

struct ShownToModel {
    block: String,
    note: String,
    all: String,
}

impl HouseholdTally {
    fn turn(&mut self, place: &str, asks: Option<&HomeQuestion>, shown: &ShownToModel) {
        self.turns += 1;
        let Some(asks) = asks else {
            self.notes_for_nothing += usize::from(!shown.note.is_empty());
            return;
        };
        self.tries += asks.foreign.len();
        self.foreign.extend(
            asks.foreign.iter().filter(|value| has(&shown.all, value)).map(|value| format!("{place} ({value})")),
        );
        if asks.is_fresh {
            return;
        }
        self.wrong
            .extend(asks.wrong.iter().filter(|value| has(&shown.all, value)).map(|value| format!("{place} ({value})")));
        let Some(right) = &asks.right else { return };
        self.asked += 1;
        if has(&shown.block, right) {
            self.in_block += 1;
        } else if has(&shown.note, right) || has(&shown.all, right) {
            self.in_note += 1;
        } else {
            self.missed.push(format!("{place} ({right})"));
        }
    }
}

fn has(text: &str, value: &str) -> bool {
    text.to_lowercase().contains(&value.to_lowercase())
}

/// The service without its doors, in a home whose people are known.
pub struct Home {
    pub store: Store,
    model: Model,
    pub runtime: Runtime,
    pub preset: Preset,
    heading: String,
    note: String,
    prompts: Option<Arc<Mutex<Prompt>>>, // the last prompt; `None`: a model answers
    _folder: tempfile::TempDir,
}

impl Home {
    pub async fn open(model: Option<&str>, mut settings: Settings) -> Result<Home> {
        let folder = tempfile::tempdir().context("cannot make a folder for the store")?;
        settings.conversation.recall_wait_ms = PATIENCE.as_millis() as u64;
        settings.memory.disk_path = None;
        settings.experiment = None;
        let prompts = model.is_none().then(Arc::<Mutex<Prompt>>::default);
        let (model, presets, settings) = match (model, &prompts) {
            (Some(name), _) => {
                let is_preset = settings.presets.contains_key(name);
                settings.model.preset = if is_preset { name.to_owned() } else { "default".to_owned() };
                if !is_preset && let Some(preset) = settings.presets.get_mut("default") {
                    preset.source.path = Some(name.into());
                }
                let started = Model::start(&settings).await?;
                let chosen = started.settings.chosen()?.clone();
                (started.model, Presets::new(started.presets, chosen, &started.name), started.settings)
            }
            (None, prompts) => {
                settings.model.preset = "default".to_owned();
                let chosen = settings.chosen()?.clone();
                let reader = PromptReader { seen: prompts.clone().unwrap_or_default() };
                let model = Model::new(reader, PreparationMemory::new(1 << 30, PATIENCE));
                (model, Presets::new(Vec::new(), chosen, "reader"), settings)
            }
        };
        let preset = settings.chosen()?.clone();
        let path = folder.path().join("store.sqlite3");
        let options = StoreOptions { path, check_at_start: false, ..runtime::store_options(&settings) };
        let store = Store::open(&options, wall_ms()).await?;
        store.put_user(USER, USER, wall_ms()).await?;
        let (heading, note) = (settings.remember.heading.clone(), settings.conversation.recall_note.clone());
        let settings = Arc::new(settings);
        let runtime = Runtime::new(RuntimeParts { settings, store: store.clone(), model: model.clone(), presets });
        Ok(Home { store, model, runtime, preset, heading, note, prompts, _folder: folder })
    }

    /// Returns the parts of the prompt behind a reply; of a model only its words count.
    fn shown(&self, reply: &str) -> ShownToModel {
        let Some(prompts) = &self.prompts else {
            return ShownToModel { block: String::new(), note: String::new(), all: reply.to_owned() };
        };
        let prompt = prompts.lock().map(|prompt| prompt.clone()).unwrap_or_default();
        let texts: Vec<String> = prompt.messages.iter().map(Message::text).collect();
        let with = |mark: &str| texts.iter().filter(|text| text.contains(mark)).cloned().collect::<Vec<_>>().join("\n");
        ShownToModel { block: with(&self.heading), note: with(&self.note), all: texts.join("\n") }
    }

    pub async fn stop(self) -> Result<()> {
        self.runtime.drain(Instant::now()).await;
        self.model.shutdown().await;
        Ok(self.store.close().await?)
    }
}

struct PromptReader {
    seen: Arc<Mutex<Prompt>>,
}

impl Answerer for PromptReader {
    fn ask(&self, request: ModelRequest) -> Answer {
        let limits = SentenceLimits { first_clause_chars: 24, max_sentence_chars: 320 };
        let (writer, answer) = channel_for(&request, limits);
        let is_reply = request.purpose == GenerationPurpose::Reply && request.priority == Priority::Talk;
        if is_reply && let Ok(mut seen) = self.seen.lock() {
            *seen = request.prompt;
        }
        writer.push(Delta::text("Very well.", 2));
        let finish = if request.purpose == GenerationPurpose::Reply { Finish::Stop } else { Finish::Warm };
        writer.push(Delta::Done { finish, usage: Some(Usage::default()), report: Some(TurnReport::default()) });
        answer
    }

    fn measure<'a>(&'a self, prompt: &'a Prompt, _: &'a Preset) -> BoxFuture<'a, Result<Measured, Failure>> {
        let messages: Vec<u64> = prompt.messages.iter().map(|message| message.text().len() as u64 / 4 + 4).collect();
        ready(Ok(Measured { total: Counted::exactly(messages.iter().sum()), messages })).boxed()
    }

    fn status(&self) -> ModelStatus {
        ModelStatus { ready: true, model: "reader".into(), ..ModelStatus::default() }
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_home_knows_what_was_told_and_nothing_else() {
        for seed in [1, 4, 5] {
            let settings = Settings::load(&settings::Sources::default()).unwrap().settings;
            let args =
                Args { model: None, talks: 30, tries: 500, seed, output: BenchOutput { json: false, plot: None } };
            let (tally, _) = play(&args, &settings).await.unwrap();
            assert!(tally.asked >= 40, "{}", tally.asked);
            let known = tally.in_block + tally.in_note;
            assert!(known * 100 >= tally.asked * 95, "{known} of {}: {:#?}", tally.asked, tally.missed);
            assert_eq!(tally.wrong, Vec::<String>::new());
            assert!(tally.tries >= 500);
            assert_eq!(tally.foreign, Vec::<String>::new());
        }
    }
}
