//! Facts found without a look at all of them: the best to tell, those about a subject, those with a word, a page.

use crate::facts::RememberedFact;
use crate::{Error, Page, Store};
use sqlx::FromRow;
use sqlx::types::Json;

#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct ToldFact {
    pub key: i64,
    pub id: String,
    pub text: String,
    pub asked: bool,
    pub uses: u64,
    pub said_at_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct UnindexedFact {
    pub key: i64,
    pub text: String,
}

const INDEXED_AT_ONCE: i64 = 64;

impl Store {
    /// Lists facts of a person that hold: those that a person asked for first, then those that were used most, then the newest.
    pub async fn facts_to_tell(&self, user: &str, person: &str, limit: u32) -> Result<Vec<ToldFact>, Error> {
        let query = sqlx::query_as(
            "SELECT key, id, text, asked, uses, said_at_ms FROM facts
             WHERE user = ? AND person = ? AND replaced_by IS NULL AND forgotten_at_ms IS NULL
             ORDER BY asked DESC, uses DESC, said_at_ms DESC LIMIT ?",
        );
        let query = query.bind(user).bind(person).bind(limit);
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    pub async fn facts_on(&self, user: &str, person: &str, subjects: &[&str]) -> Result<Vec<RememberedFact>, Error> {
        let query = sqlx::query_as(
            "SELECT f.*, s.id AS session_id FROM (SELECT DISTINCT value FROM json_each(?3)) wanted
             JOIN facts f ON f.user = ?1 AND f.person = ?2 AND f.about = wanted.value
                AND f.replaced_by IS NULL AND f.forgotten_at_ms IS NULL
             LEFT JOIN sessions s ON s.key = f.session ORDER BY f.said_at_ms, f.key",
        );
        let query = query.bind(user).bind(person).bind(Json(subjects));
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    /// Lists facts of a person that hold and have one of these words: of each word the newest `of_each`. With `besides` only those
    /// that no session says, so that no search of what was said finds them.
    pub async fn facts_with_words(
        &self,
        user: &str,
        person: &str,
        words: &[String],
        besides: bool,
        of_each: u32,
    ) -> Result<Vec<RememberedFact>, Error> {
        self.look_up(user, async |reader| {
            let mut keys: Vec<i64> = Vec::new();
            for word in words {
                let query = sqlx::query_scalar(
                    "SELECT fact FROM fact_words WHERE user = ?1 AND person = ?2 AND word = ?3
                        AND (NOT ?4 OR EXISTS (SELECT 1 FROM facts f WHERE f.key = fact AND f.session IS NULL))
                     ORDER BY fact DESC LIMIT ?5",
                );
                let query = query.bind(user).bind(person).bind(word).bind(besides).bind(of_each);
                let found: Vec<i64> = query.fetch_all(&mut *reader).await?;
                keys.extend(found);
            }
            let query = sqlx::query_as(
                "SELECT f.*, s.id AS session_id FROM (SELECT DISTINCT value FROM json_each(?1)) wanted
                 JOIN facts f ON f.key = wanted.value LEFT JOIN sessions s ON s.key = f.session
                 ORDER BY f.said_at_ms, f.key",
            );
            Ok(query.bind(Json(keys)).fetch_all(reader).await?)
        })
        .await
    }

    pub async fn fact(&self, user: &str, id: &str) -> Result<Option<RememberedFact>, Error> {
        let query = sqlx::query_as(
            "SELECT f.*, s.id AS session_id FROM facts f LEFT JOIN sessions s ON s.key = f.session
             WHERE f.id = ? AND f.user = ? AND f.forgotten_at_ms IS NULL",
        );
        let query = query.bind(id).bind(user);
        self.read(async |reader| Ok(query.fetch_optional(reader).await?)).await
    }

    pub async fn has_replaced(&self, user: &str, id: &str) -> Result<bool, Error> {
        let query = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM facts WHERE replaced_by = ? AND user = ?)");
        let query = query.bind(id).bind(user);
        self.read(async |reader| Ok(query.fetch_one(reader).await?)).await
    }

    /// Lists a page of the facts of a person, or of all (`None`), the newest first; with `past` also those that were replaced.
    /// `before` continues it.
    pub async fn facts_page(
        &self,
        user: &str,
        person: Option<&str>,
        past: bool,
        before: Option<&str>,
        limit: u32,
    ) -> Result<Page<RememberedFact>, Error> {
        let query = sqlx::query_as(
            "SELECT f.*, s.id AS session_id FROM facts f LEFT JOIN sessions s ON s.key = f.session
             WHERE f.user = ?1 AND (?2 IS NULL OR f.person = ?2) AND f.forgotten_at_ms IS NULL
                AND (?3 OR f.replaced_by IS NULL)
                AND (?4 IS NULL OR (f.said_at_ms, f.key) < (SELECT said_at_ms, key FROM facts WHERE id = ?4))
             ORDER BY f.said_at_ms DESC, f.key DESC LIMIT ?5",
        );
        let query = query.bind(user).bind(person).bind(past).bind(before).bind(i64::from(limit) + 1);
        let mut rows: Vec<RememberedFact> = self.read(async |reader| Ok(query.fetch_all(reader).await?)).await?;
        let has_more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        Ok(Page { rows, has_more })
    }

    pub async fn unindexed_facts(&self) -> Result<Vec<UnindexedFact>, Error> {
        let query = sqlx::query_as("SELECT key, text FROM facts WHERE indexed = 0 ORDER BY key LIMIT ?");
        self.read(async |reader| Ok(query.bind(INDEXED_AT_ONCE).fetch_all(reader).await?)).await
    }

    /// Stores the words of facts. One that was forgotten or replaced meanwhile gets none.
    pub async fn index_facts(&self, words: Vec<(i64, Vec<String>)>) -> Result<(), Error> {
        self.write(async move |connection| {
            for (key, words) in words {
                let query = sqlx::query(
                    "INSERT OR IGNORE INTO fact_words (user, person, word, fact)
                     SELECT f.user, f.person, value, f.key FROM json_each(?2) JOIN facts f ON f.key = ?1
                     WHERE f.replaced_by IS NULL AND f.forgotten_at_ms IS NULL",
                );
                query.bind(key).bind(Json(words)).execute(&mut *connection).await?;
                let query = sqlx::query("UPDATE facts SET indexed = 1 WHERE key = ?");
                query.bind(key).execute(&mut *connection).await?;
            }
            Ok(())
        })
        .await
    }

    /// Deletes the facts of a user that were replaced first, down to `most` facts in all. Where they were said stays hidden.
    pub async fn forget_oldest_replaced(&self, user: &str, most: u64) -> Result<u64, Error> {
        let (user, most) = (user.to_owned(), i64::try_from(most).unwrap_or(i64::MAX));
        let query = sqlx::query(
            "DELETE FROM facts WHERE key IN (
                SELECT key FROM facts WHERE user = ?1 AND replaced_by IS NOT NULL AND forgotten_at_ms IS NULL
                ORDER BY replaced_at_ms
                LIMIT max(0, (SELECT count(*) FROM facts WHERE user = ?1 AND forgotten_at_ms IS NULL) - ?2))",
        );
        self.execute(query.bind(user).bind(most)).await
    }
}
