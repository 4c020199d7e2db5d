//! The heart of the service: the words that clients, sessions and models exchange, and the pure machine of a turn.
//!
//! - The vocabulary is one page of plain data. A door parses a message to an [`Input`] and renders each [`Event`]; a
//!   model reads a [`Prompt`] and gives [`Delta`]s; the store keeps [`Item`]s.
//! - [`machine`] decides what a turn does. It takes one [`MachineInput`](machine::MachineInput) at a time and returns
//!   [`Output`](machine::Output)s: events for clients, operations for the store, requests to the model.
//! - [`sentences`] cuts a reply where a voice may begin to speak it; [`speech`] estimates how much of it was heard.
//!
//! The machine does no work: its caller carries out the outputs, and tells it the result as the next input. It knows
//! no protocol, JSON, clock, socket, task or SQL, so that a test plays client, store and model in a few lines:
//!
//! ```
//! use session::machine::*;
//! use session::*;
//! use std::collections::VecDeque;
//!
//! # let limits = MachineLimits {
//! #     session_items: 50, told_items: 50, session_bytes: 10_000, responses_beside: 2, outbox_steps: 200,
//! #     speculate_ms: None, early_ms: None, recalls: 0, resume_ms: 0,
//! # };
//! # let start = Start {
//! #     session_id: "sess_1".into(), conversation_id: "conv_1".into(), model: "m".into(),
//! #     config: SessionConfig::new("Be brief."), items: Vec::new(), leading: 0, context: Context::default(), limits,
//! #     words_per_minute: 170, backchannels: Vec::new(), id_seed: 7,
//! # };
//! let mut machine = Machine::new(start);
//! let conn = ConnId(1);
//! let item = NewItem { id: None, body: ItemBody::message(Role::User, "Good morning.") };
//! let says = |input| MachineInput::Said { conn, input_id: None, input };
//! let mut inputs = VecDeque::from([
//!     MachineInput::Attached { conn, replay: Replay::All },
//!     says(Input::AddItem { item, place: ItemPlace::End }),
//!     says(Input::Respond(Box::default())),
//! ]);
//! let mut heard = Vec::new();
//! while let Some(input) = inputs.pop_front() {
//!     let mut outputs = Vec::new();
//!     machine.handle(input, 0, &mut outputs);
//!     for output in outputs {
//!         match output {
//!             Output::Send { event, .. } => heard.push(event),
//!             Output::Store { id, .. } => inputs.push_back(MachineInput::StoreAcked { op: id }),
//!             // The journal answers before anything else happens.
//!             Output::Words { .. } => inputs.push_front(MachineInput::WordsWritten),
//!             Output::Generate(asked) => {
//!                 let done = Delta::Done { finish: Finish::Stop, usage: None, report: None };
//!                 for delta in [Delta::text("Hello.", 1), done] {
//!                     inputs.push_back(MachineInput::Delta { generation: asked.generation, delta });
//!                 }
//!             }
//!             _ => {}
//!         }
//!     }
//! }
//! let Some(Event::ResponseDone { response }) = heard.last() else { panic!("{heard:?}") };
//! assert_eq!(response.output[0].text(), "Hello.");
//! ```

mod config;
mod context;
mod delta;
mod event;
mod ids;
mod item;
pub mod machine;
mod response;
pub mod sentences;
mod speaker;
pub mod speech;
mod vocabulary;

pub use context::Context;
pub use ids::{HIDDEN, Ids, NOTE_OF_PAST, is_hidden_id};
pub use vocabulary::*;
