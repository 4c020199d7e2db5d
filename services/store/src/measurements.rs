//! What a turn cost, in numbers: one row a turn, no words in it.

use crate::rows::{column, count, json, json_text};
use crate::sessions::touch;
use crate::writer::StoreFailure;
use crate::{Error, SessionRef, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    pub computed_tokens: u64,
    /// Why tokens had to be computed again.
    pub computed_reason: Option<String>,
    pub queue_ms: f64,
    pub prefill_ms: f64,
    /// None: the turn ended before there was one.
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
    /// Bytes by kind.
    pub memory: Value,
    pub created_at_ms: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExperimentTurn {
    pub user: String,
    /// Its id, which is its user's.
    pub session: String,
    pub measurement: Measurement,
}

impl Store {
    pub async fn add_measurement(&self, session: &SessionRef, measurement: Measurement) -> Result<(), Error> {
        let session = session.clone();
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, measurement.created_at_ms).await?;
                insert_measurement(connection, &session, &measurement).await
            })
        })
        .await
    }

    /// The user talked over the reply that this item is of, after it was measured.
    pub async fn set_barged_in(&self, session: &SessionRef, item: &str) -> Result<(), Error> {
        let (session, item) = (session.clone(), item.to_owned());
        self.write(move |connection| {
            Box::pin(async move {
                let query = sqlx::query(
                    "UPDATE measurements SET barged_in = 1 WHERE session = ? AND response IN
                        (SELECT response FROM item_versions WHERE session = ? AND item_id = ? AND response IS NOT NULL)",
                );
                query.bind(session.key).bind(session.key).bind(&item).execute(connection).await?;
                Ok(())
            })
        })
        .await
    }

    /// The user's thumb (-1, 0, 1) for one response.
    pub async fn set_feedback(&self, session: &SessionRef, response: &str, feedback: i64) -> Result<(), Error> {
        let (session, response) = (session.clone(), response.to_owned());
        self.write(move |connection| {
            Box::pin(async move {
                let query = sqlx::query(
                    "UPDATE measurements SET feedback = ? WHERE response = ? AND session =
                        (SELECT key FROM sessions WHERE key = ? AND deleted_at_ms IS NULL)",
                );
                let query = query.bind(feedback.clamp(-1, 1)).bind(&response).bind(session.key);
                let changed = query.execute(connection).await?;
                if changed.rows_affected() > 0 { Ok(()) } else { Err(Error::NoResponse { response }.into()) }
            })
        })
        .await
    }

    pub async fn measurements(&self, session: &SessionRef) -> Result<Vec<Measurement>, Error> {
        let query = sqlx::query(
            "SELECT m.* FROM measurements m JOIN sessions s ON s.key = m.session
             WHERE s.key = ? AND s.deleted_at_ms IS NULL ORDER BY m.key",
        );
        let rows = self.rows(query.bind(session.key)).await?;
        self.each(&rows, measurement_of)
    }

    /// The experiments that have turns, the newest first.
    pub async fn experiments(&self) -> Result<Vec<String>, Error> {
        let query = sqlx::query(
            "SELECT experiment FROM measurements WHERE experiment IS NOT NULL
             GROUP BY experiment ORDER BY max(created_at_ms) DESC",
        );
        let rows = self.rows(query).await?;
        self.each(&rows, |row| column(row, "experiment"))
    }

    /// All turns of one experiment: the material of a comparison. Not for one user's eyes.
    pub async fn experiment_turns(&self, experiment: &str) -> Result<Vec<ExperimentTurn>, Error> {
        let query = sqlx::query(
            "SELECT m.*, s.user AS session_user, s.id AS session_id FROM measurements m JOIN sessions s ON s.key = m.session
             WHERE m.experiment = ? AND s.deleted_at_ms IS NULL ORDER BY m.key",
        );
        let rows = self.rows(query.bind(experiment)).await?;
        self.each(&rows, |row| {
            let (user, session) = (column(row, "session_user")?, column(row, "session_id")?);
            Ok(ExperimentTurn { user, session, measurement: measurement_of(row)? })
        })
    }
}

/// The caller has looked whether the session is there.
pub async fn insert_measurement(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    m: &Measurement,
) -> Result<(), StoreFailure> {
    let query = sqlx::query(
        "INSERT INTO measurements (session, turn, response, experiment, arm, preset, ctx_size, tokens_in, tokens_out,
            fill_tokens, reused_tokens, computed_tokens, computed_reason, queue_ms, prefill_ms, first_token_ms,
            first_sentence_ms, total_ms, decode_ms, compactions, drops, barged_in, regenerated, feedback, memory,
            created_at_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    );
    query
        .bind(session.key)
        .bind(m.turn as i64)
        .bind(&m.response)
        .bind(&m.experiment)
        .bind(&m.arm)
        .bind(&m.preset)
        .bind(m.ctx_size as i64)
        .bind(m.tokens_in as i64)
        .bind(m.tokens_out as i64)
        .bind(m.fill_tokens as i64)
        .bind(m.reused_tokens as i64)
        .bind(m.computed_tokens as i64)
        .bind(&m.computed_reason)
        .bind(m.queue_ms)
        .bind(m.prefill_ms)
        .bind(m.first_token_ms)
        .bind(m.first_sentence_ms)
        .bind(m.total_ms)
        .bind(m.decode_ms)
        .bind(m.compactions as i64)
        .bind(m.drops as i64)
        .bind(m.barged_in)
        .bind(m.regenerated)
        .bind(m.feedback)
        .bind(json_text(&m.memory))
        .bind(m.created_at_ms)
        .execute(connection)
        .await?;
    Ok(())
}

pub fn measurement_of(row: &SqliteRow) -> Result<Measurement, StoreFailure> {
    Ok(Measurement {
        turn: count(row, "turn")?,
        response: column(row, "response")?,
        experiment: column(row, "experiment")?,
        arm: column(row, "arm")?,
        preset: column(row, "preset")?,
        ctx_size: count(row, "ctx_size")?,
        tokens_in: count(row, "tokens_in")?,
        tokens_out: count(row, "tokens_out")?,
        fill_tokens: count(row, "fill_tokens")?,
        reused_tokens: count(row, "reused_tokens")?,
        computed_tokens: count(row, "computed_tokens")?,
        computed_reason: column(row, "computed_reason")?,
        queue_ms: column(row, "queue_ms")?,
        prefill_ms: column(row, "prefill_ms")?,
        first_token_ms: column(row, "first_token_ms")?,
        first_sentence_ms: column(row, "first_sentence_ms")?,
        total_ms: column(row, "total_ms")?,
        decode_ms: column(row, "decode_ms")?,
        compactions: count(row, "compactions")?,
        drops: count(row, "drops")?,
        barged_in: column(row, "barged_in")?,
        regenerated: column(row, "regenerated")?,
        feedback: column(row, "feedback")?,
        memory: json(row, "memory")?,
        created_at_ms: column(row, "created_at_ms")?,
    })
}
