//! Disks that are full, read-only or to be forgotten, and readers that do not read, with the real binary.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use tests::client::{Client, Closed, PATIENCE, user, words};
use tests::service::{Service, check_store, may_mount, run_ok};
use tests::upstream::StandIn;
use tokio::time::timeout;

/// Mount of a small disk, part of which is taken by removable files.
const SMALL_DISK: &str =
    "mkdir -p data; mount -t tmpfs -o size=3000k none data; head -c 1000000 /dev/zero > data/filler";
/// Flags that keep computed pasts off this disk: they shall not fill it.
const NO_PASTS: [&str; 2] = ["--set", "memory.disk_path="];

/// Says it, and returns whether it was acknowledged. A refusal must say that the disk is full.
async fn keep(client: &mut Client, id: &str, text: &str) -> bool {
    keep_or_hear(client, id, text, "full").await
}

/// Says it, and returns whether it was acknowledged. A refusal must have this word in it.
async fn keep_or_hear(client: &mut Client, id: &str, text: &str, why: &str) -> bool {
    let mut event = user(text);
    (event["item"]["id"], event["event_id"]) = (json!(id), json!(id));
    client.say(event).await;
    loop {
        let event = client.event().await;
        match event["type"].as_str() {
            Some("conversation.item.added") if event["item"]["id"] == id => return true,
            Some("error") => {
                let error = &event["error"];
                assert_eq!((&error["code"], &error["event_id"]), (&json!("store_failed"), &json!(id)), "{error:#}");
                assert!(error["message"].as_str().unwrap().contains(why), "{error:#}");
                return false;
            }
            _ => {}
        }
    }
}

