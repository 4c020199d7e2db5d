//! What every request may need, and why a service cannot start.

use crate::access::{Gate, Policy};
use model::Model;
use runtime::Runtime;
use settings::Settings;
use std::net::SocketAddr;
use std::sync::Arc;
use store::Store;
use tokio_util::sync::CancellationToken;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address} ({source}): set another server.host or server.port (--host, --port)")]
    CannotListen { address: SocketAddr, source: std::io::Error },
    #[error(
        "{why}, and there is no key yet: make one with `reprise keys create --user NAME`, or listen on 127.0.0.1 only \
         (server.host)"
    )]
    NoKey { why: String },
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// What every request may need; cheap to clone.
#[derive(Clone)]
pub struct App {
    pub settings: Arc<Settings>,
    pub store: Store,
    pub model: Model,
    pub runtime: Runtime,
    pub gate: Arc<Gate>,
    pub policy: Arc<Policy>,
    /// The service stops.
    pub stopping: CancellationToken,
}
