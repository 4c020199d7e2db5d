use std::net::SocketAddr;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address} ({source}): set another server.host or server.port (--host, --port)")]
    CannotListen { address: SocketAddr, source: std::io::Error },
    #[error("cannot listen on {address} for Wyoming clients ({source}): set another {key}, or 0 for none")]
    NoWyomingPort { address: SocketAddr, source: std::io::Error, key: String },
    #[error(
        "{why}, and there is no key yet: make one with `reprise keys create --user NAME`, or listen on 127.0.0.1 only \
         (server.host)"
    )]
    NoKey { why: String },
    #[error(transparent)]
    Store(#[from] store::Error),
}
