//! Keys that were revoked while connections that came with them are open.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use store::{Error, Store};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

const LOOK_EVERY: Duration = Duration::from_secs(5);

#[derive(Clone, Default)]
pub struct RevokedKeys {
    ids: Arc<watch::Sender<HashSet<String>>>,
}

impl RevokedKeys {
    /// Looks into the store now and then until `stopping`: a command beside the service revokes keys.
    pub async fn watch(self, store: Store, stopping: CancellationToken) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stopping.run_until_cancelled(looks.tick()).await.is_some() {
            if let Err(error) = self.look(&store).await {
                tracing::warn!(%error, "connections with keys that were revoked may still be open");
            }
        }
    }

    async fn look(&self, store: &Store) -> Result<(), Error> {
        let keys = store.keys(None).await?;
        let revoked = keys.into_iter().filter(|key| key.revoked_at_ms.is_some()).map(|key| key.id).collect();
        self.ids.send_if_modified(|known| {
            let is_news = *known != revoked;
            *known = revoked;
            is_news
        });
        Ok(())
    }

    /// Waits until the key is revoked: forever if there is none.
    pub async fn until(self, key: Option<String>) {
        let mut ids = self.ids.subscribe();
        let is_revoked = |ids: &HashSet<String>| key.as_ref().is_some_and(|key| ids.contains(key));
        if ids.wait_for(is_revoked).await.is_err() {
            std::future::pending().await
        }
    }
}