/// The items as the service has them now: ids and words.
async fn stored(service: &Service, session: &str) -> Vec<(String, String)> {
    let mut items = Vec::new();
    let mut path = format!("/v1/sessions/{session}/items");
    loop {
        let page = service.get(&path).await;
        items.extend(page["data"].as_array().unwrap().iter().map(|item| {
            let parts = item["body"]["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
            let text = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            (item["item_id"].as_str().unwrap().to_owned(), text)
        }));
        let Some(after) = page["after"].as_str() else { return items };
        path = format!("/v1/sessions/{session}/items?after={after}");
    }
}

async fn stored_ids(service: &Service, session: &str) -> Vec<String> {
    stored(service, session).await.into_iter().map(|(id, _)| id).collect()
}

/// Fills a user's room: the service refuses more, and counts no failure of its store.
#[tokio::test]
async fn a_user_without_room_is_no_failure_of_the_store() {
    let limits = ["--set", "limits.user_bytes=4KiB", "--set", "limits.user_bytes_per_minute=4KiB"];
    let service = Service::start(&[&NO_PASTS[..], &limits].concat()).await;
    let mut client = service.connect("").await;
    client.session_id().await;
    let text = "word ".repeat(150);
    let mut kept = 0;
    while kept < 20 && keep_or_hear(&mut client, &format!("item_{kept}"), &text, "limits.user_bytes").await {
        kept += 1;
    }
    assert!((1..20).contains(&kept), "{kept}");
    let (_, metrics) = service.http("GET", "/metrics", &[], "").await;
    let failures = metrics.lines().find(|line| line.starts_with("reprise_store_failures_total"));
    assert_eq!(failures, Some("reprise_store_failures_total 0"));
    service.stop().await;
}

#[tokio::test]
async fn a_full_disk_refuses_what_is_new_loses_nothing_and_goes_on_when_there_is_room() {
    if !may_mount().await {
        return;
    }
    let mut stand_in = StandIn::start().await;
    let upstream = format!("upstream.url={}", stand_in.url);
    let more = [&NO_PASTS[..], &["--set", &upstream]].concat();
    let folder = tempfile::tempdir().unwrap();
    let service = Service::try_start_after(SMALL_DISK, folder, &more).await.expect("there is room to begin with");
    let mut client = service.connect("").await;
    let id = client.session_id().await;
    let (mut kept, mut refused) = (Vec::new(), 0);
    let text = "word ".repeat(4000);
    for n in 0..1000 {
        let name = format!("i{n}");
        match keep(&mut client, &name, &text).await {
            true => kept.push(name),
            false => refused += 1,
        }
        if refused == 3 {
            break;
        }
    }
    assert!(refused == 3 && kept.len() > 5, "{refused} refused, {} kept", kept.len());
    // A reply cannot be kept either, and says so. The connection and what is known stay.
    client
        .say(json!({"type": "response.create", "response": {"input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]}}))
        .await;
    let mut asked = stand_in.next().await;
    asked.say(&"Hello, and welcome. ".repeat(1000)).await;
    let mut heard = String::new();
    let done = loop {
        let event = client.event().await;
        match event["type"].as_str() {
            Some("response.output_text.delta") => heard += event["delta"].as_str().unwrap(),
            Some("response.done") => break event["response"].clone(),
            Some("error") => assert_eq!(event["error"]["code"], "store_failed", "{event:#}"),
            _ => {}
        }
    };
    assert_eq!(done["status"], "failed", "{done:#}");
    assert_eq!(done["status_details"]["error"]["code"], "store_failed", "{done:#}");
    asked.hung_up().await;
    // What could be kept of it was sent.
    let mut there = stored(&service, &id).await;
    for (_, text) in there.split_off(kept.len()) {
        assert!(heard.starts_with(&text), "{text:?} was never sent: {heard:?}");
    }
    assert!(there.iter().map(|(id, _)| id).eq(&kept), "{there:#?}");

    std::fs::remove_file(service.folder_inside().join("data/filler")).unwrap();
    assert!(keep(&mut client, "room", "There is room again.").await);
    assert_eq!(service.get("/healthz").await["store"], "ok");
    kept.push("room".into());
    let there: BTreeSet<String> = stored_ids(&service, &id).await.into_iter().collect();
    assert!(kept.iter().all(|id| there.contains(id)), "{there:?}");
    // Nothing is written now, so that a copy of the file and its log is a whole store.
    for name in ["reprise.sqlite3", "reprise.sqlite3-wal"] {
        std::fs::copy(service.folder_inside().join("data").join(name), service.folder().join(name)).unwrap();
    }
    let store = "store.path=reprise.sqlite3";
    let report = run_ok(service.folder(), &["sessions", "check", "--json", "--set", store]).await;
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["problems"], json!([]), "{report:#}");
    service.stop().await;
}

fn fill_up(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    loop {
        match file.write_all(&[0; 4096]) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The disk fills up in the middle of a reply, which fails. What was heard of it, and what takes the disk.
async fn cut_off_by_a_full_disk(stand_in: &mut StandIn, service: &Service, client: &mut Client) -> (String, PathBuf) {
    client.ask("Tell me everything.").await;
    let mut asked = stand_in.next().await;
    asked.say("It began long ago.").await;
    let mut heard = client.until("response.output_text.delta").await["delta"].as_str().unwrap().to_owned();
    let rest = service.folder_inside().join("data/rest");
    fill_up(&rest);
    asked.say(&" And it went on.".repeat(1000)).await;
    asked.done().await;
    let done = loop {
        let event = client.event().await;
        match event["type"].as_str() {
            Some("response.output_text.delta") => heard += event["delta"].as_str().unwrap(),
            Some("response.done") => break event["response"].clone(),
            _ => {}
        }
    };
    assert_eq!(done["status"], "failed", "{done:#}");
    let error = &done["status_details"]["error"];
    assert!(error["code"] == "store_failed" && error["message"].as_str().unwrap().contains("full"), "{error}");
    // What a kill could have taken is not said.
    assert!(heard.len() < 10_000, "{} bytes are heard, and there was no room", heard.len());
    (heard, rest)
}

async fn first_reply(service: &Service, session: &str) -> Value {
    let items = service.get(&format!("/v1/sessions/{session}/items")).await;
    let mut items = items["data"].as_array().unwrap().iter();
    items.find(|item| item["body"]["role"] == "assistant").expect("there is a reply").clone()
}

#[tokio::test]
async fn a_reply_during_which_the_disk_fills_up_fails_and_is_stored_when_there_is_room() {
    if !may_mount().await {
        return;
    }
    let mut stand_in = StandIn::start().await;
    let upstream = format!("upstream.url={}", stand_in.url);
    let more = [&NO_PASTS[..], &["--set", &upstream]].concat();
    let folder = tempfile::tempdir().unwrap();
    let service = Service::try_start_after(SMALL_DISK, folder, &more).await.expect("there is room to begin with");
    let mut client = service.connect("").await;
    let id = client.session_id().await;
    let (heard, rest) = cut_off_by_a_full_disk(&mut stand_in, &service, &mut client).await;
    assert!(!keep(&mut client, "refused", &"word ".repeat(4000)).await);

    // Whatever is kept next, the end of the reply is kept before it.
    std::fs::remove_file(rest).unwrap();
    assert!(keep(&mut client, "room", "There is room again.").await);
    let said = first_reply(&service, &id).await;
    assert_eq!(
        (&said["status"], &said["body"]["parts"][0]["text"]),
        (&json!("interrupted"), &json!(heard)),
        "{said:#}"
    );

    client.ask("And now?").await;
    let mut asked = stand_in.next().await;
    asked.say("Now all is well.").await;
    asked.done().await;
    assert_eq!(client.until("response.done").await["response"]["status"], "completed");

    // Nothing is written now, so that a copy of the file and its log is a whole store.
    for name in ["reprise.sqlite3", "reprise.sqlite3-wal"] {
        std::fs::copy(service.folder_inside().join("data").join(name), service.folder().join(name)).unwrap();
    }
    let export = run_ok(service.folder(), &["sessions", "export", &id, "--set", "store.path=reprise.sqlite3"]).await;
    let lines = export.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let responses: Vec<Value> = lines.filter(|line| line["type"] == "response").collect();
    let ends: Vec<&str> = responses.iter().map(|response| response["status"].as_str().unwrap()).collect();
    assert_eq!(ends, ["failed", "completed"], "{responses:#?}");
    service.stop().await;
}

#[tokio::test]
async fn a_reply_that_found_no_room_is_stored_before_its_session_leaves_memory() {
    if !may_mount().await {
        return;
    }
    let mut stand_in = StandIn::start().await;
    let upstream = format!("upstream.url={}", stand_in.url);
    // It is asked again and again.
    let often = ["limits.requests_per_minute_per_address=1000000", "limits.requests_per_minute_per_key=1000000"];
    let idle = ["--set", "limits.live_session_idle_s=1", "--set", often[0], "--set", often[1]];
    let more = [&NO_PASTS[..], &["--set", &upstream], &idle].concat();
    let folder = tempfile::tempdir().unwrap();
    let service = Service::try_start_after(SMALL_DISK, folder, &more).await.expect("there is room to begin with");
    let mut client = service.connect("").await;
    let id = client.session_id().await;
    let (heard, rest) = cut_off_by_a_full_disk(&mut stand_in, &service, &mut client).await;
    std::fs::remove_file(rest).unwrap();
    // No client says anything more.
    drop(client);
    let left = async {
        while service.get("/healthz").await["sessions_in_memory"] != 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, left).await.expect("the session leaves memory");
    let said = first_reply(&service, &id).await;
    assert_eq!(
        (&said["status"], &said["body"]["parts"][0]["text"]),
        (&json!("interrupted"), &json!(heard)),
        "{said:#}"
    );
    service.stop().await;
}

#[tokio::test]
async fn a_read_only_disk_is_told_at_start_and_loses_nothing() {
    if !may_mount().await {
        return;
    }
    let service = Service::start(&NO_PASTS).await;
    let mut client = service.connect("").await;
    let id = client.session_id().await;
    assert!(keep(&mut client, "u1", "Before.").await);
    let folder = service.stop().await;
    let path = folder.path().to_owned();
    let read_only = "mount --bind data data; mount -o remount,ro,bind data";
    let kept = folder.keep();
    let folder = tempfile::TempDir::with_prefix("reprise-link").unwrap();
    std::os::unix::fs::symlink(kept.join("data"), folder.path().join("data")).unwrap();
    let (status, error) =
        Service::try_start_after(read_only, folder, &NO_PASTS).await.err().expect("it cannot serve from such a disk");
    assert_eq!(status.code(), Some(1), "{error}");
    assert!(error.contains("read-only") && error.contains("cannot be written"), "{error}");

    let folder = tempfile::TempDir::with_prefix("reprise-link").unwrap();
    std::os::unix::fs::symlink(path.join("data"), folder.path().join("data")).unwrap();
    let service = Service::in_folder(folder, &NO_PASTS).await;
    assert_eq!(stored_ids(&service, &id).await, ["u1"]);
    check_store(service.stop().await.path()).await;
    std::fs::remove_dir_all(path).unwrap();
}

/// A file system turns read-only under open files when the kernel has seen its disk fail, which no test can ask for: this
/// library goes before the system's, and refuses to write as such a disk does while there is a file of that name.
const FAILING_DISK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int fails(void) { return access(getenv("FAILING_DISK"), F_OK) == 0; }

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    if (fails()) { errno = EROFS; return -1; }
    ssize_t (*write_it)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    return write_it(file, bytes, count, at);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) { return pwrite64(file, bytes, count, at); }
"#;

#[tokio::test]
async fn a_disk_that_turns_read_only_refuses_what_is_new_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [source, library, switch] = ["failing.c", "failing.so", "it-fails"].map(|name| folder.path().join(name));
    std::fs::write(&source, FAILING_DISK).unwrap();
    let mut compile = tokio::process::Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]).arg("-ldl");
    assert!(compile.status().await.unwrap().success());
    let variables = [("LD_PRELOAD", library.as_path()), ("FAILING_DISK", switch.as_path())];
    let service = Service::with_environment(folder, &variables, &NO_PASTS).await;
    let mut client = service.connect("").await;
    let id = client.session_id().await;
    assert!(keep(&mut client, "before", "Before.").await);

    std::fs::write(&switch, "").unwrap();
    for name in ["refused", "again"] {
        assert!(!keep_or_hear(&mut client, name, "Is it kept?", "the service's log says why").await);
    }
    client.say(json!({"type": "response.create", "response": {"max_output_tokens": 5}})).await;
    let done = client.until("response.done").await["response"].clone();
    assert_eq!(done["status_details"]["error"]["code"], "store_failed", "{done:#}");
    // What was kept can still be read.
    assert_eq!(stored_ids(&service, &id).await, ["before"]);
    assert_eq!(service.http("GET", "/healthz", &[], "").await.0, 200);

    std::fs::remove_file(&switch).unwrap();
    assert!(keep(&mut client, "after", "After.").await);
    let folder = service.kill().await;
    let service = Service::in_folder(folder, &NO_PASTS).await;
    let there = stored_ids(&service, &id).await;
    assert!(there.starts_with(&["before".into()]) && there.ends_with(&["after".into()]), "{there:?}");
    assert!(!there.iter().any(|name| ["refused", "again"].contains(&&name[..])), "{there:?}");
    check_store(service.stop().await.path()).await;
}

#[tokio::test]
async fn a_socket_that_does_not_read_is_closed_and_the_session_lives_on() {
    let service = Service::start(&["--set", "limits.outgoing_bytes=1MiB"]).await;
    let mut reader = service.connect("").await;
    let id = reader.session_id().await;
    let mut sleeper = Client::with_little_room(&service.address, &format!("/v1/realtime?session={id}")).await;
    sleeper.session_id().await;
    // More than the system holds for a socket that is not read.
    let text = "word ".repeat(50_000);
    let mut kept = Vec::new();
    for n in 0..40 {
        kept.push(format!("i{n}"));
        assert!(keep(&mut reader, &kept[n], &text).await);
    }
    let ended = sleeper.closed().await;
    assert!(matches!(ended, Closed(None | Some(1008))), "{ended:?}");
    let told = sleeper.heard.iter().filter(|event| event["type"] == "conversation.item.added").count();
    assert!(told < kept.len(), "all {told} fitted somewhere: nothing was tried");
    assert!(keep(&mut reader, "last", "Still here.").await);
    kept.push("last".into());
    assert_eq!(stored_ids(&service, &id).await, kept);
    service.stop().await;
}

fn pasts(folder: &Path) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(folder.join("data/state")) else { return BTreeSet::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".line")).collect()
}

