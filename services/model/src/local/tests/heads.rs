//! Conversations that begin with the same instructions and tools.

use super::*;

/// Home Assistant's conversations after a pause: the same long prompt and the same tools.
#[tokio::test]
async fn a_conversation_begins_anew_with_its_own_words_alone() {
    let folder = tempfile::tempdir().unwrap();
    let more = [
        ("memory.disk_path", folder.path().to_str().unwrap()),
        // No log reaches back over a conversation.
        ("memory.recurrence_log_tokens", "16"),
    ];
    let entities: String =
        (0..40).map(|at| format!("- names: lamp {at}\n  domain: light\n  areas: room {}\n", at % 7)).collect();
    let ask = async |stage: &Stage, room: &str, said_now: &[&str]| {
        let instructions =
            format!("Be short.\n{entities}You are in area {room} and nowhere else.\nThere are no timers.");
        let mut messages = vec![said(System, &instructions)];
        for (at, text) in said_now.iter().enumerate() {
            messages.push(said(if at % 2 == 0 { User } else { Assistant }, text));
        }
        let mut request = stage.request(messages, 8);
        request.prompt.tools = (0..5).map(|at| Tool { name: format!("tool{at}"), ..Tool::default() }).collect();
        request.options.ignore_eos = false;
        let answer = stage.answer(request).await;
        assert_eq!(answer.failure, None);
        (answer.usage.input_tokens - answer.usage.cached_tokens, answer.usage.input_tokens)
    };
    let stage = stage_with(&more).await;
    let (computed, all) = ask(&stage, "kitchen", &["Hello."]).await;
    assert!(computed == all && all > 600, "{computed} of {all}");
    ask(&stage, "kitchen", &["Hello.", "Hi, what can I do for you today?", "Is it warm in here?"]).await;
    let (own, _) = ask(&stage, "kitchen", &["Good bye."]).await;
    assert!(own < 40, "{own} tokens for a few words");
    stage.model.shutdown().await;

    let stage = stage_with(&more).await;
    // The engine only guessed where the garden may differ, and the cellar differs there too.
    let rooms = [("garden", 80), ("cellar", 60), ("kitchen", 40), ("garden", 40), ("kitchen", 40)];
    for (room, most) in rooms {
        let (computed, _) = ask(&stage, room, &["Hello."]).await;
        assert!(computed < most, "{computed} tokens for {room}");
    }
}
