//! What is done now and then: sessions unused for long and secrets that expired are deleted; what was computed
//! of deleted sessions is dropped, because it holds the same words; memory that was freed goes back.

use crate::App;
use runtime::wall_ms;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

const EVERY: Duration = Duration::from_secs(3600);
/// A session may be deleted, or a key revoked, by a command beside the service, which cannot reach into its memory.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Between pieces that are in use the C library keeps what was freed: with two thousand clients 2 MB more in a minute.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(60);
const DAY_MS: i64 = 24 * 3600 * 1000;

/// Until the service stops; what was begun is done.
pub async fn run(app: App) {
    let mut times = interval(EVERY);
    let mut looks = interval(LOOK_EVERY);
    let mut frees = interval(GIVE_BACK_EVERY);
    frees.set_missed_tick_behavior(MissedTickBehavior::Delay);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = app.stopping.cancelled() => return,
            _ = times.tick() => {
                delete_unused(&app).await;
                forget_unused(&app).await;
            }
            _ = frees.tick() => {
                let began = Instant::now();
                // No async work waits behind it.
                let _ = tokio::task::spawn_blocking(model::give_memory_back).await;
                tracing::debug!(took_ms = began.elapsed().as_secs_f64() * 1e3, "memory that was freed went back");
            }
            _ = looks.tick() => {
                app.runtime.look_for_changes().await;
                if let Err(error) = app.revoked.look(&app.store).await {
                    tracing::warn!(%error, "connections with keys that were revoked may still be open");
                }
            }
        }
        // Deleted by a command beside the service, or by time: of which user is not known any more.
        if forget_deleted(&app).await {
            app.standing.forget_all();
        }
    }
}

async fn delete_unused(app: &App) {
    let days = i64::try_from(app.settings.store.retention_days).ok().filter(|days| *days > 0);
    match app.store.sweep(days.map(|days| days.saturating_mul(DAY_MS)), wall_ms()).await {
        Ok(deleted) if !deleted.is_empty() => {
            tracing::info!(
                sessions = deleted.len(),
                "sessions that were not used for long, or in which nothing was said, were deleted"
            );
        }
        Ok(_) => {}
        Err(error) => tracing::error!(%error, "old sessions could not be deleted"),
    }
}

async fn forget_unused(app: &App) {
    let days = i64::try_from(app.settings.remember.unused_days).ok().filter(|days| *days > 0);
    let Some(days) = days else { return };
    let now_ms = wall_ms();
    match app.store.forget_unused_facts(now_ms.saturating_sub(days.saturating_mul(DAY_MS)), now_ms).await {
        Ok(0) => {}
        Ok(facts) => tracing::info!(facts, "facts that were not of use for long were forgotten"),
        Err(error) => tracing::error!(%error, "facts that were not of use for long could not be forgotten"),
    }
}

/// Whether there was something. What cannot be dropped now is dropped the next time.
pub async fn forget_deleted(app: &App) -> bool {
    let forgotten = async {
        let mut forgotten = Vec::new();
        for owner in app.store.pasts_to_forget().await? {
            match app.model.forget(owner).await {
                Ok(()) => forgotten.push(owner),
                Err(failure) => tracing::warn!(%failure, "what was computed of a deleted session is still there"),
            }
        }
        let is_some = !forgotten.is_empty();
        if is_some {
            app.owners.clear();
            app.recent.clear();
            app.store.pasts_forgotten(forgotten).await?;
        }
        Ok::<_, store::Error>(is_some)
    };
    forgotten.await.unwrap_or_else(|error| {
        tracing::error!(%error, "what was computed of deleted sessions may still be there");
        false
    })
}
