//! The store, opened by a command.

use anyhow::{Context, Result};
use runtime::wall_ms;
use settings::Settings;
use store::{Options, Owner, Store};

/// Opens the store beside whoever uses it, does the work, closes it.
pub fn with_store(settings: &Settings, create: bool, work: impl AsyncFnOnce(&Store) -> Result<()>) -> Result<()> {
    let options = Options {
        path: settings.store.path.clone(),
        owner: Owner::Command,
        create,
        busy_timeout_ms: settings.store.busy_timeout_ms,
        readers: settings.store.readers,
        write_queue: WRITES_OF_A_COMMAND,
        commit_group: WRITES_OF_A_COMMAND,
        wal_limit_bytes: WAL_OF_A_COMMAND_BYTES,
        max_pages: None,
        check_at_start: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("the async runtime")?;
    runtime.block_on(async {
        let store = Store::open(&options, wall_ms()).await?;
        let done = work(&store).await;
        let closed = store.close().await;
        done?;
        Ok(closed?)
    })
}

/// A command has one thing to write at a time.
const WRITES_OF_A_COMMAND: usize = 16;
const WAL_OF_A_COMMAND_BYTES: u64 = 4 << 20;
