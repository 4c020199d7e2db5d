//! Recall of sixty days of a household, by words alone and by meaning.

use super::BenchOutput;
use super::household::{Home, PATIENCE, USER};
use crate::ab::ReplayPlayer;
use crate::dice::Dice;
use crate::remembered::{DayTalk, MemoryQuestion, QuestionShape, RememberedDays, SPEAKERS, everyday, remembered_days};
use anyhow::{Context, Result, bail};
use experiment::median;
use futures_util::future::try_join_all;
use indicatif::ProgressBar;
use runtime::{NewSession, wall_ms};
use serde::Serialize;
use serde_json::{Value, json};
use session::{Item, ItemPlace, Role, SessionConfig};
use settings::{KeptConversations, Learn, Recall, Settings};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::{Placement, SessionRecord, Store, new_id};
use terminal::output::progress_bar;
use tokio_util::sync::CancellationToken;

/// Measures what is found of sixty days of a household: answers among the first five places, updates, what was never said
///
/// Three people tell what they know of twelve others and correct some of it. Then each question is looked up as the tool
/// `recall` does, and as the service does before a reply. The first row has words alone, the second words and meaning,
/// with the sentence encoder.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(long, default_value_t = 500)]
    questions: usize,
    /// Conversations of the days that are played [default: all]
    #[arg(long)]
    talks: Option<usize>,
    /// Folder of the sentence encoder [default: `remember.encoder`]
    #[arg(long)]
    encoder: Option<PathBuf>,
    /// Messages of everyday talk that the store has besides
    #[arg(long, default_value_t = 0)]
    messages: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: BenchOutput,
}

const PLACES: u32 = 5;
const REPLY_TOKENS: u32 = 8;
const MOST_LISTED: usize = 20;
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Default, Serialize)]
struct MemoryRow {
    by: &'static str,
    facts: usize,
    /// Shares of questions: the answer is among the first five places; the newest comes and no older one, and comes before any
    /// older one; the answer's note has it, and is empty where nothing was said.
    recall_at_5: f64,
    single: f64,
    several: f64,
    time: f64,
    update: f64,
    newest: f64,
    newest_first: f64,
    noted: f64,
    refused: f64,
    /// Others' values that a lookup could have shown, and those that it showed.
    tries: usize,
    leaks: usize,
    ms: f64,
    ms_p95: f64,
    #[serde(skip)]
    missed: Vec<String>,
}

pub async fn run(args: &Args, settings: &Settings) -> Result<()> {
    let rows = measure(args, settings).await?;
    let missed: Vec<Value> = rows.iter().map(|row| json!({ "by": row.by, "missed": row.missed })).collect();
    let table = json!(rows);
    let measured = json!({
        "bench": "memory", "seed": args.seed, "questions": args.questions, "rows": table, "missed": missed,
    });
    args.output.tell(&measured, &[&table], &[])
}

async fn measure(args: &Args, settings: &Settings) -> Result<Vec<MemoryRow>> {
    let mut days = remembered_days(args.seed, args.questions);
    if let Some(most) = args.talks {
        days.cut(most);
    }
    let encoder = args.encoder.as_ref().map(|folder| folder.to_string_lossy().into_owned());
    let encoder = encoder.unwrap_or_else(|| settings.remember.encoder.clone());
    let steps = 2 * (days.talks.len() + 2 * days.questions.len()) as u64;
    let bar = progress_bar(steps, "step {pos} of {len} [{bar:40}] {eta} left");
    let mut rows = vec![look_up_all("words", "", &days, args.messages, settings, &bar).await?];
    if !encoder.is_empty() {
        rows.push(look_up_all("meaning", &encoder, &days, args.messages, settings, &bar).await?);
    }
    bar.finish_and_clear();
    Ok(rows)
}

