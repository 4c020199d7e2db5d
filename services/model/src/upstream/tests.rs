//! The upstream as a client of a stand-in on a real socket, which sends the test's answers.

use super::Upstream;
use crate::handle::Answerer;
use crate::{Answer, Model, ModelRequest};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use session::{
    Delta, FailureCode, Finish, GenerationPurpose, Message, MessageRole, Priority, Prompt, ResponseFormat, Tool,
    ToolCall, ToolChoice, Usage,
};
use settings::{CountTokens, Settings, Sources};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

struct StandIn {
    url: String,
    heard: mpsc::UnboundedReceiver<Heard>,
}

struct Heard {
    body: Value,
    headers: HeaderMap,
    status: Option<tokio::sync::oneshot::Sender<(StatusCode, &'static str)>>,
    bytes: mpsc::UnboundedSender<Result<Bytes, Infallible>>,
}

#[derive(Clone)]
struct Inside {
    heard: mpsc::UnboundedSender<Heard>,
    fixed: Arc<HashMap<&'static str, Value>>,
}

impl StandIn {
    async fn start() -> StandIn {
        StandIn::with(&[]).await
    }

    async fn with(fixed: &[(&'static str, Value)]) -> StandIn {
        let (sender, heard) = mpsc::unbounded_channel();
        let inside = Inside { heard: sender, fixed: Arc::new(fixed.iter().cloned().collect()) };
        let router = Router::new()
            .route("/v1/models", get(|| async { Json(json!({ "data": [{ "id": "big", "max_model_len": 9000 }] })) }))
            .route("/v1/chat/completions", post(complete))
            .fallback(fixed_answer)
            .with_state(inside);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        StandIn { url, heard }
    }

    async fn with_slots(total: u64) -> StandIn {
        match total {
            0 => StandIn::start().await, // it knows nothing of slots
            total => StandIn::with(&[("/props", json!({ "total_slots": total }))]).await,
        }
    }

    async fn next(&mut self) -> Heard {
        self.heard.recv().await.unwrap()
    }
}

async fn complete(State(inside): State<Inside>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let (status, decided) = tokio::sync::oneshot::channel();
    let (bytes, mut read) = mpsc::unbounded_channel();
    inside.heard.send(Heard { body, headers, status: Some(status), bytes }).unwrap();
    let (status, kind) = decided.await.unwrap();
    let stream = futures_util::stream::poll_fn(move |context| read.poll_recv(context));
    Response::builder().status(status).header("content-type", kind).body(Body::from_stream(stream)).unwrap()
}

async fn fixed_answer(State(inside): State<Inside>, uri: axum::http::Uri, body: Bytes) -> (StatusCode, Json<Value>) {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    // llama-server knows no messages in this place: without `content` it counts nothing.
    let knows_messages = !inside.fixed.contains_key("/apply-template");
    match inside.fixed.get(uri.path()) {
        Some(_) if uri.path() == "/tokenize" && !knows_messages && body["content"].is_null() => {
            (StatusCode::OK, Json(json!({ "tokens": [] })))
        }
        Some(answer) => (StatusCode::OK, Json(answer.clone())),
        None => (StatusCode::NOT_FOUND, Json(json!({ "error": { "message": "there is no such path" } }))),
    }
}

impl Heard {
    fn begin(&mut self, status: u16, kind: &'static str) {
        self.status.take().unwrap().send((StatusCode::from_u16(status).unwrap(), kind)).unwrap();
    }

    fn answer(mut self, status: u16, kind: &'static str, body: &str) {
        self.begin(status, kind);
        self.bytes.send(Ok(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
    }

    fn delta(&mut self, delta: Value, finish: Option<&str>) {
        if self.status.is_some() {
            self.begin(200, "text/event-stream");
        }
        self.send(&json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }));
    }

    fn send(&mut self, chunk: &Value) {
        self.bytes.send(Ok(Bytes::from(format!("data: {chunk}\n\n")))).unwrap();
    }

    fn usage(&mut self, usage: Value) {
        self.send(&json!({ "choices": [], "usage": usage }));
        self.bytes.send(Ok(Bytes::from_static(b"data: [DONE]\n\n"))).unwrap();
    }
}

fn settings(url: &str) -> Settings {
    let sources = Sources { flags: vec![settings::Flag::new("--upstream", "upstream.url", url)], ..Sources::default() };
    Settings::load(&sources).unwrap().settings
}

async fn model_of(settings: &Settings) -> (Model, ModelRequest) {
    let started = Model::start(settings).await.unwrap();
    let prompt = Prompt { messages: vec![Message::new(MessageRole::User, "Is it late?")], ..Prompt::default() };
    (started.model, ModelRequest::new(prompt, Arc::new(started.settings.chosen().unwrap().clone())))
}

async fn model(stand_in: &StandIn) -> (Model, ModelRequest) {
    model_of(&settings(&stand_in.url)).await
}

#[derive(Debug, Default, PartialEq)]
struct WholeAnswer {
    content: String,
    reasoning: String,
    calls: Vec<(String, Option<String>, String)>,
    finish: Option<(Finish, Usage)>,
    failure: Option<(FailureCode, String)>,
}

async fn told(mut answer: Answer) -> WholeAnswer {
    let mut told = WholeAnswer::default();
    while let Some(delta) = answer.next().await {
        match delta {
            Delta::Prompt { .. } | Delta::PromptTokens(_) => {}
            Delta::Reasoning { text, .. } => told.reasoning += &text,
            Delta::Text { text, .. } => told.content += &text,
            Delta::CallStarted { name, call_id } => told.calls.push((name, call_id, String::new())),
            Delta::CallArguments { json, .. } => told.calls.last_mut().unwrap().2 += &json,
            Delta::Done { finish, usage, .. } => told.finish = Some((finish, usage.unwrap())),
            Delta::Failed(failure) => told.failure = Some((failure.code, failure.message)),
        }
    }
    told
}

#[tokio::test]
async fn an_answer_is_streamed() {
    let mut stand_in = StandIn::start().await;
    let mut settings = settings(&stand_in.url);
    // A variable that is there wherever cargo runs a test.
    settings.upstream.key_env = Some("CARGO_MANIFEST_DIR".to_owned());
    let (model, mut request) = model_of(&settings).await;
    let status = model.status();
    assert_eq!((status.ready, status.model.as_str(), request.preset.ctx_size), (true, "big", 9000));
    (request.max_tokens, request.options.seed, request.options.stop) = (Some(77), Some(5), vec!["END".into()]);
    request.options.response_format = ResponseFormat::JsonObject;
    let mut answer = model.ask(request);
    let mut heard = stand_in.next().await;
    let expected = [
        ("model", json!("big")),
        ("stream", json!(true)),
        ("stream_options", json!({ "include_usage": true })),
        ("max_tokens", json!(77)),
        ("seed", json!(5)),
        ("stop", json!(["END"])),
        ("response_format", json!({ "type": "json_object" })),
        ("top_k", json!(20)),
        ("messages", json!([{ "role": "user", "content": "Is it late?" }])),
        ("chat_template_kwargs", json!({ "enable_thinking": false })),
    ];
    for (name, value) in expected {
        assert_eq!(heard.body[name], value, "{name}");
    }
    assert_eq!(heard.body.get("tools"), None);
    assert_eq!(heard.headers["authorization"], format!("Bearer {}", env!("CARGO_MANIFEST_DIR")));
    heard.delta(json!({ "role": "assistant", "content": "" }), None);
    heard.delta(json!({ "reasoning_content": "Hm." }), None);
    assert_eq!(answer.next().await, Some(Delta::Reasoning { text: "Hm.".into(), tokens: 1 }));
    heard.delta(json!({ "content": "Not" }), None);
    assert_eq!(answer.next().await, Some(Delta::text("Not", 1)));
    heard.delta(json!({ "content": " yet." }), None);
    heard.delta(json!({}), Some("stop"));
    heard.usage(json!({
        "prompt_tokens": 12, "completion_tokens": 7, "prompt_tokens_details": { "cached_tokens": 4 },
        "completion_tokens_details": { "reasoning_tokens": 2 },
    }));
    let told = told(answer).await;
    let usage = Usage { input_tokens: 12, cached_tokens: 4, output_tokens: 7, reasoning_tokens: 2 };
    assert_eq!((told.content.as_str(), told.finish), (" yet.", Some((Finish::Stop, usage))));
}

#[tokio::test]
async fn work_in_the_background_has_a_slot_of_its_own_where_there_are_several() {
    for (total, expected) in [(4, json!(3)), (2, json!(1)), (1, Value::Null), (0, Value::Null)] {
        let mut stand_in = StandIn::with_slots(total).await;
        let (model, request) = model(&stand_in).await;
        let summary = ModelRequest { priority: Priority::Background, ..request.clone() };
        for (request, slot) in [(summary, &expected), (request, &Value::Null)] {
            let answer = model.ask(request);
            let heard = stand_in.next().await;
            assert_eq!(&heard.body["id_slot"], slot, "of {total}: {:#}", heard.body);
            heard.answer(
                200,
                "application/json",
                r#"{"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]}"#,
            );
            assert_eq!(told(answer).await.content, "Yes.");
        }
    }
}

#[tokio::test]
async fn an_answer_in_single_bytes_is_the_same_answer() {
    let mut stand_in = StandIn::start().await;
    let (model, request) = model(&stand_in).await;
    let answer = model.ask(request);
    let mut heard = stand_in.next().await;
    heard.begin(200, "text/event-stream");
    let chunk = json!({ "choices": [{ "delta": { "content": "Schön \u{1F600}" }, "finish_reason": "length" }] });
    for byte in format!(": hello\r\n\r\ndata: {chunk}\r\n\r\ndata: [DONE]\r\n\r\n").into_bytes() {
        heard.bytes.send(Ok(Bytes::from(vec![byte]))).unwrap();
        tokio::task::yield_now().await;
    }
    let told = told(answer).await;
    assert_eq!((told.content.as_str(), told.finish.unwrap().0), ("Schön \u{1F600}", Finish::Length));
}

#[tokio::test]
async fn calls_are_told_one_after_the_other() {
    let mut stand_in = StandIn::start().await;
    let (model, mut request) = model(&stand_in).await;
    request.prompt.tools = vec![Tool { name: "light".into(), description: None, parameters: None, verbatim: None }];
    request.tool_choice = ToolChoice::Function("light".into());
    let call = ToolCall { id: None, name: "f".into(), arguments: "{ \"a\": 1 }".into() };
    request.prompt.messages.push(Message { calls: vec![call], ..Message::new(MessageRole::Assistant, "") });
    let answer = model.ask(request);
    let mut heard = stand_in.next().await;
    assert_eq!(heard.body["tool_choice"]["function"]["name"], "light");
    assert_eq!(heard.body["messages"][1]["tool_calls"][0]["function"]["arguments"], "{\"a\":1}");
    let part = |index, rest: Value| {
        let mut call = json!({ "index": index });
        call.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        json!({ "tool_calls": [call] })
    };
    let arguments = |text: &str| json!({ "function": { "arguments": text } });
    heard.delta(
        part(0, json!({ "id": "a", "type": "function", "function": { "name": "light", "arguments": "" } })),
        None,
    );
    heard.delta(part(0, arguments("{\"room\":")), None);
    // The second begins before the first is complete.
    heard.delta(part(1, json!({ "id": "b", "function": { "name": "heat", "arguments": "{}" } })), None);
    heard.delta(part(0, arguments(" \"hall\"}")), None);
    heard.delta(json!({}), Some("tool_calls"));
    heard.usage(json!({}));
    let told = told(answer).await;
    let expected = [("light", "a", "{\"room\": \"hall\"}"), ("heat", "b", "{}")];
    let expected = expected.map(|(name, id, arguments)| (name.to_owned(), Some(id.to_owned()), arguments.to_owned()));
    assert_eq!((told.calls, told.finish.unwrap().0), (expected.to_vec(), Finish::ToolCalls));
}

#[tokio::test]
async fn a_server_that_tells_thought_and_calls_as_text_is_understood() {
    let mut stand_in = StandIn::start().await;
    let (model, request) = model(&stand_in).await;
    let answer = model.ask(request.clone());
    let mut heard = stand_in.next().await;
    for text in
        ["<thi", "nk>\nHm.\n</th", "ink>\n\nNot yet.<tool_call>\n<function=light>\n", "</function>\n</tool_call>"]
    {
        heard.delta(json!({ "content": text }), None);
    }
    heard.delta(json!({}), Some("stop"));
    heard.usage(json!({}));
    let told_first = told(answer).await;
    assert_eq!((told_first.reasoning.as_str(), told_first.content.as_str()), ("Hm.", "Not yet."));
    assert_eq!((told_first.calls.len(), told_first.finish.unwrap().0), (1, Finish::ToolCalls));

    // One that does not stream at all.
    let answer = model.ask(request);
    let message = json!({ "role": "assistant", "content": "Late.", "reasoning_content": "So." });
    let body = json!({ "choices": [{ "message": message, "finish_reason": "stop" }], "usage": { "prompt_tokens": 3 } });
    stand_in.next().await.answer(200, "application/json", &body.to_string());
    let told = told(answer).await;
    assert_eq!((told.reasoning.as_str(), told.content.as_str()), ("So.", "Late."));
    assert_eq!(told.finish.unwrap().1.input_tokens, 3);
}

#[tokio::test]
async fn cancelling_hangs_up() {
    let mut stand_in = StandIn::start().await;
    let (model, request) = model(&stand_in).await;
    let mut answer = model.ask(request.clone());
    let mut heard = stand_in.next().await;
    heard.delta(json!({ "content": "Once" }), None);
    answer.next().await;
    assert_eq!(model.status().load.talk, 1);
    answer.canceller().cancel();
    heard.bytes.closed().await;
    let told = told(answer).await;
    assert_eq!((told.finish.unwrap().0, told.finish.unwrap().1.output_tokens), (Finish::Cancelled, 1));
    assert_eq!(model.status().load.talk, 0);

    let answer = model.ask(request);
    let mut heard = stand_in.next().await;
    heard.delta(json!({ "content": "Once" }), None);
    drop(answer);
    heard.bytes.closed().await;
}

#[tokio::test]
async fn what_goes_wrong_is_told_so_that_one_knows_what_to_do() {
    let mut stand_in = StandIn::start().await;
    let (model, request) = model(&stand_in).await;
    let error = |message: &str| json!({ "error": { "message": message } }).to_string();
    let too_long = "This model's maximum context length is 9000 tokens";
    let refusals = [
        (400, error(too_long), FailureCode::PromptTooLong, "maximum context"),
        (400, error("no such format"), FailureCode::InvalidRequest, "no such format"),
        (401, error("no"), FailureCode::UpstreamFailed, "upstream.key_env"),
        (404, "not found".to_owned(), FailureCode::UpstreamFailed, "upstream.model"),
        (503, error("loading model"), FailureCode::Busy, "loading model"),
        (500, String::new(), FailureCode::UpstreamFailed, "failed"),
    ];
    for (status, body, code, words) in refusals {
        let answer = model.ask(request.clone());
        stand_in.next().await.answer(status, "application/json", &body);
        let (found, message) = told(answer).await.failure.unwrap();
        assert_eq!(found, code, "{message}");
        assert!(message.contains(words), "{message}");
    }
    let streams = [
        (format!("data: {}\n\n", error("out of memory")), FailureCode::UpstreamFailed, "out of memory"),
        (format!("data: {}\n\n", error(too_long)), FailureCode::PromptTooLong, "maximum context"),
        (
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n".to_owned(),
            FailureCode::UpstreamFailed,
            "broke off",
        ),
        ("data: <html>\n\n".to_owned(), FailureCode::UpstreamFailed, "no chat completion"),
    ];
    for (body, code, words) in streams {
        let answer = model.ask(request.clone());
        stand_in.next().await.answer(200, "text/event-stream", &body);
        let (found, message) = told(answer).await.failure.unwrap();
        assert_eq!(found, code, "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test]
async fn a_raw_prompt_is_refused_because_an_upstream_reads_messages() {
    let stand_in = StandIn::start().await;
    let (model, request) = model(&stand_in).await;
    let answer = told(model.ask(ModelRequest { raw: Some(crate::RawPrompt::Tokens(vec![1])), ..request })).await;
    let (code, message) = answer.failure.unwrap();
    assert!(code == FailureCode::InvalidRequest && message.contains("upstream.url"), "{message}");
}

#[tokio::test]
async fn what_is_said_goes_to_no_server_that_the_configuration_does_not_name() {
    let mut other = StandIn::start().await;
    let away = format!("{}/chat/completions", other.url);
    let redirect = move || {
        let away = away.clone();
        async move { (StatusCode::TEMPORARY_REDIRECT, [("location", away)]) }
    };
    let within = || async { (StatusCode::TEMPORARY_REDIRECT, [("location", "/v1/models/")]) };
    let list = || async { Json(json!({ "data": [{ "id": "big" }] })) };
    let router = Router::new()
        .route("/v1/models", get(within))
        .route("/v1/models/", get(list))
        .route("/v1/chat/completions", post(redirect));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let (model, request) = model_of(&settings(&url)).await;
    assert_eq!(model.status().model, "big", "a redirect within the server is followed");
    let (code, message) = told(model.ask(request)).await.failure.unwrap();
    assert!(code == FailureCode::UpstreamFailed && message.contains("upstream.url"), "{message}");
    assert!(other.heard.try_recv().is_err(), "the other server heard nothing");
}

#[tokio::test]
async fn a_key_that_the_upstream_repeats_is_not_shown() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let refuse = |headers: HeaderMap| async move {
        let key = headers["authorization"].to_str().unwrap().to_owned();
        // The second time its words are cut within the key.
        let before = if ASKED.fetch_add(1, Ordering::Relaxed) == 0 { 0 } else { 1960 };
        let message = format!("{} Incorrect API key provided: {key}", "x".repeat(before));
        (StatusCode::BAD_REQUEST, Json(json!({ "error": { "message": message } })))
    };
    let list = || async { Json(json!({ "data": [{ "id": "big" }] })) };
    let router = Router::new().route("/v1/models", get(list)).route("/v1/chat/completions", post(refuse));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let upstream = Upstream::start(&settings(&url), &url, Some("sk-secret-word".to_owned())).await.unwrap();
    let (_, request) = model_of(&settings(&url)).await;
    let (_, message) = told(upstream.ask(request.clone())).await.failure.unwrap();
    assert!(message.contains("(the key)") && !message.contains("sk-secret-word"), "{message}");
    let (_, message) = told(upstream.ask(request)).await.failure.unwrap();
    assert!(message.len() > 1900 && !message.contains("sk-s"), "{message}");
}

#[tokio::test]
async fn silence_is_given_up() {
    let mut stand_in = StandIn::start().await;
    let mut settings = settings(&stand_in.url);
    settings.upstream.silence_s = 1;
    let (model, request) = model_of(&settings).await;
    let answer = model.ask(request);
    let mut heard = stand_in.next().await;
    heard.delta(json!({ "content": "Once" }), None);
    let (code, message) = told(answer).await.failure.unwrap();
    assert_eq!(code, FailureCode::UpstreamTimeout);
    assert!(message.contains("upstream.silence_s"), "{message}");
    heard.bytes.closed().await;
}

/// It repeats a word: it is never silent, and no event is long.
#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    for (seconds, bytes) in [(1, 1 << 30), (3600, 4096)] {
        let mut stand_in = StandIn::start().await;
        let mut settings = settings(&stand_in.url);
        (settings.upstream.answer_s, settings.upstream.answer_bytes) = (seconds, bytes);
        let (model, request) = model_of(&settings).await;
        let answer = model.ask(request);
        let mut heard = stand_in.next().await;
        heard.delta(json!({ "content": "On and " }), None);
        let says = tokio::spawn(async move {
            let word = Bytes::from_static(br#"data: {"choices": [{"index": 0, "delta": {"content": "on and "}}]}"#);
            while heard.bytes.send(Ok(word.clone())).is_ok() && heard.bytes.send(Ok("\n\n".into())).is_ok() {
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        });
        let (code, message) = told(answer).await.failure.unwrap();
        assert_eq!(code, FailureCode::UpstreamFailed);
        assert!(message.contains("upstream.answer_bytes"), "{message}");
        says.await.unwrap();
    }
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_no_reason_not_to_start() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let (model, request) = model_of(&settings(&url)).await;
    let status = model.status();
    assert!(!status.ready && status.trouble.is_some(), "{status:?}");
    let (code, message) = told(model.ask(request)).await.failure.unwrap();
    assert_eq!(code, FailureCode::Unavailable);
    assert!(message.contains("is it running?"), "{message}");
}

#[tokio::test]
async fn https_is_spoken() {
    let stand_in = StandIn::start().await;
    let (model, _) = model_of(&settings(&stand_in.url.replacen("http:", "https:", 1))).await;
    // The stand-in speaks no TLS, which only the handshake shows.
    let trouble = model.status().trouble.unwrap();
    assert!(trouble.contains("corrupt message"), "{trouble}");
}

#[tokio::test]
async fn warming_is_not_asked_of_it_and_stopping_ends_what_is_open() {
    let mut stand_in = StandIn::start().await;
    let (model, request) = model(&stand_in).await;
    let mut warm = request.clone();
    warm.purpose = GenerationPurpose::WarmPartial;
    assert_eq!(told(model.ask(warm)).await.finish.unwrap().0, Finish::Warm);
    assert!(stand_in.heard.try_recv().is_err());

    let mut open = model.ask(request.clone());
    let mut heard = stand_in.next().await;
    heard.delta(json!({ "content": "Once" }), None);
    open.next().await;
    model.shutdown().await;
    assert_eq!(told(open).await.failure.unwrap().0, FailureCode::Unavailable);
    assert_eq!(told(model.ask(request)).await.failure.unwrap().0, FailureCode::Unavailable);
    assert!(!model.status().ready);
}

#[tokio::test]
async fn prompts_are_counted_by_who_knows_best() {
    let count = async |fixed: &[(&'static str, Value)], mode: CountTokens| {
        let stand_in = StandIn::with(fixed).await;
        let mut settings = settings(&stand_in.url);
        (settings.upstream.count, settings.upstream.count_margin) = (mode, 0.5);
        let (model, request) = model_of(&settings).await;
        let count = async || model.measure(&request.prompt, &request.preset).await.map(|measured| measured.total);
        let first = count().await;
        assert_eq!(count().await, first, "the way that was found stays");
        first
    };
    let vllm = [("/tokenize", json!({ "count": 31, "max_model_len": 9000, "tokens": [1, 2] }))];
    let counted = count(&vllm, CountTokens::Auto).await.unwrap();
    assert_eq!((counted.tokens, counted.exact), (31, true));

    let llama =
        [("/apply-template", json!({ "prompt": "<|im_start|>..." })), ("/tokenize", json!({ "tokens": [1, 2, 3] }))];
    for mode in [CountTokens::Auto, CountTokens::Tokenize] {
        let counted = count(&llama, mode).await.unwrap();
        assert_eq!((counted.tokens, counted.exact), (3, true));
    }

    // "Is it late?" has four tokens; around a message are five.
    let counted = count(&[], CountTokens::Auto).await.unwrap();
    assert_eq!((counted.tokens, counted.margin_tokens, counted.exact), (14, 5, false));
    let counted = count(&vllm, CountTokens::Estimate).await.unwrap();
    assert_eq!(counted.tokens, 14);

    let failure = count(&[], CountTokens::Tokenize).await.unwrap_err();
    assert!(failure.message.contains("upstream.count"), "{failure}");
}

#[tokio::test]
async fn an_estimate_in_a_moments_trouble_is_not_for_ever() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let tokenize = || async {
        match ASKED.fetch_add(1, Ordering::Relaxed) {
            0 => Err(StatusCode::SERVICE_UNAVAILABLE),
            _ => Ok(Json(json!({ "count": 31 }))),
        }
    };
    let list = || async { Json(json!({ "data": [{ "id": "big" }] })) };
    let router = Router::new().route("/v1/models", get(list)).route("/tokenize", post(tokenize));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let (model, request) = model_of(&settings(&url)).await;
    let count = async || model.measure(&request.prompt, &request.preset).await.unwrap().total;
    assert!(!count().await.exact, "it loads its model");
    assert_eq!((count().await.tokens, count().await.exact), (31, true));
}

#[test]
fn each_call_has_one_result_right_behind_it() {
    let said = |role, text: &str| Message::new(role, text);
    let calls = |ids: &[&str]| {
        let call = |id: &&str| ToolCall { id: Some((*id).into()), name: "light".into(), arguments: "{}".into() };
        Message { calls: ids.iter().map(call).collect(), ..said(MessageRole::Assistant, "") }
    };
    let shown = |messages: &[Message]| -> Vec<String> {
        let line = |message: &Value| {
            let id = message["tool_call_id"].as_str().map(|id| format!(" {id}")).unwrap_or_default();
            format!("{}{id}: {}", message["role"].as_str().unwrap(), message["content"].as_str().unwrap())
        };
        super::wire::messages(messages).iter().map(line).collect()
    };
    // The user talked while the tool was at work, and its result came late.
    let user = said(MessageRole::User, "Stop.");
    let late = [calls(&["a"]), user.clone(), calls(&["b"]), Message::result("a", "on"), Message::result("b", "off")];
    let late_result = "user: <tool_response>\non\n</tool_response>";
    let expected =
        ["assistant: ", "tool a: (No result yet.)", "user: Stop.", "assistant: ", "tool b: off", late_result];
    assert_eq!(shown(&late), expected);
    let both = [calls(&["a", "b"]), Message::result("b", "off"), Message::result("a", "on")];
    assert_eq!(shown(&both), ["assistant: ", "tool b: off", "tool a: on"]);
    // A client that names no call means the first.
    let unnamed = [calls(&["a", "b"]), Message::result("", "on"), Message::result("b", "off")];
    assert_eq!(shown(&unnamed), ["assistant: ", "tool a: on", "tool b: off"]);
    assert_eq!(shown(&[calls(&["a"])]), ["assistant: ", "tool a: (No result yet.)"]);
}