fn word_is_somewhere(folder: &Path, word: &str) -> bool {
    let entries = std::fs::read_dir(folder.join("data")).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.is_file())
        .any(|path| std::fs::read(path).unwrap().windows(word.len()).any(|window| window == word.as_bytes()))
}

const PASTS: [&str; 2] = ["--set", "memory.disk_min_tokens=16"];

/// Talks so long that it is worth keeping what was computed; what it is about stands in the store.
async fn talk(service: &Service, session: &str, about: &str) -> String {
    let mut client = service.connect(session).await;
    let id = client.session_id().await;
    client.ask_for(&format!("Let us talk about {about} for a long time, and about nothing else at all."), 6).await;
    client.until("response.done").await;
    id
}

#[tokio::test]
async fn what_is_deleted_is_gone_with_what_was_computed_of_it() {
    let service = Service::start(&PASTS).await;
    let [kept, by_command, by_http] = ["harmonicas", "xylophones", "bassoons"];
    let kept_id = talk(&service, "", kept).await;
    let folder = service.stop().await;
    let others = pasts(folder.path());
    assert!(!others.is_empty());

    // By the command, while no service runs.
    let service = Service::in_folder(folder, &PASTS).await;
    let id = talk(&service, "", by_command).await;
    let folder = service.stop().await;
    assert!(pasts(folder.path()).len() > others.len() && word_is_somewhere(folder.path(), by_command));
    let said = run_ok(folder.path(), &["sessions", "delete", &id, "--yes", "--json"]).await;
    let said: Value = serde_json::from_str(&said).unwrap();
    assert!(said["sessions"] == 1 && said["computed_files"].as_u64() > Some(0), "{said}");
    assert_eq!(pasts(folder.path()), others);
    assert!(!word_is_somewhere(folder.path(), by_command));

    // Over HTTP: what was kept before, and what is in memory.
    let service = Service::in_folder(folder, &PASTS).await;
    let id = talk(&service, "", by_http).await;
    let service = Service::in_folder(service.stop().await, &PASTS).await;
    assert!(pasts(service.folder()).len() > others.len());
    talk(&service, &format!("?session={id}"), by_http).await;
    assert_eq!(service.http("DELETE", &format!("/v1/sessions/{id}"), &[], "").await.0, 200);
    assert_eq!(pasts(service.folder()), others);
    assert!(!word_is_somewhere(service.folder(), by_http));
    let folder = service.stop().await;
    assert_eq!(pasts(folder.path()), others, "nothing of it comes back when the service writes down what it has");

    // By the command beside a service that has it in memory: it must not write it down later.
    let service = Service::in_folder(folder, &PASTS).await;
    let id = talk(&service, "", by_command).await;
    run_ok(service.folder(), &["sessions", "delete", &id, "--yes"]).await;
    let folder = service.stop().await;
    assert_eq!(pasts(folder.path()), others);
    assert!(!word_is_somewhere(folder.path(), by_command) && word_is_somewhere(folder.path(), kept));
    let listed = run_ok(folder.path(), &["sessions", "list", "--json"]).await;
    assert!(listed.contains(&kept_id) && !listed.contains(&id));
}

