//! Digests of clients' requests, stored with the items that they added.

use crate::SessionRef;
use crate::error::Result;
use session::{RequestDigest, RequestPart};
use sqlx::sqlite::SqliteConnection;

pub(crate) async fn insert_part(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item_id: &str,
    part: RequestPart,
    now_ms: i64,
) -> Result<()> {
    let query = sqlx::query(
        "INSERT OR REPLACE INTO request_items (user, digest, session, item_id, is_last, at_ms)
         VALUES (?, ?, ?, ?, ?, ?)",
    );
    let query = query.bind(session.user()).bind(&part.digest.0[..]).bind(session.key).bind(item_id);
    query.bind(part.is_last).bind(now_ms).execute(connection).await?;
    Ok(())
}

/// Stores that a request is whole with this item. A request without items has none.
pub(crate) async fn insert_last_part(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    item_id: Option<String>,
    of_request: Option<RequestDigest>,
    now_ms: i64,
) -> Result<()> {
    let (Some(item_id), Some(digest)) = (item_id, of_request) else { return Ok(()) };
    insert_part(connection, session, &item_id, RequestPart { digest, is_last: true }, now_ms).await
}
