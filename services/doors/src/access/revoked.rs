//! Keys that were revoked while connections that came with them are open.

use std::collections::HashSet;
use std::sync::Arc;
use store::{Error, Store};
use tokio::sync::watch;

/// Cheap to clone.
#[derive(Clone, Default)]
pub struct RevokedKeys {
    ids: Arc<watch::Sender<HashSet<String>>>,
}

impl RevokedKeys {
    /// A key is revoked by a command beside the service, so the store is asked now and then.
    pub async fn look(&self, store: &Store) -> Result<(), Error> {
        let keys = store.keys(None).await?;
        let revoked = keys.into_iter().filter(|key| key.revoked_at_ms.is_some()).map(|key| key.id).collect();
        self.ids.send_if_modified(|known| {
            let is_news = *known != revoked;
            *known = revoked;
            is_news
        });
        Ok(())
    }

    /// Returns when the key is revoked; never, where there is none.
    pub async fn until(self, key: Option<String>) {
        let mut ids = self.ids.subscribe();
        let is_revoked = |ids: &HashSet<String>| key.as_ref().is_some_and(|key| ids.contains(key));
        if ids.wait_for(is_revoked).await.is_err() {
            std::future::pending().await
        }
    }
}
