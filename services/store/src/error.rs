//! Errors of the store, in words that say what to do.

use std::path::{Path, PathBuf};

/// Error of the store. Cloned to every caller whose write was in a transaction that failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("no user {user:?}: create it with `reprise keys create --user {user}`")]
    NoUser { user: String },
    #[error("no session {session:?}: see `reprise sessions list`")]
    NoSession { session: String },
    #[error(
        "there is a session {session:?} already: delete that one first, or give this one another id in its line of the file"
    )]
    SessionExists { session: String },
    #[error("no item {item:?} in this session")]
    NoItem { item: String },
    #[error("there is an item {item:?} already: delete it first, or choose another id")]
    ItemExists { item: String },
    #[error("item {item:?} is still being said: cancel its response first")]
    InProgress { item: String },
    #[error("item {item:?} is not being said: it cannot be extended or finished")]
    NotInProgress { item: String },
    #[error("item {item:?} has no text part {index} that could be truncated")]
    NotTruncatable { item: String, index: usize },
    #[error("no response {response:?} in this session")]
    NoResponse { response: String },
    #[error("no summary {version} in this session")]
    NoSummary { version: u64 },
    #[error("summary {version} was made for a past that has changed since: plan it anew")]
    StaleSummary { version: u64 },
    #[error("no pin {pin:?} in this session")]
    NoPin { pin: String },
    #[error("no memory {fact:?}: see `reprise memories list`")]
    NoFact { fact: String },
    #[error("no key {key:?}: see `reprise keys list`")]
    NoKey { key: String },
    #[error("unknown scope {scope:?}: use talk, sessions or admin")]
    UnknownScope { scope: String },
    #[error("nothing to search for in {query:?}: give at least one word")]
    EmptyQuery { query: String },
    #[error(
        "a search takes at most {limit} different words (limits.search_words), and one with a star counts as four: leave some out"
    )]
    TooManyWords { limit: usize },
    #[error("this takes the store too long (store.read_limit_ms): ask for less at once, or search for rarer words")]
    TookTooLong,
    #[error(
        "this user has stored all that fits in {limit} bytes (limits.user_bytes): delete sessions, or raise the limit"
    )]
    UserFull { limit: u64 },
    #[error(
        "this user stores more than {limit} bytes in a minute (limits.user_bytes_per_minute): wait a minute, or send less"
    )]
    TooFast { limit: u64 },
    #[error("line {line} of the import: {cause}; nothing of its session was imported")]
    Import { line: usize, cause: String },

    #[error("the store {path} is used by another service{by}: stop that one, or set another store.path")]
    InUse { path: PathBuf, by: String },
    #[error("the store {path} is busy: try again")]
    Busy { path: PathBuf },
    #[error("the disk of the store {path} is full: make room; what was not acknowledged was not stored")]
    Full { path: PathBuf },
    #[error(
        "the store {path} cannot be written: check the rights of the file and its folder, and that the disk is not mounted read-only"
    )]
    ReadOnly { path: PathBuf },
    #[error("the store {path} cannot be opened ({cause}): check that the folder exists and may be written")]
    CannotOpen { path: PathBuf, cause: String },
    #[error(
        "the store {path} is damaged ({cause}): stop the service, keep a copy of the file, and restore a backup or try `sqlite3 {path} .recover`"
    )]
    Corrupt { path: PathBuf, cause: String },
    #[error(
        "version {version} of item {item:?} in session {session:?} does not match its checksum: the disk changed it; restore a backup"
    )]
    DamagedItem { session: String, item: String, version: u64 },
    #[error(
        "summary {version} of session {session:?} does not match its checksum: the disk changed it; restore a backup"
    )]
    DamagedSummary { session: String, version: u64 },
    #[error("{path} is not a store of this program: set another store.path")]
    Foreign { path: PathBuf },
    #[error(
        "the store {path} was written by a newer release (its schema has step {found}, this program knows {known}): start the newer release, or set another store.path"
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error(
        "step {step} of the schema of {path} is not the one this program knows: use the release that wrote the store"
    )]
    SchemaChanged { path: PathBuf, step: i64 },
    #[error("the store {path} has an older schema and a running service: stop the service, then try again")]
    OldSchemaInUse { path: PathBuf },
    #[error("there is no store at {path} yet: start the service once, or check store.path")]
    NoStore { path: PathBuf },
    #[error("the store is closed")]
    Closed,
    #[error("the store {path}: {cause}")]
    Disk { path: PathBuf, cause: String },
    #[error("the store {path}: {cause}; this is a defect of the program, please report it")]
    Defect { path: PathBuf, cause: String },
}

