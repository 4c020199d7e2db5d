//! Regular work: deletes sessions unused for long, expired secrets and unused facts; drops computed prompts of deleted
//! sessions, because they hold the same words; gives freed memory back to the system.

use crate::Completions;
use futures_util::stream::{self, StreamExt};
use runtime::wall_ms;
use std::time::{Duration, Instant};
use store::{PastToForget, SessionRef};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// Interval between looks for changes by commands beside the service, which cannot reach into its memory.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Interval between returns of freed memory. Between pieces in use the C library keeps it: with two thousand clients 2 MB
/// more in a minute.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(60);
/// Pasts whose files go with one look through their folder.
const FORGOTTEN_AT_ONCE: usize = 64; // not a window: pasts
const DAY_MS: i64 = 24 * 3600 * 1000;

impl Completions {
    pub async fn maintain(self, stopping: CancellationToken) {
        let ticks = |every| {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        let (mut sweeps, mut looks, mut frees) = (ticks(SWEEP_EVERY), ticks(LOOK_EVERY), ticks(GIVE_BACK_EVERY));
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                _ = sweeps.tick() => {
                    self.delete_unused_sessions().await;
                    self.forget_unused_facts().await;
                    self.forget_old_requests().await;
                }
                _ = frees.tick() => {
                    let began = Instant::now();
                    // No async work waits behind it.
                    let _ = tokio::task::spawn_blocking(model::give_memory_back).await;
                    tracing::debug!(took_ms = began.elapsed().as_secs_f64() * 1e3, "memory that was freed went back");
                }
                _ = looks.tick() => self.runtime.look_for_changes().await,
            }
            if let Err(error) = self.store.finish_deletions().await {
                tracing::error!(%error, "deleted conversations are hidden, and their words are still in the store");
            }
            self.forget_deleted().await;
            if let Err(error) = self.store.settle_the_log().await {
                tracing::error!(%error, "deleted words may still be in the write-ahead log");
            }
        }
    }

    pub async fn delete_session(&self, session: &SessionRef) -> Result<(), store::Error> {
        self.runtime.deleted(session).await;
        self.store.delete_session(session, wall_ms()).await?;
        self.runtime.deleted(session).await; // a client may have come back before the store hid it
        self.standing.forget(session.user());
        self.forget_deleted().await;
        tracing::info!(session = session.id(), "a session was deleted");
        Ok(())
    }

    pub async fn delete_person(&self, user: &str, person: &str) -> Result<usize, store::Error> {
        for session in self.store.sessions_of_person(user, person).await? {
            self.runtime.deleted(&session).await;
        }
        let deleted = self.store.delete_person(user, person, wall_ms()).await?;
        for session in &deleted {
            self.runtime.deleted(session).await;
        }
        self.persons.forget(user, person);
        self.standing.forget(user);
        self.forget_deleted().await;
        tracing::info!(sessions = deleted.len(), "a person was deleted");
        Ok(deleted.len())
    }

    /// Drops what was computed of deleted words, and answers that may hold some. The next call retries what cannot be
    /// dropped now.
    pub async fn forget_deleted(&self) {
        if let Err(error) = self.drop_pasts().await {
            tracing::error!(%error, "what was computed of deleted words may still be there");
        }
    }

    async fn drop_pasts(&self) -> Result<(), store::Error> {
        let _alone = self.dropping.lock().await;
        let mut forgotten = Vec::new();
        let ask = |past: PastToForget| async { (self.model.forget(past.owner, past.stays).await, past) };
        let mut asked = stream::iter(self.store.pasts_to_forget().await?).map(ask).buffer_unordered(FORGOTTEN_AT_ONCE);
        while let Some((answer, PastToForget { owner, user, .. })) = asked.next().await {
            match (answer, user) {
                (Ok(()), Some(user)) => {
                    self.recent.forget(&user);
                    self.standing.forget(&user);
                }
                (Ok(()), None) => {
                    self.recent.clear();
                    self.standing.forget_all();
                }
                (Err(failure), _) => {
                    tracing::warn!(%failure, "what was computed of deleted words is still there");
                    continue;
                }
            }
            forgotten.push(owner);
        }
        if !forgotten.is_empty() {
            self.owners.clear();
            self.store.pasts_forgotten(forgotten).await?;
        }
        Ok(())
    }

    async fn forget_old_requests(&self) {
        let kept_ms = i64::try_from(self.settings.limits.retry_s.saturating_mul(1000)).unwrap_or(i64::MAX);
        if let Err(error) = self.store.forget_requests_before(wall_ms().saturating_sub(kept_ms)).await {
            tracing::error!(%error, "digests of old requests could not be dropped");
        }
    }

    async fn delete_unused_sessions(&self) {
        let days = i64::try_from(self.settings.store.retention_days).ok().filter(|days| *days > 0);
        match self.store.sweep(days.map(|days| days.saturating_mul(DAY_MS)), wall_ms()).await {
            Ok(deleted) if !deleted.is_empty() => {
                let sessions = deleted.len();
                tracing::info!(sessions, "sessions were deleted: they were unused for long, or empty");
            }
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "old sessions could not be deleted"),
        }
    }

    async fn forget_unused_facts(&self) {
        let days = i64::try_from(self.settings.remember.unused_days).ok().filter(|days| *days > 0);
        let Some(days) = days else { return };
        let now_ms = wall_ms();
        match self.store.forget_unused_facts(now_ms.saturating_sub(days.saturating_mul(DAY_MS)), now_ms).await {
            Ok(0) => {}
            Ok(facts) => tracing::info!(facts, "facts that were unused for long were forgotten"),
            Err(error) => tracing::error!(%error, "facts that were unused for long could not be forgotten"),
        }
    }
}
