//! The store: users, sessions, everything that was said, in one SQLite file.
//!
//! An acknowledged write is on disk, and survives `kill -9` and a power cut. One writer takes all writes, in groups;
//! readers read beside it. The schema only lets words be added; deleting an item or a session removes them, with the
//! copies that other sessions keep as hidden notes or as forks. Time is an argument: the store has no clock.

mod config_form;
mod delete;
mod erase;
mod error;
mod export;
mod facts;
mod fork;
mod found_facts;
mod handle;
mod health;
mod ids;
mod import;
mod import_lines;
mod item_form;
mod items;
mod journal;
mod kept_logs;
mod keys;
mod lock;
mod measurements;
mod memory_changes;
mod notes;
mod open;
mod order_key;
mod page;
mod past_owners;
mod persons;
mod pieces;
mod quota;
mod records;
mod replies;
mod requests;
mod responses;
mod search;
mod session_names;
mod sessions;
mod spacing;
mod summaries;
mod versions;
mod view;
mod writer;

pub use error::Error;
pub use export::Export;
pub use facts::{FactChanges, FoundBy, HeardThrough, NewFact, RememberedFact, SaidMessage, UnheardSession};
pub use found_facts::{ToldFact, UnindexedFact};
pub use handle::Store;
pub use health::Statistics;
pub use ids::new_id;
pub use import::Importer;
pub use import_lines::ImportLines;
pub use journal::SaidReply;
pub use kept_logs::{KeptLog, LogAddition, LogMark, LogOwner};
pub use keys::{ApiKey, ClientSecret, Identity, KeyScope};
pub use measurements::{ExperimentTurn, Measurement};
pub use open::{OpenedBy, StoreOptions};
pub use order_key::OrderKey;
pub use page::Page;
pub use past_owners::{PastStays, PastToForget};
pub use persons::PersonLine;
pub use records::{
    Change, ItemVersion, Placement, SessionLine, SessionRecord, SessionRef, User, VersionStatus, past_user,
};
pub use replies::OpenReply;
pub use requests::StoredRequest;
pub use responses::{FinishedResponse, NewResponse, ResponseEnd, StoredResponse};
pub use search::{HistorySearch, Hit, SearchPlace};
pub use session_names::SessionName;
pub use summaries::{ContextStamp, MadeBy, Pin, Summary, SummaryKind};
pub use view::View;
