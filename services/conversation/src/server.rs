//! The doors: who may come in, and what is said to them over HTTP and websockets.
//!
//! The table in `routes` is the API; `/openapi.json` is made from it.

mod accept;
mod console;
mod doors;
mod entry;
mod errors;
mod experiments;
mod gate;
mod health;
mod keys;
mod memory;
mod openapi;
mod realtime;
mod routes;
mod sessions;
mod socket;
mod upkeep;

pub use accept::while_starting;
pub use doors::{Doors, check_doors};
pub use entry::LOCAL_USER;
pub use errors::ApiError;
pub use openapi::document;

use crate::backend::Backend;
use crate::live::{self, Live};
use crate::metrics;
use gate::Gate;
use settings::Settings;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use tokio::net::TcpListener;
use tokio::time::Instant;
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
    pub backend: Backend,
    pub live: Live,
    gate: Arc<Gate>,
    doors: Arc<Doors>,
    /// The service stops.
    stopping: CancellationToken,
}

pub async fn listen(settings: &Settings) -> Result<TcpListener, Error> {
    let address = SocketAddr::new(settings.server.host, settings.server.port);
    TcpListener::bind(address).await.map_err(|source| Error::CannotListen { address, source })
}

/// Serves until `stop`, then lets what is under way finish, for as long as `shutdown.drain_s` says.
pub async fn serve(listener: TcpListener, parts: live::Parts, doors: Doors, stop: CancellationToken) {
    metrics::collect();
    let drain = Duration::from_secs(parts.settings.shutdown.drain_s);
    let app = App {
        gate: Arc::new(Gate::new(&parts.settings)),
        doors: Arc::new(doors),
        settings: parts.settings.clone(),
        store: parts.store.clone(),
        backend: parts.backend.clone(),
        live: Live::new(parts),
        stopping: stop.clone(),
    };
    let mut upkeep = tokio::spawn(upkeep::run(app.clone()));
    let connections = accept::run(listener, app.clone(), &stop).await;
    // A part of the time is kept for marking and storing what did not finish, and for goodbyes.
    let asked = Instant::now();
    let _ = tokio::time::timeout_at(asked + drain, async {
        app.live.drain(asked + drain.mul_f64(FINISHING_SHARE)).await;
        // What is being deleted is gone when this has stopped, and before the engine writes down what it has.
        let _ = (&mut upkeep).await;
        upkeep::forget_deleted(&app).await;
        app.backend.shutdown().await;
        connections.closed().await;
    })
    .await;
    // The next start goes on with it.
    upkeep.abort();
}

/// Share of the time to stop in which replies may finish.
const FINISHING_SHARE: f64 = 0.7;
