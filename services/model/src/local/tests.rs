//! The engine's thread with a small model, from requests to deltas.

mod choices;
mod early;
mod heads;
mod on_disk;
mod places;
mod raw;
mod resume;
mod sleep;
mod thinking;

use crate::device::Source;
use crate::start::start_engine;
use crate::{Answer, Finder, Model, ModelRequest};
use serde_json::{Value, json};
use session::MessageRole::{Assistant, System, User};
use session::{
    Delta, FailureCode, Finish, GenerationPurpose, JsonText, Message, MessageRole, Part, PastStays, Priority, Prompt,
    PromptToken, ResponseFormat, Tool, ToolChoice, TurnReport, Usage,
};
use settings::{Flag, Preset, Settings, Sources, Thinking};
use std::path::Path;
use std::sync::{Arc, Mutex};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference/dense-tied");

fn settings(more: &[(&str, &str)]) -> Settings {
    let base = [
        ("model.path", MODEL),
        ("memory.total", "512MiB"),
        ("memory.disk_path", ""),
        ("engine.threads", "1"),
        // Tests send requests without a pause.
        ("engine.early_busy", "1"),
        ("engine.prefill_chunk_tokens", "64"),
        ("preset.sampling.temperature", "0"),
        ("preset.sampling.presence_penalty", "0"),
    ];
    let flags = base.iter().chain(more).map(|(key, value)| Flag::new("--set", key, value)).collect();
    Settings::load(&Sources { flags, ..Sources::default() }).unwrap().settings
}

struct Stage {
    model: Model,
    preset: Arc<Preset>,
}

async fn stage_with(more: &[(&str, &str)]) -> Stage {
    let started = Model::start(&settings(more)).await.unwrap();
    let preset = Arc::new(started.settings.chosen().unwrap().clone());
    Stage { model: started.model, preset }
}

async fn stage() -> Stage {
    stage_with(&[]).await
}

/// `</think>` of the test's model, which random weights now and then write.
const THINK_CLOSE: u32 = 507;

impl Stage {
    /// Builds a request for a reply of `tokens` tokens, the same each time; the model cannot end it, nor its thinking.
    fn request(&self, messages: Vec<Message>, tokens: u32) -> ModelRequest {
        let prompt = Prompt { messages, ..Prompt::default() };
        let mut request = ModelRequest::new(prompt, self.preset.clone());
        request.max_tokens = Some(tokens);
        request.options.ignore_eos = true;
        request.options.seed = Some(1);
        request.options.sampling.logit_bias.push((THINK_CLOSE, -1e9));
        request
    }

    async fn answer(&self, request: ModelRequest) -> WholeAnswer {
        told(self.model.ask(request)).await
    }
}

#[derive(Debug, Default)]
struct WholeAnswer {
    content: String,
    sentences: Vec<String>,
    reasoning: String,
    calls: Vec<(String, String)>,
    finish: Option<Finish>,
    usage: Usage,
    report: TurnReport,
    failure: Option<(FailureCode, String)>,
    prompt: Option<(u64, u64)>,
    prompt_tokens: Vec<PromptToken>,
    tokens: u64,
    logprobs: Vec<(Vec<u8>, f32, usize)>,
}

async fn told(mut answer: Answer) -> WholeAnswer {
    let mut told = WholeAnswer::default();
    while let Some(delta) = answer.next().await {
        match delta {
            Delta::Prompt { input_tokens, cached_tokens } => told.prompt = Some((input_tokens, cached_tokens)),
            Delta::PromptTokens(tokens) => told.prompt_tokens.extend(tokens),
            Delta::Reasoning { text, tokens } => {
                told.reasoning += &text;
                told.tokens += tokens;
            }
            Delta::Text { text, tokens, sentences, logprobs } => {
                told.content += &text;
                told.sentences.extend(sentences.into_iter().map(|sentence| sentence.text));
                told.tokens += tokens;
                told.logprobs.extend(logprobs.into_iter().map(|token| (token.bytes, token.logprob, token.top.len())));
            }
            Delta::CallStarted { name, .. } => told.calls.push((name, String::new())),
            Delta::CallArguments { json, tokens } => {
                told.calls.last_mut().unwrap().1 += &json;
                told.tokens += tokens;
            }
            Delta::Done { finish, usage, report } => {
                (told.finish, told.usage, told.report) = (Some(finish), usage.unwrap(), report.unwrap());
            }
            Delta::Failed(failure) => told.failure = Some((failure.code, failure.message)),
        }
    }
    told
}

