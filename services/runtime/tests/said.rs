//! Learning from sentences that people say, held out from rules and heads (tests/data/said), with words alone and by meaning.

use futures_util::future::{BoxFuture, FutureExt, ready};
use model::{Answer, Answerer, Counted, Measured, Model, ModelRequest, ModelStatus, PreparationMemory};
use runtime::{Attach, NewSession, Presets, Runtime, RuntimeParts, ToWrite, store_options};
use session::machine::Replay;
use session::{Delta, Event, Failure, Finish, Input, ItemBody, ItemPlace, NewItem, Prompt, Role};
use settings::Learn;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{RememberedFact, SessionRef, Store};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Model that finds nothing.
struct Silent;

impl Answerer for Silent {
    fn ask(&self, _: ModelRequest) -> Answer {
        let (writer, answer) = model::channel();
        writer.push(Delta::text("Nothing.", 1));
        writer.push(Delta::Done { finish: Finish::Stop, usage: None, report: None });
        answer
    }
    fn measure<'a>(&'a self, prompt: &'a Prompt, _: &'a settings::Preset) -> BoxFuture<'a, Result<Measured, Failure>> {
        ready(Ok(Measured { total: Counted::exactly(9), messages: vec![9; prompt.messages.len()] })).boxed()
    }
    fn status(&self) -> ModelStatus {
        ModelStatus::default()
    }
    fn shutdown(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}

struct Home {
    runtime: Runtime,
    store: Store,
    stopping: CancellationToken,
    _folder: TempDir,
}

impl Home {
    async fn open(encoder: &str) -> Home {
        let home = Home::silent(encoder).await;
        home.learn();
        home
    }

    /// Opens a home that hears what is said when a conversation begins, and not in the silence.
    async fn silent(encoder: &str) -> Home {
        let mut settings = settings::Settings::load(&settings::Sources::default()).expect("defaults").settings;
        settings.model.preset = "default".to_owned();
        settings.remember.encoder = encoder.to_owned();
        settings.remember.silence_s = 1;
        let folder = tempfile::tempdir().unwrap();
        settings.store.path = folder.path().join("store.sqlite3");
        let mut preset = settings.chosen().unwrap().clone();
        preset.remember.learn = Learn::Words;
        let model = Model::new(Silent, PreparationMemory::new(1 << 20, Duration::from_secs(1)));
        let presets = Presets::new(None, preset, "silent");
        let store = Store::open(&store_options(&settings), 1).await.unwrap();
        store.put_user("home", "Home", 1).await.unwrap();
        let settings = Arc::new(settings);
        let runtime = Runtime::new(RuntimeParts { settings, store: store.clone(), model, presets });
        Home { runtime, store, stopping: CancellationToken::new(), _folder: folder }
    }

    fn learn(&self) {
        let (learning, stop) = (self.runtime.clone(), self.stopping.clone());
        tokio::spawn(async move { learning.remember(stop).await });
    }

    /// Says a sentence in a conversation of its own.
    async fn say(&self, person: &str, sentence: &str) -> SessionRef {
        let new = NewSession { user: "home", person, ..NewSession::default() };
        let session = self.runtime.create(new).await.unwrap();
        let attach = Attach { replay: Replay::All, interest: Arc::new(|_| true), person: None, trace_parent: None };
        let (client, mut events) = self.runtime.attach(&session, attach).await.unwrap();
        let item = NewItem { id: None, body: ItemBody::message(Role::User, sentence) };
        client.say(None, Input::AddItem { item, place: ItemPlace::End }).await;
        // The item's event comes when it is stored.
        events.next().await;
        events.done(1);
        while self.store.newest_seq(&session).await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        session
    }

    /// Waits until all conversations were looked through.
    async fn learned(&self) {
        while self.store.silent_session(i64::MAX).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn facts(&self, person: &str) -> Vec<String> {
        let facts = self.store.facts("home", Some(person)).await.unwrap();
        facts.into_iter().filter(RememberedFact::holds).map(|fact| fact.text).collect()
    }

    async fn close(self) {
        self.stopping.cancel();
    }
}

struct Said {
    kind: String,
    sentence: String,
    before: Option<String>,
}

fn said(half: &str) -> Vec<Said> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/said").join(half);
    let lines = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let mut parts = line.split('\t').map(str::to_owned);
        Said { kind: parts.next().unwrap(), sentence: parts.next().unwrap(), before: parts.next() }
    };
    lines.lines().map(line).collect()
}

