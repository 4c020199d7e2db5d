//! Users and their sessions.

use crate::config_form::{config_of, settings_form, tools_form};
use crate::rows::{column, count, json, json_text, optional_count};
use crate::writer::StoreFailure;
use crate::{Error, NewSession, Placement, SessionLine, SessionRecord, SessionRef, Store, User};
use session::SessionConfig;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

impl Store {
    /// Makes the user, or gives an existing one the name.
    pub async fn put_user(&self, id: &str, name: &str, now_ms: i64) -> Result<(), Error> {
        let (id, name) = (id.to_owned(), name.to_owned());
        self.write(move |connection| Box::pin(async move { put_user(connection, &id, &name, now_ms).await })).await
    }

    pub async fn users(&self) -> Result<Vec<User>, Error> {
        let rows = self.rows(sqlx::query("SELECT id, name, created_at_ms FROM users ORDER BY id")).await?;
        self.each(&rows, |row| {
            let (id, name) = (column(row, "id")?, column(row, "name")?);
            Ok(User { id, name, created_at_ms: column(row, "created_at_ms")? })
        })
    }

    pub async fn create_session(&self, user: &str, new: NewSession, now_ms: i64) -> Result<SessionRef, Error> {
        let user = user.to_owned();
        self.write(move |connection| {
            Box::pin(async move { insert_session(connection, &user, new, now_ms, now_ms).await })
        })
        .await
    }

    /// Another user's session is not there.
    pub async fn open_session(&self, user: &str, id: &str) -> Result<SessionRef, Error> {
        let query = sqlx::query("SELECT key FROM sessions WHERE user = ? AND id = ? AND deleted_at_ms IS NULL");
        let row = self.optional_row(query.bind(user).bind(id)).await?;
        let Some(row) = row else { return Err(Error::NoSession { session: id.to_owned() }) };
        let key = column(&row, "key").map_err(|failure| failure.at(self.path()))?;
        Ok(SessionRef { key, user: user.into(), id: id.into() })
    }

    pub async fn session(&self, session: &SessionRef) -> Result<SessionRecord, Error> {
        let mut transaction = self.read().await?;
        let record = session_record(&mut transaction, session).await;
        self.end(transaction, record).await
    }

    /// Newest first. `older_than_ms` continues a page with the last one's `updated_at_ms`.
    pub async fn list_sessions(
        &self,
        user: &str,
        older_than_ms: Option<i64>,
        limit: u32,
    ) -> Result<Vec<SessionLine>, Error> {
        let query = sqlx::query(
            "SELECT s.*,
                (SELECT count(*) FROM items i WHERE i.session = s.key AND i.deleted = 0) AS items,
                (SELECT m.fill_tokens FROM measurements m WHERE m.session = s.key ORDER BY m.turn DESC LIMIT 1) AS fill_tokens
             FROM sessions s
             WHERE s.user = ? AND s.deleted_at_ms IS NULL AND s.updated_at_ms < ?
             ORDER BY s.updated_at_ms DESC, s.key DESC LIMIT ?",
        );
        let rows = self.rows(query.bind(user).bind(older_than_ms.unwrap_or(i64::MAX)).bind(limit)).await?;
        self.each(&rows, |row| {
            let (items, fill_tokens) = (count(row, "items")?, optional_count(row, "fill_tokens")?);
            Ok(SessionLine { session: record_of(row)?, items, fill_tokens })
        })
    }

    pub async fn set_config(&self, session: &SessionRef, config: &SessionConfig, now_ms: i64) -> Result<(), Error> {
        let (session, config) = (session.clone(), config.clone());
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                let query = sqlx::query("UPDATE sessions SET instructions = ?, tools = ?, settings = ? WHERE key = ?");
                let (tools, settings) = (json_text(&tools_form(&config)), json_text(&settings_form(&config)));
                let query = query.bind(config.instructions).bind(tools).bind(settings);
                query.bind(session.key).execute(connection).await?;
                Ok(())
            })
        })
        .await
    }

    /// Another window for a session: only when a user asks for it.
    pub async fn set_placement(&self, session: &SessionRef, placement: &Placement, now_ms: i64) -> Result<(), Error> {
        let (session, placement) = (session.clone(), placement.clone());
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                let query =
                    sqlx::query("UPDATE sessions SET preset = ?, ctx_size = ?, experiment = ?, arm = ? WHERE key = ?");
                let query = query.bind(placement.preset).bind(placement.ctx_size as i64).bind(placement.experiment);
                query.bind(placement.arm).bind(session.key).execute(connection).await?;
                Ok(())
            })
        })
        .await
    }
}

