//! The store: users, sessions, facts, keys and all that was said, in one SQLite file.
//!
//! - `open` migrates the file and takes its lock; [`Store`] is the handle, cheap to clone, for any task.
//! - `writer` is the one thread that writes: it puts waiting writes into one transaction. Readers read beside it.
//! - `journal` holds the words of replies in progress: they are on disk before clients hear them, and the next open puts
//!   them into their items.
//! - `items`, `replies`, `summaries`, `facts`, `kept_logs`, `keys` and the others have the operations, a file each;
//!   `records` and `item_form` have the rows as data.
//!
//! Invariants:
//! - An acknowledged write is on disk, and survives `kill -9` and a power cut.
//! - Items are append-only: a change is a new version. Only deletion removes words, with the copies in hidden notes and forks.
//! - A [`SessionRef`] proves that the session is its user's. Time is an argument: the store has no clock.
//!
//! ```
//! use session::{Item, ItemPlace, Role, SessionConfig};
//! use store::{OpenedBy, Placement, SessionRecord, Store, StoreOptions, new_id};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let options = StoreOptions {
//! #     path: folder.path().join("store.sqlite3"), opened_by: OpenedBy::Service, create: true, busy_timeout_ms: 1000,
//! #     readers: 1, read_limit_ms: 0, sync_ms: 1000, user_bytes: 0, user_bytes_per_minute: 0, write_queue: 16,
//! #     commit_group: 16, wal_limit_bytes: 1 << 20, max_pages: None, check_at_start: false,
//! # };
//! # let record = SessionRecord {
//! #     id: new_id("sess")?, user: "ada".into(), person: String::new(), room: String::new(), is_remembered: false, is_of_household: false,
//! #     told_facts: None, title: String::new(), config: SessionConfig::new("Be brief."), metadata: None,
//! #     placement: Placement { preset: "small".into(), ctx_size: 1000, experiment: None, arm: None },
//! #     created_at_ms: 1, updated_at_ms: 1,
//! # };
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let store = Store::open(&options, 1).await?;
//! store.put_user("ada", "Ada", 1).await?;
//! let session = store.create_session(record).await?;
//! let item = Item::message("item_1", Role::User, "The code is 4711.");
//! store.append(&session, item, ItemPlace::End, 2).await?;
//! assert_eq!(store.load(&session).await?.items.len(), 1);
//! store.close().await?;
//! # Ok(())
//! # })
//! # }
//! ```

mod clean_pages;
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
mod item_audio;
mod item_form;
mod items;
mod journal;
mod kept_logs;
mod keys;
mod lock;
mod measurements;
mod memory_changes;
mod message_vectors;
mod notes;
mod open;
mod order_key;
mod page;
mod past_owners;
mod persons;
mod pieces;
mod quota;
mod read_turns;
mod records;
mod replies;
mod request_parts;
mod requests;
mod responses;
mod search;
mod session_names;
mod sessions;
mod spacing;
mod summaries;
mod vectors;
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
pub use import::{ImportedIds, Importer};
pub use import_lines::ImportLines;
pub use item_audio::ItemAudio;
pub use journal::SaidReply;
pub use kept_logs::{KeptLog, LogAddition, LogMark};
pub use keys::{ApiKey, ClientSecret, Identity, KeyScope};
pub use measurements::{ExperimentCounts, ExperimentTurn, Measurement};
pub use message_vectors::{MessageVector, StatedMessage, UnindexedMessage};
pub use open::{OpenedBy, StoreOptions};
pub use order_key::OrderKey;
pub use page::Page;
pub use past_owners::{LogOwner, PastToForget};
pub use persons::PersonLine;
pub use records::{
    Change, ItemVersion, Placement, SessionLine, SessionRecord, SessionRef, User, VersionStatus, past_reused_by,
    past_user,
};
pub use replies::OpenReply;
pub use requests::StoredRequest;
pub use responses::{FinishedResponse, NewResponse, ResponseEnd, StoredResponse};
pub use search::{HistorySearch, Hit, SearchPlace, SecretsOf};
pub use session_names::SessionName;
pub use summaries::{ContextStamp, MadeBy, Pin, Summary, SummaryKind};
pub use vectors::FactVector;
pub use view::View;
