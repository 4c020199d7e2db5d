//! Legacy completions over real sockets: prompts without a template, and the log probabilities of their own tokens.

use crate::chat::{Lines, client, url};
use crate::client::PATIENCE;
use crate::scripted::Asked;
use crate::support::Server;
use model::RawPrompt;
use serde_json::{Value, json};
use session::{Delta, Failure, FailureCode, Finish, GenerationPurpose, Priority, PromptToken, TokenLogprob};
use tokio::task::JoinHandle;
use tokio::time::timeout;

fn posting(server: &Server, body: &Value) -> JoinHandle<(u16, Value)> {
    let request = client().post(url(server, "/v1/completions")).body(body.to_string());
    tokio::spawn(async move {
        let response = timeout(PATIENCE, request.send()).await.expect("an answer").unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    })
}

async fn refused(server: &Server, body: Value) -> (u16, String, String) {
    let (status, answer) = posting(server, &body).await.unwrap();
    let error = &answer["error"];
    let word = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (status, word("code"), word("message") + " " + &word("param"))
}

fn told(text: &[u8], logprob: Option<f32>, top: &[(&str, f32)]) -> PromptToken {
    let top = top.iter().map(|(text, logprob)| (text.as_bytes().to_vec(), *logprob)).collect();
    PromptToken { bytes: text.to_vec(), logprob, top }
}

fn says(asked: &mut Asked, text: &str, token: &[u8], logprob: f32, top: &[(&str, f32)]) {
    let PromptToken { bytes, top, .. } = told(token, None, top);
    let logprobs = vec![TokenLogprob { bytes, logprob, top }];
    asked.push(Delta::Text { text: text.into(), tokens: 1, sentences: Vec::new(), logprobs });
}

