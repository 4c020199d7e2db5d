//! Measurements of turns: one row a turn, no words in it.

use crate::error::Result;
use crate::{Error, SessionRef, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::FromRow;
use sqlx::sqlite::SqliteConnection;
use sqlx::types::Json;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow)]
pub struct Measurement {
    pub turn: u64,
    pub response: Option<String>,
    pub experiment: Option<String>,
    pub arm: Option<String>,
    pub preset: String,
    pub ctx_size: u64,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub fill_tokens: u64,
    pub reused_tokens: u64,
    #[serde(default)]
    pub warm_tokens: u64, // reused ones that were read ahead, while no user waited
    pub computed_tokens: u64,
    pub computed_reason: Option<String>,
    pub queue_ms: f64,
    pub prefill_ms: f64,
    /// `None` if the turn ended before its first token.
    pub first_token_ms: Option<f64>,
    pub first_sentence_ms: Option<f64>,
    pub total_ms: f64,
    pub decode_ms: f64,
    pub compactions: u64,
    pub drops: u64,
    pub barged_in: bool,
    pub regenerated: bool,
    /// -1, 0 or 1.
    pub feedback: Option<i64>,
    pub memory: Value,
    pub created_at_ms: i64,
}

#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ExperimentTurn {
    #[sqlx(rename = "session_user")]
    pub user: String,
    #[sqlx(rename = "session_id")]
    pub session: String,
    #[sqlx(flatten)]
    pub measurement: Measurement,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExperimentCounts {
    pub users: u64,
    pub sessions_of_user: Vec<(String, u64)>, // in each arm
    pub sessions_ever: u64,                   // of all users, also deleted ones
}

impl Store {
    pub async fn add_measurement(&self, session: &SessionRef, measurement: Measurement) -> Result<(), Error> {
        self.write_session(session, measurement.created_at_ms, async move |connection, session| {
            insert_measurement(connection, session, &measurement).await
        })
        .await
    }

    /// Marks the response of this item as barged in, after its measurement.
    pub async fn set_barged_in(&self, session: &SessionRef, item: &str) -> Result<(), Error> {
        let query = sqlx::query(
            "UPDATE measurements SET barged_in = 1 WHERE session = ?1 AND response IN
                (SELECT response FROM item_versions WHERE session = ?1 AND item_id = ?2 AND response IS NOT NULL)",
        );
        self.execute(query.bind(session.key).bind(item.to_owned())).await.map(drop)
    }

    /// Stores the user's feedback (-1, 0, 1) for one response.
    pub async fn set_feedback(&self, session: &SessionRef, response: &str, feedback: i64) -> Result<(), Error> {
        let response = response.to_owned();
        let query = sqlx::query(
            "UPDATE measurements SET feedback = ? WHERE response = ? AND session =
                (SELECT key FROM sessions WHERE key = ? AND deleted_at_ms IS NULL)",
        );
        let changed = self.execute(query.bind(feedback.clamp(-1, 1)).bind(response.clone()).bind(session.key)).await?;
        if changed > 0 { Ok(()) } else { Err(Error::NoResponse { response }) }
    }

    pub async fn measurements(&self, session: &SessionRef) -> Result<Vec<Measurement>, Error> {
        let query = sqlx::query_as(
            "SELECT m.* FROM measurements m JOIN sessions s ON s.key = m.session
             WHERE s.key = ? AND s.deleted_at_ms IS NULL ORDER BY m.key",
        );
        self.read(async |reader| Ok(query.bind(session.key).fetch_all(reader).await?)).await
    }

