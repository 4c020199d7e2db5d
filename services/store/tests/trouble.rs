//! Full disks, files of others, newer schemas, flipped bits, a second service: clear errors, and nothing lost.

use crate::support::*;
use session::{ItemPlace, Role};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use std::path::Path;
use store::*;

async fn on_the_side(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap()
}

async fn run(path: &Path, sql: &'static str) {
    let mut connection = on_the_side(path).await;
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn refusal(options: &StoreOptions) -> Error {
    Store::open(options, 0).await.map(|_| ()).unwrap_err()
}

#[tokio::test]
async fn a_full_disk_refuses_the_new_and_keeps_the_old() {
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    say(&fixture.store, &session, "first", "before", 20).await;
    fixture.store.close().await.unwrap();
    let full = StoreOptions { max_pages: Some(80), ..options(fixture.folder.path()) };
    let store = Store::open(&full, 30).await.unwrap();
    let session = store.open_session("ada", session.id()).await.unwrap();
    let mut stored = vec!["first".to_owned()];
    let error = loop {
        let id = format!("i{}", stored.len());
        let text = "many words ".repeat(500);
        match put(&store, &session, &id, message(Role::User, &text), ItemPlace::End, 40).await {
            Ok(_) => stored.push(id),
            Err(error) => break error,
        }
        assert!(stored.len() < 1_000, "the limit was never reached");
    };
    assert_eq!(error, Error::Full { path: full.path.clone() });
    assert!(error.to_string().contains("make room"), "{error}");
    assert_eq!(store.trouble(), Some(error.to_string()));
    // Reads continue, freed room is used, and acknowledged data is there.
    let ids = |items: Vec<ItemVersion>| items.into_iter().map(|item| item.item_id).collect::<Vec<_>>();
    assert_eq!(ids(store.load(&session).await.unwrap().items), stored);
    store.close().await.unwrap();
    let store = Store::open(&options(fixture.folder.path()), 50).await.unwrap();
    say(&store, &session, "after", "room again", 60).await;
    assert_eq!(store.trouble(), None);
    stored.push("after".into());
    assert_eq!(ids(store.load(&session).await.unwrap().items), stored);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn everybody_in_a_group_that_failed_is_told() {
    let fixture = Fixture::new().await;
    fixture.store.close().await.unwrap();
    let full = StoreOptions { max_pages: Some(80), ..options(fixture.folder.path()) };
    let store = Store::open(&full, 30).await.unwrap();
    let session = store.create_session(new_session("ada", None, 30)).await.unwrap();
    let writes: Vec<_> = (0..200)
        .map(|n| {
            let (store, session) = (store.clone(), session.clone());
            tokio::spawn(async move {
                let body = message(Role::User, &"word ".repeat(1_000));
                put(&store, &session, &format!("i{n}"), body, ItemPlace::End, 40).await
            })
        })
        .collect();
    let (mut acknowledged, mut refused) = (Vec::new(), 0);
    for write in writes {
        match write.await.unwrap() {
            Ok(stored) => acknowledged.push(stored.item_id),
            Err(Error::Full { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 0 && acknowledged.len() + refused == 200, "{refused} refused");
    let mut there: Vec<_> = store.load(&session).await.unwrap().items.into_iter().map(|item| item.item_id).collect();
    acknowledged.sort();
    there.sort();
    assert_eq!(there, acknowledged, "acknowledged and stored must be the same");
}

#[tokio::test]
async fn a_second_service_is_refused_and_a_command_may_join() {
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    let service = StoreOptions { busy_timeout_ms: 50, ..options(fixture.folder.path()) };
    let error = refusal(&service).await;
    let by = format!(" (process {})", std::process::id());
    assert_eq!(error, Error::InUse { path: service.path.clone(), by });
    let command = StoreOptions { opened_by: OpenedBy::Command, ..service.clone() };
    let beside = Store::open(&command, 0).await.unwrap();
    let theirs = beside.open_session("ada", session.id()).await.unwrap();
    say(&beside, &theirs, "c", "from the command", 20).await;
    say(&fixture.store, &session, "s", "from the service", 21).await;
    assert_eq!(texts(&beside, &theirs).await, ["from the command", "from the service"]);
    // A reply of the running service does not count as the remains of a crash.
    let reply = begin(&fixture.store, &session, "a", "resp_1", 22).await.unwrap();
    let third = Store::open(&command, 0).await.unwrap();
    assert_eq!(third.load(&theirs).await.unwrap().items[2].status, VersionStatus::InProgress);
    let body = message(Role::Assistant, "done");
    fixture.store.finish_reply(&reply, VersionStatus::Completed, body, 23).await.unwrap();
    fixture.store.close().await.unwrap();
    assert_eq!(fixture.store.load(&session).await.map(|_| ()), Err(Error::Closed));
    let late = put(&fixture.store, &session, "x", message(Role::User, "x"), ItemPlace::End, 24).await;
    assert_eq!(late, Err(Error::Closed));
    Store::open(&service, 0).await.unwrap();
}

/// People delete the file of a lock that is in their way.
#[tokio::test]
async fn a_lock_whose_file_was_deleted_still_keeps_a_second_service_out() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    let service = StoreOptions { busy_timeout_ms: 50, ..options(fixture.folder.path()) };
    let command = StoreOptions { opened_by: OpenedBy::Command, ..service.clone() };
    let lock = fixture.folder.path().join("store.sqlite3.lock");
    let mut replies = Vec::new();
    // The second one is longer than a journal is before it is written anew.
    for (item, words) in [("a", "said"), ("b", &*"much ".repeat(300_000)), ("c", "")] {
        std::fs::remove_file(&lock).unwrap();
        assert!(matches!(refusal(&service).await, Error::InUse { .. }), "{item}");
        Store::open(&command, 0).await.unwrap().close().await.unwrap();
        let there = store.load(&session).await.unwrap().items;
        assert!(there.iter().all(|reply| reply.status == VersionStatus::InProgress), "a command ended {there:?}");
        store.begin_words(&session, item, "resp_1", None, "");
        store.write_words(&session, item, words).unwrap();
        replies.push(begin(store, &session, item, "resp_1", 22).await.unwrap());
    }
    let done = store.finish_reply(&replies[1], VersionStatus::Completed, message(Role::Assistant, "done"), 23);
    done.await.unwrap();
    std::fs::remove_file(&lock).unwrap();
    assert!(matches!(refusal(&service).await, Error::InUse { .. }), "the journal is another file now");
    store.close().await.unwrap();
    Store::open(&service, 0).await.unwrap();
}

#[tokio::test]
async fn files_that_are_no_store_of_ours_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path());
    let path = &options.path;
    std::fs::write(path, "this is a letter to my aunt, and it is long enough to be more than a header".repeat(20))
        .unwrap();
    let letter = std::fs::read(path).unwrap();
    let error = refusal(&options).await;
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    assert_eq!(std::fs::read(path).unwrap(), letter);
    std::fs::remove_file(path).unwrap();

    run(path, "CREATE TABLE recipes (name TEXT); CREATE TABLE more (name TEXT);").await;
    assert_eq!(refusal(&options).await, Error::Foreign { path: path.clone() });
    std::fs::remove_file(path).unwrap();

    let command = StoreOptions { opened_by: OpenedBy::Command, create: false, ..options.clone() };
    assert_eq!(refusal(&command).await, Error::NoStore { path: path.clone() });
    assert!(!path.exists());
    std::fs::write(folder.path().join("file"), "").unwrap();
    let nowhere = StoreOptions { path: folder.path().join("file/store.sqlite3"), ..options };
    assert!(matches!(refusal(&nowhere).await, Error::CannotOpen { .. }));
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_store_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { path: folder.path().join("deep/down/store.sqlite3"), ..options(folder.path()) };
    let store = Store::open(&options, 0).await.unwrap();
    store.put_user("ada", "Ada", 1).await.unwrap();
    let mode = |path: &str| std::fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o777;
    for file in ["deep/down/store.sqlite3", "deep/down/store.sqlite3-wal", "deep/down/store.sqlite3-shm"] {
        assert_eq!(mode(file), 0o600, "{file}");
    }
    assert_eq!(mode("deep/down"), 0o700);
}

/// A process killed between creating the migrations' bookkeeping table and the first migration.
#[tokio::test]
async fn a_first_start_that_was_cut_off_is_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path());
    run(
        &options.path,
        "CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL,
         installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL, checksum BLOB NOT NULL,
         execution_time BIGINT NOT NULL)",
    )
    .await;
    Store::open(&options, 0).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn newer_and_changed_schemas_are_refused() {
    let fixture = Fixture::new().await;
    fixture.store.close().await.unwrap();
    let options = options(fixture.folder.path());
    let path = options.path.clone();
    run(&path, "INSERT INTO _sqlx_migrations VALUES (9999, 'later', '2030-01-01', 1, x'00', 0)").await;
    let error = refusal(&options).await;
    assert!(matches!(error, Error::Newer { found: 9999, .. }), "{error:?}");
    assert!(error.to_string().contains("start the newer release"), "{error}");
    run(&path, "DELETE FROM _sqlx_migrations WHERE version = 9999").await;
    Store::open(&options, 0).await.unwrap().close().await.unwrap();
    run(&path, "UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 1").await;
    assert_eq!(refusal(&options).await, Error::SchemaChanged { path, step: 1 });
}

