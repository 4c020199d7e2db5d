//! Websocket in the place of a request.

use crate::entry::Peer;
use crate::{ApiError, App};
use access::{Caller, ConnectionPlace};
use axum::extract::ws::WebSocketUpgrade;
use axum::response::Response;
use futures_util::{FutureExt, StreamExt};
use sockets::{SocketReader, SocketWriter};
use std::time::Duration;
use tracing::{Instrument, Span};

/// Bytes that gather before they go to the network. They go earlier when nothing more waits.
const WRITE_BUFFER_BYTES: usize = 16 << 10; // not a window: bytes of a buffer
/// Bytes read at once. A silent connection holds them too; a longer message gets its room when it comes.
const READ_BUFFER_BYTES: usize = 4 << 10; // not a window: bytes of a buffer

/// Takes a place for a websocket of the caller, and wakes the model.
pub fn admit(app: &App, caller: &Caller) -> Result<ConnectionPlace, ApiError> {
    if app.stopping.is_cancelled() {
        return Err(runtime::Error::Stopping.into());
    }
    let place = app.access.gate.connect_key(&caller.account)?;
    app.replies.model.wake();
    Ok(place)
}

/// Answers the request, then lets `converse` have the connection in its place.
pub fn upgrade<F: Future<Output = ()> + Send + 'static>(
    app: &App,
    (caller, peer, place): (&Caller, Peer, ConnectionPlace),
    (upgrade, protocols): (WebSocketUpgrade, &'static [&'static str]),
    span: Span,
    converse: impl FnOnce(SocketReader, SocketWriter) -> F + Send + 'static,
) -> Response {
    let limits = &app.replies.settings.limits;
    let upgrade = upgrade
        .protocols(protocols.iter().copied())
        .max_frame_size(limits.frame_bytes)
        .max_message_size(limits.message_bytes)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(limits.outgoing_bytes.saturating_add(2 * WRITE_BUFFER_BYTES));
    let (app, key) = (app.clone(), caller.identity.key.clone());
    upgrade.on_upgrade(move |websocket| {
        let limits = &app.replies.settings.limits;
        peer.half_open.watch(app.replies.runtime.held().share(), Duration::from_millis(limits.body_ms));
        let (sink, stream) = websocket.split();
        let revoked = app.access.revoked.clone().until(key).boxed();
        let reader = SocketReader::new(stream, peer.half_open.clone(), revoked, limits);
        let writer = SocketWriter::new(sink, Duration::from_secs(limits.ping_s));
        // It is as large as all that a connection does: moved into the task it would be there twice.
        let conversation = Box::pin(converse(reader, writer));
        async move {
            conversation.await;
            drop((peer, place));
        }
        .instrument(span)
    })
}
