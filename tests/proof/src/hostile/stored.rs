//! Files of a disk: imports, journals of replies, pasts, packed weights.

use super::told::told;
use kernels::cpu::Cpu;
use session::{Item, ItemBody, ItemPlace, ItemStatus, Role, SessionConfig};
use std::cell::OnceCell;
use std::path::Path;
use store::{
    Error, ImportLines, NewResponse, OpenedBy, Placement, SaidReply, SessionRecord, SessionRef, Store, StoreOptions,
};
use tempfile::TempDir;
use testing::packed::{HostilePacked, KEY};
use tokio::runtime::Runtime;
use weights::PackedFolder;

type Tried = Result<bool, String>;

struct ThreadFolder {
    folder: TempDir,
    cpu: Cpu,
}

thread_local! {
    static FOLDER: OnceCell<ThreadFolder> = const { OnceCell::new() };
    static STORE: OnceCell<ImportStore> = const { OnceCell::new() };
    static KILLED: OnceCell<KilledStore> = const { OnceCell::new() };
}

pub fn in_folder<T>(name: &str, work: impl FnOnce(&Path, &Cpu) -> T) -> T {
    FOLDER.with(|own| {
        let folder = || tempfile::tempdir().expect("a folder");
        let own = own.get_or_init(|| ThreadFolder { folder: folder(), cpu: Cpu::new(1) });
        let folder = own.folder.path().join(name);
        std::fs::create_dir_all(&folder).expect("a folder in it");
        work(&folder, &own.cpu)
    })
}

pub fn state(bytes: &[u8]) -> Tried {
    in_folder("state", |folder, _| match engine::hostile_disk::read_folder(folder, bytes)? {
        Ok(_) => Ok(true),
        Err(message) => told(&message),
    })
}

/// Packed weights: wrong ones are packed anew, without a word.
pub fn packed(bytes: &[u8]) -> Tried {
    let HostilePacked { file, len } = HostilePacked::of(bytes);
    in_folder("packed", |folder, cpu| {
        let folder = PackedFolder { path: folder.to_path_buf(), max_bytes: 1 << 30, min_bytes: 0 };
        std::fs::write(folder.path_of(&KEY), &file).map_err(|error| error.to_string())?;
        let read = |mmap| folder.find(&KEY, len, mmap, cpu, &mut |_, _| ()).map(|weights| weights.to_vec());
        let (mapped, copied) = (read(true), read(false));
        match mapped {
            mapped if mapped != copied => Err("a mapped file is read otherwise".to_owned()),
            Some(weights) if file.get(..len) != Some(&weights[..]) => Err("they are not what the file has".to_owned()),
            weights => Ok(weights.is_some()),
        }
    })
}

struct ImportStore {
    runtime: Runtime,
    store: Store,
    _folder: TempDir,
}

fn options(folder: &Path, check_at_start: bool) -> StoreOptions {
    StoreOptions {
        path: folder.join("store.sqlite3"),
        opened_by: OpenedBy::Service,
        create: true,
        busy_timeout_ms: 60_000,
        readers: 2,
        read_limit_ms: 0,
        sync_ms: 60_000,
        user_bytes: 0,
        user_bytes_per_minute: 0,
        write_queue: 256,
        commit_group: 64,
        wal_limit_bytes: 1 << 20,
        max_pages: None,
        check_at_start,
    }
}

impl ImportStore {
    fn new() -> ImportStore {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let store = runtime.block_on(Store::open(&options(folder.path(), true), 0)).expect("a store");
        ImportStore { runtime, store, _folder: folder }
    }
}

/// Lines of an export, as they are read before a store is asked.
pub fn import_lines(bytes: &[u8]) -> Tried {
    match ImportLines::check(&String::from_utf8_lossy(bytes)) {
        Ok(sessions) => Ok(sessions > 0),
        Err(error) => told(&error.to_string()),
    }
}

/// Lines of the journal of what replies say, as they are read before a store is asked. What was read is read again from what
/// would be written of it.
pub fn journal_lines(bytes: &[u8]) -> Tried {
    let mut said = SaidReply::all_of(bytes);
    let line = |reply: &SaidReply| {
        let mut line = serde_json::to_value(reply).map_err(|error| error.to_string())?;
        line["type"] = "begun".into();
        Ok::<_, String>(format!("{line}\n"))
    };
    let written = said.iter().map(line).collect::<Result<String, _>>()?;
    let mut again = SaidReply::all_of(written.as_bytes());
    for replies in [&mut said, &mut again] {
        replies.sort_by(|a, b| (a.session, &a.item).cmp(&(b.session, &b.item)));
    }
    if said == again { Ok(!said.is_empty()) } else { Err(format!("{said:?} is read again as {again:?}")) }
}

/// Lines of an export. What comes in is read, comes out again, and comes in and out once more the same.
pub fn import(bytes: &[u8]) -> Tried {
    let text = String::from_utf8_lossy(bytes);
    STORE.with(|own| {
        let ImportStore { runtime, store, .. } = own.get_or_init(ImportStore::new);
        runtime.block_on(async {
            let tried = import_into(store, &text).await;
            let mut left = Vec::new();
            for user in store.users().await.map_err(unexpected)? {
                for line in store.list_sessions(&user.id, None, 1000).await.map_err(unexpected)? {
                    let session = store.open_session(&user.id, &line.session.id).await.map_err(unexpected)?;
                    left.push(session);
                }
            }
            for session in left {
                store.delete_session(&session, 1).await.map_err(unexpected)?;
            }
            let versions = store.statistics().await.map_err(unexpected)?.versions;
            if versions > 0 {
                return Err(format!("{versions} versions are left of what was deleted or refused"));
            }
            tried
        })
    })
}

