//! The service: listens, serves all doors, and stops in order.

use crate::accept::Listeners;
use crate::access::{Gate, Policy, RevokedKeys};
use crate::pulls::Pulls;
use crate::routes::router;
use crate::{App, Error, accept, console, metrics, ollama, open_files, upkeep, wyoming};
use axum::routing::get;
use futures_util::future::OptionFuture;
use replies::Persons;
use replies::{ConversationKeeping, PastOwners, RecentTurns, StandingPrompts};
use runtime::Runtime;
use settings::Settings;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub async fn listen(settings: &Settings) -> Result<Listeners, Error> {
    let bind = async |port: u16| {
        let address = SocketAddr::new(settings.server.host, port);
        TcpListener::bind(address).await.map_err(|source| Error::CannotListen { address, source })
    };
    let main = bind(settings.server.port).await?;
    let ollama = match settings.ollama.port {
        0 => None,
        port => Some(bind(port).await?),
    };
    Ok(Listeners { main, ollama, wyoming: wyoming::listen(settings).await? })
}

/// Serves until `stop`, then lets what is under way finish, for as long as `shutdown.drain_s` says.
pub async fn serve(listeners: Listeners, parts: runtime::RuntimeParts, policy: Policy, stop: CancellationToken) {
    metrics::collect();
    let drain = Duration::from_secs(parts.settings.shutdown.drain_s);
    let limits = &parts.settings.limits;
    open_files::keep_spare(limits.spare_files);
    let runtime = Runtime::new(parts.clone());
    let app = App {
        gate: Arc::new(Gate::new(&parts.settings)),
        recent: Arc::new(RecentTurns::new(Duration::from_secs(limits.retry_s), limits.retry_turns)),
        persons: Arc::new(Persons::new(parts.settings.clone(), parts.store.clone())),
        keeping: ConversationKeeping::new(parts.settings.clone(), parts.store.clone(), runtime.clone()),
        owners: Arc::new(PastOwners::new(parts.store.clone())),
        standing: Arc::new(StandingPrompts::new(&parts.settings.prompt)),
        pulls: Pulls::default(),
        policy: Arc::new(policy),
        revoked: RevokedKeys::default(),
        settings: parts.settings,
        store: parts.store,
        model: parts.model,
        runtime,
        stopping: stop.clone(),
    };
    let mut upkeep = tokio::spawn(upkeep::run(app.clone()));
    let (runtime, stopping) = (app.runtime.clone(), stop.clone());
    tokio::spawn(async move { runtime.remember(stopping).await });
    let wyoming = wyoming::run(listeners.wyoming, app.clone(), stop.clone()).await;
    let main = accept::run(listeners.main, router(app.clone(), get(console::page)), app.clone(), &stop);
    let front = get(ollama::running);
    let also = listeners.ollama.map(|listener| accept::run(listener, router(app.clone(), front), app.clone(), &stop));
    let (connections, more) = tokio::join!(main, OptionFuture::from(also));
    wyoming.close();
    // A part of the time is kept for marking and storing what did not finish, and for goodbyes.
    let asked = Instant::now();
    let _ = tokio::time::timeout_at(asked + drain, async {
        app.runtime.drain(asked + drain.mul_f64(FINISHING_SHARE)).await;
        // What is being deleted is gone when this has stopped, and before the engine writes down what it has.
        let _ = (&mut upkeep).await;
        upkeep::forget_deleted(&app).await;
        app.model.shutdown().await;
        connections.wait().await;
        if let Some(more) = more {
            more.wait().await;
        }
        wyoming.wait().await;
        app.keeping.finish().await;
    })
    .await;
    // The next start goes on with it.
    upkeep.abort();
}

/// Share of the time to stop in which replies may finish.
const FINISHING_SHARE: f64 = 0.7;