#[derive(Debug, Default)]
struct Tally {
    lasting: [usize; 2],
    passing: [usize; 2],
    corrected: [usize; 2],
    forgotten: [usize; 2],
    asked: [usize; 2],
    secrets: [usize; 2],
}

/// Tells each sentence in a conversation of its own, what it corrects or forgets before it, and counts what became of it. Ann corrects
/// and Ben forgets, so that none takes back what the other said.
async fn tally(home: &Home, half: &str) -> Tally {
    let all = said(half);
    let is_change = |kind: &str| ["correction", "forget"].contains(&kind);
    let teller = |kind: &str| if kind == "forget" { "ben" } else { "ann" };
    for Said { kind, sentence, before } in &all {
        match before {
            // As a person writes it down by hand: it is there, whatever words it has.
            Some(before) => drop(home.runtime.write_fact("home", teller(kind), before).await.unwrap()),
            None => drop(home.say("ann", sentence).await),
        }
        if ["person", "home"].contains(&kind.as_str()) {
            home.say("ben", sentence).await;
        }
    }
    home.learned().await;
    let told = home.facts("ann").await;
    for Said { kind, sentence, .. } in all.iter().filter(|said| is_change(&said.kind)) {
        home.say(teller(kind), sentence).await;
    }
    home.learned().await;
    let after = [home.facts("ann").await, home.facts("ben").await];
    let shows = std::env::var_os("SHOW_SAID").is_some();
    let mut tally = Tally::default();
    for Said { kind, sentence, before } in &all {
        let after = &after[usize::from(kind == "forget")];
        let is_told = is_among(sentence, &told);
        let is_gone = before.as_ref().is_some_and(|before| !after.contains(before));
        // A message of several sentences is kept in parts.
        let is_of_message =
            |fact: &String| is_among(sentence, std::slice::from_ref(fact)) || sentence.contains(fact.as_str());
        let is_new = after.iter().filter(|fact| Some(*fact) != before.as_ref()).any(is_of_message);
        let (count, is_right) = match kind.as_str() {
            "person" | "home" => (&mut tally.lasting, is_told),
            "passing" | "question" | "order" => (&mut tally.passing, !is_told),
            "correction" => (&mut tally.corrected, is_gone && is_new),
            "forget" => (&mut tally.forgotten, is_gone && !is_new),
            "remember" => (&mut tally.asked, is_told),
            _ => (&mut tally.secrets, !is_told),
        };
        count[0] += usize::from(is_right);
        count[1] += 1;
        if !is_right && shows {
            println!("{kind}: {sentence}  [{}] gone {is_gone} new {is_new}", before.as_deref().unwrap_or_default());
        }
    }
    tally
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_say_is_learned_by_meaning() {
    let Some(encoder) = encoder() else { return };
    let share = |[right, all]: [usize; 2]| right as f64 / all as f64;
    // What holds today of lasting and passing sentences, corrections, and wishes to forget.
    let mut halves = vec![
        ("closed.tsv".to_owned(), [0.9, 0.94, 0.8, 0.85]),
        ("second-closed.tsv".to_owned(), [0.9, 0.94, 0.8, 0.7]),
        ("third-closed.tsv".to_owned(), [0.9, 0.83, 0.75, 0.7]),
    ];
    if let Ok(half) = std::env::var("SAID") {
        halves = vec![(half, [0.0; 4])];
    }
    for (half, least) in halves {
        let home = Home::open("").await;
        let words = tally(&home, &half).await;
        home.close().await;
        let home = Home::open(&encoder.to_string_lossy()).await;
        let meaning = tally(&home, &half).await;
        home.close().await;
        println!("{half}, words: {words:?}\n{half}, meaning: {meaning:?}");
        let found = [meaning.lasting, meaning.passing, meaning.corrected, meaning.forgotten].map(share);
        assert!(found.iter().zip(least).all(|(found, least)| *found >= least), "{half}: {meaning:?}");
        // Heads on words keep most lasting facts alone; only the encoder finds the fact that a wish means.
        assert!(share(meaning.forgotten) > share(words.forgotten));
        assert!(share(words.lasting) >= 0.85 && share(words.passing) >= 0.75, "{half}: {words:?}");
    }
}

/// Tells sentences in languages that the encoder does not read: the heads on words learn facts from them.
#[tokio::test(flavor = "multi_thread")]
async fn what_people_say_in_other_languages_is_learned_by_words() {
    let encoder = std::env::var_os("REPRISE_ENCODER").map(PathBuf::from).unwrap_or_default();
    let home = Home::open(&encoder.to_string_lossy()).await;
    for (half, least) in [("languages.tsv", 0.7), ("languages-open.tsv", 0.8), ("languages-closed.tsv", 0.8)] {
        let languages = tally(&home, half).await;
        println!("{half}: {languages:?}");
        let [right, all] = languages.lasting;
        assert!(right as f64 >= all as f64 * least, "{half}: {languages:?}");
        assert!(languages.passing[0] + 1 >= languages.passing[1], "{half}: {languages:?}");
    }
    home.close().await;
}

/// Plays a household of three in loose words (`household.tsv`): what they tell, correct and take back. At the end their facts are
/// current, and no question finds what was forgotten, or what another person said.
#[tokio::test(flavor = "multi_thread")]
async fn a_household_of_three_is_known_as_it_is_now() {
    let Some(encoder) = encoder() else { return };
    // What holds today. Wanted: nine of ten.
    for (file, least, most_told) in [("household.tsv", 0.9, 0), ("household-closed.tsv", 0.7, 2)] {
        let Played { current, all, told_again } = play(&encoder, file).await;
        println!("{file}: {current} of {all} facts are current, told again {told_again:?}");
        assert!(current as f64 >= all as f64 * least, "{file}: {current} of {all}");
        assert!(told_again.len() <= most_told, "{file}: {told_again:?}");
    }
}

struct Played {
    current: usize,
    all: usize,
    // What was to be forgotten and is still there or told.
    told_again: Vec<String>,
}

async fn play(encoder: &Path, file: &str) -> Played {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/said").join(file);
    let played = std::fs::read_to_string(path).unwrap();
    let lines: Vec<Vec<&str>> = played.lines().map(|line| line.split('\t').collect()).collect();
    let persons: BTreeSet<&str> =
        lines.iter().filter(|line| line[0] == "say").map(|line| line[1]).chain([""]).collect();
    let home = Home::open(&encoder.to_string_lossy()).await;
    let is_known = |facts: &[String], words: &str| facts.iter().any(|fact| fact.contains(words));
    let (mut current, mut all, mut told_again) = (0, 0, Vec::new());
    for line in &lines {
        match line[..] {
            ["wait"] => home.learned().await,
            ["say", person, sentence] => drop(home.say(person, sentence).await),
            ["now", person, value, ref older @ ..] => {
                let facts = home.facts(person).await;
                let is_current = is_known(&facts, value) && !older.iter().any(|older| is_known(&facts, older));
                if !is_current {
                    println!("not current: {person} {value} {older:?}");
                }
                (current, all) = (current + usize::from(is_current), all + 1);
                for other in persons.iter().filter(|other| **other != person) {
                    assert!(!is_known(&home.facts(other).await, value), "{other} has what {person} said: {value}");
                }
            }
            ["gone", person, value] => {
                if is_known(&home.facts(person).await, value) {
                    told_again.push(format!("{person} {value}"));
                }
            }
            ["ask", person, question, never] => {
                let places = home.runtime.told_about("home", person, question, 5).await;
                let preset = home.runtime.presets().of_session("default", 0);
                let note = home.runtime.note_of_past("home", person, &preset, question, "").await.unwrap_or_default();
                let is_told = is_known(&places, never) || note.contains(never);
                let is_own = lines.iter().any(|line| line[0] == "say" && line[1] == person && line[2].contains(never));
                assert!(!is_told || is_own, "{person}: {question}: {places:?} {note}");
                if is_told {
                    told_again.push(format!("{person}: {question}"));
                }
            }
            _ => panic!("no line of a household: {line:?}"),
        }
    }
    home.close().await;
    Played { current, all, told_again }
}

/// Plays talk of which no sentence corrects another: statements take no fact away, and neither does a question.
#[tokio::test(flavor = "multi_thread")]
async fn talk_takes_no_fact_away() {
    let Some(encoder) = encoder() else { return };
    // What holds today. Wanted: no statement replaces another.
    for (file, most_replaced) in [("talk-open.tsv", 1), ("talk-closed.tsv", 3)] {
        let talk = talk_of(&encoder, file).await;
        println!("{file}: {talk:?}");
        assert_eq!(talk.gone_by_questions, 0, "{file}");
        assert!(talk.replaced <= most_replaced, "{file}: {talk:?}");
        let [kept, all] = talk.lasting;
        assert!(kept * 10 >= all * 9, "{file}: {talk:?}");
    }
}

#[derive(Debug, Default)]
struct Talk {
    lasting: [usize; 2],
    passing_kept: [usize; 2],
    replaced: usize,
    gone_by_questions: usize,
}

async fn talk_of(encoder: &Path, file: &str) -> Talk {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/said").join(file);
    let lines = std::fs::read_to_string(path).unwrap();
    let lines: Vec<[&str; 3]> =
        lines.lines().map(|line| line.split('\t').collect::<Vec<_>>().try_into().unwrap()).collect();
    let home = Home::open(&encoder.to_string_lossy()).await;
    let asks = |[kind, ..]: &&[&str; 3]| *kind == "ask";
    for [_, person, sentence] in lines.iter().filter(|line| !asks(line)) {
        home.say(person, sentence).await;
    }
    home.learned().await;
    let facts = home.store.facts("home", None).await.unwrap();
    let shows = std::env::var_os("SHOW_SAID").is_some();
    let mut talk = Talk::default();
    for [kind, _, sentence] in lines.iter().filter(|line| !asks(line)) {
        let fact = facts.iter().find(|fact| is_among(sentence, std::slice::from_ref(&fact.text)));
        let newer = fact.and_then(|fact| facts.iter().find(|other| Some(&other.id) == fact.replaced_by.as_ref()));
        let count = if *kind == "lasting" { &mut talk.lasting } else { &mut talk.passing_kept };
        *count = [count[0] + usize::from(fact.is_some()), count[1] + 1];
        talk.replaced += usize::from(newer.is_some() && *kind == "lasting");
        if shows && (fact.is_some() != (*kind == "lasting") || newer.is_some()) {
            println!("{kind}: {sentence} <- {:?}", newer.map(|newer| &newer.text));
        }
    }
    for [_, person, sentence] in lines.iter().filter(asks) {
        home.say(person, sentence).await;
    }
    home.learned().await;
    let after = home.store.facts("home", None).await.unwrap();
    let is_gone =
        |fact: &&RememberedFact| !after.iter().any(|after| after.id == fact.id && after.forgotten_at_ms.is_none());
    let gone: Vec<&RememberedFact> = facts.iter().filter(is_gone).collect();
    talk.gone_by_questions = gone.len();
    gone.iter().filter(|_| shows).for_each(|fact| println!("gone: {}", fact.text));
    home.close().await;
    talk
}

/// Tells what is so and what only sounds like it: from television, a book, a dream, a letter that is dictated.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_only_told_is_no_fact() {
    let Some(encoder) = encoder() else { return };
    // What holds today. Wanted: nine of ten.
    for (file, least) in
        [("heard-open.tsv", [0.85, 0.85]), ("heard-closed.tsv", [0.75, 0.75]), ("heard-second.tsv", [0.7, 0.5])]
    {
        let home = Home::open(&encoder.to_string_lossy()).await;
        let lines = lines(file);
        for line in &lines {
            home.say("ann", &line[1]).await;
        }
        home.learned().await;
        let facts = home.facts("ann").await;
        let of = |label: &str| lines.iter().filter(|line| line[0] == label).collect::<Vec<_>>();
        let is_right = |line: &&&Vec<String>| is_among(&line[1], &facts) == (line[0] == "fact");
        if file != "heard-second.tsv" {
            show(lines.iter().filter(|line| !is_right(&line)).map(|line| line.join(": ")));
        }
        for (label, least) in ["fact", "not"].into_iter().zip(least) {
            let (right, all) = (of(label).iter().filter(is_right).count(), of(label).len());
            println!("{file}: {label} {right} of {all}");
            assert!(right as f64 >= all as f64 * least, "{file}: {label} {right} of {all}");
        }
        home.close().await;
    }
}

