//! A session whose store is slow: a sleeper has the store's only place for searches for ten seconds. The clock is the test's
//! and stands still while the session works, so that a session that waited for its search would get no further.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use model::{Answer, Answerer, Counted, Measured, Model, ModelRequest, ModelStatus, PreparationMemory, Writer};
use runtime::{Attach, Connected, NewSession, Presets, Runtime, RuntimeParts, ToWrite, Written, store_options};
use session::machine::Replay;
use session::{
    ConversationChoice, Delta, Event, Failure, Finish, GenerationPurpose, Input, InputItem, ItemBody, ItemPlace,
    NewItem, NewTurn, Prompt, ResponseRequest, Role,
};
use settings::{Preset, Recall, Settings, Sources};
use std::sync::Arc;
use std::time::Duration;
use store::{HistorySearch, SearchPlace, Store};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

const SLEEP: Duration = Duration::from_secs(10);
const AT_ONCE: Duration = Duration::from_millis(1); // for words and barge-ins
// Real time after which the clock goes on, so that a session that waits for its search fails the test and does not hang it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Model whose replies the test writes.
struct Dictated(UnboundedSender<Writer>);

impl Answerer for Dictated {
    fn ask(&self, request: ModelRequest) -> Answer {
        let (writer, answer) = model::channel();
        if request.purpose == GenerationPurpose::Reply {
            // A test that has ended writes no replies.
            let _ = self.0.send(writer);
        } else {
            writer.push(Delta::Done { finish: Finish::Stop, usage: None, report: None });
        }
        answer
    }

    fn measure<'a>(&'a self, prompt: &'a Prompt, _: &'a Preset) -> BoxFuture<'a, Result<Measured, Failure>> {
        ready(Ok(Measured { total: Counted::exactly(9), messages: vec![9; prompt.messages.len()] })).boxed()
    }

    fn status(&self) -> ModelStatus {
        ModelStatus::default()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}

/// A clock that stands still until it is dropped. A paused clock goes on by itself when all tasks wait, but not while a thread
/// for blocking work has something to do.
struct StillClock {
    _end: std::sync::mpsc::Sender<()>,
}

impl StillClock {
    fn begin() -> StillClock {
        tokio::time::pause();
        let (end, ended) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || ended.recv_timeout(PATIENCE));
        StillClock { _end: end }
    }
}

fn sleep_in(store: &Store) {
    let store = store.clone();
    let mut sleeper = async move {
        let search = HistorySearch {
            user: "ada",
            place: SearchPlace::User,
            query: "anything",
            most_words: 8,
            any_word: true,
            statements: false,
            limit: 1,
            recent_ms: None,
            now_ms: 0,
            marks: ["", ""],
            excerpt_words: 1,
        };
        let mut search = store.search(&search).boxed();
        assert!((&mut search).now_or_never().is_none(), "a search waits for the database");
        tokio::time::sleep(SLEEP).await;
    }
    .boxed();
    assert!((&mut sleeper).now_or_never().is_none(), "the sleeper sleeps");
    tokio::spawn(sleeper);
}

struct Home {
    store: Store,
    client: Connected,
    events: Written,
    replies: UnboundedReceiver<Writer>,
    _runtime: Runtime,
    _folder: tempfile::TempDir,
}

impl Home {
    async fn open() -> Home {
        let mut settings = Settings::load(&Sources::default()).expect("defaults").settings;
        let folder = tempfile::tempdir().unwrap();
        settings.model.preset = "default".to_owned();
        settings.store.path = folder.path().join("store.sqlite3");
        settings.store.readers = 2;
        settings.conversation.recall_wait_ms = 3_600_000;
        let mut preset = settings.chosen().unwrap().clone();
        preset.recall = Recall::Auto;
        let (replies_to, replies) = mpsc::unbounded_channel();
        let model = Model::new(Dictated(replies_to), PreparationMemory::new(1 << 20, Duration::from_secs(1)));
        let presets = Presets::new(None, preset, "dictated");
        let store = Store::open(&store_options(&settings), 1).await.unwrap();
        store.put_user("ada", "Ada", 1).await.unwrap();
        let runtime = Runtime::new(RuntimeParts { settings: Arc::new(settings), store: store.clone(), model, presets });
        let new = NewSession { user: "ada", person: "ann", ..NewSession::default() };
        let session = runtime.create(new).await.unwrap();
        let attach = Attach { replay: Replay::All, interest: Arc::new(|_| true), person: None, trace_parent: None };
        let (client, events) = runtime.attach(&session, attach).await.unwrap();
        Home { store, client, events, replies, _runtime: runtime, _folder: folder }
    }