fn user(text: &str) -> Vec<Message> {
    vec![said(User, text)]
}

fn said(role: MessageRole, text: &str) -> Message {
    Message::new(role, text)
}

#[tokio::test]
async fn a_reply_is_streamed_counted_and_reported() {
    let stage = stage().await;
    let request = stage.request(user("Turn on the light in the kitchen, please."), 12);
    let counted = stage.model.measure(&request.prompt, &stage.preset).await.unwrap().total;
    let first = stage.answer(request.clone()).await;
    assert_eq!(first.finish, Some(Finish::Length), "{first:?}");
    assert_eq!((first.usage.output_tokens, first.usage.cached_tokens), (12, 0));
    assert_eq!((first.usage.input_tokens, counted.exact), (counted.tokens, true));
    assert_eq!(first.prompt, Some((counted.tokens, 0)));
    assert!(first.tokens <= 12 && !first.content.is_empty());
    assert_eq!(first.sentences.concat(), first.content, "the end of a reply ends its last sentence");
    assert_eq!(first.report.reason, Some("cold"));
    assert_eq!(first.report.computed_tokens, counted.tokens);
    let report = &first.report;
    assert!(report.prefill_ms > 0.0, "the work begins with the step that computes: {report:?}");
    assert!(report.total_ms >= report.first_token_ms.unwrap() && report.first_token_ms.unwrap() >= report.prefill_ms);

    let second = stage.answer(request).await;
    assert_eq!(second.content, first.content, "what is remembered changes no answer");
    assert!(second.usage.cached_tokens > 0 && second.report.computed_tokens < counted.tokens, "{second:?}");
}

#[tokio::test]
async fn cancelling_ends_an_answer_and_dropping_it_frees_its_place() {
    let stage = stage().await;
    let mut answer = stage.model.ask(stage.request(user("Tell me a long story"), 3000));
    while !matches!(answer.next().await, Some(Delta::Text { .. })) {}
    answer.canceller().cancel();
    let told = told(answer).await;
    assert_eq!(told.finish, Some(Finish::Cancelled));
    assert!(told.usage.output_tokens > 0 && told.usage.output_tokens < 3000, "{told:?}");

    let mut dropped = stage.model.ask(stage.request(user("Another long story"), 3000));
    while !matches!(dropped.next().await, Some(Delta::Text { .. })) {}
    drop(dropped);
    // The engine takes it before another step; this one takes several.
    stage.answer(stage.request(user("Short"), 4)).await;
    let mut third = stage.model.ask(stage.request(user("Third"), 3000));
    while !matches!(third.next().await, Some(Delta::Text { .. })) {}
    assert_eq!(stage.model.status().load.talk, 1);
}

