use session::{Failure, Refusal};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("there is no model or preset {name:?}: use one of {there_are}, or leave it out for {chosen}")]
    NoSuchModel { name: String, there_are: String, chosen: String },
    #[error(
        "{limit} sessions are in memory and all of them are in use: try again later, or raise limits.live_sessions"
    )]
    TooManySessions { limit: usize },
    #[error(
        "{limit} sessions of this user are in memory and all of them are in use: close some of their connections, or raise \
         limits.live_sessions_per_user"
    )]
    TooManySessionsOfUser { limit: usize },
    #[error("{}", Refusal::NoRoom)]
    NoRoom,
    #[error("there is no summary in use that could be undone: see the session's summaries")]
    NoSummaryToUndo,
    #[error("there is no such summary that was undone: see the session's summaries")]
    NoSummaryToRedo,
    #[error("summary {in_use} is in use, and is newer than {version}: undo it first")]
    NewerSummaryInUse { version: u64, in_use: u64 },
    #[error("there is no such summary to edit: see the session's summaries")]
    NoSummaryToEdit,
    #[error("the text is empty: write at least a word")]
    EmptyText,
    #[error("the text is larger than {limit} bytes (limits.item_bytes): shorten it")]
    TextTooLong { limit: usize },
    #[error(
        "the summary has about {tokens} tokens and may have {limit}: shorten it, or raise compaction.summary_tokens"
    )]
    SummaryTooLong { tokens: u32, limit: u32 },
    #[error(
        "the prompt would have {tokens} tokens and may have {limit}: choose a preset with a larger window, or leave the \
         summary in use"
    )]
    DoesNotFit { tokens: u64, limit: u64 },
    #[error("the pins have no more room ({limit} tokens): remove one first")]
    PinsFull { limit: u32 },
    #[error("{limit} memories are all that one user may have (ten times remember.facts): forget some")]
    MemoriesFull { limit: usize },
    #[error(transparent)]
    Model(Failure),
    #[error(
        "the arm {arm:?} of the experiment is no preset of the model that runs, and all arms use one copy of its weights: use \
         some of {there_are}, or run the arms' model"
    )]
    ArmOfAnotherModel { arm: String, there_are: String },
    #[error(
        "the persona {persona:?} has the preset {preset:?}, which is none of the model that runs: use one of {there_are}, or \
         leave it empty"
    )]
    PersonaOfAnotherModel { persona: String, preset: String, there_are: String },
    #[error("no experiment draws now: set [experiment], with its start and end, or name a preset")]
    NoExperiment,
    #[error("the service is stopping: connect again in a moment")]
    Stopping,
}
