//! Facts about a person or the home, which outlive their conversation.
//!
//! A fact belongs to a person of a user, or to the home, whose name is empty. A replaced fact stays and names its
//! successor. Of a forgotten fact only its place stays, so that no search of the past shows the words there.

use crate::error::Result;
use crate::notes::{Copies, withdraw};
use crate::page::fitting_in;
use crate::past_owners::{forget_past, forget_told};
use crate::sessions::check_session;
use crate::versions::last_seq;
use crate::writer::WriteQueue;
use crate::{Error, SessionRef, Store};
use serde::{Deserialize, Serialize};
use session::PastStays;
use sqlx::FromRow;
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, strum::Display)]
#[serde(rename_all = "snake_case")]
#[sqlx(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FoundBy {
    Words,
    Model,
    User,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow)]
pub struct RememberedFact {
    pub id: String,
    pub person: String,
    pub about: String,
    pub text: String,
    pub asked: bool,
    #[sqlx(rename = "made_by")]
    pub found_by: FoundBy,
    pub confidence: f64,
    pub session_id: Option<String>,
    pub item_id: Option<String>,
    pub words: String,
    pub said_by: String,
    pub said_at_ms: i64,
    pub uses: u64,
    pub used_at_ms: Option<i64>,
    pub created_at_ms: i64,
    pub replaced_by: Option<String>,
    pub replaced_at_ms: Option<i64>,
    pub forgotten_at_ms: Option<i64>,
}