/// Tells sentences that say several things, and later what makes one of them outdated: that one goes, and the others stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_correction_leaves_what_it_does_not_correct() {
    let Some(encoder) = encoder() else { return };
    // What holds today of what is outdated and of what still holds. Wanted: nine of ten.
    for (file, least) in [("compound-open.tsv", [0.85, 0.55]), ("compound-closed.tsv", [0.85, 0.6])] {
        let home = Home::open(&encoder.to_string_lossy()).await;
        let lines = lines(file);
        for line in &lines {
            home.say("ann", &line[0]).await;
        }
        home.learned().await;
        for line in &lines {
            home.say("ann", &line[1]).await;
        }
        home.learned().await;
        let facts = home.facts("ann").await;
        let (mut gone, mut stays) = ([0, 0], [0, 0]);
        for line in &lines {
            let [told, later, out, kept] = &line[..] else { panic!("{line:?}") };
            let is_of_told = |fact: &&String| !is_among(later, std::slice::from_ref(fact));
            let holds =
                |word: &str| facts.iter().filter(is_of_told).any(|fact| told_in(told, fact) && fact.contains(word));
            let (is_gone, is_kept) = (out == "-" || !holds(out), holds(kept));
            stays = [stays[0] + usize::from(is_kept), stays[1] + 1];
            if out != "-" {
                gone = [gone[0] + usize::from(is_gone), gone[1] + 1];
            }
            show(
                (!is_gone || !is_kept).then(|| format!("gone {is_gone} kept {is_kept}: {told} / {later}")).into_iter(),
            );
        }
        println!("{file}: gone {gone:?}, stays {stays:?}");
        for ([right, all], least) in [gone, stays].into_iter().zip(least) {
            assert!(right as f64 >= all as f64 * least, "{file}: gone {gone:?}, stays {stays:?}");
        }
        home.close().await;
    }
}

