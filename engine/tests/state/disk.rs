//! Cached sequences on disk: hits, misses, deletions.

use super::support::*;
use engine::{
    DiskLimits, EngineEvent, EngineRequest, OwnerId, PrefillReason, ReuseScope, StopReason, forget_files,
    forget_unowned_files,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn lines(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|end| end == "line")).count()
}

#[test]
fn a_restart_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = words(300, 1);
    let mut before = engine("dense-gva2", LIMITS);
    before.use_disk(disk(folder.path()));
    let first = answer(&mut before, request(&prompt, 10));
    before.save_all();
    drop(before);

    let mut after = engine("dense-gva2", LIMITS);
    after.use_disk(disk(folder.path()));
    let next = [&prompt[..], &first.tokens, &words(7, 2)].concat();
    let second = answer(&mut after, request(&next, 5));
    assert_eq!((second.report.reused_tokens, second.report.reason), (309, PrefillReason::NewText));
    assert_eq!(second.tokens, answer(&mut engine("dense-gva2", LIMITS), request(&next, 5)).tokens);
    assert_eq!(after.take_notes(), [""; 0]);
}

#[test]
fn a_private_request_stays_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    let private = |tokens: &[u32]| EngineRequest { unsaved: true, owner: Some(OwnerId(1)), ..request(tokens, 5) };
    let prompt = words(300, 1);
    let mut engine = engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder.path()));
    let first = answer(&mut engine, private(&prompt));
    engine.save_all();
    assert_eq!(files(), 0);
    // Its own next turn is warm all the same, and another branch of it is no more on disk than it is.
    let next = [&prompt[..], &first.tokens, &words(7, 2)].concat();
    assert_eq!(answer(&mut engine, private(&next)).report.reused_tokens, 304);
    answer(&mut engine, private(&[&prompt[..200], &words(9, 3)].concat()));
    engine.save_all();
    assert_eq!(files(), 0);
    // What the same client says openly is written.
    answer(&mut engine, EngineRequest { unsaved: false, ..private(&next) });
    engine.save_all();
    assert!(files() > 0);
}

#[test]
fn words_of_a_user_without_an_owner_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder.path()));
    let scope = ReuseScope { user: Some(7), ..ReuseScope::default() };
    for (seed, owner, scope) in [(1, None, scope), (2, Some(OwnerId(1)), scope), (3, None, ReuseScope::default())] {
        answer(&mut engine, EngineRequest { owner, scope, ..request(&words(300, seed), 5) });
    }
    engine.save_all();
    drop(engine);
    assert_eq!(lines(folder.path()), 3);
    forget_unowned_files(folder.path()).unwrap();
    assert_eq!(lines(folder.path()), 2, "an owner finds the one, and the other is of the service itself");
    forget_unowned_files(&folder.path().join("nowhere")).unwrap();
}

#[test]
fn what_a_person_has_deleted_is_gone_here_and_on_disk_and_what_is_anothers_stays() {
    let folder = tempfile::tempdir().unwrap();
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    let persona = words(100, 1);
    let [anns, bobs] = [2, 3].map(|seed| [&persona[..], &words(60, seed)].concat());
    let (ann, bob) = (OwnerId(0xa), OwnerId(0xb));
    let owned = |tokens: &[u32], owner| EngineRequest { owner: Some(owner), ..request(tokens, 5) };
    let mut engine = engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder.path()));
    answer(&mut engine, owned(&anns, ann));
    let second = answer(&mut engine, owned(&bobs, bob));
    assert!(second.report.reused_tokens > 0, "the persona is known: {:?}", second.report);
    engine.save_all();
    // A request that continues Ann's sequence is running.
    let longer = [&anns[..], &words(20, 4)].concat();
    engine.submit(owned(&longer, ann)).unwrap();
    engine.step(&mut Vec::new());
    assert_eq!(names().len(), 2, "{:?}", names());

    engine.forget(ann);
    let (gone, is_gone) = std::sync::mpsc::channel();
    engine.when_forgotten(move || gone.send(()).unwrap());
    is_gone.recv_timeout(Duration::from_secs(60)).expect("the disk's thread tells when they are gone");
    let mut events = Vec::new();
    engine.step(&mut events);
    assert!(matches!(events[..], [EngineEvent::Done { stop_reason: StopReason::Cancelled { .. }, .. }]), "{events:?}");
    assert!(names().iter().all(|name| name.starts_with("000000000000000b-")) && names().len() == 1, "{:?}", names());
    engine.check_invariants().unwrap();
    assert_eq!(answer(&mut engine, owned(&bobs, bob)).report.reused_tokens, bobs.len() - 1, "Bob's is warm");
    let again = answer(&mut engine, owned(&anns, ann)).report.reused_tokens;
    assert!(again <= persona.len(), "{again} tokens: no more than is Bob's too");
    engine.save_all();
    drop(engine);
    assert_eq!(names().len(), 2);
    assert_eq!(forget_files(folder.path(), &[ann]).unwrap(), 1);
    assert_eq!(forget_files(&folder.path().join("none"), &[ann]).unwrap(), 0);
    assert_eq!(names().len(), 1);
}

