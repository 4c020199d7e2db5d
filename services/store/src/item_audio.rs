//! Audio of what users said, beside their items. It is in no search, export or fork, and goes with its item.

use crate::writer::WriteQueue;
use crate::{Error, SessionRef, Store};
use sqlx::FromRow;

/// Audio of one item: samples of 16 bits, little end first.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct ItemAudio {
    #[sqlx(try_from = "i64")]
    pub rate: u32,
    pub samples: Vec<u8>,
}

impl Store {
    /// Keeps the audio of an item, unless it was deleted meanwhile. Of more than `user_bytes` of a user the oldest goes.
    pub async fn keep_audio(
        &self,
        session: &SessionRef,
        item_id: &str,
        ItemAudio { rate, samples }: ItemAudio,
        user_bytes: u64,
    ) -> Result<(), Error> {
        let (session, item_id) = (session.clone(), item_id.to_owned());
        let user_bytes = i64::try_from(user_bytes).unwrap_or(i64::MAX);
        self.write_in(WriteQueue::Pieces, async move |connection| {
            let query = sqlx::query(
                "INSERT INTO item_audio (user, session, item_id, rate, samples)
                 SELECT s.user, i.session, i.item_id, ?3, ?4 FROM items i JOIN sessions s ON s.key = i.session
                 WHERE i.session = ?1 AND i.item_id = ?2 AND i.deleted = 0 AND s.deleted_at_ms IS NULL
                 ON CONFLICT (session, item_id) DO NOTHING",
            );
            query.bind(session.key).bind(item_id).bind(rate).bind(samples).execute(&mut *connection).await?;
            let query = sqlx::query(
                "DELETE FROM item_audio WHERE key IN (SELECT key FROM (
                    SELECT key, sum(octet_length(samples)) OVER (ORDER BY key DESC) AS newer FROM item_audio WHERE user = ?1
                 ) WHERE newer > ?2)",
            );
            query.bind(session.user()).bind(user_bytes).execute(connection).await?;
            Ok(())
        })
        .await
    }

    /// Returns the audio of an item; `None`: none is kept.
    pub async fn item_audio(&self, session: &SessionRef, item_id: &str) -> Result<Option<ItemAudio>, Error> {
        let query = sqlx::query_as(
            "SELECT a.rate, a.samples FROM item_audio a JOIN sessions s ON s.key = a.session AND s.deleted_at_ms IS NULL
             WHERE a.session = ? AND a.item_id = ?",
        );
        let query = query.bind(session.key).bind(item_id);
        self.read(async |reader| Ok(query.fetch_optional(reader).await?)).await
    }
}
