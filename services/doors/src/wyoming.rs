//! The Wyoming protocol, by which Home Assistant's integration of that name talks: events over plain TCP, one program a port.
//!
//! The client sends what the user said and reads what to say; conversation, instructions and tools are the session's. A
//! satellite (or else a device, or else the client's own conversation) names its session, which goes on whenever it speaks
//! again. The protocol knows no keys, so `wyoming.without_key` says where others may reach it.

mod announce;
mod connection;
mod intents;
mod parse;
mod ports;
mod program;
mod render;

pub use parse::{TranscriptFields, clues, parse};
pub use ports::{WyomingPort, listen};

pub use voices::{FrameLimits, FrameReader};

use crate::App;
use announce::Announcement;
use mdns_sd::ServiceDaemon;
use sockets::next;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Takes connections until `stop`. Those that are open then finish their reply. Returns their tasks.
pub async fn run(ports: Vec<WyomingPort>, app: App, stop: CancellationToken) -> TaskTracker {
    let tasks = TaskTracker::new();
    if !ports.is_empty() {
        make_user(&app).await;
    }
    if let Some(announcement) = announcement(&app, &ports) {
        let stop = stop.clone();
        tasks.spawn(async move {
            stop.cancelled().await;
            announcement.end().await;
        });
    }
    for WyomingPort { listener, program } in ports {
        let program = Arc::new(program);
        let (app, stop, connections) = (app.clone(), stop.clone(), tasks.clone());
        tasks.spawn(async move {
            while let Some((stream, address)) = next(&listener, &stop).await {
                match app.access.gate.enter(address.ip()) {
                    Some(Ok(place)) => {
                        drop(connections.spawn(connection::serve(app.clone(), program.clone(), stream, address, place)))
                    }
                    Some(Err(refused)) => drop(connections.spawn(connection::refuse(refused, stream))),
                    None => {}
                }
            }
        });
    }
    tasks
}

fn announcement(app: &App, ports: &[WyomingPort]) -> Option<Announcement> {
    if !app.replies.settings.wyoming.mdns {
        return None;
    }
    let programs: Vec<_> =
        ports.iter().filter_map(|port| Some((port.program.name.as_str(), port.listener.local_addr().ok()?))).collect();
    let begun = ServiceDaemon::new().and_then(|daemon| Announcement::begin(daemon, &programs));
    begun.inspect_err(|error| tracing::warn!(%error, "the local network does not hear of the Wyoming port")).ok()
}

/// Sessions belong to a user of the store.
async fn make_user(app: &App) {
    let user = &app.replies.settings.wyoming.user;
    let made = async {
        if app.replies.store.users().await?.iter().any(|known| known.id == *user) {
            return Ok(());
        }
        app.replies.store.put_user(user, user, runtime::wall_ms()).await
    };
    if let Err(error) = made.await {
        tracing::error!(%error, user, "the user of Wyoming's conversations could not be made");
    }
}