impl RememberedFact {
    pub fn holds(&self) -> bool {
        self.replaced_by.is_none() && self.forgotten_at_ms.is_none()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewFact {
    pub id: String,
    pub person: String,
    pub about: String,
    pub text: String,
    pub asked: bool,
    pub found_by: FoundBy,
    pub confidence: f64,
    pub item_id: Option<String>,
    pub words: String,
    pub said_by: String,
    pub said_at_ms: i64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct FactChanges {
    pub new: Vec<NewFact>,
    pub replaced: Vec<(String, String)>,
    pub forgotten: Vec<String>,
    /// Facts that say nothing lasting, as a second look found. What was said stays to be found.
    pub dropped: Vec<String>,
    /// Items (ids of a session and an item) that no search of the past shows any more.
    pub unsaid: Vec<(String, String)>,
    /// Items that no search of another conversation shows.
    pub secrets: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeardThrough {
    Words(u64),
    Meaning(u64),
    /// Read by a model, too. The second value is the session's `updated_at_ms` if the model read it to the end.
    Model(u64, Option<i64>),
}

#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct UnheardSession {
    #[sqlx(flatten)]
    pub session: SessionRef,
    pub person: String,
    pub preset: String,
    pub heard_seq: u64,
    pub learned_seq: u64,
    pub meant_seq: u64,
    pub updated_at_ms: i64,
}

#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct SaidMessage {
    pub seq: u64,
    pub item_id: String,
    pub text: String,
    /// Speaker, if a rule names one. `None`: the session's person.
    pub person: Option<String>,
    pub created_at_ms: i64,
}

const SAID_BYTES: i64 = 64 << 10; // not a window: bytes of messages

impl Store {
    /// Lists a person's remembered sessions since `since_ms` with unread messages, oldest first.
    pub async fn unheard_sessions(
        &self,
        user: &str,
        person: &str,
        since_ms: i64,
        limit: u32,
    ) -> Result<Vec<UnheardSession>, Error> {
        let query = sqlx::query_as(
            "SELECT key, id, user, person, preset, heard_seq, learned_seq, meant_seq, updated_at_ms FROM sessions s
             WHERE user = ? AND (person = ? OR speakers = 1) AND updated_at_ms >= ? AND deleted_at_ms IS NULL
                AND remembered = 1
                AND heard_seq < (SELECT max(seq) FROM item_versions v WHERE v.session = s.key)
             ORDER BY updated_at_ms LIMIT ?",
        );
        let query = query.bind(user).bind(person).bind(since_ms).bind(limit);
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    pub async fn unheard_session(&self, session: &SessionRef) -> Result<Option<UnheardSession>, Error> {
        let query = sqlx::query_as(
            "SELECT key, id, user, person, preset, heard_seq, learned_seq, meant_seq, updated_at_ms FROM sessions s
             WHERE key = ? AND deleted_at_ms IS NULL AND remembered = 1
                AND heard_seq < (SELECT max(seq) FROM item_versions v WHERE v.session = s.key)",
        );
        self.read(async |reader| Ok(query.bind(session.key).fetch_optional(reader).await?)).await
    }

    /// Returns the session of any user that has been silent longest, since before `before_ms`, and was not read since.
    pub async fn silent_session(&self, before_ms: i64) -> Result<Option<UnheardSession>, Error> {
        let query = sqlx::query_as(
            "SELECT key, id, user, person, preset, heard_seq, learned_seq, meant_seq, updated_at_ms FROM sessions
             WHERE deleted_at_ms IS NULL AND remembered = 1 AND learned_at_ms < updated_at_ms AND updated_at_ms < ?
             ORDER BY updated_at_ms LIMIT 1",
        );
        self.read(async |reader| Ok(query.bind(before_ms).fetch_optional(reader).await?)).await
    }

    /// Lists the user's messages behind `seq`, in order, except those that were replaced or forgotten: at most `limit`, and no
    /// more than some bytes together.
    pub async fn said_since(&self, session: &SessionRef, seq: u64, limit: u32) -> Result<Vec<SaidMessage>, Error> {
        let seq = i64::try_from(seq).unwrap_or(i64::MAX);
        // In the order of an index, so that a long conversation is not read whole for a few of its messages.
        let lengths = sqlx::query_scalar(
            "SELECT octet_length(v.text)
             FROM item_versions v CROSS JOIN items i ON i.current = v.key
             WHERE v.session = ? AND v.seq > ? AND v.role = 'user' AND v.kind = 'message' AND octet_length(v.text) > 0
                AND i.session = v.session AND i.deleted = 0
                AND NOT EXISTS (SELECT 1 FROM unsaid_items u WHERE u.session = i.session AND u.item_id = i.item_id)
             ORDER BY v.seq LIMIT ?",
        );
        let lengths = lengths.bind(session.key).bind(seq).bind(limit);
        let query = sqlx::query_as(
            "SELECT v.seq, v.item_id, v.text, v.content ->> '$.speaker.person' AS person, v.created_at_ms
             FROM item_versions v CROSS JOIN items i ON i.current = v.key
             WHERE v.session = ? AND v.seq > ? AND v.role = 'user' AND v.kind = 'message' AND octet_length(v.text) > 0
                AND i.session = v.session AND i.deleted = 0
                AND NOT EXISTS (SELECT 1 FROM unsaid_items u WHERE u.session = i.session AND u.item_id = i.item_id)
             ORDER BY v.seq LIMIT ?",
        );
        self.read_moment(async |reader| {
            let (fits, _) = fitting_in(reader, lengths, limit, SAID_BYTES).await?;
            Ok(query.bind(session.key).bind(seq).bind(fits).fetch_all(reader).await?)
        })
        .await
    }

    pub async fn said_before(&self, session: &SessionRef, seq: u64) -> Result<Option<SaidMessage>, Error> {
        let query = sqlx::query_as(
            "SELECT v.seq, v.item_id, v.text, v.content ->> '$.speaker.person' AS person, v.created_at_ms
             FROM item_versions v CROSS JOIN items i ON i.current = v.key
             WHERE v.session = ? AND v.seq <= ? AND v.role = 'user' AND v.kind = 'message'
                AND i.session = v.session AND i.deleted = 0
             ORDER BY v.seq DESC LIMIT 1",
        );
        let query = query.bind(session.key).bind(i64::try_from(seq).unwrap_or(i64::MAX));
        self.read(async |reader| Ok(query.fetch_optional(reader).await?)).await
    }

    /// Returns the newest `seq` of the session; 0 if it is empty.
    pub async fn newest_seq(&self, session: &SessionRef) -> Result<u64, Error> {
        self.read(async |reader| last_seq(reader, session).await).await
    }

    /// Applies changes of facts, and stores the progress in the session. A deleted session changes nothing.
    pub async fn remember(
        &self,
        session: &SessionRef,
        changes: FactChanges,
        through: HeardThrough,
        now_ms: i64,
    ) -> Result<(), Error> {
        let session = session.clone();
        let user = session.user.clone();
        let (forgets, drops) = (!changes.forgotten.is_empty(), !changes.dropped.is_empty());
        self.write_forgetting(&user, async move |connection| {
            check_session(connection, &session).await?;
            for fact in &changes.new {
                if !is_deleted(connection, &session, fact.item_id.as_deref()).await? {
                    insert_fact(connection, session.user(), Some(session.key), fact, now_ms).await?;
                }
            }
            for (older, newer) in &changes.replaced {
                let query = sqlx::query(
                    "UPDATE facts SET replaced_by = ?, replaced_at_ms = ?
                     WHERE user = ? AND id = ? AND replaced_by IS NULL AND forgotten_at_ms IS NULL",
                );
                query.bind(newer).bind(now_ms).bind(session.user()).bind(older).execute(&mut *connection).await?;
            }
            let replaced: Vec<&String> = changes.replaced.iter().map(|(older, _)| older).collect();
            unsay_sources(connection, session.user(), &Json(&replaced)).await?;
            forget(connection, session.user(), &changes.forgotten, now_ms).await?;
            let drop_facts = sqlx::query_as(
                "DELETE FROM facts WHERE user = ? AND id IN (SELECT value FROM json_each(?)) RETURNING id, person",
            );
            let drop_facts = drop_facts.bind(session.user()).bind(Json(&changes.dropped));
            let dropped: Vec<(String, String)> = drop_facts.fetch_all(&mut *connection).await?;
            forget_tellers(connection, session.user(), &dropped, now_ms).await?;
            for (items, is_secret) in [(&changes.unsaid, false), (&changes.secrets, true)] {
                let unsay = sqlx::query(
                    "INSERT INTO unsaid_items (session, item_id, secret)
                     SELECT s.key, value ->> 1, ?3 FROM json_each(?1) JOIN sessions s ON s.id = value ->> 0
                     WHERE s.user = ?2 AND s.deleted_at_ms IS NULL
                     ON CONFLICT DO UPDATE SET secret = min(secret, excluded.secret)",
                );
                unsay.bind(Json(items)).bind(session.user()).bind(is_secret).execute(&mut *connection).await?;
            }
            let (heard, meant, learned, until_ms) = match through {
                HeardThrough::Words(seq) => (seq, 0, 0, None),
                HeardThrough::Meaning(seq) => (seq, seq, 0, None),
                HeardThrough::Model(seq, until_ms) => (seq, 0, seq, until_ms),
            };
            let query = sqlx::query(
                "UPDATE sessions SET heard_seq = max(heard_seq, ?), meant_seq = max(meant_seq, ?), learned_seq = max(learned_seq, ?),
                    learned_at_ms = max(learned_at_ms, coalesce(?, 0)) WHERE key = ?",
            );
            let [heard, meant, learned] = [heard, meant, learned].map(|seq| i64::try_from(seq).unwrap_or(i64::MAX));
            query.bind(heard).bind(meant).bind(learned).bind(until_ms).bind(session.key).execute(&mut *connection).await?;
            let is_change = !(replaced.is_empty()
                && changes.forgotten.is_empty()
                && changes.unsaid.is_empty()
                && changes.secrets.is_empty()
                && dropped.is_empty());
            if is_change {
                withdraw(connection, session.user(), Copies::All, now_ms).await?;
            }
            Ok(((), is_change))
        })
        .await?;
        if forgets {
            return self.forget_the_log().await;
        }
        if drops {
            self.owe_the_log();
        }
        Ok(())
    }

    pub async fn put_fact(&self, user: &str, fact: NewFact, older: Vec<String>, now_ms: i64) -> Result<(), Error> {
        let (owner, quota) = (user.to_owned(), self.quota.clone());
        self.write_forgetting(user, async move |connection| {
            let user = owner;
            quota.take(connection, &user, fact.text.len() + fact.words.len(), now_ms).await?;
            insert_fact(connection, &user, None, &fact, now_ms).await?;
            for id in &older {
                let query =
                    sqlx::query("UPDATE facts SET replaced_by = ?, replaced_at_ms = ? WHERE user = ? AND id = ?");
                query.bind(&fact.id).bind(now_ms).bind(&user).bind(id).execute(&mut *connection).await?;
            }
            unsay_sources(connection, &user, &Json(&older.iter().collect::<Vec<_>>())).await?;
            withdraw(connection, &user, Copies::All, now_ms).await?;
            Ok(((), !older.is_empty()))
        })
        .await
    }

    /// Lists all facts of a person, or of all (`None`), in the order they were said. For commands: a service reads no more than it
    /// needs (`found_facts`).
    pub async fn facts(&self, user: &str, person: Option<&str>) -> Result<Vec<RememberedFact>, Error> {
        let query = sqlx::query_as(
            "SELECT f.*, s.id AS session_id FROM facts f LEFT JOIN sessions s ON s.key = f.session
             WHERE f.user = ?1 AND (?2 IS NULL OR f.person = ?2) ORDER BY f.said_at_ms, f.key",
        );
        let query = query.bind(user).bind(person);
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    pub async fn count_facts(&self, user: &str, person: &str) -> Result<u64, Error> {
        let query = sqlx::query_scalar(
            "SELECT count(*) FROM facts
             WHERE user = ? AND person = ? AND replaced_by IS NULL AND forgotten_at_ms IS NULL",
        );
        let count: i64 = self.read(async |reader| Ok(query.bind(user).bind(person).fetch_one(reader).await?)).await?;
        Ok(count.unsigned_abs())
    }

    /// Counts the facts of all persons, those that were replaced included.
    pub async fn count_all_facts(&self, user: &str) -> Result<u64, Error> {
        let query = sqlx::query_scalar("SELECT count(*) FROM facts WHERE user = ? AND forgotten_at_ms IS NULL");
        let count: i64 = self.read(async |reader| Ok(query.bind(user).fetch_one(reader).await?)).await?;
        Ok(count.unsigned_abs())
    }

    /// Forgets these facts, in any order, and removes their words for good. Returns how many there were.
    pub async fn forget_facts(&self, user: &str, ids: Vec<String>, now_ms: i64) -> Result<u64, Error> {
        let owner = user.to_owned();
        let forgotten = self.write_forgetting(user, async move |connection| {
            let forgotten = forget(connection, &owner, &ids, now_ms).await?;
            withdraw(connection, &owner, Copies::All, now_ms).await?;
            Ok((forgotten, true))
        });
        let forgotten = forgotten.await?;
        self.forget_the_log().await?;
        Ok(forgotten)
    }

    /// Forgets all facts of a person, and hides their places from searches of the past.
    pub async fn forget_person(&self, user: &str, person: &str, now_ms: i64) -> Result<u64, Error> {
        let forgotten = self.delete_facts(user, FactsOf::Person(person.to_owned()), now_ms).await?;
        self.forget_the_log().await?;
        Ok(forgotten)
    }

    pub(crate) async fn delete_facts(&self, user: &str, of: FactsOf, now_ms: i64) -> Result<u64, Error> {
        let mut deleted = 0;
        loop {
            let (owner, of) = (user.to_owned(), of.clone());
            let some = self.write_forgetting(user, async move |connection| {
                let some = delete_some(connection, &owner, &of, now_ms).await?;
                if some < FACTS_AT_ONCE {
                    withdraw(connection, &owner, Copies::All, now_ms).await?;
                }
                Ok((some, true))
            });
            let some = some.await?;
            deleted += some;
            if some < FACTS_AT_ONCE {
                return Ok(deleted);
            }
        }
    }

    pub fn use_facts(&self, ids: Vec<String>, now_ms: i64) {
        let query = sqlx::query(
            "UPDATE facts SET uses = uses + 1, used_at_ms = ? WHERE id IN (SELECT value FROM json_each(?))",
        );
        // The caller does not wait, and a full queue only loses a count.
        let _ = self.write_later(WriteQueue::Turns, async move |connection| {
            query.bind(now_ms).bind(Json(ids)).execute(connection).await?;
            Ok(())
        });
    }

    /// Forgets facts that were not used since `before_ms` and that no person asked for.
    pub async fn forget_unused_facts(&self, before_ms: i64, now_ms: i64) -> Result<u64, Error> {
        let query = sqlx::query_scalar(
            "SELECT DISTINCT user FROM facts WHERE asked = 0 AND coalesce(used_at_ms, said_at_ms) < ?",
        );
        let users: Vec<String> = self.read(async |reader| Ok(query.bind(before_ms).fetch_all(reader).await?)).await?;
        let mut forgotten = 0;
        for user in users {
            forgotten += self.delete_facts(&user, FactsOf::UnusedSince(before_ms), now_ms).await?;
        }
        if forgotten > 0 {
            self.owe_the_log();
        }
        Ok(forgotten)
    }

    pub async fn holding_facts(&self, user: &str, ids: &[String]) -> Result<Vec<RememberedFact>, Error> {
        let query = sqlx::query_as(
            "SELECT f.*, s.id AS session_id FROM json_each(?2) wanted CROSS JOIN facts f ON f.id = wanted.value
             LEFT JOIN sessions s ON s.key = f.session
             WHERE f.user = ?1 AND f.replaced_by IS NULL AND f.forgotten_at_ms IS NULL ORDER BY wanted.key",
        );
        let query = query.bind(user).bind(Json(ids));
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    /// Stores the facts in the prompts of a session. The caller does not wait: if the write is lost, the next load
    /// chooses again.
    pub fn set_told_facts(&self, session: &SessionRef, ids: Vec<String>) {
        let session = session.clone();
        let _ = self.write_later(session.queue(0), async move |connection| {
            // The conversation leaves what was computed with the others, and no later forgetting would find that.
            let query = sqlx::query(
                "SELECT 1 FROM sessions s, json_each(s.told_facts) t
                 WHERE s.key = ? AND t.value NOT IN (SELECT value FROM json_each(?)) LIMIT 1",
            );
            if query.bind(session.key).bind(Json(&ids)).fetch_optional(&mut *connection).await?.is_some() {
                forget_past(connection, session.user(), session.past_owner(), PastStays::Memory, 0).await?;
            }
            let query = sqlx::query("UPDATE sessions SET told_facts = ? WHERE key = ? AND deleted_at_ms IS NULL");
            query.bind(Json(ids)).bind(session.key).execute(connection).await?;
            Ok(())
        });
    }
}

/// Facts that a deletion takes along.
#[derive(Clone, Debug)]
pub(crate) enum FactsOf {
    Person(String),
    /// Facts of this person, and those that they said.
    PersonAndWords(String),
    Session(i64),
    /// Facts that no person asked for.
    UnusedSince(i64),
}

const FACTS_AT_ONCE: u64 = 50;

async fn delete_some(connection: &mut SqliteConnection, user: &str, of: &FactsOf, now_ms: i64) -> Result<u64> {
    let query = match of {
        FactsOf::Person(person) => {
            sqlx::query_as("SELECT id, person FROM facts WHERE user = ? AND person = ? LIMIT ?").bind(user).bind(person)
        }
        FactsOf::PersonAndWords(person) => {
            sqlx::query_as("SELECT id, person FROM facts WHERE user = ?1 AND (person = ?2 OR said_by = ?2) LIMIT ?3")
                .bind(user)
                .bind(person)
        }
        FactsOf::Session(session) => {
            sqlx::query_as("SELECT id, person FROM facts WHERE user = ? AND session = ? LIMIT ?")
                .bind(user)
                .bind(session)
        }
        FactsOf::UnusedSince(before_ms) => sqlx::query_as(
            "SELECT id, person FROM facts
             WHERE user = ? AND asked = 0 AND coalesce(used_at_ms, said_at_ms) < ? LIMIT ?",
        )
        .bind(user)
        .bind(before_ms),
    };
    let gone: Vec<(String, String)> = query.bind(FACTS_AT_ONCE.cast_signed()).fetch_all(&mut *connection).await?;
    let ids: Vec<&String> = gone.iter().map(|(id, _)| id).collect();
    if matches!(of, FactsOf::Person(_)) {
        unsay_sources(connection, user, &Json(&ids)).await?;
    }
    let delete = sqlx::query("DELETE FROM facts WHERE user = ? AND id IN (SELECT value FROM json_each(?))");
    delete.bind(user).bind(Json(&ids)).execute(&mut *connection).await?;
    forget_tellers(connection, user, &gone, now_ms).await?;
    Ok(gone.len() as u64)
}

async fn insert_fact(
    connection: &mut SqliteConnection,
    user: &str,
    session: Option<i64>,
    fact: &NewFact,
    now_ms: i64,
) -> Result<()> {
    let query = sqlx::query(
        "INSERT INTO facts (id, user, person, about, text, asked, made_by, confidence, session, item_id, words, said_by,
            said_at_ms, created_at_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    );
    let query = query.bind(&fact.id).bind(user).bind(&fact.person).bind(&fact.about).bind(&fact.text).bind(fact.asked);
    let query = query.bind(fact.found_by).bind(fact.confidence.clamp(0.0, 1.0)).bind(session).bind(&fact.item_id);
    let query = query.bind(&fact.words).bind(&fact.said_by).bind(fact.said_at_ms).bind(now_ms);
    query.execute(connection).await?;
    Ok(())
}

/// Hides the places of facts that are no longer current, so that no search shows them as true.
async fn unsay_sources(connection: &mut SqliteConnection, user: &str, ids: &Json<&Vec<&String>>) -> Result<()> {
    let query = sqlx::query(
        "INSERT INTO unsaid_items (session, item_id)
         SELECT session, item_id FROM facts
         WHERE user = ? AND id IN (SELECT value FROM json_each(?)) AND session IS NOT NULL AND item_id IS NOT NULL
         ON CONFLICT DO UPDATE SET secret = 0",
    );
    query.bind(user).bind(ids).execute(connection).await?;
    Ok(())
}

async fn forget(connection: &mut SqliteConnection, user: &str, ids: &Vec<String>, now_ms: i64) -> Result<u64> {
    unsay_sources(connection, user, &Json(&ids.iter().collect())).await?;
    // An older version of the fact has the forgotten words, too.
    let query = sqlx::query_as(
        "WITH RECURSIVE chain (id) AS (
            SELECT value FROM json_each(?1)
            UNION SELECT f.id FROM facts f JOIN chain ON f.replaced_by = chain.id
         )
         UPDATE facts SET text = '', words = '', about = '', forgotten_at_ms = ?2
         WHERE user = ?3 AND forgotten_at_ms IS NULL AND id IN (SELECT id FROM chain) RETURNING id, person",
    );
    let gone: Vec<(String, String)> = query.bind(Json(ids)).bind(now_ms).bind(user).fetch_all(&mut *connection).await?;
    forget_tellers(connection, user, &gone, now_ms).await?;
    Ok(gone.len() as u64)
}

/// Lists what was computed of conversations that tell one of these facts (ids and persons) for the service to drop.
pub(crate) async fn forget_tellers(
    connection: &mut SqliteConnection,
    user: &str,
    gone: &[(String, String)],
    now_ms: i64,
) -> Result<()> {
    if gone.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = gone.iter().map(|(id, _)| id.as_str()).collect();
    let query = sqlx::query_as(
        "SELECT key, id FROM sessions s WHERE user = ?1 AND deleted_at_ms IS NULL AND told_facts IS NOT NULL
            AND EXISTS (SELECT 1 FROM json_each(s.told_facts) t WHERE t.value IN (SELECT value FROM json_each(?2)))",
    );
    let tellers: Vec<(i64, String)> = query.bind(user).bind(Json(ids)).fetch_all(&mut *connection).await?;
    for (key, id) in tellers {
        let session = SessionRef { key, user: user.into(), id: id.into() };
        forget_past(connection, user, session.past_owner(), PastStays::Replies, now_ms).await?;
    }
    let persons: BTreeSet<&str> = gone.iter().map(|(_, person)| person.as_str()).collect();
    forget_told(connection, user, &persons.into_iter().collect::<Vec<_>>(), now_ms).await
}

/// True if the item of a fact was deleted after it was read.
async fn is_deleted(connection: &mut SqliteConnection, session: &SessionRef, item_id: Option<&str>) -> Result<bool> {
    let query = sqlx::query("SELECT 1 FROM items WHERE session = ? AND item_id = ? AND deleted = 1");
    Ok(query.bind(session.key).bind(item_id).fetch_optional(connection).await?.is_some())
}

/// Detaches facts from a deleted session. A deletion by the user deletes them, too.
pub async fn leave_session(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    by_user: bool,
    now_ms: i64,
) -> Result<()> {
    let query = sqlx::query_as("DELETE FROM facts WHERE session = ?1 AND ?2 RETURNING id, person");
    let gone: Vec<(String, String)> = query.bind(session.key).bind(by_user).fetch_all(&mut *connection).await?;
    forget_tellers(connection, session.user(), &gone, now_ms).await?;
    let query = sqlx::query("UPDATE facts SET session = NULL, item_id = NULL WHERE session = ?");
    query.bind(session.key).execute(connection).await?;
    Ok(())
}
