//! Sessions that a caller may open: with a key, those of its user; with a client secret, the one that the secret was
//! made for and those that it began.

use crate::Error;
use access::Caller;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;
use store::{SessionRef, Store};
use tokio::time::Instant;

/// Sessions that client secrets began, until the secrets expire. A page that comes back later, or after a restart, asks
/// for a secret that is made for its session.
pub struct BegunBySecrets {
    lifetime: Duration,
    by_secret: Mutex<HashMap<String, Begun>>,
}

struct Begun {
    until: Instant,
    sessions: Vec<String>,
}

impl BegunBySecrets {
    pub fn new(lifetime: Duration) -> BegunBySecrets {
        BegunBySecrets { lifetime, by_secret: Mutex::default() }
    }

    // `id`: the session's, or that of its conversation.
    pub async fn open_session(&self, store: &Store, caller: &Caller, id: &str) -> Result<SessionRef, Error> {
        let id = &*runtime::session_id(id);
        if let Some(secret) = &caller.secret {
            let made_for = caller.identity.session.as_ref().and_then(|session| session.get("session_id"));
            let begun = self.by_secret.lock();
            let is_begun = begun.get(secret).is_some_and(|begun| begun.sessions.iter().any(|own| own == id));
            let made_for = made_for.and_then(Value::as_str).map(runtime::session_id);
            if !is_begun && made_for.as_deref() != Some(id) {
                return Err(Error::NotOfThisSecret);
            }
        }
        Ok(store.open_session(&caller.identity.user, id).await?)
    }

    pub fn began(&self, caller: &Caller, session: &SessionRef) {
        let Some(secret) = &caller.secret else { return };
        let now = Instant::now();
        let mut begun = self.by_secret.lock();
        begun.retain(|_, begun| begun.until > now);
        let until = now + self.lifetime;
        let begun = begun.entry(secret.clone()).or_insert(Begun { until, sessions: Vec::new() });
        begun.sessions.push(session.id().to_owned());
    }
}
