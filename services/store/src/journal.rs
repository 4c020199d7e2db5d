//! Journal of replies: words are written here before they are sent. The system keeps what a process wrote, so they
//! survive a process that is killed before the database has committed them. The next start gives them to the replies
//! that were cut off.
//!
//! A file beside the store has a line of JSON per delta, written without a flush, so that the first word is not
//! delayed. A flush every `store.sync_ms` bounds what a power cut takes. The file holds the words of running replies
//! only.

use crate::lock::{JOURNAL, create_private_file, lock_new_journal, path_beside};
use crate::{Error, SessionRef};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const REWRITTEN_AT_BYTES: u64 = 1 << 20;
/// End of the name of a journal that is being rewritten.
const NEW: &str = "new-words";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SaidReply {
    pub session: i64,
    pub item: String,
    pub response: String,
    /// Item before it; `None` at the head.
    pub after: Option<String>,
    pub text: String,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Begun(SaidReply),
    Said { session: i64, item: String, text: String },
}

pub struct Journal {
    path: PathBuf,
    written: Mutex<Written>,
    is_dirty: AtomicBool,
}

struct Written {
    /// `None` after the store has closed.
    file: Option<File>,
    bytes: u64,
    running: HashMap<(i64, String), SaidReply>,
    /// True after a failed write, perhaps of half a line: a reader would not see what follows it.
    is_behind: bool,
}

impl Journal {
    pub fn open(store: &Path) -> Result<(Journal, Vec<SaidReply>), Error> {
        let path = path_beside(store, JOURNAL);
        let failed = |error| Error::from_io(store, error);
        create_private_file(&path).map_err(failed)?;
        // A process that was killed while it rewrote the journal left this, with words that may be deleted since.
        let _ = std::fs::remove_file(path.with_extension(NEW));
        let left = SaidReply::all_of(&std::fs::read(&path).map_err(failed)?);
        let file = OpenOptions::new().append(true).open(&path).map_err(failed)?;
        let written = Mutex::new(Written { file: Some(file), bytes: 0, running: HashMap::new(), is_behind: false });
        Ok((Journal { path, written, is_dirty: AtomicBool::new(false) }, left))
    }

    pub fn clear(&self) {
        self.change(|written| written.rewrite(&self.path));
    }

    /// Begins a reply. Words of a reply that was not begun here are not kept.
    pub fn begin(&self, reply: SaidReply) {
        self.change(|written| {
            written.running.insert((reply.session, reply.item.clone()), reply.clone());
            written.append(&Line::Begun(reply))
        });
    }

    /// Appends words. The reply does not get words that could not be written.
    pub fn say(&self, session: &SessionRef, item: &str, text: &str) -> std::io::Result<()> {
        let key = (session.key, item.to_owned());
        let mut written = self.written.lock();
        let Some(reply) = written.running.get_mut(&key) else { return Ok(()) };
        reply.text.push_str(text);
        let line = Line::Said { session: session.key, item: item.to_owned(), text: text.to_owned() };
        let said = self.change_locked(&mut written, |written| written.append(&line));
        if let (Err(_), Some(reply)) = (&said, written.running.get_mut(&key)) {
            reply.text.truncate(reply.text.len() - text.len());
        }
        said
    }

    /// Ends a reply that the database has, or that never was. A reply that resumed meanwhile belongs to another
    /// response and stays.
    pub fn end(&self, session: &SessionRef, item: &str, response: &str) {
        self.change(|written| {
            let key = (session.key, item.to_owned());
            let is_over = written.running.get(&key).is_some_and(|reply| reply.response == response);
            let was_running = is_over && written.running.remove(&key).is_some();
            let is_due = written.running.is_empty() || written.bytes > REWRITTEN_AT_BYTES;
            if was_running && is_due { written.rewrite(&self.path) } else { Ok(()) }
        });
    }

    pub fn forget(&self, session: &SessionRef) {
        self.change(|written| {
            written.running.retain(|(key, _), _| *key != session.key);
            if written.bytes > 0 { written.rewrite(&self.path) } else { Ok(()) }
        });
    }

    pub fn close(&self) {
        self.change(|written| {
            written.file = None;
            Ok(())
        });
    }

    pub async fn sync_every(journal: Weak<Journal>, pause: Duration) {
        loop {
            tokio::time::sleep(pause).await;
            let Some(journal) = journal.upgrade() else { return };
            if !journal.is_dirty.swap(false, Ordering::Relaxed) {
                continue;
            }
            let file = journal.written.lock().file.as_ref().map(File::try_clone);
            let Some(file) = file else { return };
            let synced = tokio::task::spawn_blocking(move || file?.sync_data()).await;
            if let Ok(Err(error)) = synced {
                tracing::warn!(%error, "what replies say could not be flushed to the disk");
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Written) -> std::io::Result<()>) {
        if let Err(error) = self.change_locked(&mut self.written.lock(), change) {
            tracing::warn!(%error, "the journal of what replies say could not be written");
        }
    }

    /// Changes the journal, and rewrites all of it behind half a line.
    fn change_locked(
        &self,
        written: &mut Written,
        change: impl FnOnce(&mut Written) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let changed = change(written);
        let is_half = written.is_behind || changed.is_err();
        let changed = if is_half { written.rewrite(&self.path) } else { changed };
        written.is_behind = changed.is_err();
        self.is_dirty.store(true, Ordering::Relaxed);
        changed
    }
}

impl Written {
    fn append(&mut self, line: &Line) -> std::io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.bytes += text.len() as u64;
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(&text))
    }

    /// Rewrites the words of running replies. The old file counts until the new one is complete.
    fn rewrite(&mut self, path: &Path) -> std::io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.running.is_empty() {
            self.bytes = 0;
            return file.set_len(0);
        }
        let mut text = Vec::new();
        for reply in self.running.values() {
            serde_json::to_writer(&mut text, &Line::Begun(reply.clone()))?;
            text.push(b'\n');
        }
        let new = path.with_extension(NEW);
        create_private_file(&new)?;
        let mut file = OpenOptions::new().append(true).open(&new)?;
        file.set_len(0)?;
        file.write_all(&text)?;
        lock_new_journal(&file);
        std::fs::rename(&new, path)?;
        (self.file, self.bytes) = (Some(file), text.len() as u64);
        Ok(())
    }
}

