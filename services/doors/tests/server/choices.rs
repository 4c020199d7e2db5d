//! Several choices of one chat completion.

use crate::chat::{Lines, client, posting, says, url};
use crate::client::PATIENCE;
use crate::support::Server;
use serde_json::{Value, json};
use session::Finish;
use tokio::time::timeout;

#[tokio::test]
async fn several_choices_of_one_prompt_come_by_their_index() {
    let mut server = Server::start().await;
    let body = says("Name one.", json!({ "n": 3, "seed": 5 }));
    let answer = posting(&server, body);
    let mut arms = Vec::new();
    for _ in 0..3 {
        arms.push(server.script.next().await);
    }
    let seeds: Vec<_> = arms.iter().map(|asked| asked.request.options.seed).collect();
    assert_eq!(seeds, [Some(5), Some(6), Some(7)]);
    for (asked, text) in arms.iter_mut().zip(["Anna", "Ben", "Cleo"]).rev() {
        asked.prompt(12, 4);
        asked.say(text);
        asked.say("?");
        asked.done(Finish::Stop);
    }
    let (status, whole) = answer.await.unwrap();
    assert_eq!(status, 200, "{whole}");
    let told = |choice: &Value| (choice["index"].as_u64(), choice["message"]["content"].as_str().unwrap().to_owned());
    let choices: Vec<_> = whole["choices"].as_array().unwrap().iter().map(told).collect();
    assert_eq!(choices, [(Some(0), "Anna?".into()), (Some(1), "Ben?".into()), (Some(2), "Cleo?".into())]);
    // The prompt counts once, the replies together.
    let usage = &whole["usage"];
    assert_eq!([&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]], [12, 6, 18]);
    // A client that chooses one of them goes on from there by itself: nothing is read ahead.
    assert!(server.script.try_next().is_none());

    let body = says("Name one.", json!({ "n": 2, "stream": true, "stream_options": { "include_usage": true } }));
    let response = tokio::spawn({
        let request = client().post(url(&server, "/v1/chat/completions")).body(body.to_string());
        async move { request.send().await.unwrap() }
    });
    let (mut first, mut second) = (server.script.next().await, server.script.next().await);
    first.prompt(12, 4);
    first.say("Anna");
    let mut lines = Lines::of(timeout(PATIENCE, response).await.unwrap().unwrap());
    let (mut texts, mut finished, mut usages) = ([String::new(), String::new()], [0, 0], Vec::new());
    second.prompt(12, 11);
    second.say("Ben");
    second.done(Finish::Stop);
    first.say(" it is");
    first.done(Finish::Length);
    while let Some(line) = lines.next().await {
        let data = line.strip_prefix("data: ").unwrap();
        if data == "[DONE]" {
            assert!(lines.rest().await.is_empty());
            break;
        }
        let chunk: Value = serde_json::from_str(data).unwrap();
        let Some(choice) = chunk["choices"].get(0) else {
            usages.push(chunk["usage"].clone());
            continue;
        };
        let index = choice["index"].as_u64().unwrap() as usize;
        texts[index] += choice["delta"]["content"].as_str().unwrap_or_default();
        finished[index] += usize::from(!choice["finish_reason"].is_null());
    }
    assert_eq!((texts, finished), (["Anna it is".into(), "Ben".into()], [1, 1]));
    assert_eq!(usages.len(), 1);
    assert_eq!([&usages[0]["prompt_tokens"], &usages[0]["completion_tokens"]], [12, 3]);
    assert_eq!(usages[0]["prompt_tokens_details"]["cached_tokens"], 4);

    // A client that hangs up stops all of them.
    let request = client().post(url(&server, "/v1/chat/completions")).body(says("x", json!({ "n": 2 })).to_string());
    let waiting = tokio::spawn(request.send());
    let (first, second) = (server.script.next().await, server.script.next().await);
    waiting.abort();
    timeout(PATIENCE, async { tokio::join!(first.cancelled(), second.cancelled()) }).await.unwrap();
    server.stop().await;
}