    async fn say(&self, input: Input) {
        assert!(self.client.say(None, input).await, "the session goes on");
    }

    /// Waits for an event, and returns it with the responses that were started until then.
    async fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> (Arc<Event>, Vec<String>) {
        let mut started = Vec::new();
        loop {
            let ToWrite::Event(event) = self.events.next().await else { panic!("the session ended") };
            self.events.done(1);
            if let Event::ResponseStarted { response } = &*event {
                started.push(response.id.clone());
            }
            if wanted(&event) {
                return (event, started);
            }
        }
    }

    /// Lets the model begin a story beside the conversation.
    async fn begin_story(&mut self) -> (String, Writer) {
        let input = Some(vec![InputItem::Item(said("Tell me a story."))]);
        let request = ResponseRequest { conversation: ConversationChoice::None, input, ..ResponseRequest::default() };
        self.say(Input::Respond(Box::new(request))).await;
        let writer = self.replies.recv().await.unwrap();
        writer.push(Delta::text("Once upon", 2));
        let (_, started) = self.until(|event| is_text(event, "Once upon")).await;
        (started[0].clone(), writer)
    }
}

fn said(text: &str) -> NewItem {
    NewItem { id: None, body: ItemBody::message(Role::User, text) }
}

fn is_text(event: &Event, words: &str) -> bool {
    matches!(event, Event::TextDelta { text, .. } if text == words)
}

#[tokio::test]
async fn words_and_barge_ins_are_handled_within_a_millisecond_while_the_store_sleeps() {
    let mut home = Home::open().await;
    let (stopped, _stopped_writer) = home.begin_story().await;
    let (_, story) = home.begin_story().await;
    let _clock = StillClock::begin();
    let begin = Instant::now();
    sleep_in(&home.store);
    home.say(Input::AddItem { item: said("Where does my sister live?"), place: ItemPlace::End }).await;
    // Words that the store does not have yet are looked for nowhere.
    home.until(|event| matches!(event, Event::ItemAdded { .. })).await;
    home.say(Input::Respond(Box::default())).await;

    // The session takes this one behind the question: by then the question's search has begun.
    home.say(Input::CancelResponse { response_id: Some(stopped.clone()) }).await;
    let is_stopped = |event: &Event| matches!(event, Event::ResponseDone { response } if response.id == stopped);
    let (_, started) = home.until(is_stopped).await;
    assert!(begin.elapsed() <= AT_ONCE, "a cancel waited {:?} for the store", begin.elapsed());
    assert!(started.is_empty(), "the reply waits for its search");
    story.push(Delta::text(" a time", 2));
    let (_, started) = home.until(|event| is_text(event, " a time")).await;
    assert!(begin.elapsed() <= AT_ONCE, "words waited {:?} for the store", begin.elapsed());
    assert!(started.is_empty() && home.replies.is_empty(), "the reply waits for its search");

    let turn = NewTurn { interrupts: true, items: vec![said("Stop.")], ..NewTurn::default() };
    home.say(Input::TakeTurn(Box::new(turn))).await;
    // The question's reply begins, so that it can end.
    let mut answer = home.replies.recv().await.unwrap();
    while answer.is_cancelled() {
        answer = home.replies.recv().await.unwrap();
    }
    answer.push(Delta::text("Very well.", 3));
    let (_, started) = home.until(|event| is_text(event, "Very well.")).await;
    assert!(begin.elapsed() <= AT_ONCE, "a barge-in waited {:?} for the store", begin.elapsed());
    assert_eq!(started.len(), 2, "the question's reply and the barge-in's");
}