#[tokio::test]
async fn a_failure_of_the_engine_costs_its_replies_and_nothing_else() {
    let stage = stage().await;
    let mut open = stage.model.ask(stage.request(user("Tell me a long story"), 3000));
    while !matches!(open.next().await, Some(Delta::Text { .. })) {}
    stage.model.panic();
    assert_eq!(told(open).await.failure.unwrap().0, FailureCode::EngineFailed);
    let again = stage.answer(stage.request(user("Are you there?"), 5)).await;
    assert_eq!(again.usage.output_tokens, 5, "{again:?}");
    let status = stage.model.status();
    assert_eq!((status.ready, status.restarts), (true, 1));
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_with_a_reason() {
    let stage = stage().await;
    let refused = async |request| stage.answer(request).await.failure.unwrap();

    let (code, message) = refused(stage.request(user(&"word ".repeat(5000)), 5)).await;
    assert_eq!(code, FailureCode::PromptTooLong);
    assert!(message.contains("4096"), "{message}");

    let mut limited = stage.request(user(&"word ".repeat(200)), 5);
    limited.prompt_limit_tokens = Some(96);
    let (code, message) = refused(limited).await;
    assert_eq!(code, FailureCode::PromptTooLong);
    assert!(message.contains("the window is 4096, of which 4000 are kept for the reply"), "{message}");

    let mut tools = stage.request(user("x"), 5);
    let description = Some("word ".repeat(500_000));
    tools.prompt.tools = vec![Tool { name: "light".into(), description, parameters: None, verbatim: None }];
    let (code, message) = refused(tools).await;
    assert_eq!(code, FailureCode::PromptTooLong);
    assert!(message.contains("far more"), "before a token is made of it: {message}");

    let mut images = stage.request(user("x"), 5);
    images.prompt.messages[0].parts.push(Part::Image("{}".into()));
    assert_eq!(refused(images).await.0, FailureCode::InvalidRequest);

    let mut sampling = stage.request(user("x"), 5);
    sampling.options.sampling.top_p = Some(3.0);
    let (code, message) = refused(sampling).await;
    assert_eq!(code, FailureCode::InvalidRequest);
    assert!(message.contains("top_p"), "{message}");

    let mut call = stage.request(user("x"), 5);
    call.tool_choice = ToolChoice::Required;
    assert_eq!(refused(call).await.0, FailureCode::InvalidRequest);

    let mut window = stage.request(user("x"), 5);
    window.preset = Arc::new(window.preset.with_ctx_size(5000));
    let (_, message) = refused(window).await;
    assert!(message.contains("window of 5000"), "{message}");
}

#[tokio::test]
async fn too_many_requests_are_refused_and_the_others_answered() {
    let stage = stage_with(&[("engine.max_sequences", "1"), ("engine.max_waiting", "1")]).await;
    let answers: Vec<Answer> = (0..12).map(|n| stage.model.ask(stage.request(user(&format!("{n}")), 500))).collect();
    let (mut done, mut busy) = (0, 0);
    for answer in answers {
        let told = told(answer).await;
        match told.failure {
            None => done += 1,
            Some((code, message)) => {
                assert_eq!(code, FailureCode::Busy, "{message}");
                busy += 1;
            }
        }
    }
    assert!(done >= 1 && busy >= 1, "{done} answered, {busy} refused");
}

#[tokio::test]
async fn promised_forms_hold() {
    let stage = stage().await;
    let mut object = stage.request(user("Is the light on?"), 200);
    object.options.ignore_eos = false;
    let schema = json!({
        "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": false,
    });
    object.options.response_format =
        ResponseFormat::JsonSchema { name: "light".into(), schema: JsonText::from(schema.to_string()) };
    let told = stage.answer(object).await;
    assert_eq!(told.finish, Some(Finish::Stop), "{told:?}");
    assert!(serde_json::from_str::<Value>(&told.content).unwrap()["on"].is_boolean());

    let mut call = stage.request(user("Is the light on?"), 200);
    call.options.ignore_eos = false;
    let parameters =
        json!({"type": "object", "properties": {"room": {"enum": ["kitchen", "hall"]}}, "required": ["room"]});
    let parameters = Some(JsonText::from(parameters.to_string()));
    call.prompt.tools = vec![Tool { name: "light".into(), description: None, parameters, verbatim: None }];
    call.tool_choice = ToolChoice::Required;
    call.parallel_tool_calls = false;
    let told = stage.answer(call.clone()).await;
    assert_eq!(told.finish, Some(Finish::ToolCalls), "{told:?}");
    assert_eq!((told.calls.len(), told.calls[0].0.as_str(), told.content.as_str()), (1, "light", ""));
    let arguments: Value = serde_json::from_str(&told.calls[0].1).unwrap();
    assert!(["kitchen", "hall"].contains(&arguments["room"].as_str().unwrap()));

    // Cut in the middle of a call: half a call is not content.
    call.max_tokens = Some(6);
    let told = stage.answer(call.clone()).await;
    assert_eq!((told.finish, told.content.as_str(), told.calls.len()), (Some(Finish::Length), "", 0));

    // `None`: the tools stay in the prompt and no call comes.
    call.tool_choice = ToolChoice::None;
    let told = stage.answer(call).await;
    assert_eq!((told.calls.len(), told.failure.is_none()), (0, true), "{told:?}");
}

#[tokio::test]
async fn thinking_ends_with_its_budget() {
    let stage = stage().await;
    let mut request = stage.request(user("Think of a number"), 30);
    request.thinking = Some(Thinking::Budget(8));
    let told = stage.answer(request.clone()).await;
    assert!(!told.reasoning.is_empty() && !told.content.contains("</think>"), "{told:?}");
    assert!(told.usage.reasoning_tokens >= 8 && told.usage.reasoning_tokens < 14, "{told:?}");
    assert!(!told.content.is_empty());
    request.thinking = Some(Thinking::Off);
    assert_eq!(stage.answer(request).await.reasoning, "");
}

#[tokio::test]
async fn the_next_turn_starts_warm() {
    let stage = stage().await;
    let mut messages = vec![
        said(System, "You are a voice assistant at home. Answer shortly."),
        said(User, "Good morning. How is the weather today in the north?"),
    ];
    let reply = stage.answer(stage.request(messages.clone(), 20)).await;
    messages.push(said(Assistant, &reply.content));
    messages.push(said(User, "(what comes next)"));
    let mut warm = stage.request(messages.clone(), 0);
    (warm.purpose, warm.placeholders, warm.priority) = (GenerationPurpose::WarmHistory, 1, Priority::Speculate);
    let warmed = stage.answer(warm).await;
    assert_eq!((warmed.finish, warmed.usage.output_tokens), (Some(Finish::Warm), 0));
    assert!(warmed.usage.cached_tokens > 0, "the head was there: {warmed:?}");

    messages.pop();
    messages.push(said(User, "And tomorrow in the south of the cou"));
    let mut partial = stage.request(messages.clone(), 0);
    (partial.purpose, partial.priority) = (GenerationPurpose::WarmPartial, Priority::Speculate);
    let partial = stage.answer(partial).await;
    assert_eq!(partial.finish, Some(Finish::Warm));
    assert_eq!(partial.usage.cached_tokens, warmed.usage.input_tokens, "all that was warmed counts");

    messages.pop();
    messages.push(said(User, "And tomorrow in the south of the country?"));
    let next = stage.answer(stage.request(messages.clone(), 5)).await;
    assert_eq!(next.usage.cached_tokens, partial.usage.input_tokens, "{next:?}");
    assert_eq!(next.report.reason, Some("new_text"));

    // And the same answer as from an engine with an empty cache.
    let cold = self::stage().await;
    let alone = cold.answer(cold.request(messages.clone(), 5)).await;
    assert_eq!((alone.content, alone.usage.cached_tokens), (next.content, 0));
}

#[tokio::test]
async fn a_quiet_debug_build_checks_what_it_remembers() {
    let stage = stage().await;
    stage.answer(stage.request(user("Are you there?"), 5)).await;
    // Again after more work, and only then.
    for checks in 1..4 {
        while stage.model.status().checks < checks {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        stage.answer(stage.request(user(&format!("And {checks} times?")), 5)).await;
    }
}

#[tokio::test]
async fn each_spoken_sentence_can_be_gone_back_to() {
    let snapshots = async |first_clause_chars: &str, max_sentence_chars: &str| {
        let apart = [
            ("memory.recurrence_log_tokens", "0"),
            ("memory.snapshot_spacing_tokens", "4096"),
            ("speech.max_sentence_chars", max_sentence_chars),
            ("speech.first_clause_chars", first_clause_chars),
        ];
        let stage = stage_with(&apart).await;
        let told = stage.answer(stage.request(user("Tell me a long story"), 300)).await;
        assert_eq!(told.usage.output_tokens, 300);
        // The thread sets its status before it waits for more.
        while stage.model.status().load.talk > 0 {
            tokio::task::yield_now().await;
        }
        let memory = stage.model.status().memory_bytes;
        (told.content, memory.into_iter().find(|(kind, _)| *kind == "snapshots").unwrap().1)
    };
    let (whole, of_the_prompt) = snapshots("1000", "10000").await;
    let (cut, of_the_reply) = snapshots("39", "40").await;
    assert_eq!(whole, cut);
    assert!(of_the_reply >= 2 * of_the_prompt, "{of_the_prompt} and {of_the_reply} bytes for {whole:?}");
}

#[tokio::test]
async fn what_another_model_knows_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let messages = vec![
        said(System, "You are a voice assistant at home. Answer shortly and in the language of the question."),
        said(User, "Good morning. How is the weather today in the north of the country, and in the south?"),
    ];
    let disk = [("memory.disk_path", folder.path().to_str().unwrap()), ("memory.disk_min_tokens", "16")];
    let before = stage_with(&disk).await;
    before.answer(before.request(messages.clone(), 5)).await;
    before.model.shutdown().await;
    let other = MODEL.replace("dense-tied", "dense-gva2");
    let after = stage_with(&[disk[0], disk[1], ("model.path", &other)]).await;
    let told = after.answer(after.request(messages, 5)).await;
    assert_eq!((told.report.reason, told.report.reused_tokens), (Some("other_model"), 0));
}

#[tokio::test]
async fn stop_strings_end_a_reply_and_are_not_part_of_it() {
    let stage = stage().await;
    let mut request = stage.request(user("Say something"), 40);
    let whole = stage.answer(request.clone()).await.content;
    let chars: Vec<char> = whole.chars().collect();
    let stop: String = chars[8..11].iter().collect();
    request.options.stop = vec![stop.clone()];
    let told = stage.answer(request).await;
    assert_eq!(told.finish, Some(Finish::Stop));
    assert_eq!(told.content, whole[..whole.find(&stop).unwrap()].trim_end(), "{whole:?} {stop:?}");
}

#[tokio::test]
async fn log_probabilities_spell_the_content() {
    let stage = stage().await;
    let mut request = stage.request(user("Say something"), 25);
    request.options.logprobs = Some(2);
    let told = stage.answer(request).await;
    let spelled: Vec<u8> = told.logprobs.iter().flat_map(|(bytes, ..)| bytes.clone()).collect();
    let spelled = String::from_utf8_lossy(&spelled).into_owned();
    assert_eq!(spelled.trim(), told.content.trim(), "{told:?}");
    assert!(told.logprobs.iter().all(|(_, logprob, top)| *logprob <= 0.0 && *top == 2));
}

#[tokio::test]
async fn stopping_ends_what_is_open_and_refuses_what_comes() {
    let stage = stage().await;
    let mut open = stage.model.ask(stage.request(user("Tell me a long story"), 3000));
    while !matches!(open.next().await, Some(Delta::Text { .. })) {}
    stage.model.shutdown().await;
    assert_eq!(told(open).await.failure.unwrap().0, FailureCode::Unavailable);
    assert_eq!(stage.answer(stage.request(user("x"), 5)).await.failure.unwrap().0, FailureCode::Unavailable);
    assert!(!stage.model.status().ready);
    stage.model.shutdown().await;
}

#[tokio::test]
async fn a_restart_goes_on_with_a_warm_prefix_unless_it_was_to_be_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let disk = [("memory.disk_path", folder.path().to_str().unwrap()), ("memory.disk_min_tokens", "16")];
    let messages = vec![
        said(System, "You are a voice assistant at home. Answer shortly and in the language of the question."),
        said(User, "Good morning. How is the weather today in the north of the country, and in the south?"),
    ];
    let stage = stage_with(&disk).await;
    let before = stage.answer(ModelRequest { past_owner: Some(7), ..stage.request(messages.clone(), 5) }).await;
    assert_eq!(before.usage.cached_tokens, 0);
    stage.model.shutdown().await;

    let stage = stage_with(&disk).await;
    let request = ModelRequest { past_owner: Some(7), ..stage.request(messages.clone(), 5) };
    let after = stage.answer(request.clone()).await;
    assert!(after.usage.cached_tokens > 0, "{after:?}");
    assert_eq!(after.content, before.content);
    stage.model.forget(7, PastStays::Nothing).await.unwrap();
    stage.model.shutdown().await;

    let stage = stage_with(&disk).await;
    let last = stage.answer(stage.request(messages, 5)).await;
    assert_eq!(last.usage.cached_tokens, 0, "{last:?}");
}

