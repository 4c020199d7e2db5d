//! Search over everything a user and their assistant ever said, whatever a summary covers or a barge-in cut.

use crate::rows::{column, count};
use crate::spacing::{joined, spaced};
use crate::writer::StoreFailure;
use crate::{Error, SessionRef, Store};
use serde::Serialize;
use std::collections::HashMap;

#[derive(Debug, Clone, PartialEq)]
pub struct HistorySearch<'a> {
    pub user: &'a str,
    /// None: all sessions of the user.
    pub session: Option<&'a SessionRef>,
    /// Words, and "phrases in quotes". A star ends a word that may go on.
    pub query: &'a str,
    /// One of the words is enough; the more the better. For questions in whole sentences.
    pub any_word: bool,
    pub limit: u32,
    /// A match just said counts double, one of this age one and a half times, a very old one once. None: age is no matter.
    pub recent_ms: Option<i64>,
    pub now_ms: i64,
    /// Put before and after each word found.
    pub marks: [&'a str; 2],
    pub excerpt_words: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hit {
    pub session_id: String,
    pub session_title: String,
    pub item_id: String,
    pub seq: u64,
    pub version: u64,
    /// False: the words were edited, cut off or deleted since.
    pub current: bool,
    pub kind: String,
    /// "system", "user" or "assistant"; None: a call, or what came of it.
    pub role: Option<String>,
    pub excerpt: String,
    pub created_at_ms: i64,
    /// The higher the better; only the order means something.
    pub score: f64,
}

/// Versions of one item often match together, and one hit is shown for them.
const CANDIDATES_PER_HIT: u32 = 5;
/// SQLite's excerpts have at most so many words.
const LONGEST_EXCERPT: u32 = 64;

impl Store {
    pub async fn search(&self, search: &HistorySearch<'_>) -> Result<Vec<Hit>, Error> {
        let matching = match_expression(search.query, search.any_word)
            .ok_or_else(|| Error::EmptyQuery { query: search.query.to_owned() })?;
        let mut transaction = self.read().await?;
        let hits = find(&mut transaction, search, &matching).await;
        self.end(transaction, hits).await
    }
}

async fn find(
    connection: &mut sqlx::SqliteConnection,
    search: &HistorySearch<'_>,
    matching: &str,
) -> Result<Vec<Hit>, StoreFailure> {
    // SQLite's rank is below zero, best first. CROSS JOIN keeps the order of the tables: found words first, then their
    // sessions; asked the other way round, the index is searched once for every item there is.
    let query = sqlx::query(
        "SELECT v.key, v.item_id, v.session, v.seq, v.version, v.kind, v.role, v.created_at_ms,
                s.id AS session_id, s.title AS session_title, i.current = v.key AND i.deleted = 0 AS current,
                -bm25(words) * CASE WHEN ?1 IS NULL THEN 1.0
                    ELSE 1.0 + ?1 / (?1 + max(0.0, ?2 - v.created_at_ms)) END AS score
         FROM words CROSS JOIN item_versions v ON v.key = words.rowid CROSS JOIN sessions s ON s.key = v.session
         CROSS JOIN items i ON i.session = v.session AND i.item_id = v.item_id
         WHERE words MATCH ?3 AND s.user = ?4 AND s.deleted_at_ms IS NULL AND (?5 IS NULL OR s.key = ?5)
         ORDER BY score DESC, v.key DESC LIMIT ?6",
    );
    let rows = query
        .bind(search.recent_ms.map(|recent_ms| recent_ms.max(1) as f64))
        .bind(search.now_ms as f64)
        .bind(matching)
        .bind(search.user)
        .bind(search.session.map(|session| session.key))
        .bind(i64::from(search.limit) * i64::from(CANDIDATES_PER_HIT))
        .fetch_all(&mut *connection)
        .await?;
    let mut hits: Vec<(i64, Hit)> = Vec::new();
    let mut of_item: HashMap<(i64, String), usize> = HashMap::new();
    for row in &rows {
        let hit = Hit {
            session_id: column(row, "session_id")?,
            session_title: column(row, "session_title")?,
            item_id: column(row, "item_id")?,
            seq: count(row, "seq")?,
            version: count(row, "version")?,
            current: column(row, "current")?,
            kind: column(row, "kind")?,
            role: column(row, "role")?,
            excerpt: String::new(),
            created_at_ms: column(row, "created_at_ms")?,
            score: column(row, "score")?,
        };
        let item = (column(row, "session")?, hit.item_id.clone());
        match of_item.get(&item).and_then(|index| hits.get_mut(*index)) {
            // What stands today is shown before what stood once.
            Some(shown) if hit.current && !shown.1.current => *shown = (column(row, "key")?, hit),
            Some(_) => {}
            None => {
                of_item.insert(item, hits.len());
                hits.push((column(row, "key")?, hit));
            }
        }
    }
    hits.truncate(search.limit as usize);
    let mut found = Vec::with_capacity(hits.len());
    for (key, mut hit) in hits {
        let query = sqlx::query(
            "SELECT snippet(words, 0, ?, ?, '…', ?) AS excerpt FROM words WHERE words MATCH ? AND rowid = ?",
        );
        let [open, close] = search.marks;
        let query = query.bind(open).bind(close).bind(search.excerpt_words.clamp(1, LONGEST_EXCERPT));
        let row = query.bind(matching).bind(key).fetch_one(&mut *connection).await?;
        hit.excerpt = joined(column(&row, "excerpt")?);
        found.push(hit);
    }
    Ok(found)
}

/// What people type, in the index's own language, where every word is quoted: nothing typed is an operator.
fn match_expression(query: &str, any_word: bool) -> Option<String> {
    let mut terms = Vec::new();
    // Every second piece between quotes is a phrase.
    for (n, piece) in query.split('"').enumerate() {
        if n % 2 == 1 {
            terms.extend(term(piece));
        } else {
            terms.extend(piece.split_whitespace().filter_map(term));
        }
    }
    if terms.is_empty() { None } else { Some(terms.join(if any_word { " OR " } else { " AND " })) }
}

fn term(words: &str) -> Option<String> {
    if !words.chars().any(char::is_alphanumeric) {
        return None;
    }
    let star = if words.ends_with('*') { " *" } else { "" };
    let words = words.replace('\0', " ");
    Some(format!("\"{}\"{star}", spaced(&words).unwrap_or(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_typed_is_an_operator() {
        let all = |query| match_expression(query, false);
        assert_eq!(all("grandma's cake").as_deref(), Some(r#""grandma's" AND "cake""#));
        assert_eq!(all(r#"NOT "the blue door" NEAR("#).as_deref(), Some(r#""NOT" AND "the blue door" AND "NEAR(""#));
        assert_eq!(all("Geburtst*").as_deref(), Some(r#""Geburtst*" *"#));
        assert_eq!(all(r#"half "open"#).as_deref(), Some(r#""half" AND "open""#));
        assert_eq!(match_expression("who is Bob?", true).as_deref(), Some(r#""who" OR "is" OR "Bob?""#));
        assert_eq!(all("  ?! \"\" - "), None);
        assert_eq!(all("東京").as_deref(), Some("\"東\u{1f}京\""));
    }
}
