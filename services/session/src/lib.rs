//! The vocabulary inside the service, and the pure part of a session.
//!
//! `vocabulary` is the one page of words: a door parses to its `Input` and renders its `Event`, a model takes a
//! `Prompt` and gives `Delta`s, the store keeps `Item`s. The crate knows no protocol, JSON, clock, socket, task or SQL.
//!
//! [`machine::Machine`] decides what a session does about each input; [`machine::OneShot`] makes the events of a reply
//! without a session:
//!
//! ```
//! use session::machine::OneShot;
//! use session::{Delta, Event, Finish, MaxTokens};
//!
//! let (mut reply, mut events) = (OneShot::new("resp_1".into(), MaxTokens::Unlimited, 7), Vec::new());
//! reply.delta(Delta::text("Good ", 1), &mut events);
//! reply.delta(Delta::text("morning.", 2), &mut events);
//! reply.delta(Delta::Done { finish: Finish::Stop, usage: None, report: None }, &mut events);
//!
//! assert!(matches!(events[0], Event::ResponseStarted { .. }));
//! let texts = events.iter().filter_map(|event| match event {
//!     Event::TextDelta { text, .. } => Some(text.as_str()),
//!     _ => None,
//! });
//! assert_eq!(texts.collect::<String>(), "Good morning.");
//! assert!(events.iter().any(|event| matches!(event, Event::ResponseDone { .. })));
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