#[tokio::test]
async fn a_window_that_nobody_asked_for_gives_way_to_the_machine() {
    // Of 142 MiB these leave less than the model's whole window takes.
    let tight = [("memory.total", "142MiB"), ("memory.token_cache_bytes", "68769784"), ("engine.max_sequences", "2")];
    let started = Model::start(&settings(&tight)).await.unwrap();
    let window = started.settings.chosen().unwrap().ctx_size;
    assert!((2000..4096).contains(&window), "{window}");
    assert_eq!((started.presets[0].ctx_size, started.plan.unwrap().windows[0].ctx_size), (window, window));
    assert!(started.notes.iter().any(|note| note.contains(&window.to_string())), "{:?}", started.notes);

    let asked: Vec<_> = tight.into_iter().chain([("model.ctx_size", "4000")]).collect();
    let error = Model::start(&settings(&asked)).await.err().unwrap().to_string();
    assert!(error.contains("does not fit: 4000 tokens"), "{error}");
}

fn has_emulator() -> bool {
    testing::has_emulator()
}

#[derive(Default)]
struct Emulated {
    emulator: Option<Arc<testing::Emulator>>,
    gone: bool,
}

type Found = Arc<Mutex<Emulated>>;

fn on_a_gpu(settings: &Settings, found: &Found) -> Stage {
    let found = found.clone();
    let find = move || {
        let mut found = found.lock().unwrap();
        let folder = if found.gone { Path::new("/dev/null") } else { &std::env::temp_dir() };
        let emulator = testing::open_emulator(&folder.join("reprise-gpu-tests"));
        let emulator = emulator.map_err(testing::gpu_error)?;
        found.emulator = Some(emulator.clone());
        Ok(emulator.device())
    };
    let mut finder = Finder::new(settings);
    finder.source = Source::Given(Arc::new(find));
    let started = start_engine(&finder, settings.clone(), |_, _| ()).unwrap();
    let preset = Arc::new(started.settings.chosen().unwrap().clone());
    let plan = started.plan.unwrap();
    assert!(plan.to_string().contains("on an emulated GPU"), "{plan}");
    Stage { model: started.model, preset }
}