impl Error {
    /// True if the same write may succeed later: after the disk has room again, or another program is done.
    pub fn may_pass(&self) -> bool {
        use Error::{Busy, CannotOpen, Disk, Full, ReadOnly};
        matches!(self, Busy { .. } | CannotOpen { .. } | Disk { .. } | Full { .. } | ReadOnly { .. })
    }

    pub fn is_of_quota(&self) -> bool {
        matches!(self, Error::UserFull { .. } | Error::TooFast { .. })
    }

    /// Words the error for a client, without paths of this machine and statements.
    pub fn to_client(&self) -> String {
        match self {
            Error::Busy { .. } => "the store is busy: try again".to_owned(),
            Error::Full { .. } => {
                "the disk of the store is full: make room on it, then try again; what was not acknowledged was not stored"
                    .to_owned()
            },
            Error::ReadOnly { .. } => "the store cannot be written: the service's log says why".to_owned(),
            Error::InUse { .. }
            | Error::CannotOpen { .. }
            | Error::Corrupt { .. }
            | Error::Foreign { .. }
            | Error::Newer { .. }
            | Error::SchemaChanged { .. }
            | Error::OldSchemaInUse { .. }
            | Error::NoStore { .. }
            | Error::Disk { .. }
            | Error::Defect { .. } => "the store failed: the service's log says why".to_owned(),
            told => told.to_string(),
        }
    }

    pub(crate) fn from_sqlx(path: &Path, error: sqlx::Error) -> Error {
        let (path, cause) = (path.to_path_buf(), error.to_string());
        let code = match &error {
            sqlx::Error::Database(database) => database.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or(1),
            sqlx::Error::PoolTimedOut => return Error::Busy { path },
            sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => return Error::Closed,
            sqlx::Error::Io(_) => return Error::Disk { path, cause },
            _ => return Error::Defect { path, cause },
        };
        // The low byte is SQLite's primary result code.
        match code & 0xff {
            5 | 6 => Error::Busy { path },
            8 => Error::ReadOnly { path },
            9 => Error::TookTooLong,
            10 => Error::Disk { path, cause },
            11 | 26 => Error::Corrupt { path, cause },
            13 => Error::Full { path },
            14 => Error::CannotOpen { path, cause },
            _ => Error::Defect { path, cause },
        }
    }

    pub(crate) fn from_io(path: &Path, error: std::io::Error) -> Error {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, StorageFull};
        let path = path.to_path_buf();
        match error.kind() {
            PermissionDenied | ReadOnlyFilesystem => Error::ReadOnly { path },
            StorageFull => Error::Full { path },
            _ => Error::CannotOpen { path, cause: error.to_string() },
        }
    }
}

pub(crate) type Result<T, E = StoreFailure> = std::result::Result<T, E>;

#[derive(Debug)]
pub(crate) enum StoreFailure {
    Ours(Error),
    Sql(sqlx::Error),
}

impl StoreFailure {
    pub fn at(self, path: &Path) -> Error {
        match self {
            StoreFailure::Ours(error) => error,
            StoreFailure::Sql(error) => Error::from_sqlx(path, error),
        }
    }
}

impl From<Error> for StoreFailure {
    fn from(error: Error) -> StoreFailure {
        StoreFailure::Ours(error)
    }
}

impl From<sqlx::Error> for StoreFailure {
    fn from(error: sqlx::Error) -> StoreFailure {
        StoreFailure::Sql(error)
    }
}