/// Every write to a session begins here: it is still there, and it was used now.
pub async fn touch(connection: &mut SqliteConnection, session: &SessionRef, now_ms: i64) -> Result<(), StoreFailure> {
    let query = sqlx::query(
        "UPDATE sessions SET updated_at_ms = max(updated_at_ms, ?) WHERE key = ? AND deleted_at_ms IS NULL",
    );
    let touched = query.bind(now_ms).bind(session.key).execute(connection).await?;
    if touched.rows_affected() == 1 { Ok(()) } else { Err(session.missing().into()) }
}

pub async fn check_session(connection: &mut SqliteConnection, session: &SessionRef) -> Result<(), StoreFailure> {
    let query = sqlx::query("SELECT 1 FROM sessions WHERE key = ? AND deleted_at_ms IS NULL").bind(session.key);
    if query.fetch_optional(connection).await?.is_some() { Ok(()) } else { Err(session.missing().into()) }
}

pub async fn session_record(
    connection: &mut SqliteConnection,
    session: &SessionRef,
) -> Result<SessionRecord, StoreFailure> {
    let query = sqlx::query("SELECT * FROM sessions WHERE key = ? AND deleted_at_ms IS NULL").bind(session.key);
    record_of(&query.fetch_optional(connection).await?.ok_or_else(|| session.missing())?)
}

pub async fn put_user(
    connection: &mut SqliteConnection,
    id: &str,
    name: &str,
    now_ms: i64,
) -> Result<(), StoreFailure> {
    let query = sqlx::query(
        "INSERT INTO users (id, name, created_at_ms) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
    );
    query.bind(id).bind(name).bind(now_ms).execute(connection).await?;
    Ok(())
}

pub async fn insert_session(
    connection: &mut SqliteConnection,
    user: &str,
    new: NewSession,
    created_at_ms: i64,
    updated_at_ms: i64,
) -> Result<SessionRef, StoreFailure> {
    let known = sqlx::query("SELECT 1 FROM users WHERE id = ?").bind(user).fetch_optional(&mut *connection).await?;
    if known.is_none() {
        return Err(Error::NoUser { user: user.to_owned() }.into());
    }
    let taken = sqlx::query("SELECT 1 FROM sessions WHERE user = ? AND id = ? AND deleted_at_ms IS NULL");
    if taken.bind(user).bind(&new.id).fetch_optional(&mut *connection).await?.is_some() {
        return Err(Error::SessionExists { session: new.id }.into());
    }
    let query = sqlx::query(
        "INSERT INTO sessions (id, user, preset, ctx_size, experiment, arm, title, instructions, tools, settings,
            created_at_ms, updated_at_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING key",
    );
    let row = query
        .bind(&new.id)
        .bind(user)
        .bind(new.placement.preset)
        .bind(new.placement.ctx_size as i64)
        .bind(new.placement.experiment)
        .bind(new.placement.arm)
        .bind(new.title)
        .bind(&new.config.instructions)
        .bind(json_text(&tools_form(&new.config)))
        .bind(json_text(&settings_form(&new.config)))
        .bind(created_at_ms)
        .bind(updated_at_ms)
        .fetch_one(connection)
        .await?;
    Ok(SessionRef { key: column(&row, "key")?, user: user.into(), id: new.id.into() })
}

fn record_of(row: &SqliteRow) -> Result<SessionRecord, StoreFailure> {
    let id: String = column(row, "id")?;
    Ok(SessionRecord {
        user: column(row, "user")?,
        placement: Placement {
            preset: column(row, "preset")?,
            ctx_size: count(row, "ctx_size")?,
            experiment: column(row, "experiment")?,
            arm: column(row, "arm")?,
        },
        title: column(row, "title")?,
        config: config_of(&id, column(row, "instructions")?, &json(row, "tools")?, &json(row, "settings")?),
        created_at_ms: column(row, "created_at_ms")?,
        updated_at_ms: column(row, "updated_at_ms")?,
        id,
    })
}