#[tokio::test]
async fn a_lost_gpu_is_opened_again_and_conversations_go_on_from_disk() {
    if !has_emulator() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(&[
        ("memory.disk_path", folder.path().to_str().unwrap()),
        ("memory.disk_min_tokens", "16"),
        ("memory.disk_idle_s", "0"),
        ("engine.gpu_prefill_chunk_tokens", "64"),
        ("engine.max_sequences", "2"),
    ]);
    let found = Found::default();
    let stage = on_a_gpu(&settings, &found);
    let mut messages = vec![said(User, "Good morning. Is it cold in the north?")];
    let first = stage.answer(stage.request(messages.clone(), 4)).await;
    assert_eq!((first.finish, first.usage.cached_tokens), (Some(Finish::Length), 0), "{first:?}");
    // It is on disk as soon as the service is quiet.
    while !on_disk::has_past(folder.path()) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    found.lock().unwrap().emulator.as_ref().unwrap().break_after(10);
    messages.push(said(Assistant, &first.content));
    messages.push(said(User, "And in the south?"));
    let lost = stage.answer(stage.request(messages.clone(), 4)).await.failure.unwrap();
    assert_eq!(lost.0, FailureCode::Unavailable);
    assert!(lost.1.contains("what it held is lost") && lost.1.contains("ask again"), "{}", lost.1);
    while stage.model.status().restarts == 0 {
        tokio::task::yield_now().await;
    }
    let again = stage.answer(stage.request(messages.clone(), 4)).await;
    assert_eq!(again.finish, Some(Finish::Length), "{again:?}");
    assert!(again.usage.cached_tokens > 0, "what was written was read: {again:?}");

    // And the host would have said the same.
    let host = stage_with(&[]).await;
    let theirs = host.answer(host.request(messages.clone(), 4)).await;
    assert_eq!(theirs.content, again.content);
}

