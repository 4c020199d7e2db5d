//! Requests from a listening socket.

use crate::entry::Peer;
use crate::{ApiError, App};
use access::{ConnectionPlace, Refused};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use futures_util::FutureExt;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sockets::{ClientStream, HalfOpen, next, say_goodbye};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// Takes connections until `stop`, tells those that are open then to end, and returns their tasks.
pub async fn run(listener: TcpListener, router: Router, app: App, stop: &CancellationToken) -> TaskTracker {
    let tasks = TaskTracker::new();
    while let Some((stream, address)) = next(&listener, stop).await {
        match app.access.gate.enter(address.ip()) {
            Some(Ok(place)) => drop(tasks.spawn(connection(app.clone(), router.clone(), stream, address, place))),
            Some(Err(refused)) => drop(tasks.spawn(goodbye(refused, stream))),
            None => {}
        }
    }
    tasks.close();
    tasks
}

/// Tells a refused client the reason. The connection is closed before another may be told.
async fn goodbye(refused: Refused, mut stream: TcpStream) {
    let _ = tokio::time::timeout(REFUSING, refuse(&mut stream, refused.error.into())).await;
}

async fn connection(app: App, router: Router, stream: TcpStream, address: SocketAddr, place: ConnectionPlace) {
    let _ = stream.set_nodelay(true);
    let half_open = Arc::new(HalfOpen::default());
    let peer = Peer { address: address.ip(), half_open: half_open.clone(), _place: Arc::new(place) };
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        router.clone().oneshot(request)
    });
    let limits = &app.replies.settings.limits;
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.handshake_ms))
        .max_buf_size(limits.header_bytes.max(SMALLEST_BUFFER));
    // A client that reads nothing holds what it is sent, and a reader of the store.
    let mut stream = TimeoutStream::new(ClientStream::new(stream, half_open));
    stream.set_write_timeout(Some(Duration::from_millis(limits.write_ms)));
    let serving = http.serve_connection(TokioIo::new(Box::pin(stream)), service).with_upgrades();
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = app.stopping.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "a connection broke off");
    }
}

/// Least buffer that the HTTP library works with.
const SMALLEST_BUFFER: usize = 8192;
const REFUSING: Duration = Duration::from_secs(1);

/// Answers all clients with 503.
pub async fn tell_starting<T>(listener: Option<&TcpListener>) -> T {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        if let Ok((mut stream, _)) = listener.accept().await {
            let message = "the model is being loaded: try again in a moment";
            let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "starting", message).retry_after(1);
            let _ = tokio::time::timeout(REFUSING, refuse(&mut stream, error)).await;
        }
    }
}

/// Tells the client the reason, whatever it asks for.
async fn refuse(stream: &mut TcpStream, error: ApiError) -> std::io::Result<()> {
    let retry_after_s = error.retry_after_s;
    let response = error.into_response();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), SMALLEST_BUFFER).now_or_never();
    let body = body.and_then(Result::ok).unwrap_or_default();
    let retry = retry_after_s.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{retry}connection: close\r\n\r\n",
        body.len()
    );
    // In one piece: websocket clients take for the body what comes with the head.
    say_goodbye(stream, &[head.as_bytes(), &body].concat()).await
}
