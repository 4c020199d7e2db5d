//! The service as its doors see it.

use access::Access;
use axum::extract::FromRef;
use hub::SharedFetch;
use replies::Completions;
use tokio_util::sync::CancellationToken;

#[derive(Clone)]
pub struct App {
    pub replies: Completions,
    pub access: Access,
    pub pulls: SharedFetch,
    pub stopping: CancellationToken,
}

impl FromRef<App> for Completions {
    fn from_ref(app: &App) -> Completions {
        app.replies.clone()
    }
}
