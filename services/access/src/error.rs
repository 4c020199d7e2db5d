use store::KeyScope;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the request has no Host header")]
    NoHost,
    #[error("this server is not known under the name in the Host header: add it to server.allowed_hosts")]
    ForeignHost,
    #[error("this web page may not connect: add its origin to server.allowed_origins")]
    ForeignOrigin,
    #[error("{0}")]
    TooManyConnections(String),
    #[error("too many {what}: try again in {wait_s:.1} s")]
    TooFast { what: &'static str, wait_s: f64 },
    #[error("your address sends more than {limit} bytes at once (limits.body_bytes_per_address)")]
    TooManyBytes { limit: usize },
    #[error("a key is needed")]
    NoKey,
    #[error("the key is wrong, expired or revoked: make one with `reprise keys create --user NAME`")]
    WrongKey,
    #[error("the key may not do this: make one with `--scope {scope}`")]
    Scope { scope: KeyScope },
    /// Refusal to start.
    #[error(
        "{why}, and there is no key yet: make one with `reprise keys create --user NAME`, or listen on 127.0.0.1 only \
         (server.host)"
    )]
    NoKeyYet { why: String },
    #[error(transparent)]
    Store(#[from] store::Error),
}