#[tokio::test]
async fn a_truncated_file_is_found_at_start() {
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    for n in 0..50 {
        say(&fixture.store, &session, &format!("i{n}"), &"words ".repeat(200), 20).await;
    }
    fixture.store.close().await.unwrap();
    let options = options(fixture.folder.path());
    let file = std::fs::OpenOptions::new().write(true).open(&options.path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    let error = refusal(&options).await;
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("restore a backup"), "{error}");
}

#[tokio::test]
async fn a_flipped_letter_is_found_when_it_is_read() {
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    say(&fixture.store, &session, "u", "the alarm is at seven", 20).await;
    say(&fixture.store, &session, "v", "thanks", 21).await;
    fixture.store.close().await.unwrap();
    let options = options(fixture.folder.path());
    let mut bytes = std::fs::read(&options.path).unwrap();
    let mut flipped = 0;
    for at in 0..bytes.len() - 8 {
        if &bytes[at..at + 8] == b"at seven" {
            bytes[at + 3] = b'e'; // eeven: no page structure is hurt, so SQLite itself sees nothing
            flipped += 1;
        }
    }
    assert!(flipped > 0);
    std::fs::write(&options.path, bytes).unwrap();
    let store = Store::open(&options, 30).await.unwrap();
    let expected = Error::DamagedItem { session: session.id().into(), item: "u".into(), version: 1 };
    assert_eq!(store.load(&session).await.map(|_| ()), Err(expected));
    let problems = store.check().await.unwrap();
    assert!(problems.iter().any(|problem| problem.contains("does not match its checksum")), "{problems:?}");
}

