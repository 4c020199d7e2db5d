//! What is done now and then: sessions that nobody used for long, and secrets that expired, are deleted.

use super::App;
use crate::live::wall_ms;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

const EVERY: Duration = Duration::from_secs(3600);
const DAY_MS: i64 = 24 * 3600 * 1000;

pub async fn run(app: App) {
    let mut times = interval(EVERY);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        times.tick().await;
        let now_ms = wall_ms();
        let before_ms = match i64::try_from(app.settings.store.retention_days) {
            Ok(days) if days > 0 => now_ms.saturating_sub(days.saturating_mul(DAY_MS)),
            // Nothing is as old as that.
            _ => i64::MIN,
        };
        match app.store.delete_unused_since(before_ms, now_ms).await {
            Ok(deleted) if deleted.sessions > 0 => {
                tracing::info!(sessions = deleted.sessions, "sessions that nobody used for long were deleted");
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "old sessions could not be deleted"),
        }
    }
}