#[test]
fn a_bad_file_is_a_miss_with_a_note() {
    let prompt = words(300, 1);
    let written = tempfile::tempdir().unwrap();
    let mut writer = engine("dense-gva2", LIMITS);
    writer.use_disk(disk(written.path()));
    let expected = answer(&mut writer, request(&prompt, 5)).tokens;
    writer.save_all();
    let files = std::fs::read_dir(written.path()).unwrap().map(|entry| entry.unwrap().path());
    let (lines, pages): (Vec<PathBuf>, Vec<PathBuf>) =
        files.partition(|path| path.extension().is_some_and(|end| end == "line"));
    assert_eq!((lines.len(), pages.len()), (1, 1));
    let bytes = std::fs::read(&lines[0]).unwrap();
    let with_page = |folder: &Path| {
        std::fs::copy(&pages[0], folder.join(pages[0].file_name().unwrap())).unwrap();
    };

    let damage = |name: &str, bytes: &[u8], notes: usize, left: usize| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.line"), bytes).unwrap();
        std::fs::write(folder.path().join("y.part"), b"half a file").unwrap();
        with_page(folder.path());
        let mut engine = engine("dense-gva2", LIMITS);
        engine.use_disk(disk(folder.path()));
        assert_eq!(answer(&mut engine, request(&prompt, 5)).tokens, expected, "{name}");
        let told = engine.take_notes();
        assert_eq!(told.len(), notes, "{name}: {told:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), left, "{name}");
    };
    damage("whole", &bytes, 0, 2);
    for cut in [0, 7, 50, 100, 2000, bytes.len() / 2, bytes.len() - 1] {
        damage(&format!("cut at {cut}"), &bytes[..cut], 1, 0);
    }
    let shape = writer.network().state_shape;
    // The end's state and the last page stand behind the state from which the request goes on.
    let behind = shape.snapshot_bytes(LIMITS.snapshots) + shape.page_bytes(&shape.layout(F32).unwrap());
    for at in [0, 9, 50, 55, 70, 80, 95, 120, 1500, 20_000, bytes.len() - behind - 1000, bytes.len() - 2] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x40;
        // The first state is not read where a later one leads further.
        let (notes, left) = if [1500, 20_000].contains(&at) { (0, 2) } else { (1, 0) };
        damage(&format!("a bit of byte {at}"), &bytes, notes, left);
    }

    // Another model's file is left alone: that model may come back.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.line"), &bytes).unwrap();
    with_page(folder.path());
    let mut other = engine("dense-gva3", LIMITS);
    other.use_disk(disk(folder.path()));
    // The request's snapshots are at its marks, the last of them at 299 tokens.
    assert_eq!(answer(&mut other, request(&prompt, 5)).report.reason, PrefillReason::OtherModel { known_tokens: 299 });
    assert_eq!((other.take_notes().len(), std::fs::read_dir(folder.path()).unwrap().count()), (0, 2));
}

#[test]
fn a_past_that_grew_writes_only_what_is_new_and_a_persona_is_on_disk_once() {
    let folder = tempfile::tempdir().unwrap();
    let files = |extension: &str| {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
        let files = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == extension));
        files.map(|file| (file.file_name(), file.metadata().unwrap().modified().unwrap())).collect::<Vec<_>>()
    };
    let mut engine = engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder.path()));
    let persona = words(600, 1);
    let scope = ReuseScope { head_tokens: persona.len(), ..ReuseScope::default() };
    let ask = |tokens: &[u32]| EngineRequest { scope, ..request(tokens, 2) };
    for session in 0..5 {
        answer(&mut engine, ask(&[&persona[..], &words(20, 50 + session)].concat()));
        engine.save_all();
    }
    let first = files("page");
    assert_eq!((first.len(), files("line").len()), (2, 5));
    let longer = [&persona[..], &words(20, 50), &words(300, 80)].concat();
    let report = answer(&mut engine, ask(&longer)).report;
    assert!(report.reused_tokens >= 619, "{report:?}");
    engine.save_all();
    let second = files("page");
    assert_eq!((second.len(), first.iter().filter(|file| second.contains(file)).count()), (3, 2));
    assert_eq!(files("line").len(), 5, "the longer one is in the place of the one that it goes on with");

    // Beyond its limit the folder loses the oldest file, with the pages that no other file names.
    drop(engine);
    let all: u64 =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    let mut engine = self::engine("dense-gva2", LIMITS);
    engine.use_disk(DiskLimits { max_bytes: all / 2, ..disk(folder.path()) });
    let left: u64 =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(left <= all / 2 && left > 0, "{left} of {all}");
    assert!(answer(&mut engine, ask(&longer)).report.reused_tokens >= 600);
}

