//! The service: listens, serves all doors, and stops in order.

use crate::access::{Gate, Policy, RevokedKeys};
use crate::completion::RecentTurns;
use crate::{App, Error, accept, metrics, upkeep};
use runtime::Runtime;
use settings::Settings;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub async fn listen(settings: &Settings) -> Result<TcpListener, Error> {
    let address = SocketAddr::new(settings.server.host, settings.server.port);
    TcpListener::bind(address).await.map_err(|source| Error::CannotListen { address, source })
}

/// Serves until `stop`, then lets what is under way finish, for as long as `shutdown.drain_s` says.
pub async fn serve(listener: TcpListener, parts: runtime::RuntimeParts, policy: Policy, stop: CancellationToken) {
    metrics::collect();
    let drain = Duration::from_secs(parts.settings.shutdown.drain_s);
    let limits = &parts.settings.limits;
    let app = App {
        gate: Arc::new(Gate::new(&parts.settings)),
        recent: Arc::new(RecentTurns::new(Duration::from_secs(limits.retry_s), limits.retry_turns)),
        policy: Arc::new(policy),
        revoked: RevokedKeys::default(),
        settings: parts.settings.clone(),
        store: parts.store.clone(),
        model: parts.model.clone(),
        runtime: Runtime::new(parts),
        stopping: stop.clone(),
    };
    let mut upkeep = tokio::spawn(upkeep::run(app.clone()));
    let connections = accept::run(listener, app.clone(), &stop).await;
    // A part of the time is kept for marking and storing what did not finish, and for goodbyes.
    let asked = Instant::now();
    let _ = tokio::time::timeout_at(asked + drain, async {
        app.runtime.drain(asked + drain.mul_f64(FINISHING_SHARE)).await;
        // What is being deleted is gone when this has stopped, and before the engine writes down what it has.
        let _ = (&mut upkeep).await;
        upkeep::forget_deleted(&app).await;
        app.model.shutdown().await;
        connections.wait().await;
    })
    .await;
    // The next start goes on with it.
    upkeep.abort();
}

/// Share of the time to stop in which replies may finish.
const FINISHING_SHARE: f64 = 0.7;
