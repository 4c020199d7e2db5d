//! Vectors of facts, by which they are found by meaning.

use crate::facts::RememberedFact;
use crate::found_facts::UnindexedFact;
use crate::{Error, SessionRef, Store};
use sqlx::FromRow;
use sqlx::types::Json;

#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct FactVector {
    #[sqlx(flatten)]
    pub fact: RememberedFact,
    pub vector: Vec<u8>,
}

const VECTORS_AT_ONCE: i64 = 32;

impl Store {
    /// Lists facts that hold and have no vector of this encoder, the newest first.
    pub async fn facts_without_vector(&self, encoder: &str) -> Result<Vec<UnindexedFact>, Error> {
        let query = sqlx::query_as(
            "SELECT key, text FROM facts f WHERE replaced_by IS NULL AND forgotten_at_ms IS NULL AND NOT EXISTS (
                SELECT 1 FROM fact_vectors v WHERE v.fact = f.key AND v.encoder = ?)
             ORDER BY key DESC LIMIT ?",
        );
        let query = query.bind(encoder).bind(VECTORS_AT_ONCE);
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    pub async fn put_fact_vectors(&self, encoder: &str, vectors: Vec<(i64, Vec<u8>)>) -> Result<(), Error> {
        let encoder = encoder.to_owned();
        self.write(async move |connection| {
            for (key, vector) in vectors {
                let query = sqlx::query(
                    "INSERT OR REPLACE INTO fact_vectors (fact, encoder, vector)
                     SELECT key, ?2, ?3 FROM facts WHERE key = ?1 AND replaced_by IS NULL AND forgotten_at_ms IS NULL",
                );
                query.bind(key).bind(&encoder).bind(vector).execute(&mut *connection).await?;
            }
            Ok(())
        })
        .await
    }

    /// Lists the ids and vectors of the newest facts of one person that hold, `most` of them. Each question asks for them, so that
    /// their words are not among them.
    pub async fn vectors_of(
        &self,
        user: &str,
        person: &str,
        encoder: &str,
        most: usize,
    ) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let query = sqlx::query_as(
            "SELECT f.id, v.vector FROM facts f JOIN fact_vectors v ON v.fact = f.key AND v.encoder = ?3
             WHERE f.user = ?1 AND f.person = ?2 AND f.replaced_by IS NULL AND f.forgotten_at_ms IS NULL
             ORDER BY f.key DESC LIMIT ?4",
        );
        let query = query.bind(user).bind(person).bind(encoder).bind(i64::try_from(most).unwrap_or(i64::MAX));
        self.look_up(user, async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    /// Lists the newest facts of one person that hold, `most` of them, with their vectors of this encoder. No fact of another
    /// owner is among them.
    pub async fn fact_vectors(
        &self,
        user: &str,
        person: &str,
        encoder: &str,
        most: usize,
    ) -> Result<Vec<FactVector>, Error> {
        let query = sqlx::query_as(
            "SELECT f.*, s.id AS session_id, v.vector FROM facts f JOIN fact_vectors v ON v.fact = f.key AND v.encoder = ?3
             LEFT JOIN sessions s ON s.key = f.session
             WHERE f.user = ?1 AND f.person = ?2 AND f.replaced_by IS NULL AND f.forgotten_at_ms IS NULL
             ORDER BY f.key DESC LIMIT ?4",
        );
        let query = query.bind(user).bind(person).bind(encoder).bind(i64::try_from(most).unwrap_or(i64::MAX));
        self.look_up(user, async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    pub async fn facts_by_the_way(&self, session: &SessionRef, items: &[&str]) -> Result<Vec<RememberedFact>, Error> {
        let query = sqlx::query_as(
            "SELECT f.*, s.id AS session_id FROM facts f JOIN sessions s ON s.key = f.session
             WHERE f.session = ?2 AND f.user = ?1 AND f.item_id IN (SELECT value FROM json_each(?3))
                AND f.asked = 0 AND f.made_by = 'words' AND f.replaced_by IS NULL AND f.forgotten_at_ms IS NULL",
        );
        let query = query.bind(session.user()).bind(session.key).bind(Json(items));
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }
}