#[tokio::test]
async fn a_harness_reads_how_likely_its_own_words_are() {
    let mut server = Server::start().await;
    // As lm-evaluation-harness asks: one token more than it wants, whose log probability it leaves out.
    let body = json!({
        "model": "default", "prompt": [[5, 6, 7], [8, 9]], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234,
        "echo": true,
    });
    let answer = posting(&server, &body);
    let (mut first, mut second) = (server.script.next().await, server.script.next().await);
    assert_eq!(first.request.raw, Some(RawPrompt::Tokens(vec![5, 6, 7])));
    assert_eq!(second.request.raw, Some(RawPrompt::Tokens(vec![8, 9])));
    let request = &first.request;
    assert_eq!((request.prompt_logprobs, request.options.logprobs, request.max_tokens), (Some(1), Some(1), Some(1)));
    assert_eq!(
        (request.purpose, request.priority, request.one_off),
        (GenerationPurpose::Reply, Priority::Background, true)
    );
    assert!(request.prompt.messages.is_empty() && request.user.is_some() && request.past_owner.is_some());
    // The model's own distribution, whatever the preset prefers for talk.
    let sampling = &request.options.sampling;
    assert_eq!((sampling.temperature, sampling.presence_penalty, sampling.top_k), (Some(0.0), Some(0.0), Some(0)));

    second.prompt(2, 0);
    second.push(Delta::PromptTokens(vec![told(b"Ho", None, &[]), told(b"!", Some(-0.5), &[("!", -0.5)])]));
    // A token that ends the reply is no text, and has its place in the lists.
    says(&mut second, "", b"<|im_end|>", -0.25, &[("<|im_end|>", -0.25)]);
    second.done(Finish::Stop);
    first.prompt(3, 0);
    first.push(Delta::PromptTokens(vec![told(b"It", None, &[]), told(b" is \xe2\x82", Some(-1.5), &[("'s", -0.75)])]));
    first.push(Delta::PromptTokens(vec![told(b"\xac", Some(-2.0), &[("!", -0.125)])]));
    says(&mut first, "5", b"5", -3.0, &[("4", -1.0)]);
    first.done(Finish::Length);

    let (status, whole) = answer.await.unwrap();
    assert_eq!(status, 200, "{whole}");
    assert_eq!((&whole["object"], &whole["model"]), (&json!("text_completion"), &json!("test-model")));
    assert!(whole["id"].as_str().unwrap().starts_with("cmpl-"), "{whole}");
    let [one, two] = &whole["choices"].as_array().unwrap()[..] else { panic!("{whole}") };
    assert_eq!((&one["index"], &one["text"], &one["finish_reason"]), (&json!(0), &json!("It is €5"), &json!("length")));
    let logprobs = &one["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["It", "bytes:\\x20\\x69\\x73\\x20\\xe2\\x82", "bytes:\\xac", "5"]));
    assert_eq!(logprobs["token_logprobs"], json!([null, -1.5, -2.0, -3.0]));
    assert_eq!(logprobs["text_offset"], json!([0, 2, 6, 7]));
    let top = json!([
        null, { "'s": -0.75, "bytes:\\x20\\x69\\x73\\x20\\xe2\\x82": -1.5 }, { "!": -0.125, "bytes:\\xac": -2.0 },
        { "4": -1.0, "5": -3.0 },
    ]);
    assert_eq!(logprobs["top_logprobs"], top);
    assert_eq!((&two["index"], &two["text"], &two["finish_reason"]), (&json!(1), &json!("Ho!"), &json!("stop")));
    assert_eq!(two["logprobs"]["tokens"], json!(["Ho", "!", "<|im_end|>"]));
    assert_eq!((&two["logprobs"]["token_logprobs"][2], &two["logprobs"]["text_offset"][2]), (&json!(-0.25), &json!(3)));
    let usage = &whole["usage"];
    assert_eq!([&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]], [5, 2, 7]);
    // Nothing of it is a conversation: nothing is read ahead, and nothing is kept.
    assert!(server.script.try_next().is_none());
    assert_eq!(server.http("GET", "/v1/sessions", &[], "").await.1["data"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn texts_are_continued_as_they_are_and_streamed_one_after_the_other() {
    let mut server = Server::start().await;
    let body = json!({
        "prompt": ["Once <tool_call>", "Twice"], "stream": true, "n": 2, "seed": 5, "max_tokens": 9, "stop": "\n",
        "stream_options": { "include_usage": true },
    });
    let request = client().post(url(&server, "/v1/completions")).body(body.to_string());
    let response = tokio::spawn(async move { request.send().await.unwrap() });
    let (mut texts, mut ends) = (vec![String::new(); 4], vec![0; 4]);
    let (mut first, mut other) = (server.script.next().await, server.script.next().await);
    assert_eq!(first.request.raw, Some(RawPrompt::Text("Once <tool_call>".into())));
    assert_eq!((first.request.prompt_logprobs, first.request.priority), (None, Priority::Talk));
    assert_eq!((first.request.options.seed, other.request.options.seed), (Some(5), Some(6)));
    assert_eq!((first.request.max_tokens, &first.request.options.stop), (Some(9), &vec!["\n".to_owned()]));
    first.prompt(3, 0);
    first.say("  a");
    let mut lines = Lines::of(timeout(PATIENCE, response).await.unwrap().unwrap());
    assert!(server.script.try_next().is_none(), "the second prompt waits for its turn");
    other.prompt(3, 3);
    other.say("b ");
    other.done(Finish::Stop);
    first.done(Finish::Length);
    let (mut done, mut usage) = (false, Value::Null);
    while let Some(line) = lines.next().await {
        let data = line.strip_prefix("data: ").unwrap();
        if data == "[DONE]" {
            done = true;
            break;
        }
        let chunk: Value = serde_json::from_str(data).unwrap();
        assert_eq!(chunk["object"], "text_completion");
        let Some(choice) = chunk["choices"].get(0) else {
            usage = chunk["usage"].clone();
            continue;
        };
        assert_eq!(choice["logprobs"], Value::Null);
        let index = choice["index"].as_u64().unwrap() as usize;
        texts[index] += choice["text"].as_str().unwrap();
        ends[index] += usize::from(choice["finish_reason"].is_string());
        if ends[..2] == [1, 1] && ends[2..] == [0, 0] && texts[2].is_empty() && texts[3].is_empty() {
            for text in ["c", "d"] {
                let mut asked = server.script.next().await;
                assert_eq!(asked.request.raw, Some(RawPrompt::Text("Twice".into())));
                asked.prompt(1, 0);
                asked.say(text);
                asked.done(Finish::Stop);
            }
        }
    }
    // White space at the edges is the model's.
    assert_eq!((texts, ends, done), (["  a", "b ", "c", "d"].map(str::to_owned).to_vec(), vec![1; 4], true));
    assert_eq!([&usage["prompt_tokens"], &usage["completion_tokens"]], [4, 4]);
    assert!(lines.rest().await.is_empty());

    // A client that hangs up stops its prompts.
    let waiting = posting(&server, &json!({ "prompt": "Go on" }));
    let asked = server.script.next().await;
    assert_eq!(asked.request.max_tokens, Some(16));
    waiting.abort();
    timeout(PATIENCE, asked.cancelled()).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn as_many_prompts_of_a_batch_are_asked_at_once_as_the_engine_computes() {
    let mut server = Server::with(|settings| settings.engine.max_sequences = 2).await;
    let answer = posting(&server, &json!({ "prompt": ["a", "b", "c", "d", "e"], "max_tokens": 0, "echo": true }));
    let mut open = Vec::new();
    for text in ["a", "b", "c", "d", "e"] {
        if open.len() == 2 {
            // Another one comes when one of these has ended.
            assert!(server.script.try_next().is_none());
            let mut asked: Asked = open.remove(0);
            asked.done(Finish::Length);
        }
        let mut asked = server.script.next().await;
        assert_eq!(asked.request.raw, Some(RawPrompt::Text(text.into())));
        assert_eq!((asked.request.max_tokens, asked.request.prompt_logprobs), (Some(0), Some(0)));
        asked.push(Delta::PromptTokens(vec![told(text.as_bytes(), None, &[])]));
        open.push(asked);
    }
    open.iter_mut().for_each(|asked| asked.done(Finish::Length));
    let (status, whole) = answer.await.unwrap();
    let texts: Vec<&Value> = whole["choices"].as_array().unwrap().iter().map(|choice| &choice["text"]).collect();
    assert_eq!((status, texts), (200, ["a", "b", "c", "d", "e"].map(|text| json!(text)).iter().collect()));
    assert_eq!(whole["choices"][0]["logprobs"], Value::Null);
    server.stop().await;
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_by_its_name() {
    let mut server = Server::with(|settings| {
        settings.limits.prompts = 3;
        settings.limits.prompt_logprobs = 12;
    })
    .await;
    for (body, says) in [
        (json!({}), "prompt"),
        (json!({ "prompt": [] }), "empty"),
        (json!({ "prompt": "" }), "empty"),
        (json!({ "prompt": ["a", ""] }), "prompt[1]"),
        (json!({ "prompt": [[1], []] }), "prompt[1]"),
        (json!({ "prompt": [1, "a"] }), "numbers of tokens"),
        (json!({ "prompt": [1, -1] }), "numbers of tokens"),
        (json!({ "prompt": [[1], [1.5]] }), "prompt[1]"),
        (json!({ "prompt": 5 }), "a list of texts"),
        (json!({ "prompt": ["a", 5] }), "a list of texts"),
        (json!({ "prompt": ["a", "b", "c", "d"] }), "limits.prompts"),
        (json!({ "prompt": "a", "max_tokens": 0 }), "needs echo"),
        (json!({ "prompt": "a", "max_tokens": -1 }), "max_tokens"),
        (json!({ "prompt": "a", "suffix": "b" }), "suffix"),
        (json!({ "prompt": "a", "best_of": 2 }), "best_of"),
        (json!({ "prompt": "a", "echo": true, "n": 2 }), "n out"),
        (json!({ "prompt": "a", "n": 5 }), "from 1 to 4"),
        (json!({ "prompt": "a", "logprobs": 21 }), "from 0 to 20"),
        (json!({ "prompt": [1, 2, 3, 4, 5], "echo": true, "logprobs": 2 }), "limits.prompt_logprobs"),
        (json!({ "prompt": "a word or two", "echo": true }), "limits.prompt_logprobs"),
        (json!({ "prompt": "a", "temperature": 3 }), "temperature"),
        (json!({ "prompt": "a", "stop": [""] }), "stop"),
    ] {
        let (status, _, message) = refused(&server, body.clone()).await;
        assert!(status == 400 && message.contains(says), "{body}: {status} {message}");
    }
    assert!(server.script.try_next().is_none());
    let body = json!({ "prompt": "a", "model": "no such model" });
    assert_eq!(posting(&server, &body).await.unwrap().0, 404);
    // What the model refuses is the request's answer, also where one of several prompts is meant.
    let answer = posting(&server, &json!({ "prompt": ["a", "b"] }));
    let (mut first, mut second) = (server.script.next().await, server.script.next().await);
    first.say("x");
    first.done(Finish::Stop);
    second.fail(Failure::new(FailureCode::PromptTooLong, "the prompt has far more tokens"));
    let (status, answer) = answer.await.unwrap();
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("prompt")), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn prompts_carry_whose_they_are() {
    let (mut server, ann, bob) = crate::doors::locked(|_| {}).await;
    let mut owners = Vec::new();
    for key in [&ann, &bob] {
        let request = client().post(url(&server, "/v1/completions")).header("authorization", key);
        let request = request.header("x-reprise-private", "true").body(json!({ "prompt": "My secret" }).to_string());
        let answer = tokio::spawn(async move { request.send().await.unwrap().status() });
        let mut asked = server.script.next().await;
        asked.done(Finish::Stop);
        assert_eq!(answer.await.unwrap(), 200);
        assert!(asked.request.unsaved);
        owners.push((asked.request.user, asked.request.past_owner));
    }
    assert_ne!(owners[0].0, owners[1].0);
    assert_ne!(owners[0].1, owners[1].1);
    server.stop().await;
}
