use std::net::SocketAddr;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address} ({source}): set another server.host or server.port (--host, --port)")]
    CannotListen { address: SocketAddr, source: std::io::Error },
    #[error("cannot listen on {address} for Wyoming clients ({source}): set another {key}, or 0 for none")]
    NoWyomingPort { address: SocketAddr, source: std::io::Error, key: String },
}
