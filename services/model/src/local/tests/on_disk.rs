//! Pasts that are written to disk, and when.

use super::*;

pub fn has_past(folder: &std::path::Path) -> bool {
    let files = std::fs::read_dir(folder).unwrap().flatten();
    files.into_iter().any(|file| file.path().extension().is_some_and(|end| end == "line"))
}

#[tokio::test]
async fn a_conversation_without_a_silence_is_written_as_well() {
    for (busy_s, is_written) in [("0", true), ("3600", false)] {
        let folder = tempfile::tempdir().unwrap();
        let disk = [("memory.disk_path", folder.path().to_str().unwrap()), ("memory.disk_min_tokens", "16")];
        let when = [("memory.disk_idle_s", "3600"), ("memory.disk_busy_s", busy_s)];
        let stage = stage_with(&[disk, when].concat()).await;
        stage.answer(stage.request(user("Can you please tell me what the weather will be like today?"), 5)).await;
        while is_written && !has_past(folder.path()) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(has_past(folder.path()), is_written);
    }
}

#[tokio::test]
async fn pasts_are_counted_in_memory_and_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let disk = [("memory.disk_path", folder.path().to_str().unwrap()), ("memory.disk_min_tokens", "16")];
    let disk = [&disk[..], &[("memory.disk_idle_s", "0")]].concat();
    let stage = stage_with(&disk).await;
    stage.answer(stage.request(user("Can you please tell me what the weather will be like today?"), 5)).await;
    let written = async |stage: &Stage| {
        while stage.model.status().on_disk.states == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        stage.model.status()
    };
    let before = written(&stage).await;
    assert!(before.in_memory.states > 0 && before.in_memory.bytes > 0 && before.on_disk.bytes > 0, "{before:?}");
    stage.model.shutdown().await;
    let after = written(&stage_with(&disk).await).await;
    assert!(after.on_disk.bytes >= before.on_disk.bytes, "{after:?}");
}

#[tokio::test]
async fn a_conversation_is_written_while_its_summary_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let disk = [("memory.disk_path", folder.path().to_str().unwrap()), ("memory.disk_min_tokens", "16")];
    let when = [("memory.disk_idle_s", "0"), ("memory.disk_busy_s", "3600")];
    let stage = stage_with(&[disk, when].concat()).await;
    let summary = ModelRequest { priority: Priority::Background, ..stage.request(user("Sum it up."), 3000) };
    let mut summary = stage.model.ask(summary);
    assert!(matches!(summary.next().await, Some(Delta::Prompt { .. })));
    stage.answer(stage.request(user("What will the weather be like in the north tomorrow, and after that?"), 5)).await;
    while !has_past(folder.path()) {
        // The summary ends when the test does.
        let next = summary.next().await;
        assert!(matches!(next, Some(Delta::Text { .. } | Delta::Reasoning { .. })), "not before its end: {next:?}");
    }
}
