use super::*;
use std::time::Duration;

const IDLE: (&str, &str) = ("memory.idle_s", "1");

async fn is_asleep(stage: &Stage, wanted: bool) {
    while stage.model.status().asleep != wanted {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_model_that_slept_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let disk = [("memory.disk_path", folder.path().to_str().unwrap()), ("memory.disk_min_tokens", "16"), IDLE];
    let stage = stage_with(&disk).await;
    let mut messages = user("Good morning. How is the weather today in the north of the country, and in the south?");
    let before = stage.answer(stage.request(messages.clone(), 5)).await;
    is_asleep(&stage, true).await;
    let status = stage.model.status();
    assert!(status.ready && status.memory_bytes.is_empty(), "{status:?}");

    messages.extend([said(Assistant, &before.content), said(User, "And tomorrow?")]);
    let after = stage.answer(stage.request(messages.clone(), 5)).await;
    assert!(after.usage.cached_tokens > before.usage.input_tokens / 2, "{after:?}");
    assert!(!stage.model.status().asleep);
    // It sleeps whenever it is left alone, and wakes for any work.
    is_asleep(&stage, true).await;
    let prompt = Prompt { messages, ..Prompt::default() };
    assert_eq!(stage.model.measure(&prompt, &stage.preset).await.unwrap().total.tokens, after.usage.input_tokens);
    is_asleep(&stage, true).await;
    stage.model.wake();
    is_asleep(&stage, false).await;
    is_asleep(&stage, true).await;
    stage.model.forget(1, PastStays::Nothing).await.unwrap();
    is_asleep(&stage, true).await;
    stage.model.shutdown().await;
}

#[tokio::test]
async fn many_who_come_at_once_wake_it_once() {
    let stage = stage_with(&[IDLE]).await;
    is_asleep(&stage, true).await;
    let ask = |n: usize| stage.answer(stage.request(user(&format!("Number {n}")), 4));
    for told in futures_util::future::join_all((0..6).map(ask)).await {
        assert_eq!(told.usage.output_tokens, 4, "{told:?}");
    }
    assert_eq!(stage.model.status().restarts, 0);
}

#[tokio::test]
async fn a_model_that_cannot_be_waked_says_so_and_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let (there, away) = (folder.path().join("model"), folder.path().join("away"));
    std::fs::create_dir(&there).unwrap();
    for file in std::fs::read_dir(MODEL).unwrap().flatten() {
        std::fs::copy(file.path(), there.join(file.file_name())).unwrap();
    }
    let path = ("model.path", there.to_str().unwrap());
    let stage = stage_with(&[path, IDLE, ("engine.reopen_s", "1")]).await;
    is_asleep(&stage, true).await;
    std::fs::rename(&there, &away).unwrap();
    let (code, message) = stage.answer(stage.request(user("Hello?"), 4)).await.failure.unwrap();
    assert_eq!(code, FailureCode::Unavailable);
    assert!(!message.contains("model\""), "{message}");
    std::fs::rename(&away, &there).unwrap();
    loop {
        let told = stage.answer(stage.request(user("Hello?"), 4)).await;
        if told.failure.is_none() {
            return assert_eq!(told.usage.output_tokens, 4);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