/// The same session, as if it had not been used for so many days.
fn aged(export: &str, days: i64) -> String {
    let mut lines = String::new();
    for line in export.lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        age(&mut line, days * 24 * 3600 * 1000);
        lines += &line.to_string();
        lines.push('\n');
    }
    lines
}

fn age(value: &mut Value, ms: i64) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_i64() {
                    Some(at) if name.ends_with("_at_ms") => *field = json!(at - ms),
                    _ => age(field, ms),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| age(value, ms)),
        _ => {}
    }
}

#[tokio::test]
async fn retention_takes_what_was_computed_too() {
    let service = Service::start(&PASTS).await;
    let old = talk(&service, "", "xylophones").await;
    let folder = service.stop().await;
    let state = folder.path().join("data/state");
    let aside = folder.path().join("aside");
    std::fs::rename(&state, &aside).unwrap();
    let export = run_ok(folder.path(), &["sessions", "export", &old]).await;
    run_ok(folder.path(), &["sessions", "delete", &old, "--yes"]).await;
    std::fs::write(folder.path().join("old.jsonl"), aged(&export, 10)).unwrap();
    run_ok(folder.path(), &["sessions", "import", "old.jsonl"]).await;
    // Let a service do what is left to do about the deletion, before what is computed comes back.
    let folder = Service::in_folder(folder, &PASTS).await.stop().await;
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::rename(&aside, &state).unwrap();
    let theirs = pasts(folder.path());
    assert!(!theirs.is_empty());

    let service = Service::in_folder(folder, &[&PASTS[..], &["--set", "store.retention_days=30"]].concat()).await;
    assert_eq!(service.http("GET", &format!("/v1/sessions/{old}"), &[], "").await.0, 200, "ten days are not thirty");
    let folder = service.stop().await;
    assert!(pasts(folder.path()).is_superset(&theirs));

    let service = Service::in_folder(folder, &[&PASTS[..], &["--set", "store.retention_days=7"]].concat()).await;
    while service.http("GET", &format!("/v1/sessions/{old}"), &[], "").await.0 != 404 {
        tokio::task::yield_now().await;
    }
    let folder = service.stop().await;
    assert_eq!(pasts(folder.path()), BTreeSet::new());
    assert!(!word_is_somewhere(folder.path(), "xylophones"));
}