#[test]
fn a_damaged_page_is_a_miss_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = words(300, 1);
    let mut writer = engine("dense-gva2", LIMITS);
    writer.use_disk(disk(folder.path()));
    let expected = answer(&mut writer, request(&prompt, 5)).tokens;
    writer.save_all();
    drop(writer);
    let page = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let page = page.filter(|path| path.extension().is_some_and(|end| end == "page")).collect::<Vec<_>>().pop().unwrap();
    let bytes = std::fs::read(&page).unwrap();
    let mut flipped = bytes.clone();
    flipped[5000] ^= 1;
    let mut other = bytes.clone();
    other[20] ^= 1;
    for damaged in [Some(&bytes[..100]), Some(&flipped), Some(&other), None] {
        match damaged {
            Some(bytes) => std::fs::write(&page, bytes).unwrap(),
            None => std::fs::remove_file(&page).unwrap(),
        }
        let mut engine = engine("dense-gva2", LIMITS);
        engine.use_disk(disk(folder.path()));
        assert_eq!(answer(&mut engine, request(&prompt, 5)).tokens, expected);
        assert_eq!(engine.take_notes().len(), 1);
        assert!(!page.exists(), "what is damaged is not kept");
        // The sequence is written again.
        engine.save_all();
        assert_eq!(std::fs::read(&page).unwrap(), bytes);
    }
}

/// A summary is a long request that nothing continues from: its conversation stays in memory and on disk as it was.
#[test]
fn a_passing_request_leaves_nothing_on_disk_and_its_past_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder.path()));
    let asked = words(400, 1);
    let first = answer(&mut engine, request(&asked, 10));
    let past = [&asked[..], &first.tokens].concat();
    for again in 0..2 {
        let order = [&past[..], &words(30, 20 + again)].concat();
        let summary = answer(&mut engine, EngineRequest { one_off: true, ..request(&order, 20) });
        assert_eq!(summary.report.reused_tokens, past.len() - 1, "it goes on from the conversation");
        assert_eq!(summary.tokens, answer(&mut self::engine("dense-gva2", LIMITS), request(&order, 20)).tokens);
    }
    engine.save_all();
    assert_eq!(lines(folder.path()), 1);
    let next = [&past[..], &words(9, 3)].concat();
    assert_eq!(answer(&mut engine, request(&next, 1)).report.reused_tokens, past.len() - 1);
    engine.check_invariants().unwrap();
    drop(engine);

    let mut engine = self::engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder.path()));
    engine.read_newest();
    assert_eq!(answer(&mut engine, request(&next, 1)).report.reused_tokens, past.len() - 1);
}

/// A file that another one has replaced goes when that one is written, not when the next one is.
#[test]
fn a_file_that_is_replaced_goes_with_the_same_silence() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder.path()));
    let mut history = words(200, 1);
    for turn in 0..3 {
        answer(&mut engine, request(&history, 4));
        while engine.save_one() || engine.is_saving() {
            std::thread::yield_now();
        }
        assert_eq!(lines(folder.path()), 1, "turn {turn}");
        history.extend(words(25, 10 + turn));
    }
}

/// A client that renders replies in another way than the model wrote them would otherwise leave a file at each turn.
#[test]
fn a_conversation_is_on_disk_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder.path()));
    let mut history = words(700, 1);
    for turn in 0..12 {
        let ours = EngineRequest { given_tokens: Some(history.len()), ..request(&history, 6) };
        answer(&mut engine, ours);
        engine.save_all();
        history.extend(words(25, 10 + turn));
    }
    let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
    let (mut lines, mut pages, mut states) = (0, 0, 0);
    let state_bytes = engine.network().state_shape.snapshot_bytes(LIMITS.snapshots) as u64;
    for entry in entries {
        let is_page = entry.path().extension().is_some_and(|end| end == "page");
        (lines, pages) = (lines + usize::from(!is_page), pages + usize::from(is_page));
        states += if is_page { 0 } else { entry.metadata().unwrap().len() / state_bytes };
    }
    assert_eq!((lines, pages), (1, history.len() / 256), "{states} states");
    assert!(states <= 6, "{states}");
    drop(engine);
    // It continues from its end, and from before the reply.
    let mut engine = self::engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder.path()));
    engine.read_newest();
    let last = history.len() - 25;
    let next = [&history[..last], &words(9, 77)].concat();
    let report = answer(&mut engine, request(&next, 1)).report;
    assert!(report.reused_tokens + 64 >= last, "{report:?}");
    engine.check_invariants().unwrap();
}
