use crate::open_files;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub async fn next(listener: &TcpListener, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return None,
        };
        match accepted {
            // Closed without a word: a goodbye would need the file, too.
            Ok((stream, address)) if open_files::is_spare(&stream) => {
                tracing::debug!(%address, "a connection was closed, because few files are free (limits.spare_files)");
            }
            Ok(accepted) => return Some(accepted),
            // The system is out of something, most likely of files; others give them back in time.
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::select! {
                    () = tokio::time::sleep(OUT_OF_FILES) => {}
                    () = stop.cancelled() => return None,
                }
            }
        }
    }
}

const OUT_OF_FILES: Duration = Duration::from_millis(100);