/// Looks which words have the day on which they were said behind them, where a later question needs it.
#[test]
fn words_of_a_day_have_it() {
    for (file, least) in [("when-open.tsv", 0.9), ("when-closed.tsv", 0.9)] {
        let lines = lines(file);
        let needs = |line: &&Vec<String>| line[2] == "yes";
        let has = |line: &&Vec<String>| remember::is_of_its_day(&line[0]);
        let all = lines.iter().filter(needs).count();
        let right = lines.iter().filter(needs).filter(has).count();
        show(lines.iter().filter(needs).filter(|line| !has(line)).map(|line| line[0].clone()));
        println!("{file}: {right} of {all}, besides {}", lines.iter().filter(|line| !needs(line) && has(line)).count());
        assert!(right as f64 >= all as f64 * least, "{file}: {right} of {all}");
    }
}

fn encoder() -> Option<PathBuf> {
    let encoder = std::env::var_os("REPRISE_ENCODER").map(PathBuf::from);
    if encoder.is_none() {
        assert!(std::env::var_os("REQUIRE_ENCODER").is_none(), "REPRISE_ENCODER names no folder of an encoder");
        println!("skipped: REPRISE_ENCODER names no folder of an encoder");
    }
    encoder
}

fn lines(file: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/said").join(file);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn show(lines: impl Iterator<Item = String>) {
    if std::env::var_os("SHOW_SAID").is_some() {
        lines.for_each(|line| println!("  {line}"));
    }
}

