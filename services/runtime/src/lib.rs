//! Live sessions: each is one task that owns a machine, with a compactor beside it.
//!
//! - [`Runtime`] has the registry: it loads a session from the store when a client connects, and lets it leave memory
//!   when no client uses it.
//! - `task` gives whatever happens to the session's machine and carries out its outputs: `store_queue` writes to the
//!   store, `generations` asks the model, `connections` and `outgoing` queue events for clients.
//! - `prompts` lays out what the model reads; `look_back` and `recall` search the past; `memories` and `told_facts`
//!   choose the facts in the prompt; `remember` extracts new ones.
//! - `compactor` keeps the conversation within its window, by messages to and from the task.
//!
//! Invariants:
//! - One task a session: every client that connects to it, from wherever, finds the same one.
//! - Operations of a session reach the store in the order in which the machine gave them.
//! - The store gets words of a reply after they were written to a connection's socket.
//!
//! ```
//! use runtime::{Attach, NewSession, Presets, Runtime, RuntimeParts, ToWrite};
//! use session::machine::Replay;
//! use session::{Event, Input, ItemBody, ItemPlace, NewItem, Role};
//! use std::sync::Arc;
//! # use futures_util::future::{BoxFuture, FutureExt, ready};
//! # use model::{Answer, Answerer, Counted, Measured, Model, ModelRequest, ModelStatus, PreparationMemory};
//! # use session::{Delta, Failure, Finish, Prompt};
//! # use runtime::store_options;
//! # use store::Store;
//! # /// Model that greets.
//! # struct Greeter;
//! # impl Answerer for Greeter {
//! #     fn ask(&self, _: ModelRequest) -> Answer {
//! #         let (writer, answer) = model::channel();
//! #         writer.push(Delta::text("Good morning, Ada.", 4));
//! #         writer.push(Delta::Done { finish: Finish::Stop, usage: None, report: None });
//! #         answer
//! #     }
//! #     fn measure<'a>(&'a self, prompt: &'a Prompt, _: &'a settings::Preset) -> BoxFuture<'a, Result<Measured, Failure>> {
//! #         ready(Ok(Measured { total: Counted::exactly(9), messages: vec![9; prompt.messages.len()] })).boxed()
//! #     }
//! #     fn status(&self) -> ModelStatus { ModelStatus::default() }
//! #     fn shutdown(&self) -> BoxFuture<'_, ()> { ready(()).boxed() }
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut settings = settings::Settings::load(&settings::Sources::default()).expect("defaults").settings;
//! # settings.model.preset = "default".to_owned();
//! # let folder = tempfile::tempdir()?;
//! # settings.store.path = folder.path().join("store.sqlite3");
//! # let model = Model::new(Greeter, PreparationMemory::new(1 << 20, std::time::Duration::from_secs(1)));
//! # let presets = Presets::new(None, settings.chosen()?.clone(), "greeter");
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let store = Store::open(&store_options(&settings), 1).await?;
//! # store.put_user("ada", "Ada", 1).await?;
//! # let settings = Arc::new(settings);
//! let runtime = Runtime::new(RuntimeParts { settings, store, model, presets });
//! let session = runtime.create(NewSession { user: "ada", ..NewSession::default() }).await?;
//! let attach = Attach { replay: Replay::All, interest: Arc::new(|_| true), person: None, trace_parent: None };
//! let (client, mut events) = runtime.attach(&session, attach).await?;
//! let item = NewItem { id: None, body: ItemBody::message(Role::User, "Good morning.") };
//! client.say(None, Input::AddItem { item, place: ItemPlace::End }).await;
//! client.say(None, Input::Respond(Box::default())).await;
//! loop {
//!     let ToWrite::Event(event) = events.next().await else { panic!("the session ended") };
//!     events.done(1); // it has left for the network
//!     if let Event::ResponseDone { response } = &*event {
//!         assert_eq!(response.output[0].text(), "Good morning, Ada.");
//!         break;
//!     }
//! }
//! # Ok(())
//! # })
//! # }
//! ```

mod arms;
mod beside;
mod changes;
mod clock;
mod command;
mod compactor;
mod connections;
mod encode;
mod encoding;
mod error;
mod fact_block;
mod facts;
mod generations;
mod held;
mod load;
mod look_back;
mod looking;
mod memories;
mod message_index;
pub mod metrics;
mod near_facts;
mod near_messages;
mod once;
mod outgoing;
mod placement;
mod presets;
mod prompts;
mod recall;
mod registry;
mod remember;
mod say;
mod shared;
mod store_options;
mod store_queue;
mod task;
mod told_facts;
mod turn_log;
mod turn_traces;
mod word_weights;

pub use arms::{ArmTurns, turn_values};
pub use background::heavy;
pub use clock::wall_ms;
pub use compactor::WindowParts;
pub use connections::Interest;
pub use error::Error;
pub use fact_block::BlockFacts;
pub use facts::{fact_lines, facts_about, index_facts, write_fact};
pub use held::{HeldShare, HeldText};
pub use load::{random, session_id, wording};
pub use once::first_time;
pub use outgoing::{End, Outgoing, OutgoingLimits, ToWrite, Written, outgoing};
pub use placement::check as check_experiment;
pub use presets::{ModelChoice, Presets};
pub use prompts::limits_of;
pub use registry::{Attach, Connected, NewSession, Runtime, RuntimeParts};
pub use say::SessionAnswer;
pub use store_options::store_options;
