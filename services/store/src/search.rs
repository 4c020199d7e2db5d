//! Search over everything a user and their assistant ever said, including covered and cut text.

use crate::spacing::{joined, spaced};
use crate::{Error, SessionRef, Store};
use serde::Serialize;
use sqlx::FromRow;
use sqlx::types::Json;
use std::collections::HashSet;

#[derive(Debug, Clone, PartialEq)]
pub struct HistorySearch<'a> {
    pub user: &'a str,
    pub place: SearchPlace<'a>,
    pub query: &'a str,
    /// Limit on different words. More are an error, or are ignored with `any_word`.
    pub most_words: usize,
    /// True if one of the words is enough; more score higher. For questions in whole sentences.
    pub any_word: bool,
    pub statements: bool,
    pub limit: u32,
    /// Age at which a match counts one and a half times: a new one counts double, a very old one once. `None` ignores
    /// age.
    pub recent_ms: Option<i64>,
    pub now_ms: i64,
    /// Marks before and after each word found.
    pub marks: [&'a str; 2],
    pub excerpt_words: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchPlace<'a> {
    User,
    Session(&'a SessionRef),
    /// Words of this person, in remembered conversations, without those that were replaced or forgotten.
    Person(&'a str, SecretsOf<'a>),
}

/// Conversations whose secrets a search finds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SecretsOf<'a> {
    None,
    Session(&'a SessionRef),
    All,
}

#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct Hit {
    pub session_id: String,
    pub session_title: String,
    pub item_id: String,
    pub seq: u64,
    pub version: u64,
    pub current: bool,
    pub kind: String,
    /// "system", "user" or "assistant"; `None` for a call or its result.
    pub role: Option<String>,
    pub excerpt: String,
    pub created_at_ms: i64,
    /// Score for ordering, higher is better. Its size has no meaning.
    #[sqlx(rename = "best")]
    pub score: f64,
}

/// SQLite's limit on the words of an excerpt.
const LONGEST_EXCERPT: u32 = 64;
/// Bytes of a text up to which the best excerpt is looked for. SQLite takes the square of the found words for it: hours in a book.
const EXCERPTED_BYTES: i64 = 16 << 10; // not a window: bytes of a text
/// Characters of the begin of a longer text, which is shown instead.
const BEGIN_CHARS: i64 = 120;