// True if facts have a message, one of its sentences or one of their clauses.
fn is_among(message: &str, facts: &[String]) -> bool {
    let plain = |text: &str| text.trim_end_matches(['.', ',']).to_owned();
    let mut parts: Vec<String> = vec![message.to_owned()];
    parts.extend(remember::sentences(message).into_iter().flat_map(remember::clauses));
    parts.iter().any(|part| facts.iter().any(|fact| fact.contains(&plain(part))))
}

// True if a fact has the words of a message, or of a clause of it.
fn told_in(message: &str, fact: &str) -> bool {
    let said: BTreeSet<&str> = message.split_whitespace().collect();
    let words: Vec<&str> = fact.split_whitespace().collect();
    words.iter().filter(|word| said.contains(*word)).count() * 10 >= words.len() * 7
}

/// Says a wish that may mean either of two facts: the service keeps both, and sends their ids to the client of that conversation.
#[tokio::test(flavor = "multi_thread")]
async fn a_wish_that_may_mean_two_facts_forgets_neither_and_asks() {
    let Some(encoder) = encoder() else { return };
    let home = Home::open(&encoder.to_string_lossy()).await;
    let facts = ["My sister Maya has migraines.", "My sister Lena has migraines."];
    for fact in facts {
        home.runtime.write_fact("home", "ann", fact).await.unwrap();
    }
    home.learned().await;
    let session =
        home.runtime.create(NewSession { user: "home", person: "ann", ..NewSession::default() }).await.unwrap();
    let attach = Attach { replay: Replay::All, interest: Arc::new(|_| true), person: None, trace_parent: None };
    let (client, mut events) = home.runtime.attach(&session, attach).await.unwrap();
    let wish = ItemBody::message(Role::User, "I'd rather you lost what I told you about my sister's migraines.");
    client.say(None, Input::AddItem { item: NewItem { id: None, body: wish }, place: ItemPlace::End }).await;
    let mut near = loop {
        let next = tokio::time::timeout(Duration::from_secs(60), events.next()).await;
        let Ok(ToWrite::Event(event)) = next else {
            panic!("the service sent no ids; Ann has the facts {:?}", home.facts("ann").await)
        };
        events.done(1);
        if let Event::FactUnsure { fact_id, near } = &*event {
            assert_eq!(*fact_id, None);
            break near.clone();
        }
    };
    let held = home.store.facts("home", Some("ann")).await.unwrap();
    let mut ids: Vec<String> = held.iter().filter(|fact| fact.holds()).map(|fact| fact.id.clone()).collect();
    ids.sort();
    near.sort();
    assert_eq!((home.facts("ann").await.len(), near), (2, ids));
    home.close().await;
}

