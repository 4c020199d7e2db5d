//! Speed test: events a second that the store makes durable, with one writer and with many.
//!
//! `cargo run --release -p store --example store_speed -- [FOLDER] [SECONDS]`

use session::{Item, ItemPlace, Role, SessionConfig};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::{OpenedBy, Placement, SessionRecord, SessionRef, Store, StoreOptions, new_id};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let seconds: u64 = arguments.next().map_or(Ok(3), |seconds| seconds.parse())?;
    println!("{:>7}  {:>9}  {:>9}  {:>9}", "writers", "appends/s", "p50 ms", "p99 ms");
    for writers in [1, 2, 8, 32, 128] {
        let path = folder.join(format!("store-speed-{}-{writers}.sqlite3", std::process::id()));
        let mut delays_ms = measure(&path, writers, Duration::from_secs(seconds)).await?;
        delays_ms.sort_by(f64::total_cmp);
        let at = |share: f64| delays_ms.get((delays_ms.len() as f64 * share) as usize).copied().unwrap_or(0.0);
        let per_second = delays_ms.len() as f64 / seconds as f64;
        println!("{writers:>7}  {per_second:>9.0}  {:>9.2}  {:>9.2}", at(0.5), at(0.99));
        for end in ["", "-wal", "-shm", ".lock"] {
            let _ = std::fs::remove_file(format!("{}{end}", path.display()));
        }
    }
    Ok(())
}

async fn measure(
    path: &std::path::Path,
    writers: usize,
    time: Duration,
) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let options = StoreOptions {
        path: path.to_path_buf(),
        opened_by: OpenedBy::Service,
        create: true,
        busy_timeout_ms: 5_000,
        readers: 2,
        read_limit_ms: 0,
        sync_ms: 1000,
        user_bytes: 0,
        user_bytes_per_minute: 0,
        write_queue: 1024,
        commit_group: 256,
        wal_limit_bytes: 16 << 20,
        max_pages: None,
        check_at_start: true,
    };
    let store = Store::open(&options, 0).await?;
    store.put_user("ada", "Ada", 0).await?;
    let end = Instant::now() + time;
    let mut tasks = Vec::new();
    for writer in 0..writers {
        let new = SessionRecord {
            user: "ada".into(),
            person: String::new(),
            room: String::new(),
            is_remembered: false,
            is_of_household: false,
            told_facts: None,
            created_at_ms: 0,
            updated_at_ms: 0,
            id: new_id("sess")?,
            placement: Placement { preset: "small".into(), ctx_size: 1000, experiment: None, arm: None },
            title: format!("writer {writer}"),
            config: SessionConfig::new(""),
            metadata: None,
        };
        let session = store.create_session(new).await?;
        tasks.push(tokio::spawn(append_until(store.clone(), session, end)));
    }
    let mut delays_ms = Vec::new();
    for task in tasks {
        delays_ms.extend(task.await??);
    }
    store.close().await?;
    Ok(delays_ms)
}

async fn append_until(store: Store, session: SessionRef, end: Instant) -> Result<Vec<f64>, store::Error> {
    let mut delays_ms = Vec::new();
    while Instant::now() < end {
        let text = "Could you set a timer for the noodles, please? Eight minutes, and tell me when to stir.";
        let item = Item::message(new_id("item")?, Role::User, text);
        let start = Instant::now();
        store.append(&session, item, ItemPlace::End, 1).await?;
        delays_ms.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(delays_ms)
}
