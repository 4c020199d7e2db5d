use settings::Settings;
use store::{OpenedBy, StoreOptions};

pub fn store_options(settings: &Settings) -> StoreOptions {
    let store = &settings.store;
    StoreOptions {
        path: store.path.clone(),
        opened_by: OpenedBy::Service,
        create: true,
        busy_timeout_ms: store.busy_timeout_ms,
        readers: store.readers,
        read_limit_ms: store.read_limit_ms,
        sync_ms: store.sync_ms,
        user_bytes: settings.limits.user_bytes,
        user_bytes_per_minute: settings.limits.user_bytes_per_minute,
        write_queue: store.write_queue,
        commit_group: store.commit_group,
        wal_limit_bytes: store.wal_limit_bytes,
        max_pages: None,
        check_at_start: store.check_at_start,
    }
}
