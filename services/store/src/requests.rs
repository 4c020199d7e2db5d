//! Requests that a client may send again: the digest of a request is stored with the items that it added, in their
//! transaction, so that a retry is recognised after a crash, too.

use crate::erase::erase;
use crate::error::Result;
use crate::items::settled_item;
use crate::responses::find_response;
use crate::{Error, SessionRef, Store, StoredResponse};
use session::RequestDigest;
use sqlx::sqlite::SqliteConnection;

#[derive(Debug, Clone, PartialEq)]
pub struct StoredRequest {
    pub session: SessionRef,
    /// Newest response to it. `None`: none was begun.
    pub response: Option<StoredResponse>,
}

impl Store {
    /// Finds a request that was stored whole since `since_ms`, and is one of the user's `most` newest.
    pub async fn find_request(
        &self,
        user: &str,
        digest: RequestDigest,
        since_ms: i64,
        most: usize,
    ) -> Result<Option<StoredRequest>, Error> {
        self.read_moment(async |reader| {
            let query = sqlx::query_as(
                "SELECT s.key, s.user, s.id FROM request_items r
                 JOIN sessions s ON s.key = r.session AND s.deleted_at_ms IS NULL
                 WHERE r.user = ?1 AND r.digest = ?2 AND r.is_last = 1 AND r.at_ms >= ?3
                    AND (SELECT count(*) FROM request_items n
                        WHERE n.user = ?1 AND n.is_last = 1 AND n.at_ms > r.at_ms) < ?4
                 ORDER BY r.at_ms DESC, s.key DESC LIMIT 1",
            );
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let query = query.bind(user).bind(&digest.0[..]).bind(since_ms).bind(most);
            let found: Option<SessionRef> = query.fetch_optional(&mut *reader).await?;
            let Some(session) = found else { return Ok(None) };
            let query = sqlx::query_scalar(
                "SELECT id FROM responses WHERE session = ? AND request = ? ORDER BY key DESC LIMIT 1",
            );
            let id: Option<String> = query.bind(session.key).bind(&digest.0[..]).fetch_optional(&mut *reader).await?;
            let response = match id {
                Some(id) => find_response(reader, user, &id).await?,
                None => None,
            };
            Ok(Some(StoredRequest { session, response }))
        })
        .await
    }

    /// Erases the items of requests that a crash cut off between two items: their clients send them again as a whole.
    pub(crate) async fn undo_half_requests(&self, now_ms: i64) -> Result<(), Error> {
        self.write(async move |connection| {
            for (session, item_id) in half_requests(connection).await? {
                let item = settled_item(connection, &session, &item_id).await?;
                erase(connection, &session, item, now_ms).await?;
            }
            Ok(())
        })
        .await
    }

    /// Drops digests older than `before_ms`: their clients send nothing again.
    pub async fn forget_requests_before(&self, before_ms: i64) -> Result<(), Error> {
        let removal = || {
            sqlx::query(
                "DELETE FROM request_items WHERE (user, digest, session, item_id) IN
                    (SELECT user, digest, session, item_id FROM request_items WHERE at_ms < ? LIMIT ?)",
            )
        };
        self.remove_all(removal, before_ms).await
    }
}

async fn half_requests(connection: &mut SqliteConnection) -> Result<Vec<(SessionRef, String)>> {
    let query = sqlx::query_as(
        "SELECT s.key, s.user, s.id, r.item_id FROM request_items r
         JOIN sessions s ON s.key = r.session AND s.deleted_at_ms IS NULL
         JOIN items i ON i.session = r.session AND i.item_id = r.item_id AND i.deleted = 0
         WHERE NOT EXISTS (SELECT 1 FROM request_items l
            WHERE l.user = r.user AND l.digest = r.digest AND l.session = r.session AND l.is_last = 1)",
    );
    let rows: Vec<(i64, String, String, String)> = query.fetch_all(connection).await?;
    let item = |(key, user, id, item): (i64, String, String, String)| {
        (SessionRef { key, user: user.into(), id: id.into() }, item)
    };
    Ok(rows.into_iter().map(item).collect())
}
