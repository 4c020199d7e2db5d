//! Users and their sessions.

use crate::rows::{column, json, json_text};
use crate::writer::Failure;
use crate::{Error, NewSession, Session, SessionChange, SessionLine, SessionRef, Store, User, ids};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

impl Store {
    /// Makes the user, or gives an existing one the name.
    pub async fn put_user(&self, id: &str, name: &str, now_ms: i64) -> Result<(), Error> {
        let (id, name) = (id.to_owned(), name.to_owned());
        self.write(move |connection| Box::pin(async move { put_user(connection, &id, &name, now_ms).await })).await
    }

    pub async fn users(&self) -> Result<Vec<User>, Error> {
        let rows = self.rows(sqlx::query("SELECT id, name, created_at_ms FROM users ORDER BY id")).await?;
        rows.iter()
            .map(|row| {
                Ok(User {
                    id: column(row, "id")?,
                    name: column(row, "name")?,
                    created_at_ms: column(row, "created_at_ms")?,
                })
            })
            .collect::<Result<_, Failure>>()
            .map_err(|failure| failure.at(self.path()))
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

    pub async fn session(&self, session: &SessionRef) -> Result<Session, Error> {
        let query = sqlx::query("SELECT * FROM sessions WHERE key = ? AND user = ? AND deleted_at_ms IS NULL");
        let row = self.optional_row(query.bind(session.key).bind(session.user.to_string())).await?;
        let row = row.ok_or_else(|| session.missing())?;
        session_of(&row).map_err(|failure| failure.at(self.path()))
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
        rows.iter()
            .map(|row| {
                let fill_tokens: Option<i64> = column(row, "fill_tokens")?;
                let items: i64 = column(row, "items")?;
                Ok(SessionLine {
                    session: session_of(row)?,
                    items: items.unsigned_abs(),
                    fill_tokens: fill_tokens.map(i64::unsigned_abs),
                })
            })
            .collect::<Result<_, Failure>>()
            .map_err(|failure| failure.at(self.path()))
    }

    pub async fn change_session(&self, session: &SessionRef, change: SessionChange, now_ms: i64) -> Result<(), Error> {
        let session = session.clone();
        self.write(move |connection| {
            Box::pin(async move {
                let placement = change.placement.as_ref();
                let query = sqlx::query(
                    "UPDATE sessions SET
                        title = coalesce(?, title), instructions = coalesce(?, instructions),
                        tools = coalesce(?, tools), settings = coalesce(?, settings),
                        preset = coalesce(?, preset), ctx_size = coalesce(?, ctx_size),
                        experiment = CASE WHEN ? THEN ? ELSE experiment END, arm = CASE WHEN ? THEN ? ELSE arm END,
                        updated_at_ms = max(updated_at_ms, ?)
                     WHERE key = ? AND user = ? AND deleted_at_ms IS NULL",
                );
                let changed = query
                    .bind(change.title)
                    .bind(change.instructions)
                    .bind(change.tools.as_ref().map(json_text))
                    .bind(change.settings.as_ref().map(json_text))
                    .bind(placement.map(|placement| placement.preset.clone()))
                    .bind(placement.map(|placement| placement.ctx_size as i64))
                    .bind(placement.is_some())
                    .bind(placement.and_then(|placement| placement.experiment.clone()))
                    .bind(placement.is_some())
                    .bind(placement.and_then(|placement| placement.arm.clone()))
                    .bind(now_ms)
                    .bind(session.key)
                    .bind(session.user.to_string())
                    .execute(connection)
                    .await?;
                if changed.rows_affected() == 1 { Ok(()) } else { Err(session.missing().into()) }
            })
        })
        .await
    }
}

pub async fn put_user(connection: &mut SqliteConnection, id: &str, name: &str, now_ms: i64) -> Result<(), Failure> {
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
) -> Result<SessionRef, Failure> {
    let known = sqlx::query("SELECT 1 FROM users WHERE id = ?").bind(user).fetch_optional(&mut *connection).await?;
    if known.is_none() {
        return Err(Error::NoUser { user: user.to_owned() }.into());
    }
    let id = match new.id {
        Some(id) => id,
        None => ids::new_id("sess")?,
    };
    let taken = sqlx::query("SELECT 1 FROM sessions WHERE user = ? AND id = ? AND deleted_at_ms IS NULL");
    if taken.bind(user).bind(&id).fetch_optional(&mut *connection).await?.is_some() {
        return Err(Error::SessionExists { session: id }.into());
    }
    let query = sqlx::query(
        "INSERT INTO sessions (id, user, preset, ctx_size, experiment, arm, title, instructions, tools, settings,
            created_at_ms, updated_at_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING key",
    );
    let row = query
        .bind(&id)
        .bind(user)
        .bind(new.preset)
        .bind(new.ctx_size as i64)
        .bind(new.experiment)
        .bind(new.arm)
        .bind(new.title)
        .bind(new.instructions)
        .bind(json_text(&new.tools))
        .bind(json_text(&new.settings))
        .bind(created_at_ms)
        .bind(updated_at_ms)
        .fetch_one(connection)
        .await?;
    Ok(SessionRef { key: column(&row, "key")?, user: user.into(), id: id.into() })
}

pub fn session_of(row: &SqliteRow) -> Result<Session, Failure> {
    let ctx_size: i64 = column(row, "ctx_size")?;
    Ok(Session {
        id: column(row, "id")?,
        user: column(row, "user")?,
        preset: column(row, "preset")?,
        ctx_size: ctx_size.unsigned_abs(),
        experiment: column(row, "experiment")?,
        arm: column(row, "arm")?,
        title: column(row, "title")?,
        instructions: column(row, "instructions")?,
        tools: json(row, "tools")?,
        settings: json(row, "settings")?,
        created_at_ms: column(row, "created_at_ms")?,
        updated_at_ms: column(row, "updated_at_ms")?,
    })
}
