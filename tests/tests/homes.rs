//! Whole homes, as Home Assistant's integrations send them, on a real engine: a small random model with a window that
//! holds them.

use serde_json::{Value, json};
use tests::service::{Service, run_ok};

const REQUESTS: &str = include_str!("../data/home/requests.jsonl");

/// Shape of a model as large as a test can wait for.
const SHAPE: &str = r#"
name = "Home"
layers = 4
attention_every = 4
hidden = 64
ffn = 128
q_heads = 2
kv_heads = 1
head_dim = 64
rope_dims = 32
rope_sections = [6, 5, 5, 0]
rope_theta = 10000000.0
key_heads = 2
value_heads = 2
key_dim = 32
value_dim = 32
conv_kernel = 4
rms_eps = 1e-6
vocab = 4096
native_ctx = 65536
tied = true
"#;

async fn service() -> Service {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("home.toml"), SHAPE).expect("it is written");
    run_ok(folder.path(), &["synth", "--shape", "home.toml", "--quant", "bf16", "--out", "home.gguf"]).await;
    let model = folder.path().join("home.gguf");
    let window = "65536"; // not a window: what the shape above says
    Service::with_model(folder, &model, &["--ctx-size", window, "--set", "preset.sampling.temperature=0"]).await
}

/// First turns of a home, streamed or not, through both doors.
fn homes() -> Vec<Value> {
    let records = REQUESTS.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    records.filter(|record| record["what"] == "first turn" && record["entities"].is_u64()).collect()
}

struct Answer {
    words: String,
    prompt: u64,
    /// Tokens computed for it, and for what was read ahead meanwhile.
    computed: u64,
    /// Cached tokens as chat completions count them.
    cached: Option<u64>,
}

async fn ask(service: &Service, path: &str, body: &Value) -> Answer {
    let mut body = body.clone();
    (body["stream"], body["model"]) = (json!(false), json!("default"));
    if path == "/api/chat" {
        body["options"]["num_predict"] = json!(8);
    } else {
        let fields = body.as_object_mut().expect("a body");
        fields.shift_remove("max_completion_tokens");
        fields.shift_remove("stream_options");
        body["max_tokens"] = json!(8);
    }
    let before = computed_of_all(service).await;
    let (status, text) = service.http("POST", path, &[], &body.to_string()).await;
    assert_eq!(status, 200, "{path}: {text}");
    let computed = computed_of_all(service).await - before;
    let reply: Value = serde_json::from_str(&text).expect("JSON");
    let message = if path == "/api/chat" { &reply["message"] } else { &reply["choices"][0]["message"] };
    let words = message["content"].as_str().unwrap_or_default().to_owned();
    let usage = &reply["usage"];
    let prompt = reply["prompt_eval_count"].as_u64().or(usage["prompt_tokens"].as_u64()).expect("tokens");
    Answer { words, prompt, computed, cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64() }
}

async fn computed_of_all(service: &Service) -> u64 {
    let (status, metrics) = service.http("GET", "/metrics", &[], "").await;
    assert_eq!(status, 200, "{metrics}");
    let name = "reprise_prompt_tokens_total{kind=\"computed\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap_or(0)
}

fn with_more(body: &Value, more: Value) -> Value {
    let mut body = body.clone();
    body["messages"].as_array_mut().expect("a list").extend(more.as_array().expect("a list").clone());
    body
}

#[tokio::test]
async fn a_home_is_read_once_and_then_only_what_is_new() {
    let service = service().await;
    let homes = homes();
    assert!(homes.len() >= 10, "{}", homes.len());
    for record in &homes {
        let (path, body) = (record["path"].as_str().expect("a path"), &record["body"]);
        let what = format!("{} with {} entities", record["client"], record["entities"]);
        let first = ask(&service, path, body).await;
        assert!(first.prompt > if record["entities"] == 60 { 2000 } else { 8000 }, "{what}: {} tokens", first.prompt);
        let next =
            json!([{ "role": "assistant", "content": first.words }, { "role": "user", "content": "And in the hall?" }]);
        let second = ask(&service, path, &with_more(body, next)).await;
        let (of_second, known) = (second.computed, second.cached.unwrap_or(first.prompt));
        assert!(second.prompt > first.prompt && known * 100 > first.prompt * 95, "{what}: {known} tokens are known");
        assert!(of_second * 100 < first.prompt * 5, "{what}: {of_second} tokens are computed in the second turn");
        // Another room: all but the sentence about it and what follows is the same.
        let mut other = body.clone();
        let system = other["messages"][0]["content"].as_str().expect("a prompt");
        assert!(system.contains("You are in area Kitchen"), "{what}");
        other["messages"][0]["content"] = json!(system.replace("You are in area Kitchen", "You are in area Attic"));
        let room = ask(&service, path, &other).await;
        let (of_room, known) = (room.computed, room.cached.unwrap_or(room.prompt));
        assert!(known * 100 > room.prompt * 80, "{what}: {known} tokens are known in another room");
        assert!(of_room * 100 < room.prompt * 20, "{what}: {of_room} tokens are computed in another room");
        println!("{what}: {} tokens; second turn {of_second}, another room {of_room} computed", first.prompt);
    }
    service.stop().await;
}

/// A line of the instructions changes at every turn: the head that is warm stays, and only the turn is computed.
#[tokio::test]
async fn a_clock_in_the_instructions_costs_its_line() {
    let service = service().await;
    let homes = homes();
    let home = homes.iter().filter(|record| record["path"] == "/v1/chat/completions");
    let home = home.max_by_key(|record| record["entities"].as_u64()).expect("a home over chat completions");
    let system = home["body"]["messages"][0]["content"].as_str().expect("a prompt").to_owned();
    let lines: Vec<&str> = system.lines().collect();
    for at in [0, lines.len() / 2] {
        let head = |turn: usize| {
            let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            lines.insert(at, format!("It is 8:0{turn} at {at}."));
            lines.join("\n")
        };
        let mut body = home["body"].clone();
        for turn in 1..=5 {
            body["messages"][0]["content"] = json!(head(turn));
            let answer = ask(&service, "/v1/chat/completions", &body).await;
            let (cached, prompt) = (answer.cached.expect("it is told"), answer.prompt);
            println!("clock in line {at}, turn {turn}: {cached} of {prompt} tokens are known");
            // Of the clock in the middle the first turn finds the head of the one at the top, with another line.
            assert!(turn < 2 || cached * 100 >= prompt * 95, "clock in line {at}, turn {turn}: {cached} of {prompt}");
            let next = [("assistant", answer.words.as_str()), ("user", "And in the hall?")];
            let next = next.map(|(role, content)| json!({ "role": role, "content": content }));
            body = with_more(&body, json!(next));
        }
    }
    service.stop().await;
}