/// File system of its own, as small as asked; `None` if the machine allows no mounts.
#[cfg(target_os = "linux")]
struct SmallDisk {
    folder: tempfile::TempDir,
}

#[cfg(target_os = "linux")]
impl SmallDisk {
    fn new(size: &str) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"], folder.path());
        if !mounted {
            eprintln!("skipped: mounting is not allowed here, the limit on pages has been tested instead");
        }
        mounted.then_some(SmallDisk { folder })
    }
}

#[cfg(target_os = "linux")]
impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

#[cfg(target_os = "linux")]
fn mount(arguments: &[&str], folder: &Path) -> bool {
    let mount = std::process::Command::new("mount").args(arguments).arg(folder).output();
    mount.is_ok_and(|output| output.status.success())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_disk_that_is_really_full_loses_nothing() {
    let Some(disk) = SmallDisk::new("2m") else { return };
    let options = options(disk.folder.path());
    let store = Store::open(&options, 0).await.unwrap();
    store.put_user("ada", "Ada", 0).await.unwrap();
    let session = store.create_session(new_session("ada", Some("talk"), 0)).await.unwrap();
    let mut acknowledged = Vec::new();
    let mut refused = Vec::new();
    for n in 0..1_000 {
        match put(&store, &session, &format!("i{n}"), message(Role::User, &"word ".repeat(2_000)), ItemPlace::End, 10)
            .await
        {
            Ok(stored) => acknowledged.push(stored.item_id),
            Err(error) => refused.push(error),
        }
        if refused.len() == 5 {
            break;
        }
    }
    assert_eq!(refused, vec![Error::Full { path: options.path.clone() }; 5]);
    let ids = |items: Vec<ItemVersion>| items.into_iter().map(|item| item.item_id).collect::<Vec<_>>();
    assert_eq!(ids(store.load(&session).await.unwrap().items), acknowledged);
    drop(store);
    // The disk gets room, and writes succeed again.
    assert!(mount(&["-o", "remount,size=20m"], disk.folder.path()));
    let store = Store::open(&options, 20).await.unwrap();
    let session = store.open_session("ada", "talk").await.unwrap();
    acknowledged.push(say(&store, &session, "after", "room again", 30).await.item_id);
    assert_eq!(ids(store.load(&session).await.unwrap().items), acknowledged);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    store.close().await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_disk_that_became_read_only_is_named_and_loses_nothing() {
    let Some(disk) = SmallDisk::new("20m") else { return };
    let options = options(disk.folder.path());
    let store = Store::open(&options, 0).await.unwrap();
    store.put_user("ada", "Ada", 0).await.unwrap();
    let session = store.create_session(new_session("ada", Some("talk"), 0)).await.unwrap();
    say(&store, &session, "u", "before", 10).await;
    store.close().await.unwrap();
    assert!(mount(&["-o", "remount,ro"], disk.folder.path()));
    let error = refusal(&options).await;
    assert_eq!(error, Error::ReadOnly { path: options.path.clone() });
    assert!(error.to_string().contains("read-only"), "{error}");
    assert!(mount(&["-o", "remount,rw"], disk.folder.path()));
    let store = Store::open(&options, 20).await.unwrap();
    let session = store.open_session("ada", "talk").await.unwrap();
    assert_eq!(texts(&store, &session).await, ["before"]);
    store.close().await.unwrap();
}

/// SQLite opens a read-only file silently; the service must not.
#[tokio::test]
async fn a_store_that_cannot_be_written_is_refused_at_start() {
    let fixture = Fixture::new().await;
    fixture.store.close().await.unwrap();
    let options = options(fixture.folder.path());
    let only_read = |on: bool| {
        let mut permissions = std::fs::metadata(&options.path).unwrap().permissions();
        permissions.set_readonly(on);
        std::fs::set_permissions(&options.path, permissions).unwrap();
    };
    only_read(true);
    // An administrator may write everywhere: then there is nothing to refuse.
    if std::fs::OpenOptions::new().write(true).open(&options.path).is_ok() {
        eprintln!("skipped: this user may write to a read-only file");
    } else {
        assert_eq!(refusal(&options).await, Error::ReadOnly { path: options.path.clone() });
    }
    only_read(false);
    Store::open(&options, 0).await.unwrap();
}

#[tokio::test]
async fn a_write_waits_for_another_program_and_then_says_busy() {
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    fixture.store.close().await.unwrap();
    let impatient = StoreOptions { busy_timeout_ms: 50, ..options(fixture.folder.path()) };
    let store = Store::open(&impatient, 0).await.unwrap();
    let mut other = on_the_side(&impatient.path).await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let refused = put(&store, &session, "u", message(Role::User, "hello"), ItemPlace::End, 10).await;
    assert_eq!(refused, Err(Error::Busy { path: impatient.path.clone() }));
    // Reads do not wait, and the refused write can be tried again.
    assert_eq!(texts(&store, &session).await, Vec::<String>::new());
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    say(&store, &session, "u", "hello", 20).await;
    assert_eq!(texts(&store, &session).await, ["hello"]);
    other.close().await.unwrap();
}

const OTHER_PROCESS: &str = "STORE_OTHER_PROCESS_FOLDER";
const EVENTS_OF_EACH: usize = 100;

#[tokio::test]
async fn two_processes_write_side_by_side_and_lose_nothing() {
    let fixture = Fixture::new().await;
    let session = fixture.store.create_session(new_session("ada", Some("shared"), 0)).await.unwrap();
    let mut other = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "trouble::the_other_process", "--test-threads=1"])
        .env(OTHER_PROCESS, fixture.folder.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for n in 0..EVENTS_OF_EACH {
        say(&fixture.store, &session, &format!("mine{n}"), "one", 10).await;
    }
    let ended = tokio::task::spawn_blocking(move || other.wait()).await.unwrap().unwrap();
    assert!(ended.success());
    let view = fixture.store.load(&session).await.unwrap();
    assert_eq!((view.items.len(), view.last_seq), (2 * EVENTS_OF_EACH, 2 * EVENTS_OF_EACH as u64));
    assert_eq!(fixture.store.check().await.unwrap(), Vec::<String>::new());
}

/// Second process of the test before. Not a test by itself.
#[tokio::test]
async fn the_other_process() {
    let Ok(folder) = std::env::var(OTHER_PROCESS) else { return };
    let command = StoreOptions { opened_by: OpenedBy::Command, create: false, ..options(Path::new(&folder)) };
    let store = Store::open(&command, 0).await.unwrap();
    let session = store.open_session("ada", "shared").await.unwrap();
    for n in 0..EVENTS_OF_EACH {
        say(&store, &session, &format!("theirs{n}"), "two", 10).await;
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_user_stores_no_more_than_the_limits_let() {
    let fixture = Fixture::new().await;
    fixture.store.close().await.unwrap();
    let limits = StoreOptions { user_bytes: 20_000, user_bytes_per_minute: 8_000, ..options(fixture.folder.path()) };
    let store = Store::open(&limits, 0).await.unwrap();
    let mine = store.create_session(new_session("ada", None, 10)).await.unwrap();
    let others = store.create_session(new_session("bob", None, 10)).await.unwrap();
    let store_three = async |session: &SessionRef, minute: i64| {
        let mut last = Ok(());
        for n in 0..3 {
            let body = message(Role::User, &"word ".repeat(600)); // 3000 bytes and what the row takes
            last =
                put(&store, session, &format!("m{minute}n{n}"), body, ItemPlace::End, minute * 60_000).await.map(drop);
        }
        last
    };
    assert_eq!(store_three(&mine, 1).await, Err(Error::TooFast { limit: 8_000 }));
    // Another user is not affected, and the next minute has room again.
    assert_eq!(store_three(&others, 1).await, Err(Error::TooFast { limit: 8_000 }));
    assert_eq!(store.load(&others).await.unwrap().items.len(), 2);
    assert_eq!(store_three(&mine, 2).await, Err(Error::TooFast { limit: 8_000 }));
    assert_eq!(store_three(&mine, 3).await, Err(Error::UserFull { limit: 20_000 }));
    // A version that only cuts an item takes room too, and deleting gives it back.
    assert_eq!(store.truncate(&mine, "m1n0", 0, 2999, 240_000).await, Err(Error::UserFull { limit: 20_000 }));
    store.delete_session(&mine, 240_001).await.unwrap();
    let again = store.create_session(new_session("ada", None, 250_000)).await.unwrap();
    assert_eq!(store_three(&again, 5).await, Err(Error::TooFast { limit: 8_000 }));
    assert_eq!(store.load(&again).await.unwrap().items.len(), 2);
}