impl Store {
    pub async fn search(&self, search: &HistorySearch<'_>) -> Result<Vec<Hit>, Error> {
        let terms = match_terms(search.query, search.any_word, search.most_words)?;
        let (session, of) = match search.place {
            SearchPlace::User => (None, None),
            SearchPlace::Session(session) => (Some(session.key), None),
            SearchPlace::Person(person, SecretsOf::None) => (None, Some(person)),
            SearchPlace::Person(person, SecretsOf::Session(session)) => (Some(session.key), Some(person)),
            SearchPlace::Person(person, SecretsOf::All) => (Some(-1), Some(person)),
        };
        // CROSS JOIN keeps the order of the tables: found words first, then their sessions; the other way round, SQLite searches
        // the index once for every item. For the same reason the excerpts come from one more walk over the found words: the plus
        // keeps SQLite from searching again for each hit. An item's current version comes before its older ones.
        let query = match of {
            // The service's own look. SQLite's rank is below zero, best first; it counts the words of all users.
            Some(_) => sqlx::query_as(
                "WITH candidates AS (
                    SELECT v.key, v.item_id, v.session, v.seq, v.version, v.kind, v.role, v.created_at_ms,
                        s.id AS session_id, s.title AS session_title, i.current = v.key AND i.deleted = 0 AS current,
                        -bm25(words) * CASE WHEN ?1 IS NULL THEN 1.0
                            ELSE 1.0 + ?1 / (?1 + max(0.0, ?2 - v.created_at_ms)) END AS score
                    FROM words CROSS JOIN item_versions v ON v.key = words.rowid CROSS JOIN sessions s ON s.key = v.session
                    CROSS JOIN items i ON i.session = v.session AND i.item_id = v.item_id
                    WHERE words MATCH ?3 AND s.user = ?4 AND s.deleted_at_ms IS NULL
                        AND (?13 = 0 OR (v.role = 'user' AND rtrim(v.text) NOT LIKE '%?'))
                        AND s.remembered = 1
                        AND CASE WHEN s.speakers = 0 THEN s.person
                            ELSE iif(v.kind = 'message', coalesce(v.content ->> '$.speaker.person', s.person), NULL)
                            END = ?12
                        AND v.item_id NOT GLOB ?14 || '_*' AND NOT EXISTS (
                            SELECT 1 FROM unsaid_items u WHERE u.session = v.session AND u.item_id = v.item_id
                                AND (u.secret = 0 OR coalesce(?5, 0) NOT IN (v.session, -1)))
                    ORDER BY score DESC, v.key DESC LIMIT ?6 * 5
                ), shown AS (
                    SELECT * FROM (
                        SELECT *, max(score) OVER (PARTITION BY session, item_id) AS best,
                            row_number() OVER (PARTITION BY session, item_id ORDER BY current DESC, score DESC) AS nth
                        FROM candidates
                    ) WHERE nth = 1 ORDER BY best DESC, key DESC LIMIT ?6
                )
                SELECT shown.*, CASE WHEN octet_length(v.text) <= ?10 THEN snippet(words, 0, ?7, ?8, '…', ?9)
                    ELSE substr(v.text, 1, ?11) || '…' END AS excerpt
                FROM words CROSS JOIN shown ON shown.key = +words.rowid CROSS JOIN item_versions v ON v.key = shown.key
                WHERE words MATCH ?3 ORDER BY shown.best DESC, shown.key DESC",
            ),
            // No client learns how many messages of other users have a word: the user's own alone decide what it counts.
            None => sqlx::query_as(
                "WITH matched AS MATERIALIZED (
                    SELECT t.key AS term, v.key FROM json_each(?12) t CROSS JOIN words ON words MATCH t.value
                    CROSS JOIN item_versions v ON v.key = words.rowid CROSS JOIN sessions s ON s.key = v.session
                    WHERE s.user = ?4 AND s.deleted_at_ms IS NULL AND (?5 IS NULL OR s.key = ?5)
                        AND (?13 = 0 OR (v.role = 'user' AND rtrim(v.text) NOT LIKE '%?'))
                ), found (n) AS (SELECT count(DISTINCT key) FROM matched
                ), weights AS (
                    SELECT term, 2.0 * found.n / (found.n + 2.0 * count(*)) AS weight FROM matched, found GROUP BY term
                ), scored AS (
                    SELECT m.key, sum(w.weight) AS weight FROM matched m JOIN weights w ON w.term = m.term GROUP BY m.key
                ), candidates AS (
                    SELECT v.key, v.item_id, v.session, v.seq, v.version, v.kind, v.role, v.created_at_ms,
                        s.id AS session_id, s.title AS session_title, i.current = v.key AND i.deleted = 0 AS current,
                        m.weight / (1.0 + octet_length(v.text) / 400.0) * CASE WHEN ?1 IS NULL THEN 1.0
                            ELSE 1.0 + ?1 / (?1 + max(0.0, ?2 - v.created_at_ms)) END AS score
                    FROM scored m CROSS JOIN item_versions v ON v.key = m.key CROSS JOIN sessions s ON s.key = v.session
                    CROSS JOIN items i ON i.session = v.session AND i.item_id = v.item_id
                    ORDER BY score DESC, v.key DESC LIMIT ?6 * 5
                ), shown AS (
                    SELECT * FROM (
                        SELECT *, max(score) OVER (PARTITION BY session, item_id) AS best,
                            row_number() OVER (PARTITION BY session, item_id ORDER BY current DESC, score DESC) AS nth
                        FROM candidates
                    ) WHERE nth = 1 ORDER BY best DESC, key DESC LIMIT ?6
                )
                SELECT shown.*, CASE WHEN octet_length(v.text) <= ?10 THEN snippet(words, 0, ?7, ?8, '…', ?9)
                    ELSE substr(v.text, 1, ?11) || '…' END AS excerpt
                FROM words CROSS JOIN shown ON shown.key = +words.rowid CROSS JOIN item_versions v ON v.key = shown.key
                WHERE words MATCH ?3 ORDER BY shown.best DESC, shown.key DESC",
            ),
        };
        let [open, close] = search.marks;
        let query = query
            .bind(search.recent_ms.map(|recent_ms| recent_ms.max(1) as f64))
            .bind(search.now_ms as f64)
            .bind(terms.join(" OR "))
            .bind(search.user)
            .bind(session)
            .bind(search.limit)
            .bind(open)
            .bind(close)
            .bind(search.excerpt_words.clamp(1, LONGEST_EXCERPT))
            .bind(EXCERPTED_BYTES)
            .bind(BEGIN_CHARS);
        let query = match of {
            Some(person) => query.bind(person).bind(search.statements).bind(session::HIDDEN),
            None => query.bind(Json(&terms)).bind(search.statements),
        };
        let mut hits: Vec<Hit> =
            self.read_search(search.user, async |reader| Ok(query.fetch_all(reader).await?)).await?;
        for hit in &mut hits {
            hit.excerpt = joined(&hit.excerpt);
        }
        Ok(hits)
    }

    /// Counts the versions of items that contain words with each beginning. `None` if there are more than one in
    /// `one_of`, or more than `most`; up to `few` are never too many. Also returns the number of all versions. `user` asks.
    pub async fn count_words(
        &self,
        user: &str,
        beginnings: &[String],
        one_of: u64,
        few: u64,
        most: u64,
    ) -> Result<(Vec<Option<u64>>, u64), Error> {
        self.look_up(user, async |reader| {
            let versions = sqlx::query_scalar("SELECT coalesce(max(key), 0) FROM item_versions");
            let versions: i64 = versions.fetch_one(&mut *reader).await?;
            let versions = versions.unsigned_abs();
            let most = (versions / one_of.max(1)).clamp(few, most.max(few)) as i64;
            let terms = beginnings.iter().map(|word| term(&format!("{word}*")).unwrap_or_default().0);
            let counts = sqlx::query_scalar(
                "SELECT (SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH w.value LIMIT ?2 + 1))
                 FROM json_each(?1) w ORDER BY w.key",
            );
            let counts = counts.bind(Json(terms.collect::<Vec<_>>())).bind(most);
            let counts: Vec<i64> = counts.fetch_all(&mut *reader).await?;
            let counts = counts.into_iter().map(|count| (count <= most).then_some(count.unsigned_abs()));
            Ok((counts.collect(), versions))
        })
        .await
    }
}

