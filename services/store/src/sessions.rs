//! Users and their sessions.

use crate::config_form::{settings_form, stored_bytes, tools_form};
use crate::error::Result;
use crate::page::{Page, fitting};
use crate::quota::Quota;
use crate::{Error, Placement, SessionLine, SessionRecord, SessionRef, Store, User};
use serde_json::Value;
use session::SessionConfig;
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;

impl Store {
    pub async fn put_user(&self, id: &str, name: &str, now_ms: i64) -> Result<(), Error> {
        let query = sqlx::query(
            "INSERT INTO users (id, name, created_at_ms) VALUES (?, ?, ?)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name",
        );
        self.execute(query.bind(id.to_owned()).bind(name.to_owned()).bind(now_ms)).await.map(drop)
    }

    /// Takes room for bytes that are about to be stored for the user, or refuses them.
    pub async fn take_room(&self, user: &str, bytes: usize, now_ms: i64) -> Result<(), Error> {
        let (user, quota) = (user.to_owned(), self.quota.clone());
        self.write(async move |connection| quota.take(connection, &user, bytes, now_ms).await).await
    }

    pub async fn users(&self) -> Result<Vec<User>, Error> {
        self.read(async |reader| Ok(sqlx::query_as("SELECT * FROM users ORDER BY id").fetch_all(reader).await?)).await
    }

    pub async fn create_session(&self, new: SessionRecord) -> Result<SessionRef, Error> {
        let quota = self.quota.clone();
        self.write(async move |connection| begin_session(connection, &quota, &new).await).await
    }

    /// Opens a session of this user; another user's is an error.
    pub async fn open_session(&self, user: &str, id: &str) -> Result<SessionRef, Error> {
        let key = self.read(async |reader| find_session(reader, user, id).await).await?;
        let key = key.ok_or_else(|| Error::NoSession { session: id.to_owned() })?;
        Ok(SessionRef { key, user: user.into(), id: id.into() })
    }

    pub async fn session(&self, session: &SessionRef) -> Result<SessionRecord, Error> {
        self.read(async |reader| session_record(reader, session).await).await
    }

    /// Lists sessions, newest first. `older_than_ms` continues a page with the last one's `updated_at_ms`.
    pub async fn list_sessions(
        &self,
        user: &str,
        older_than_ms: Option<i64>,
        limit: u32,
    ) -> Result<Vec<SessionLine>, Error> {
        let before_ms = older_than_ms.unwrap_or(i64::MAX);
        self.read(async |reader| session_lines(reader, user, before_ms, i64::from(limit)).await).await
    }

    pub async fn sessions_page(
        &self,
        user: &str,
        older_than_ms: Option<i64>,
        limit: u32,
    ) -> Result<Page<SessionLine>, Error> {
        let before_ms = older_than_ms.unwrap_or(i64::MAX);
        let lengths = sqlx::query_scalar(
            "SELECT octet_length(instructions) + octet_length(tools) FROM sessions
             WHERE user = ? AND deleted_at_ms IS NULL AND updated_at_ms < ?
             ORDER BY updated_at_ms DESC, key DESC LIMIT ?",
        );
        let lengths = lengths.bind(user).bind(before_ms).bind(i64::from(limit) + 1);
        self.read_moment(async |reader| {
            let (fits, has_more) = fitting(reader, lengths, limit).await?;
            Ok(Page { rows: session_lines(reader, user, before_ms, fits).await?, has_more })
        })
        .await
    }

