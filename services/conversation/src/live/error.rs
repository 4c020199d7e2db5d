//! Why a session could not be had.

use crate::store;

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
        "the arm {arm:?} of the experiment is no preset of the model that runs, and all arms use one copy of its weights: use \
         some of {there_are}, or run the arms' model"
    )]
    ArmOfAnotherModel { arm: String, there_are: String },
    #[error("no experiment is configured: set [experiment], or name a preset")]
    NoExperiment,
    #[error("the service is stopping: connect again in a moment")]
    Stopping,
}
