//! Vectors of what users stated, by which it is found by meaning.

use crate::{Error, Hit, Store};
use sqlx::FromRow;
use sqlx::types::Json;

#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct UnindexedMessage {
    pub key: i64,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct MessageVector {
    pub key: i64,
    pub user: String,
    pub person: String,
    pub vector: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct StatedMessage {
    pub key: i64,
    #[sqlx(flatten)]
    pub hit: Hit,
}

impl Store {
    /// Lists statements of remembered conversations behind a key that are older than `before_ms` and have no vector of this
    /// encoder, in the order of their keys.
    pub async fn messages_without_vector(
        &self,
        encoder: &str,
        behind: i64,
        before_ms: i64,
        most: u32,
    ) -> Result<Vec<UnindexedMessage>, Error> {
        let query = sqlx::query_as(
            "SELECT v.key, v.text FROM item_versions v CROSS JOIN items i ON i.current = v.key
             CROSS JOIN sessions s ON s.key = v.session
             WHERE v.key > ?2 AND v.created_at_ms < ?3 AND v.role = 'user' AND v.kind = 'message' AND v.text <> ''
                AND rtrim(v.text) NOT LIKE '%?' AND i.deleted = 0 AND i.being_said = 0
                AND s.remembered = 1 AND s.deleted_at_ms IS NULL
                AND NOT EXISTS (SELECT 1 FROM unsaid_items u WHERE u.session = v.session AND u.item_id = v.item_id)
                AND NOT EXISTS (SELECT 1 FROM message_vectors m WHERE m.version = v.key AND m.encoder = ?1)
             ORDER BY v.key LIMIT ?4",
        );
        let query = query.bind(encoder).bind(behind).bind(before_ms).bind(most);
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    // One that was forgotten or deleted meanwhile gets none.
    pub async fn put_message_vectors(&self, encoder: &str, vectors: Vec<(i64, Vec<u8>)>) -> Result<(), Error> {
        let encoder = encoder.to_owned();
        self.write(async move |connection| {
            for (key, vector) in vectors {
                let query = sqlx::query(
                    "INSERT OR REPLACE INTO message_vectors (version, encoder, vector)
                     SELECT i.current, ?2, ?3 FROM items i WHERE i.current = ?1 AND i.deleted = 0 AND NOT EXISTS (
                        SELECT 1 FROM unsaid_items u WHERE u.session = i.session AND u.item_id = i.item_id)",
                );
                query.bind(key).bind(&encoder).bind(vector).execute(&mut *connection).await?;
            }
            Ok(())
        })
        .await
    }

    /// Lists vectors behind a key with their owners, in the order of their keys. The person is empty where it is not known.
    pub async fn message_vectors(&self, encoder: &str, behind: i64, most: u32) -> Result<Vec<MessageVector>, Error> {
        let query = sqlx::query_as(
            "SELECT v.key, s.user, m.vector, CASE WHEN s.speakers = 0 THEN s.person
                ELSE iif(v.kind = 'message', coalesce(v.content ->> '$.speaker.person', s.person), '') END AS person
             FROM message_vectors m CROSS JOIN item_versions v ON v.key = m.version
             CROSS JOIN sessions s ON s.key = v.session
             WHERE m.version > ?2 AND m.encoder = ?1 AND s.deleted_at_ms IS NULL ORDER BY m.version LIMIT ?3",
        );
        let query = query.bind(encoder).bind(behind).bind(most);
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    /// Reads those of the messages that this person still has said, with their whole text. None of another person is among them.
    pub async fn stated(&self, user: &str, person: &str, keys: &[i64]) -> Result<Vec<StatedMessage>, Error> {
        let query = sqlx::query_as(
            "SELECT v.key, v.item_id, v.seq, v.version, v.kind, v.role, v.created_at_ms, s.id AS session_id,
                s.title AS session_title, 1 AS current, 0.0 AS best, v.text AS excerpt
             FROM json_each(?3) k CROSS JOIN item_versions v ON v.key = k.value
             CROSS JOIN items i ON i.current = v.key CROSS JOIN sessions s ON s.key = v.session
             WHERE s.user = ?1 AND s.remembered = 1 AND s.deleted_at_ms IS NULL AND i.deleted = 0
                AND CASE WHEN s.speakers = 0 THEN s.person
                    ELSE iif(v.kind = 'message', coalesce(v.content ->> '$.speaker.person', s.person), NULL) END = ?2
                AND NOT EXISTS (SELECT 1 FROM unsaid_items u WHERE u.session = v.session AND u.item_id = v.item_id)",
        );
        let query = query.bind(user).bind(person).bind(Json(keys));
        self.look_up(user, async |reader| Ok(query.fetch_all(reader).await?)).await
    }
}
