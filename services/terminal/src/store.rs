//! The store of the service, opened by a command: beside a service that uses it, or without one.

use anyhow::{Context, Result};
use runtime::{store_options, wall_ms};
use settings::Settings;
use store::{OpenedBy, Store, StoreOptions};

pub fn with_store(settings: &Settings, create: bool, work: impl AsyncFnOnce(&Store) -> Result<()>) -> Result<()> {
    let options = StoreOptions {
        opened_by: OpenedBy::Command,
        create,
        read_limit_ms: 0,
        write_queue: WRITES_OF_A_COMMAND,
        commit_group: WRITES_OF_A_COMMAND,
        wal_limit_bytes: WAL_OF_A_COMMAND_BYTES,
        check_at_start: false,
        ..store_options(settings)
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the async runtime")?;
    runtime.block_on(async {
        let store = Store::open(&options, wall_ms()).await?;
        let done = work(&store).await;
        let closed = store.close().await;
        done?;
        Ok(closed?)
    })
}

const WRITES_OF_A_COMMAND: usize = 16; // a command has one thing to write at a time
const WAL_OF_A_COMMAND_BYTES: u64 = 4 << 20;