/// Says a wish that only heads on words know: without an encoder it hides no message.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_encoder_only_words_hide_a_wish_to_forget() {
    let wish = "I'd rather you lost what I told you about the necklace.";
    assert!(matches!(remember::meant(wish, None), remember::Meant::Forget(_)) && remember::forgets(wish).is_none());
    let home = Home::open("").await;
    home.runtime.write_fact("home", "ann", "The necklace lies in the drawer.").await.unwrap();
    let said = home.say("ann", wish).await;
    home.learned().await;
    assert_eq!(home.facts("ann").await, ["The necklace lies in the drawer."]);
    assert_eq!(home.store.said_since(&said, 0, 8).await.unwrap().len(), 1);
    home.close().await;
}

/// A new conversation waits for what was said before it: no encoder is opened meanwhile, and a wish that words did not carry out is
/// left to the silence.
#[tokio::test(flavor = "multi_thread")]
async fn a_wish_to_forget_that_words_do_not_find_waits_for_the_silence() {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../engine/encoder/golden/tiny");
    for encoder in [tiny.to_str().unwrap(), ""] {
        let home = Home::silent(encoder).await;
        home.runtime.write_fact("home", "ann", "The necklace lies in the drawer.").await.unwrap();
        home.runtime.write_fact("home", "ann", "My locker has the number nine.").await.unwrap();
        let found = home.say("ann", "Forget that my locker has the number nine.").await;
        let missed = home.say("ann", "Forget the surprise for mother.").await;
        home.say("ann", "Good morning.").await;
        assert_eq!(home.facts("ann").await, ["The necklace lies in the drawer."]);
        let is_hidden = async |session| home.store.said_since(session, 0, 8).await.unwrap().is_empty();
        assert!(is_hidden(&found).await);
        assert_eq!(is_hidden(&missed).await, encoder.is_empty(), "{encoder:?}");
        home.learn();
        home.learned().await;
        assert!(is_hidden(&missed).await);
        home.close().await;
    }
}