#[tokio::test]
async fn a_session_that_is_exported_and_imported_is_the_same() {
    let service = Service::start(&NO_PASTS).await;
    let id = talk(&service, "", "harmonicas").await;
    let folder = service.stop().await;
    let export = run_ok(folder.path(), &["sessions", "export", &id]).await;
    let other_folder = tempfile::tempdir().unwrap();
    std::fs::write(other_folder.path().join("a.jsonl"), &export).unwrap();
    run_ok(other_folder.path(), &["sessions", "import", "a.jsonl"]).await;
    assert_eq!(run_ok(other_folder.path(), &["sessions", "export", &id]).await, export);
    let found = run_ok(other_folder.path(), &["sessions", "search", "harmonicas"]).await;
    assert!(found.contains("harmonicas") && found.contains("1 found"), "{found}");
    let shown = run_ok(other_folder.path(), &["sessions", "show", &id]).await;
    assert!(shown.contains("harmonicas"), "{shown}");
    // And the conversation goes on there.
    let service = Service::in_folder(other_folder, &NO_PASTS).await;
    let mut client = service.connect(&format!("?session={id}")).await;
    let first = client.until("conversation.item.added").await;
    assert!(words(&first["item"]).contains("harmonicas"));
    client.ask_for("Go on.", 5).await;
    client.until("response.done").await;
    service.stop().await;
}
