//! Forks: a second session that begins as a copy of another one up to some item. Later items of either stay its own.
//!
//! As with an import, the new session is marked like a deleted one until it is complete.

use crate::erase::erase;
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
            self.copy_items(from, through, &session, now_ms).await?;
            self.copy_rest(from, through, &session, now_ms).await
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

    async fn copy_items(
        &self,
        from: &SessionRef,
        through: &OrderKey,
        to: &SessionRef,
        now_ms: i64,
    ) -> Result<(), Error> {
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
                None => return Ok(()),
            }
        }
    }

    // Copies what stands around the items, and shows the fork.
    async fn copy_rest(
        &self,
        from: &SessionRef,
        through: &OrderKey,
        to: &SessionRef,
        now_ms: i64,
    ) -> Result<(), Error> {
        let (from, through, to, quota) = (from.clone(), through.clone(), to.clone(), self.quota.clone());
        self.write(async move |connection| {
            session_record(connection, &from).await?; // it may have been deleted meanwhile
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
            for item in deleted_meanwhile(connection, &from, &to).await? {
                erase(connection, &to, item, now_ms).await?;
            }
            Ok(())
        })
        .await
    }
}

// Lists the copies whose items were deleted after they were copied: a deletion finds no fork that is not shown yet.
async fn deleted_meanwhile(
    connection: &mut SqliteConnection,
    from: &SessionRef,
    to: &SessionRef,
) -> Result<Vec<ItemVersion>> {
    let query = sqlx::query(
        "SELECT v.* FROM items copy JOIN item_versions v ON v.key = copy.current
         JOIN items said ON said.session = ? AND said.item_id = copy.item_id AND said.deleted = 1
         WHERE copy.session = ? AND copy.deleted = 0",
    );
    versions_of(&query.bind(from.key).bind(to.key).fetch_all(connection).await?, &to.id)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenedBy, Placement, StoreOptions};
    use session::{Item, ItemPlace, Role, SessionConfig};

    #[tokio::test]
    async fn what_is_deleted_while_it_is_copied_is_in_no_fork() {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            path: folder.path().join("store.sqlite3"),
            opened_by: OpenedBy::Service,
            create: true,
            busy_timeout_ms: 1000,
            readers: 1,
            read_limit_ms: 0,
            sync_ms: 1000,
            user_bytes: 0,
            user_bytes_per_minute: 0,
            write_queue: 16,
            commit_group: 16,
            wal_limit_bytes: 1 << 20,
            max_pages: None,
            check_at_start: false,
        };
        let store = Store::open(&options, 0).await.unwrap();
        store.put_user("ada", "Ada", 1).await.unwrap();
        let record = SessionRecord {
            id: "first".into(),
            user: "ada".into(),
            person: String::new(),
            room: String::new(),
            is_remembered: false,
            is_of_household: false,
            told_facts: None,
            placement: Placement { preset: "small".into(), ctx_size: 1000, experiment: None, arm: None },
            title: String::new(),
            config: SessionConfig::new("Be brief."),
            metadata: None,
            created_at_ms: 1,
            updated_at_ms: 1,
        };
        let from = store.create_session(record.clone()).await.unwrap();
        for (at, id) in ["stays", "goes", "last"].into_iter().enumerate() {
            let item = Item::message(id, Role::User, format!("the xylophone {id}"));
            store.append(&from, item, ItemPlace::End, 10 + at as i64).await.unwrap();
        }
        let through = store.item(&from, "last").await.unwrap().order_key;
        let hidden = async |id: &str| {
            let fork = SessionRecord { id: id.into(), ..record.clone() };
            let fork = store.begin_hidden(fork, 20).await.unwrap();
            store.join_family(&from, &fork).await.unwrap();
            store.copy_items(&from, &through, &fork, 20).await.unwrap();
            fork
        };
        let fork = hidden("fork").await;
        store.delete_item(&from, "goes", 30).await.unwrap();
        store.copy_rest(&from, &through, &fork, 40).await.unwrap();
        let left: Vec<String> = store.load(&fork).await.unwrap().items.into_iter().map(|item| item.item_id).collect();
        assert_eq!(left, ["stays", "last"]);
        let history = store.history(&fork, 0, 100).await.unwrap();
        assert!(history.iter().all(|version| !version.said().contains("goes")), "{history:?}");

        let fork = hidden("late").await;
        store.delete_session(&from, 50).await.unwrap();
        assert!(matches!(store.copy_rest(&from, &through, &fork, 60).await, Err(Error::NoSession { .. })));
    }
}
