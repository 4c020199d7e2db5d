//! The service: listens, serves all doors, and stops in order.

use crate::admin::state_streams::StateStreams;
use crate::admin::{console, metrics};
use crate::routes::router;
use crate::socket::tell_starting;
use crate::wyoming::WyomingPort;
use crate::{App, Error, StartFacts, ollama, socket, wyoming};
use access::{Access, Policy};
use axum::routing::get;
use futures_util::future::OptionFuture;
use hub::SharedFetch;
use replies::Completions;
use runtime::Runtime;
use settings::Settings;
use sockets::open_files;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use voices::SpeechServers;

pub struct Listeners {
    pub main: TcpListener,
    /// Port that answers at `/` as Ollama does.
    pub ollama: Option<TcpListener>,
    pub wyoming: Vec<WyomingPort>,
}

/// Answers all clients with 503 until the future is done. A health check reads there that the model is loading.
pub async fn while_starting<T>(listeners: &Listeners, starting: impl Future<Output = T>) -> T {
    tokio::select! {
        done = starting => done,
        never = tell_starting(Some(&listeners.main)) => never,
        never = tell_starting(listeners.ollama.as_ref()) => never,
    }
}

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
pub async fn serve(
    listeners: Listeners,
    parts: runtime::RuntimeParts,
    policy: Policy,
    start: StartFacts,
    stop: CancellationToken,
) {
    metrics::collect();
    let drain = Duration::from_secs(parts.settings.shutdown.drain_s);
    open_files::keep_spare(parts.settings.limits.spare_files);
    let runtime = Runtime::new(parts.clone());
    let access = Access::new(&parts.settings, policy, parts.store.clone());
    let revoked = access.revoked.clone();
    let replies = Completions::new(parts, runtime.clone());
    let (pulls, start) = (SharedFetch::default(), Arc::new(start));
    let speech = speech_servers(&replies.settings, stop.clone());
    let state_streams = StateStreams::new(replies.settings.limits.status_streams);
    let (stopping, late_turns) = (stop.clone(), TaskTracker::new());
    let app = App {
        replies: replies.clone(),
        access,
        pulls,
        stopping,
        speech,
        start,
        state_streams,
        late_turns: late_turns.clone(),
    };
    let mut maintenance = tokio::spawn(replies.clone().maintain(stop.clone()));
    tokio::spawn(revoked.watch(replies.store.clone(), stop.clone()));
    let stopping = stop.clone();
    if let Err(error) = runtime.start_learning(stopping) {
        tracing::error!(%error, "the system starts no thread for learning: nothing is learned from conversations");
    }
    let wyoming = wyoming::run(listeners.wyoming, app.clone(), stop.clone()).await;
    let main = socket::run(listeners.main, router(app.clone(), get(console::page)), app.clone(), &stop);
    let front = get(ollama::running);
    let also = listeners.ollama.map(|listener| socket::run(listener, router(app.clone(), front), app.clone(), &stop));
    let (connections, more) = tokio::join!(main, OptionFuture::from(also));
    wyoming.close();
    // A part of the time is kept for marking and storing what did not finish, and for goodbyes.
    let asked = Instant::now();
    let _ = tokio::time::timeout_at(asked + drain, async {
        replies.runtime.drain(asked + drain.mul_f64(FINISHING_SHARE)).await;
        // What is being deleted is gone when this has stopped, and before the engine writes down what it has.
        let _ = (&mut maintenance).await;
        replies.forget_deleted().await;
        replies.model.shutdown().await;
        connections.wait().await;
        if let Some(more) = more {
            more.wait().await;
        }
        wyoming.wait().await;
        late_turns.close();
        late_turns.wait().await;
        replies.keeping.finish().await;
    })
    .await;
    // The next start goes on with it.
    maintenance.abort();
}

/// Servers that hear and speak, asked in the background whether they are there.
fn speech_servers(settings: &Settings, stop: CancellationToken) -> SpeechServers {
    let servers = SpeechServers::new(&settings.speech, |name| std::env::var(name).ok());
    let servers = servers.unwrap_or_else(|error| {
        tracing::error!(%error, "this service neither hears nor speaks");
        SpeechServers::default()
    });
    let (watched, retry) = (servers.clone(), Duration::from_secs(settings.speech.retry_s));
    tokio::spawn(async move {
        watched.probe().await;
        watched.watch(retry, stop).await;
    });
    servers
}

/// Share of the time to stop in which replies may finish.
const FINISHING_SHARE: f64 = 0.7;