impl SaidReply {
    /// Reads the replies of a journal. Nothing from a cut-off line on was sent.
    pub fn all_of(journal: &[u8]) -> Vec<SaidReply> {
        let mut replies: HashMap<(i64, String), SaidReply> = HashMap::new();
        for line in String::from_utf8_lossy(journal).lines() {
            match serde_json::from_str(line) {
                Ok(Line::Begun(reply)) => {
                    replies.insert((reply.session, reply.item.clone()), reply);
                }
                Ok(Line::Said { session, item, text }) => {
                    if let Some(reply) = replies.get_mut(&(session, item)) {
                        reply.text.push_str(&text);
                    }
                }
                Err(_) => break,
            }
        }
        replies.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(key: i64) -> SessionRef {
        SessionRef { key, user: "ada".into(), id: "s".into() }
    }

    fn begun(session: i64, item: &str) -> SaidReply {
        let (item, after) = (item.to_owned(), Some("u".to_owned()));
        SaidReply { session, item, response: "resp".into(), after, text: String::new() }
    }

    fn left(store: &Path) -> Vec<(String, String)> {
        let (_, mut left) = Journal::open(store).unwrap();
        left.sort_by(|a, b| a.item.cmp(&b.item));
        left.into_iter().map(|reply| (reply.item, reply.text)).collect()
    }

    #[test]
    fn words_that_cannot_be_written_are_refused_and_later_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.sqlite3");
        let found = |text: &str| [("a".to_owned(), text.to_owned())];
        let (journal, _) = Journal::open(&store).unwrap();
        journal.begin(begun(1, "a"));
        journal.say(&session(1), "a", "One. ").unwrap();
        // A broken disk takes half a line; the journal is rewritten.
        let break_in_a_line = |written: &mut Written| {
            written.file.as_mut().unwrap().write_all(br#"{"type":"said","sess"#)?;
            written.file = Some(File::open(&journal.path)?);
            Ok(())
        };
        journal.change(break_in_a_line);
        journal.say(&session(1), "a", "Two. ").unwrap();
        assert_eq!(left(&store), found("One. Two. "));
        // The disk refuses a new file, too.
        journal.change(break_in_a_line);
        let new = journal.path.with_extension("new-words");
        std::fs::create_dir(&new).unwrap();
        assert!(journal.say(&session(1), "a", "Never said. ").is_err());
        assert!(journal.say(&session(1), "a", "Nor this. ").is_err());
        assert_eq!(left(&store), found("One. Two. "));
        std::fs::remove_dir(&new).unwrap();
        journal.say(&session(1), "a", "Three.").unwrap();
        assert_eq!(left(&store), found("One. Two. Three."));
    }

    #[test]
    fn what_runs_is_found_again_and_what_is_over_leaves_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.sqlite3");
        let file = folder.path().join("store.sqlite3-words");
        let found = |item: &str, text: &str| (item.to_owned(), text.to_owned());
        let (journal, _) = Journal::open(&store).unwrap();
        journal.say(&session(1), "not begun", "x").unwrap();
        for (key, item) in [(1, "a"), (1, "b"), (2, "c")] {
            journal.begin(begun(key, item));
        }
        for word in ["Good \"morning\",\n", "Grüße"] {
            journal.say(&session(1), "a", word).unwrap();
            journal.say(&session(2), "c", word).unwrap();
        }
        assert_eq!(
            left(&store),
            [found("a", "Good \"morning\",\nGrüße"), found("b", ""), found("c", "Good \"morning\",\nGrüße")]
        );
        // A line that was cut off ends the journal.
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..whole.len() - 4]).unwrap();
        assert_eq!(left(&store)[2], found("c", "Good \"morning\",\n"));
        std::fs::write(&file, &whole).unwrap();
        journal.forget(&session(2));
        assert_eq!(left(&store), [found("a", "Good \"morning\",\nGrüße"), found("b", "")]);
        journal.say(&session(1), "b", &"much ".repeat(300_000)).unwrap();
        journal.end(&session(1), "b", "another");
        journal.end(&session(1), "b", "resp");
        journal.say(&session(1), "a", "!").unwrap();
        assert_eq!(left(&store), [found("a", "Good \"morning\",\nGrüße!")]);
        assert!(std::fs::metadata(&file).unwrap().len() < 1000);
        journal.end(&session(1), "a", "resp");
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 0);
    }
}