/// A process that can never use its GPU again, as some failures leave it: the service learns of it and can start a new
/// one.
#[tokio::test]
async fn a_gpu_that_cannot_be_opened_any_more_is_told() {
    if !has_emulator() {
        return;
    }
    let tries = [("engine.reopen_s", "0"), ("engine.reopen_tries", "3"), ("engine.max_sequences", "2")];
    let settings = settings(&[&tries[..], &[("engine.gpu_prefill_chunk_tokens", "64")]].concat());
    let found = Found::default();
    let stage = on_a_gpu(&settings, &found);
    {
        let mut found = found.lock().unwrap();
        found.gone = true;
        found.emulator.as_ref().unwrap().break_after(10);
    }
    let lost = stage.answer(stage.request(user("Good morning."), 4)).await.failure.unwrap();
    assert_eq!(lost.0, FailureCode::Unavailable);
    stage.model.device_lost().await;
    let status = stage.model.status();
    assert!(!status.ready && status.trouble.as_ref().unwrap().contains("cannot be opened"), "{status:?}");
    // Without a new process the engine keeps trying.
    found.lock().unwrap().gone = false;
    while stage.model.status().restarts == 0 {
        tokio::task::yield_now().await;
    }
    let reply = stage.answer(stage.request(user("Good morning."), 4)).await;
    assert_eq!(reply.finish, Some(Finish::Length), "{reply:?}");
}