async fn look_up_all(
    by: &'static str,
    encoder: &str,
    days: &RememberedDays,
    messages: usize,
    settings: &Settings,
    bar: &ProgressBar,
) -> Result<MemoryRow> {
    let mut settings = settings.clone();
    settings.remember.conversations = KeptConversations::Named;
    settings.remember.encoder = encoder.to_owned();
    settings.remember.silence_s = 1;
    // The days and the talk besides are stored in seconds, and all of it is found by meaning.
    (settings.limits.user_bytes, settings.limits.user_bytes_per_minute) = (0, 0);
    settings.remember.messages += messages;
    if let Some(preset) = settings.presets.get_mut("default") {
        (preset.remember.learn, preset.recall) = (Learn::Words, Recall::Auto);
    }
    let home = Home::open(None, settings).await?;
    for (number, talk) in days.talks.iter().enumerate() {
        say(&home, number, talk).await?;
        bar.inc(1);
    }
    let stopping = CancellationToken::new();
    let learning = tokio::spawn({
        let (runtime, stopping) = (home.runtime.clone(), stopping.clone());
        async move { runtime.remember(stopping).await }
    });
    let begin = Instant::now();
    while home.store.silent_session(i64::MAX).await?.is_some() {
        if begin.elapsed() > PATIENCE {
            bail!("the service did not look through all conversations in {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
    stopping.cancel();
    learning.await.context("the service stopped learning")?;
    fill(&home.store, messages).await?;
    home.runtime.index_messages(i64::MAX).await?;
    let mut tally = MemoryTally::default();
    for question in &days.questions {
        for person in asker_and_another(question.person) {
            let begin = Instant::now();
            let places = home.runtime.told_about(USER, person, &question.asks, PLACES).await;
            let wait = begin.elapsed();
            let note = home.runtime.note_of_past(USER, person, &home.preset, &question.asks, "").await;
            tally.add(question, person, &places, note.as_deref().unwrap_or_default(), wait, days);
            bar.inc(1);
        }
    }
    let facts = home.store.facts(USER, None).await?.iter().filter(|fact| fact.holds()).count();
    home.stop().await?;
    Ok(tally.row(by, facts))
}

/// Stores everyday messages of all speakers, in conversations of a thousand.
async fn fill(store: &Store, messages: usize) -> Result<()> {
    let mut dice = Dice(7);
    for (number, start) in (0..messages).step_by(MESSAGES_OF_A_TALK).enumerate() {
        let now_ms = wall_ms();
        let new = SessionRecord {
            user: USER.to_owned(),
            person: SPEAKERS[number % SPEAKERS.len()].to_owned(),
            room: String::new(),
            is_remembered: true,
            is_of_household: false,
            told_facts: None,
            created_at_ms: now_ms,
            updated_at_ms: now_ms,
            id: new_id("sess")?,
            placement: Placement { preset: "default".into(), ctx_size: 1000, experiment: None, arm: None },
            title: format!("talk {number}"),
            config: SessionConfig::new(""),
            metadata: None,
        };
        let session = store.create_session(new).await?;
        let count = MESSAGES_OF_A_TALK.min(messages - start);
        let item = |_| -> Result<Item> { Ok(Item::message(new_id("item")?, Role::User, everyday(&mut dice))) };
        let items: Vec<Item> = (0..count).map(item).collect::<Result<_>>()?;
        let appended = items.into_iter().map(|item| store.append(&session, item, ItemPlace::End, now_ms));
        try_join_all(appended).await?;
    }
    Ok(())
}

const MESSAGES_OF_A_TALK: usize = 1000;

async fn say(home: &Home, number: usize, talk: &DayTalk) -> Result<()> {
    let new = NewSession { user: USER, person: talk.person, model: &home.preset.name, ..NewSession::default() };
    let mut player = ReplayPlayer::begin_session(&home.runtime, new, PATIENCE).await?;
    for (turn, says) in talk.says.iter().enumerate() {
        let reply = player.turn(&format!("said_{number}_{turn}"), says, false, Some(REPLY_TOKENS)).await?;
        if let Some(failed) = reply.failed {
            bail!("{says:?} was not answered: {failed}");
        }
    }
    Ok(())
}

/// Lists the person that a question is of, and another one, whom its answer must not reach.
fn asker_and_another(person: &'static str) -> [&'static str; 2] {
    let at = SPEAKERS.iter().position(|speaker| *speaker == person).unwrap_or_default();
    [person, SPEAKERS[(at + 1) % SPEAKERS.len()]]
}

#[derive(Default)]
struct MemoryTally {
    found: BTreeMap<QuestionShape, [usize; 2]>,
    newest: [usize; 2],
    newest_first: [usize; 2],
    noted: [usize; 2],
    refused: [usize; 2],
    tries: usize,
    leaks: usize,
    waits_ms: Vec<f64>,
    missed: Vec<String>,
}

impl MemoryTally {
    fn add(
        &mut self,
        question: &MemoryQuestion,
        person: &str,
        places: &[String],
        note: &str,
        wait: Duration,
        days: &RememberedDays,
    ) {
        let shown =
            |value: &String| note.contains(value.as_str()) || places.iter().any(|place| place.contains(value.as_str()));
        let foreign = days.foreign_to(person);
        self.tries += foreign.len();
        self.leaks += foreign.iter().filter(|value| shown(value)).count();
        self.waits_ms.push(wait.as_secs_f64() * 1000.0);
        if person != question.person {
            return;
        }
        let is_right = match question.shape {
            QuestionShape::Never => {
                count(&mut self.refused, note.is_empty());
                note.is_empty()
            }
            shape => {
                let is_found =
                    question.right.iter().all(|value| places.iter().any(|place| place.contains(value.as_str())));
                count(self.found.entry(shape).or_default(), is_found);
                count(&mut self.noted, question.right.iter().all(|value| note.contains(value.as_str())));
                let has_older = question.older.iter().any(shown);
                if shape == QuestionShape::Update {
                    count(&mut self.newest, is_found && !has_older);
                    let place_of = |value: &String| places.iter().position(|place| place.contains(value.as_str()));
                    let older = question.older.iter().filter_map(place_of).min().unwrap_or(places.len());
                    count(&mut self.newest_first, question.right.iter().filter_map(place_of).any(|at| at < older));
                }
                is_found && !has_older
            }
        };
        if !is_right && self.missed.len() < MOST_LISTED {
            let first = places.first().map_or(note, |place| place.as_str());
            self.missed.push(format!("{person}: {} {:?}: {first}", question.asks, question.right));
        }
    }

    fn row(mut self, by: &'static str, facts: usize) -> MemoryRow {
        let of = |shape| self.found.get(&shape).copied().unwrap_or_default();
        let all = self.found.values().fold([0, 0], |sum, count| [sum[0] + count[0], sum[1] + count[1]]);
        use QuestionShape::{Several, Single, Time, Update};
        let [single, several, time, update] = [Single, Several, Time, Update].map(|shape| share(of(shape)));
        self.waits_ms.sort_by(f64::total_cmp);
        let p95 = self.waits_ms.get(self.waits_ms.len() * 95 / 100).copied().unwrap_or_default();
        MemoryRow {
            by,
            facts,
            recall_at_5: share(all),
            single,
            several,
            time,
            update,
            newest: share(self.newest),
            newest_first: share(self.newest_first),
            noted: share(self.noted),
            refused: share(self.refused),
            tries: self.tries,
            leaks: self.leaks,
            ms: median(self.waits_ms.iter().copied()).unwrap_or_default(),
            ms_p95: p95,
            missed: self.missed,
        }
    }
}

fn count(of: &mut [usize; 2], is_right: bool) {
    of[0] += usize::from(is_right);
    of[1] += 1;
}

fn share([right, all]: [usize; 2]) -> f64 {
    (right as f64 / all.max(1) as f64 * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_said_is_found_and_what_another_said_is_not() {
        let settings = Settings::load(&settings::Sources::default()).unwrap().settings;
        let encoder = std::env::var_os("REPRISE_ENCODER").map(PathBuf::from);
        let output = BenchOutput { json: false, plot: None };
        let args = Args { questions: 100, talks: Some(60), encoder: encoder.clone(), messages: 500, seed: 3, output };
        let mut settings = settings;
        settings.remember.encoder = String::new();
        let rows = measure(&args, &settings).await.unwrap();
        assert_eq!(rows.len(), 1 + usize::from(encoder.is_some()));
        for row in &rows {
            assert!(row.tries > 1000 && row.leaks == 0, "{row:?}");
            // What holds today for words alone.
            assert!(row.recall_at_5 >= 0.7, "{row:#?}");
        }
        if let [words, meaning] = &rows[..] {
            assert!(meaning.recall_at_5 >= words.recall_at_5, "{rows:#?}");
        }
    }
}
