//! Forks: a second session that begins as a copy of another one up to some item. Later items of either stay its own.
//!
//! As with an import, the new session is marked like a deleted one until it is complete.

use crate::error::Result;
use crate::notes::{Copies, copy_sources, withdraw};
use crate::page::fitting;
use crate::pieces::show;
use crate::quota::Quota;
use crate::sessions::session_record;
use crate::summaries::{insert_pin, insert_summary, pins_of_session, summaries_of_session};
use crate::versions::{changed_under, insert_version, last_seq, versions_of};
use crate::writer::WriteQueue;
use crate::{Change, Error, ItemVersion, OrderKey, SessionRecord, SessionRef, Store, Summary};
use sqlx::sqlite::SqliteConnection;
use std::collections::HashSet;

const ITEMS_AT_ONCE: u32 = 64;

impl Store {
    /// Copies the current items up to `through`, the newest summary that covers no more than these, and their pins.
    pub async fn fork_session(
        &self,
        from: &SessionRef,
        through: &OrderKey,
        id: String,
        now_ms: i64,
    ) -> Result<SessionRef, Error> {
        let record = self.session(from).await?;
        let (created_at_ms, updated_at_ms) = (now_ms, now_ms);
        let new = SessionRecord { id, metadata: None, created_at_ms, updated_at_ms, ..record };
        let session = self.begin_hidden(new, now_ms).await?;
        let copied = async {
            self.join_family(from, &session).await?;
            self.copy(from, through, &session, now_ms).await
        };
        let copied = copied.await;
        self.or_removed(&session, copied).await.map(|()| session)
    }

    /// Marks a fork as one that holds copies of the other session's items.
    async fn join_family(&self, from: &SessionRef, fork: &SessionRef) -> Result<(), Error> {
        let (from, fork) = (from.key, fork.key);
        self.write(async move |connection| {
            let query = sqlx::query(
                "UPDATE sessions SET family = (SELECT coalesce(family, key) FROM sessions WHERE key = ?) WHERE key = ?",
            );
            query.bind(from).bind(fork).execute(connection).await?;
            Ok(())
        })
        .await
    }

    async fn copy(&self, from: &SessionRef, through: &OrderKey, to: &SessionRef, now_ms: i64) -> Result<(), Error> {
        let mut after = OrderKey::default();
        loop {
            let (from, through, to, quota) = (from.clone(), through.clone(), to.clone(), self.quota.clone());
            let last = self.write_in(WriteQueue::Pieces, async move |connection| {
                let items = items_between(connection, &from, &after, &through).await?;
                let mut seq = last_seq(connection, &to).await?;
                for item in &items {
                    seq += 1;
                    quota.take(connection, to.user(), item.body.text_bytes(), now_ms).await?;
                    let copy = ItemVersion { seq, version: 1, change: Change::Created, ..item.clone() };
                    insert_version(connection, &to, &copy).await?;
                }
                Ok(items.last().map(|item| item.order_key.clone()))
            });
            match last.await? {
                Some(last) => after = last,
                None => break,
            }
        }
        let (from, through, to, quota) = (from.clone(), through.clone(), to.clone(), self.quota.clone());
        self.write(async move |connection| {
            copy_context(connection, &quota, &from, &through, &to, now_ms).await?;
            // The original session has the facts, and hidden places stay hidden here.
            let unsay = sqlx::query(
                "INSERT OR IGNORE INTO unsaid_items (session, item_id, secret)
                 SELECT ?, item_id, secret FROM unsaid_items WHERE session = ?",
            );
            unsay.bind(to.key).bind(from.key).execute(&mut *connection).await?;
            copy_sources(connection, &from, &to).await?;
            let seq = i64::try_from(last_seq(connection, &to).await?).unwrap_or(i64::MAX);
            let heard =
                sqlx::query("UPDATE sessions SET heard_seq = ?1, learned_seq = ?1, meant_seq = ?1 WHERE key = ?2");
            heard.bind(seq).bind(to.key).execute(&mut *connection).await?;
            show(connection, &to).await?;
            withdraw(connection, to.user(), Copies::In(to.key), now_ms).await?;
            Ok(())
        })
        .await
    }
}

async fn items_between(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    after: &OrderKey,
    through: &OrderKey,
) -> Result<Vec<ItemVersion>> {
    session_record(connection, session).await?; // it may have been deleted meanwhile
    let lengths = sqlx::query_scalar(
        "SELECT octet_length(v.content) FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ? AND i.place > ? AND i.place <= ? AND i.deleted = 0 AND i.being_said = 0
         ORDER BY i.place LIMIT ?",
    );
    let lengths = lengths.bind(session.key).bind(after).bind(through).bind(ITEMS_AT_ONCE);
    let (fits, _) = fitting(connection, lengths, ITEMS_AT_ONCE).await?;
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ? AND i.place > ? AND i.place <= ? AND i.deleted = 0 AND i.being_said = 0
         ORDER BY i.place LIMIT ?",
    );
    let query = query.bind(session.key).bind(after).bind(through).bind(fits);
    versions_of(&query.fetch_all(connection).await?, &session.id)
}

/// Copies the summary and pins, if they say nothing that came later.
async fn copy_context(
    connection: &mut SqliteConnection,
    quota: &Quota,
    from: &SessionRef,
    through: &OrderKey,
    to: &SessionRef,
    now_ms: i64,
) -> Result<()> {
    let mut stands = None;
    for summary in summaries_of_session(connection, from).await? {
        let is_early = summary.is_in_use() && summary.to_order_key <= *through;
        if is_early && !changed_under(connection, from, &summary.to_order_key, summary.through_seq).await? {
            stands = Some(summary);
        }
    }
    if let Some(summary) = stands {
        quota.take(connection, to.user(), summary.text.len(), now_ms).await?;
        let through_seq = last_seq(connection, to).await?;
        insert_summary(connection, to, &Summary { version: 1, based_on: None, through_seq, ..summary }).await?;
    }
    let query = sqlx::query_scalar("SELECT item_id FROM items WHERE session = ?").bind(to.key);
    let items: HashSet<String> = query.fetch_all(&mut *connection).await?.into_iter().collect();
    for pin in pins_of_session(connection, from, false).await? {
        if pin.source_item.as_ref().is_none_or(|item| items.contains(item)) {
            quota.take(connection, to.user(), pin.text.len(), now_ms).await?;
            insert_pin(connection, to, &pin).await?;
        }
    }
    Ok(())
}
