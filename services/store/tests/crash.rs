//! `kill -9` at random moments: the store has what was acknowledged or sent, and nothing that was not written to be
//! sent.

use crate::support::*;
use session::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use store::*;

const ROUNDS: u64 = 60;
const WRITERS: u64 = 4;
const FOLDER: &str = "STORE_CRASH_FOLDER";
const ROUND: &str = "STORE_CRASH_ROUND";

/// Output of the child before it was killed, without a line that was cut off.
#[derive(Default)]
struct Said {
    acknowledged: BTreeSet<String>,
    /// Sent text, and its acknowledged bytes, by reply.
    sent: BTreeMap<String, String>,
    stored: BTreeMap<String, usize>,
}

#[test]
fn whatever_was_acknowledged_survives_a_kill_at_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(prepare(folder.path()));
    let mut said = Said::default();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..ROUNDS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut child = start_child(folder.path(), round);
        // Some die before their first word, most in the middle of their work.
        listen_until_killed(&mut child, random % 250, &mut said);
        runtime.block_on(examine(folder.path(), round, &said));
    }
    assert!(said.acknowledged.len() > 500, "only {} events: too few to mean something", said.acknowledged.len());
    assert!(said.stored.len() > 20, "only {} replies", said.stored.len());
}

async fn prepare(folder: &Path) {
    let store = Store::open(&options(folder), 0).await.unwrap();
    store.put_user("ada", "Ada", 0).await.unwrap();
    store.create_session(new_session("ada", Some("talk"), 0)).await.unwrap();
    store.close().await.unwrap();
}

fn start_child(folder: &Path, round: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn listen_until_killed(child: &mut Child, lines_until_kill: u64, said: &mut Said) {
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut heard = 0;
    loop {
        if heard == lines_until_kill {
            child.kill().unwrap();
        }
        heard += 1;
        let mut line = String::new();
        // After the kill, what is left in the pipe was said before it.
        if lines.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
            break;
        }
        let words: Vec<&str> = line.trim_end_matches('\n').splitn(3, ' ').collect();
        match words.as_slice() {
            ["ack", id] => {
                said.acknowledged.insert((*id).to_owned());
            }
            ["sent", id, text] => said.sent.entry((*id).to_owned()).or_default().push_str(text),
            ["stored", id, length] => {
                said.stored.insert((*id).to_owned(), length.parse().unwrap());
            }
            _ => {} // what the test harness says
        }
    }
    child.wait().unwrap();
}

async fn examine(folder: &Path, round: u64, said: &Said) {
    let store = Store::open(&options(folder), round as i64).await.unwrap();
    let session = store.open_session("ada", "talk").await.unwrap();
    let view = store.load(&session).await.unwrap();
    let there: BTreeMap<&str, &ItemVersion> = view.items.iter().map(|item| (item.item_id.as_str(), item)).collect();
    for id in &said.acknowledged {
        assert!(there.contains_key(id.as_str()), "round {round}: {id} was acknowledged and is lost");
    }
    for (id, sent) in said.sent.iter().filter(|(id, _)| id.starts_with(&format!("r{round}"))) {
        assert!(there.contains_key(id.as_str()), "round {round}: {id} was heard to say {sent:?} and is lost");
    }
    for item in view.items.iter().filter(|item| item.response.is_some()) {
        let text = item.said();
        let sent = said.sent.get(&item.item_id).map_or("", String::as_str);
        let stored = said.stored.get(&item.item_id).copied().unwrap_or(0);
        // One piece may have been written and not yet sent.
        let unsent = text.strip_prefix(sent);
        assert!(
            unsent.is_some_and(|unsent| unsent.matches('.').count() <= 1),
            "round {round}: {:?} says {text:?}, sent was {sent:?}",
            item.item_id
        );
        assert!(text.len() >= stored, "round {round}: {stored} bytes were acknowledged, {} are there", text.len());
        assert_ne!(item.status, VersionStatus::InProgress);
    }
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new(), "round {round}");
    store.close().await.unwrap();
}

/// Process that is killed. Not a test by itself: it does nothing without its folder.
#[test]
fn child() {
    let (Ok(folder), Ok(round)) = (std::env::var(FOLDER), std::env::var(ROUND)) else { return };
    tell(""); // ends the line that the test harness began
    tokio::runtime::Runtime::new().unwrap().block_on(async move {
        let store = Store::open(&options(Path::new(&folder)), 0).await.unwrap();
        let session = store.open_session("ada", "talk").await.unwrap();
        for writer in 0..WRITERS {
            tokio::spawn(append_for_ever(store.clone(), session.clone(), format!("r{round}w{writer}")));
        }
        reply_for_ever(store, session, round).await;
    });
}

async fn append_for_ever(store: Store, session: SessionRef, name: String) {
    for n in 0u64.. {
        let id = format!("{name}n{n}");
        say(&store, &session, &id, &"some words of a user ".repeat(1 + n as usize % 40), 10).await;
        tell(&format!("ack {id}"));
    }
}

async fn reply_for_ever(store: Store, session: SessionRef, round: String) {
    for n in 0u64.. {
        let id = format!("r{round}reply{n}");
        // Its words are sent before the database has its begin.
        store.begin_words(&session, &id, "resp", None, "");
        let begun = tokio::spawn({
            let (store, session, id) = (store.clone(), session.clone(), id.clone());
            async move { begin(&store, &session, &id, "resp", 10).await.unwrap() }
        });
        let mut whole = String::new();
        let mut say = |piece: u64| {
            let text = format!("Sentence {piece}.");
            store.write_words(&session, &id, &text).unwrap();
            tell(&format!("sent {id} {text}"));
            whole.push_str(&text);
            (text, whole.len())
        };
        let mut unstored = say(0).0;
        let reply = begun.await.unwrap();
        for piece in 1..=n % 7 {
            let (text, length) = say(piece);
            unstored.push_str(&text);
            // Pieces are stored now and then; the journal has the words since.
            if piece % 2 == 0 {
                extend(&store, &reply, &std::mem::take(&mut unstored), 11).await.unwrap();
                tell(&format!("stored {id} {length}"));
            }
        }
        let body = message(Role::Assistant, &whole);
        store.finish_reply(&reply, VersionStatus::Completed, body, 12).await.unwrap();
        tell(&format!("ack {id}"));
    }
}

/// Writes a line at once, so that lines of several tasks do not mix.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// The journal lies beside the file that a link leads to, as the lock does.
#[cfg(unix)]
#[tokio::test]
async fn words_of_a_service_that_knew_the_store_by_a_link_are_found_without_it() {
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    fixture.store.close().await.unwrap();
    let link_folder = tempfile::tempdir().unwrap();
    let link = link_folder.path().join("link.sqlite3");
    std::os::unix::fs::symlink(fixture.store.path(), &link).unwrap();
    let by_link = StoreOptions { path: link, ..options(fixture.folder.path()) };
    let store = Store::open(&by_link, 20).await.unwrap();
    let session = store.open_session("ada", session.id()).await.unwrap();
    store.begin_words(&session, "a", "resp_1", None, "");
    store.write_words(&session, "a", "It began long ago.").unwrap();
    store.close().await.unwrap(); // in the middle of the reply
    let store = Store::open(&options(fixture.folder.path()), 30).await.unwrap();
    assert_eq!(texts(&store, &session).await, ["It began long ago."]);
}