    /// Lists the last used sessions that a user's logs began, each with its number of items that clients know, counted up to
    /// `most_items`.
    pub async fn recent_logs(&self, user: &str, most_items: u32, limit: u32) -> Result<Vec<(String, u64)>, Error> {
        let query = sqlx::query_as(
            "SELECT s.id,
                (SELECT count(*) FROM (SELECT 1 FROM items i
                    WHERE i.session = s.key AND i.deleted = 0 AND i.item_id NOT GLOB ?4 || '_*' LIMIT ?1))
             FROM sessions s WHERE s.user = ?2 AND s.deleted_at_ms IS NULL AND s.is_log = 1
             ORDER BY s.updated_at_ms DESC, s.key DESC LIMIT ?3",
        );
        let query = query.bind(most_items).bind(user).bind(limit).bind(session::HIDDEN);
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    /// Marks a session that a client began with its whole log and no name for it.
    pub async fn set_is_log(&self, session: &SessionRef) -> Result<(), Error> {
        let query = sqlx::query("UPDATE sessions SET is_log = 1 WHERE key = ?").bind(session.key);
        self.execute(query).await.map(drop)
    }

    pub async fn set_config(&self, session: &SessionRef, config: &SessionConfig, now_ms: i64) -> Result<(), Error> {
        let (bytes, quota) = (stored_bytes(config), self.quota.clone());
        let query = sqlx::query("UPDATE sessions SET instructions = ?, tools = ?, settings = ? WHERE key = ?");
        let query = query.bind(config.instructions.clone()).bind(tools_form(config)).bind(settings_form(config));
        let query = query.bind(session.key);
        self.write_session(session, now_ms, async move |connection, session| {
            quota.take(connection, session.user(), bytes, now_ms).await?;
            query.execute(connection).await?;
            Ok(())
        })
        .await
    }

    pub async fn set_metadata(&self, session: &SessionRef, metadata: Value, now_ms: i64) -> Result<(), Error> {
        let quota = self.quota.clone();
        self.write_session(session, now_ms, async move |connection, session| {
            quota.take(connection, session.user(), metadata.to_string().len(), now_ms).await?;
            let query = sqlx::query("UPDATE sessions SET metadata = ? WHERE key = ?");
            query.bind(metadata).bind(session.key).execute(connection).await?;
            Ok(())
        })
        .await
    }

    pub async fn set_title(&self, session: &SessionRef, title: &str) -> Result<(), Error> {
        let query = sqlx::query("UPDATE sessions SET title = ? WHERE key = ? AND deleted_at_ms IS NULL");
        let changed = self.execute(query.bind(title.to_owned()).bind(session.key)).await?;
        if changed == 1 { Ok(()) } else { Err(session.missing()) }
    }

    pub async fn set_placement(&self, session: &SessionRef, placement: &Placement, now_ms: i64) -> Result<(), Error> {
        let Placement { preset, ctx_size, experiment, arm } = placement.clone();
        let query = sqlx::query("UPDATE sessions SET preset = ?, ctx_size = ?, experiment = ?, arm = ? WHERE key = ?");
        let query = query.bind(preset).bind(ctx_size as i64).bind(experiment).bind(arm).bind(session.key);
        self.execute_in(session, now_ms, query).await.map(drop)
    }
}

const FIRST_CHARS: i64 = 120;

async fn session_lines(
    reader: &mut SqliteConnection,
    user: &str,
    before_ms: i64,
    limit: i64,
) -> Result<Vec<SessionLine>> {
    let query = sqlx::query_as(
        "SELECT s.*,
            (SELECT count(*) FROM items i WHERE i.session = s.key AND i.deleted = 0) AS items,
            (SELECT substr(v.text, 1, ?4) FROM items i JOIN item_versions v ON v.key = i.current
                WHERE i.session = s.key AND i.deleted = 0 AND v.role = 'user' ORDER BY i.place LIMIT 1) AS first_words,
            (SELECT m.fill_tokens FROM measurements m WHERE m.session = s.key ORDER BY m.turn DESC LIMIT 1) AS fill_tokens
         FROM sessions s
         WHERE s.user = ?1 AND s.deleted_at_ms IS NULL AND s.updated_at_ms < ?2
         ORDER BY s.updated_at_ms DESC, s.key DESC LIMIT ?3",
    );
    Ok(query.bind(user).bind(before_ms).bind(limit).bind(FIRST_CHARS).fetch_all(reader).await?)
}

pub async fn check_session(connection: &mut SqliteConnection, session: &SessionRef) -> Result<()> {
    let query = sqlx::query("SELECT 1 FROM sessions WHERE key = ? AND deleted_at_ms IS NULL").bind(session.key);
    if query.fetch_optional(connection).await?.is_some() { Ok(()) } else { Err(session.missing().into()) }
}

pub async fn session_record(connection: &mut SqliteConnection, session: &SessionRef) -> Result<SessionRecord> {
    let query = sqlx::query_as("SELECT * FROM sessions WHERE key = ? AND deleted_at_ms IS NULL").bind(session.key);
    Ok(query.fetch_optional(connection).await?.ok_or_else(|| session.missing())?)
}

pub async fn find_session(connection: &mut SqliteConnection, user: &str, id: &str) -> Result<Option<i64>> {
    let query = sqlx::query_scalar("SELECT key FROM sessions WHERE user = ? AND id = ? AND deleted_at_ms IS NULL");
    Ok(query.bind(user).bind(id).fetch_optional(connection).await?)
}

pub async fn check_user(connection: &mut SqliteConnection, user: &str) -> Result<()> {
    let query = sqlx::query("SELECT 1 FROM users WHERE id = ?").bind(user);
    let is_known = query.fetch_optional(connection).await?.is_some();
    if is_known { Ok(()) } else { Err(Error::NoUser { user: user.to_owned() }.into()) }
}

pub async fn begin_session(
    connection: &mut SqliteConnection,
    quota: &Quota,
    new: &SessionRecord,
) -> Result<SessionRef> {
    let metadata_bytes = new.metadata.as_ref().map_or(0, |metadata| metadata.to_string().len());
    quota.take(connection, &new.user, stored_bytes(&new.config) + metadata_bytes, new.created_at_ms).await?;
    insert_session(connection, new).await
}

pub async fn insert_session(connection: &mut SqliteConnection, new: &SessionRecord) -> Result<SessionRef> {
    check_user(connection, &new.user).await?;
    if find_session(connection, &new.user, &new.id).await?.is_some() {
        return Err(Error::SessionExists { session: new.id.clone() }.into());
    }
    let query = sqlx::query_scalar(
        "INSERT INTO sessions (id, user, person, room, remembered, household, told_facts, preset, ctx_size, experiment, arm,
            title, instructions, tools, settings, metadata, created_at_ms, updated_at_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING key",
    );
    let key = query
        .bind(&new.id)
        .bind(&new.user)
        .bind(&new.person)
        .bind(&new.room)
        .bind(new.is_remembered)
        .bind(new.is_of_household)
        .bind(new.told_facts.as_ref().map(Json))
        .bind(&new.placement.preset)
        .bind(new.placement.ctx_size as i64)
        .bind(&new.placement.experiment)
        .bind(&new.placement.arm)
        .bind(&new.title)
        .bind(&new.config.instructions)
        .bind(tools_form(&new.config))
        .bind(settings_form(&new.config))
        .bind(&new.metadata)
        .bind(new.created_at_ms)
        .bind(new.updated_at_ms)
        .fetch_one(connection)
        .await?;
    Ok(SessionRef { key, user: new.user.as_str().into(), id: new.id.as_str().into() })
}
