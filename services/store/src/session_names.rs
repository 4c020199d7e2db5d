//! Sessions by the names that clients without session ids give them.

use crate::error::Result;
use crate::sessions::begin_session;
use crate::{Error, SessionRecord, SessionRef, Store};
use sqlx::sqlite::SqliteConnection;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionName {
    /// Door of the client, and the assistant there.
    pub door: String,
    pub name: String,
}

impl Store {
    /// Finds a session by name. `None` if it does not exist yet, or was deleted.
    pub async fn session_named(&self, user: &str, name: &SessionName) -> Result<Option<SessionRef>, Error> {
        self.read(async |reader| find_named(reader, user, name).await).await
    }

    /// Creates a session with this name, or returns the one that got it meanwhile. The user must exist.
    pub async fn create_named_session(&self, new: SessionRecord, name: SessionName) -> Result<SessionRef, Error> {
        let quota = self.quota.clone();
        self.write(async move |connection| {
            if let Some(session) = find_named(connection, &new.user, &name).await? {
                return Ok(session);
            }
            let session = begin_session(connection, &quota, &new).await?;
            let query = sqlx::query(
                "INSERT INTO session_names (user, door, name, session) VALUES (?, ?, ?, ?)
                 ON CONFLICT (user, door, name) DO UPDATE SET session = excluded.session",
            );
            let query = query.bind(&new.user).bind(&name.door).bind(&name.name).bind(session.key);
            query.execute(connection).await?;
            Ok(session)
        })
        .await
    }
}

async fn find_named(connection: &mut SqliteConnection, user: &str, name: &SessionName) -> Result<Option<SessionRef>> {
    let query = sqlx::query_as(
        "SELECT s.key, s.user, s.id FROM session_names n JOIN sessions s ON s.key = n.session
         WHERE n.user = ? AND n.door = ? AND n.name = ? AND s.deleted_at_ms IS NULL",
    );
    Ok(query.bind(user).bind(&name.door).bind(&name.name).fetch_optional(connection).await?)
}