const WORDS_OF_A_STAR: usize = 4;

/// Translates typed words into expressions of the index, with every word quoted: nothing typed is an operator. Each of them is enough.
fn match_terms(query: &str, any_word: bool, most_words: usize) -> Result<Vec<String>, Error> {
    // Every second piece between quotes is a phrase.
    let pieces = query.split('"').enumerate();
    let typed = pieces.flat_map(|(n, piece)| match n % 2 {
        1 => vec![piece],
        _ => piece.split_whitespace().collect(),
    });
    let (mut terms, mut seen, mut words) = (Vec::new(), HashSet::new(), 0);
    for (term, weight) in typed.filter_map(term).filter(|(term, _)| seen.insert(term.to_lowercase())) {
        words += weight;
        match words > most_words {
            true if any_word && !terms.is_empty() => break,
            true => return Err(Error::TooManyWords { limit: most_words }),
            false => terms.push(term),
        }
    }
    if terms.is_empty() {
        return Err(Error::EmptyQuery { query: query.to_owned() });
    }
    Ok(if any_word { terms } else { vec![terms.join(" AND ")] })
}

fn term(typed: &str) -> Option<(String, usize)> {
    let spaced = spaced(typed).unwrap_or_else(|| typed.to_owned()).replace('\0', " ");
    let words = spaced.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).count();
    let (star, weight) = if typed.ends_with('*') { (" *", WORDS_OF_A_STAR) } else { ("", 1) };
    (words > 0).then(|| (format!("\"{spaced}\"{star}"), words - 1 + weight))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_typed_is_an_operator() {
        let all = |query| match_terms(query, false, 32).ok().map(|terms| terms.concat());
        assert_eq!(all("grandma's cake").as_deref(), Some(r#""grandma's" AND "cake""#));
        assert_eq!(all(r#"NOT "the blue door" NEAR("#).as_deref(), Some(r#""NOT" AND "the blue door" AND "NEAR(""#));
        assert_eq!(all("Geburtst*").as_deref(), Some(r#""Geburtst*" *"#));
        assert_eq!(all(r#"half "open"#).as_deref(), Some(r#""half" AND "open""#));
        assert_eq!(match_terms("who is Bob?", true, 32).unwrap(), [r#""who""#, r#""is""#, r#""Bob?""#]);
        assert_eq!(all("  ?! \"\" - "), None);
        assert_eq!(all("東京").as_deref(), Some("\"東\u{1f}京\""));
    }

    #[test]
    fn words_are_counted_once_and_bounded() {
        let stars: String = ('a'..='z').map(|letter| format!("{letter}* ")).collect();
        assert_eq!(match_terms(&stars, false, 32), Err(Error::TooManyWords { limit: 32 }));
        let some = match_terms(&stars, true, 32).unwrap();
        assert_eq!((some.len(), some.concat().matches(" *").count()), (8, 8));
        let repeated = "cake Cake ".repeat(1000);
        assert_eq!(match_terms(&repeated, false, 32).unwrap(), ["\"cake\""]);
        for long in [format!("\"{}\"", "a b ".repeat(20)), "東".repeat(33)] {
            assert_eq!(match_terms(&long, false, 32), Err(Error::TooManyWords { limit: 32 }), "{long}");
        }
    }
}
