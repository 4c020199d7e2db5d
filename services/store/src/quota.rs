//! Quotas of a user's clients: bytes in a minute, and in all.

use crate::error::Result;
use crate::{Error, StoreOptions};
use parking_lot::Mutex;
use sqlx::sqlite::SqliteConnection;
use std::collections::HashMap;

/// Bytes of a row beside its words, as the schema's steps 5 and 13 count them.
pub const ROW_BYTES: usize = 512;
const MINUTE_MS: i64 = 60_000;

pub struct Quota {
    user_bytes: u64,
    user_bytes_per_minute: u64,
    stored: Mutex<(i64, HashMap<String, u64>)>,
}

impl Quota {
    pub fn new(options: &StoreOptions) -> Quota {
        let (user_bytes, user_bytes_per_minute) = (options.user_bytes, options.user_bytes_per_minute);
        Quota { user_bytes, user_bytes_per_minute, stored: Mutex::default() }
    }

    /// Counts `text_bytes` that a client of this user wants to store, or refuses them.
    pub async fn take(
        &self,
        connection: &mut SqliteConnection,
        user: &str,
        text_bytes: usize,
        now_ms: i64,
    ) -> Result<()> {
        let bytes = (text_bytes + ROW_BYTES) as u64;
        let query = sqlx::query_scalar("SELECT stored_bytes FROM users WHERE id = ?").bind(user);
        let stored: Option<i64> = query.fetch_optional(connection).await?;
        let stored = stored.ok_or_else(|| Error::NoUser { user: user.to_owned() })?;
        if self.user_bytes > 0 && u64::try_from(stored).unwrap_or(0).saturating_add(bytes) > self.user_bytes {
            return Err(Error::UserFull { limit: self.user_bytes }.into());
        }
        if !self.has_room_in_minute(user, bytes, now_ms.div_euclid(MINUTE_MS)) {
            return Err(Error::TooFast { limit: self.user_bytes_per_minute }.into());
        }
        Ok(())
    }

    fn has_room_in_minute(&self, user: &str, bytes: u64, minute: i64) -> bool {
        let mut stored = self.stored.lock();
        if stored.0 != minute {
            *stored = (minute, HashMap::new());
        }
        let so_far = stored.1.entry(user.to_owned()).or_default();
        let fits = self.user_bytes_per_minute == 0 || so_far.saturating_add(bytes) <= self.user_bytes_per_minute;
        if fits {
            *so_far += bytes;
        }
        fits
    }
}