async fn import_into(store: &Store, text: &str) -> Tried {
    let mut importer = store.importer(Some("ann"), 9_999);
    let mut refused = None;
    for line in text.lines() {
        refused = importer.line(line).await.err();
        if refused.is_some() {
            break;
        }
    }
    let sessions = match refused {
        None => importer.finish().await,
        Some(error) => Err(error),
    };
    match sessions {
        Ok(sessions) => {
            for session in &sessions {
                goes_round(store, session).await?;
            }
            Ok(!sessions.is_empty())
        }
        Err(error @ (Error::Import { .. } | Error::SessionExists { .. })) => told(&error.to_string()),
        Err(error) => Err(format!("the file's mistake is told as another: {error:?}")),
    }
}

async fn goes_round(store: &Store, session: &SessionRef) -> Result<(), String> {
    store.load(session).await.map_err(|error| format!("it came in and cannot be read: {error:?}"))?;
    let lines = export(store, session).await?;
    let mut importer = store.importer(Some("bob"), 9_999);
    for line in &lines {
        let came = importer.line(line).await;
        came.map_err(|error| format!("what came in and out does not come in again: {error:?}"))?;
    }
    let again = importer.finish().await.map_err(|error| format!("it does not come in again: {error:?}"))?;
    let [again] = &again[..] else { return Err(format!("one session came in as {}", again.len())) };
    // The first line says whose it is.
    match export(store, again).await? {
        same if same[1..] == lines[1..] => Ok(()),
        other => {
            let first = lines.iter().zip(&other).skip(1).find(|(line, other)| line != other);
            Err(format!("it comes out otherwise the second time: {first:?}"))
        }
    }
}

async fn export(store: &Store, session: &SessionRef) -> Result<Vec<String>, String> {
    let cannot = |error| format!("it came in and does not come out: {error:?}");
    let (mut export, mut lines) = (store.export(session).await.map_err(cannot)?, Vec::new());
    while let Some(line) = export.next().await {
        lines.push(line.map_err(cannot)?);
    }
    Ok(lines)
}

fn unexpected(error: Error) -> String {
    format!("the store fails: {error:?}")
}

/// A store whose process was killed while it said something.
struct KilledStore {
    runtime: Runtime,
    folder: TempDir,
    file: Vec<u8>,
    session: SessionRef,
}

impl KilledStore {
    fn new() -> KilledStore {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let session = runtime.block_on(async {
            let store = Store::open(&options(folder.path(), false), 0).await.expect("a store");
            store.put_user("ann", "Ann", 1).await.expect("a user");
            let session = store.create_session(record()).await.expect("a session");
            let said = Item::new("u", good_morning(), ItemStatus::Completed);
            store.append(&session, said, ItemPlace::End, 2).await.expect("an item");
            let id = "resp".to_owned();
            let begun = NewResponse { id, in_conversation: false, metadata: None, of_request: None };
            store.begin_response(&session, begun, 3).await.expect("a response");
            let reply = Item::new("a", ItemBody::message(Role::Assistant, ""), ItemStatus::InProgress);
            store.begin_reply(&session, reply, ItemPlace::End, "resp", 3).await.expect("a reply");
            store.close().await.expect("it closes");
            session
        });
        let file = std::fs::read(folder.path().join("store.sqlite3")).expect("the file");
        KilledStore { runtime, folder, file, session }
    }
}

fn good_morning() -> ItemBody {
    ItemBody::message(Role::User, "Good morning.")
}

fn record() -> SessionRecord {
    SessionRecord {
        user: "ann".into(),
        person: String::new(),
        room: String::new(),
        is_remembered: false,
        is_of_household: false,
        told_facts: None,
        created_at_ms: 1,
        updated_at_ms: 1,
        id: "sess_1".to_owned(),
        placement: Placement { preset: "small".into(), ctx_size: 1000, experiment: None, arm: None },
        title: String::new(),
        config: SessionConfig::new("Be brief."),
        metadata: None,
    }
}

/// The journal beside the store, as the next start reads it. The service starts, whatever it holds, and what was said before
/// stays.
pub fn journal(bytes: &[u8]) -> Tried {
    KILLED.with(|killed| {
        let KilledStore { runtime, folder, file, session } = killed.get_or_init(KilledStore::new);
        let put = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).map_err(|error| error.to_string())
        };
        for left in ["store.sqlite3-wal", "store.sqlite3-shm"] {
            let _ = std::fs::remove_file(folder.path().join(left));
        }
        put("store.sqlite3", file)?;
        put("store.sqlite3-words", bytes)?;
        runtime.block_on(async {
            let store = Store::open(&options(folder.path(), false), 9).await;
            let store = store.map_err(|error| format!("the service does not start: {error:?}"))?;
            let items = store.load(session).await.map_err(unexpected)?;
            store.close().await.map_err(unexpected)?;
            if !items.items.iter().any(|item| item.body == good_morning()) {
                return Err(format!("what was said before is another: {:?}", items.items));
            }
            Ok(items.items.iter().any(|item| item.body != good_morning() && !item.said().is_empty()))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_weights_with_a_right_end_are_found_and_others_are_not() {
        let input = [&[1, 0, 0, 0][..], &[7; 500]].concat();
        assert_eq!(packed(&input), Ok(true));
        assert_eq!(packed(&[&[0], &input[1..]].concat()), Ok(false));
        assert_eq!(packed(b""), Ok(false));
    }
}
