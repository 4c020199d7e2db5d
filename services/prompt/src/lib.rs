//! The layout of prompts: what the model reads, in which order, and which of it stays from turn to turn.
//!
//! A prompt is read from its begin, and the model's cache holds what it has read. So every byte that stays comes before
//! every byte that changes: a change costs what stands behind it. The parts of a prompt in their order:
//!
//! 1. instructions: the persona's, the preset's rule on questions, the client's;
//! 2. facts from earlier conversations, for the person that asks;
//! 3. the context: summary and pins;
//! 4. the history: items before the question;
//! 5. notes that change from turn to turn, and the question or the user's speech so far.
//!
//! [`lay_out`] makes the prompt of a session, for its replies, for warming, for counting and for summaries ([`Audience`]).
//! [`ClientLog`] makes that of a client which sends its whole conversation with each request. Both return a [`LaidOut`]
//! with its [`StableMarks`]: the ends of the parts above.
//!
//! ```
//! use prompt::{Layout, Wording, lay_out};
//! use session::{Context, Item, Role, SessionConfig};
//! use settings::ToolOrder;
//! use std::sync::Arc;
//!
//! let wording = Wording {
//!     note: Some(["(Note: ".into(), ")".into()]),
//!     opening: "(You speak first.)".into(),
//!     left_out: "(left out)".into(),
//!     no_question: "Ask nothing back.".into(),
//!     tool_order: ToolOrder::Name,
//! };
//! let config = SessionConfig::new("Be brief.");
//! let context = Context { notes: vec!["It is ten.".into()], ..Context::default() };
//! let layout = Layout { remembered: "Ann likes tea.", ..Layout::new(&config, &context, &wording) };
//!
//! let said = |role, text: &str| Arc::new(Item::message("id", role, text));
//! let mut items = vec![said(Role::User, "Hi."), said(Role::Assistant, "Hello."), said(Role::User, "Well?")];
//! let before = lay_out(&items, &layout);
//! let texts: Vec<String> = before.prompt.messages.iter().map(|message| message.text()).collect();
//! assert_eq!(texts, ["Be brief.", "(Note: Ann likes tea.)", "Hi.", "Hello.", "(Note: It is ten.)", "Well?"]);
//!
//! // The next turn leaves every message before the question and its notes.
//! items.extend([said(Role::Assistant, "Yes."), said(Role::User, "Thanks.")]);
//! let after = lay_out(&items, &layout);
//! let stays = before.marks.history;
//! assert_eq!((stays, &before.prompt.messages[..stays]), (4, &after.prompt.messages[..stays]));
//! ```
//!
//! The crate knows no store, model, engine, clock or protocol. `README.md` draws a prompt, and `tests/prefix.rs` states
//! the prefix that survives each change.

pub mod changed_head;
mod client_log;
mod items;
mod layout;
mod past;
mod speakers;
mod wording;

pub use client_log::{ClientLog, LogNotes, next_prompt, settle};
pub use items::{ItemText, push_item};
pub use layout::{LaidOut, Layout, PLACEHOLDER, StableMarks, lay_out, leading, with_tools};
pub use past::{NOTED_PLACES, PastOf, PastWords, choose, note_of_past, numbers, search_result, words_of};
pub use speakers::{Audience, asker, facts_for, show_speakers};
pub use wording::Wording;
