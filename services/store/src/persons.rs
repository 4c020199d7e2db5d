//! Persons and rooms of a user.

use crate::delete::hide;
use crate::facts::FactsOf;
use crate::notes::{Copies, withdraw};
use crate::past_owners::forget_person;
use crate::{Error, SessionRef, Store};
use serde::Serialize;
use sqlx::FromRow;
use sqlx::sqlite::SqliteConnection;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, FromRow)]
pub struct PersonLine {
    #[sqlx(rename = "person")]
    #[serde(rename = "person")]
    pub name: String,
    pub room: String,
    pub sessions: u64,
    pub used_at_ms: i64,
}

impl Store {
    pub async fn persons(&self, user: &str) -> Result<Vec<PersonLine>, Error> {
        let query = sqlx::query_as(
            "SELECT person, room, sum(sessions) AS sessions, max(used_at_ms) AS used_at_ms FROM (
                SELECT person, room, count(*) AS sessions, max(updated_at_ms) AS used_at_ms
                    FROM sessions WHERE user = ?1 AND deleted_at_ms IS NULL GROUP BY person, room
                UNION ALL
                SELECT person, '', 0, max(created_at_ms) FROM facts WHERE user = ?1 AND person <> '' GROUP BY person
                UNION ALL
                SELECT person, room, 0, used_at_ms FROM past_owners WHERE user = ?1 AND (person <> '' OR room <> '')
             ) GROUP BY person, room ORDER BY used_at_ms DESC, person, room",
        );
        self.read(async |reader| Ok(query.bind(user).fetch_all(reader).await?)).await
    }

    pub async fn sessions_of_person(&self, user: &str, person: &str) -> Result<Vec<SessionRef>, Error> {
        self.read(async |reader| Ok(find_sessions(reader, user, person, ALL).await?)).await
    }

    /// Deletes everything about a person or a room: sessions, what was learned in them, and facts. The home loses the
    /// facts that this person said. Returns the deleted sessions.
    pub async fn delete_person(&self, user: &str, person: &str, now_ms: i64) -> Result<Vec<SessionRef>, Error> {
        let person = person.to_owned();
        // The guest's words belong to no person but the home.
        if !person.is_empty() {
            self.delete_facts(user, FactsOf::PersonAndWords(person.clone()), now_ms).await?;
        }
        for session in self.sessions_of_person(user, &person).await? {
            self.delete_facts(user, FactsOf::Session(session.key), now_ms).await?;
        }
        let mut marked = Vec::new();
        loop {
            let (owner, person) = (user.to_owned(), person.clone());
            let (sessions, is_last) = self
                .write_forgetting(user, async move |connection| {
                    let mut sessions = find_sessions(connection, &owner, &person, SESSIONS_AT_ONCE + 1).await?;
                    let is_last = sessions.len() <= SESSIONS_AT_ONCE as usize;
                    sessions.truncate(SESSIONS_AT_ONCE as usize);
                    for session in &sessions {
                        hide(connection, session, true, now_ms).await?;
                    }
                    if is_last {
                        forget_person(connection, &owner, &person, now_ms).await?;
                        withdraw(connection, &owner, Copies::All, now_ms).await?;
                    }
                    Ok(((sessions, is_last), is_last))
                })
                .await?;
            marked.extend(sessions);
            if is_last {
                break;
            }
        }
        for session in &marked {
            self.remove_marked(session).await?;
        }
        self.forget_the_log().await?;
        Ok(marked)
    }
}

// Most sessions that one write hides. The writer takes the writes of others between two such writes.
const SESSIONS_AT_ONCE: i64 = 8;
const ALL: i64 = -1;

async fn find_sessions(
    connection: &mut SqliteConnection,
    user: &str,
    person: &str,
    most: i64,
) -> sqlx::Result<Vec<SessionRef>> {
    let query = sqlx::query_as(
        "SELECT key, user, id FROM sessions
         WHERE user = ?1 AND (person = ?2 AND (?2 <> '' OR room = '') OR person = '' AND room = ?2) AND deleted_at_ms IS NULL
         LIMIT ?3",
    );
    query.bind(user).bind(person).bind(most).fetch_all(connection).await
}
