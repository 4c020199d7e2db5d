//! What every request may need.

use crate::access::{Gate, Policy, RevokedKeys};
use crate::pulls::Pulls;
use model::Model;
use replies::Persons;
use replies::{ConversationKeeping, PastOwners, RecentTurns, StandingPrompts};
use runtime::Runtime;
use settings::Settings;
use std::sync::Arc;
use store::Store;
use tokio_util::sync::CancellationToken;

/// What every request may need; cheap to clone.
#[derive(Clone)]
pub struct App {
    pub settings: Arc<Settings>,
    pub store: Store,
    pub model: Model,
    pub runtime: Runtime,
    pub gate: Arc<Gate>,
    pub recent: Arc<RecentTurns>,
    pub persons: Arc<Persons>,
    pub keeping: ConversationKeeping,
    pub owners: Arc<PastOwners>,
    pub standing: Arc<StandingPrompts>,
    pub pulls: Pulls,
    pub policy: Arc<Policy>,
    pub revoked: RevokedKeys,
    /// The service stops.
    pub stopping: CancellationToken,
}