    /// Lists a page of turns, the newest first. `before` continues it with the number of its last turn.
    pub async fn turns_page(
        &self,
        session: &SessionRef,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Measurement>, Error> {
        let before = before.and_then(|turn| i64::try_from(turn).ok()).unwrap_or(i64::MAX);
        let query = sqlx::query_as(
            "SELECT m.* FROM measurements m JOIN sessions s ON s.key = m.session
             WHERE s.key = ? AND s.deleted_at_ms IS NULL AND m.turn < ? ORDER BY m.turn DESC, m.key DESC LIMIT ?",
        );
        let query = query.bind(session.key).bind(before).bind(limit);
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    pub async fn experiments(&self) -> Result<Vec<String>, Error> {
        let query = sqlx::query_scalar(
            "SELECT experiment FROM measurements WHERE experiment IS NOT NULL
             GROUP BY experiment ORDER BY max(created_at_ms) DESC",
        );
        self.read_at_length(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    /// Counts users with sessions, at most `most_users`, and the sessions that one user has in each arm of an experiment.
    pub async fn experiment_counts(
        &self,
        experiment: &str,
        user: &str,
        most_users: u64,
    ) -> Result<ExperimentCounts, Error> {
        let query = sqlx::query_as(
            "SELECT (SELECT count(*) FROM (SELECT 1 FROM users u WHERE EXISTS
                        (SELECT 1 FROM sessions s WHERE s.user = u.id AND s.deleted_at_ms IS NULL) LIMIT ?)),
                    coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'sessions'), 0)",
        );
        let query = query.bind(i64::try_from(most_users).unwrap_or(i64::MAX));
        let of_user = sqlx::query_as(
            "SELECT arm, count(*) FROM sessions
             WHERE user = ? AND experiment = ? AND arm IS NOT NULL AND deleted_at_ms IS NULL GROUP BY arm",
        );
        let of_user = of_user.bind(user).bind(experiment);
        self.read(async |reader| {
            let (users, ever): (i64, i64) = query.fetch_one(&mut *reader).await?;
            let sessions_of_user: Vec<(String, i64)> = of_user.fetch_all(reader).await?;
            let sessions_of_user =
                sessions_of_user.into_iter().map(|(arm, count)| (arm, count.unsigned_abs())).collect();
            Ok(ExperimentCounts { users: users.unsigned_abs(), sessions_of_user, sessions_ever: ever.unsigned_abs() })
        })
        .await
    }

    /// Lists all turns of one experiment, across users: material of a comparison, for operators only.
    pub async fn experiment_turns(&self, experiment: &str) -> Result<Vec<ExperimentTurn>, Error> {
        let query = sqlx::query_as(
            "SELECT m.*, s.user AS session_user, s.id AS session_id FROM measurements m JOIN sessions s ON s.key = m.session
             WHERE m.experiment = ? AND s.deleted_at_ms IS NULL ORDER BY m.key",
        );
        self.read_at_length(async |reader| Ok(query.bind(experiment).fetch_all(reader).await?)).await
    }
}

pub async fn insert_measurement(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    measurement: &Measurement,
) -> Result<()> {
    let query = sqlx::query(
        "INSERT INTO measurements (session, turn, response, experiment, arm, preset, ctx_size, tokens_in, tokens_out,
            fill_tokens, reused_tokens, computed_tokens, computed_reason, queue_ms, prefill_ms, first_token_ms,
            first_sentence_ms, total_ms, decode_ms, compactions, drops, barged_in, regenerated, feedback, memory,
            created_at_ms, warm_tokens)
         VALUES (?1, ?2 ->> 'turn', ?2 ->> 'response', ?2 ->> 'experiment', ?2 ->> 'arm', ?2 ->> 'preset',
            ?2 ->> 'ctx_size', ?2 ->> 'tokens_in', ?2 ->> 'tokens_out', ?2 ->> 'fill_tokens', ?2 ->> 'reused_tokens',
            ?2 ->> 'computed_tokens', ?2 ->> 'computed_reason', ?2 ->> 'queue_ms', ?2 ->> 'prefill_ms',
            ?2 ->> 'first_token_ms', ?2 ->> 'first_sentence_ms', ?2 ->> 'total_ms', ?2 ->> 'decode_ms',
            ?2 ->> 'compactions', ?2 ->> 'drops', ?2 ->> 'barged_in', ?2 ->> 'regenerated', ?2 ->> 'feedback',
            ?2 -> 'memory', ?2 ->> 'created_at_ms', ?2 ->> 'warm_tokens')",
    );
    query.bind(session.key).bind(Json(measurement)).execute(connection).await?;
    Ok(())
}
