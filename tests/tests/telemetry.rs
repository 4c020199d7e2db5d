//! Traces and numbers for a collector, with the real binary and a stand-in that speaks OTLP.

use serde_json::{Value, json};
use std::path::Path;
use tests::client::user;
use tests::collector::{StandInCollector, Taken, TakenSpan};
use tests::service::Service;
use tests::upstream::StandIn;
use tokio::net::TcpListener;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const ABOVE: &str = "b7ad6b7169203331";

fn trace_parent(flags: &str) -> String {
    format!("00-{TRACE}-{ABOVE}-{flags}")
}

fn set(collector: &str) -> [String; 4] {
    ["--set".into(), format!("telemetry.otlp={collector}"), "--set".into(), "telemetry.send_every_ms=50".into()]
}

fn within(part: &TakenSpan, whole: &TakenSpan) {
    assert_eq!((&part.trace, &part.parent), (&whole.trace, &whole.id), "{part:#?} in {whole:#?}");
    assert!(whole.from_ns <= part.from_ns && part.from_ns <= part.to_ns && part.to_ns <= whole.to_ns, "{part:#?}");
}

#[tokio::test]
async fn a_turn_is_traced_from_its_client_through_its_tool_to_its_upstream() {
    let (collector, mut upstream) = (StandInCollector::start(), StandIn::start().await);
    let url = format!("upstream.url={}", upstream.url);
    let service =
        Service::start(&[&set(&collector.url).each_ref().map(String::as_str)[..], &["--set", &url]].concat()).await;
    let mut client = service.connect("").await;
    let id = client.session_id().await;
    client.say(user("My code word is pomegranate.")).await;
    let tools = json!([{"type": "function", "name": "lamp", "parameters": {"type": "object"}}]);
    client
        .say(json!({"type": "response.create", "traceparent": trace_parent("01"), "response": {"tools": tools}}))
        .await;
    let asked = upstream.next().await;
    let first_place = asked.trace_parent.clone().expect("the service sends its upstream a traceparent");
    asked.call("lamp", &json!({"on": "pomegranate"})).await;
    let done = client.until("response.done").await;
    let call_id = done["response"]["output"][0]["call_id"].as_str().expect("a call").to_owned();
    let output = json!({"type": "function_call_output", "call_id": call_id, "output": "pomegranate"});
    client.say(json!({"type": "conversation.item.create", "item": output})).await;
    client.say(json!({"type": "response.create"})).await;
    let mut asked = upstream.next().await;
    asked.say("It is on, pomegranate.").await;
    asked.done().await;
    client.until("response.done").await;
    // A response that no trace is behind has one of its own.
    client.say(user("And now?")).await;
    client.say(json!({"type": "response.create"})).await;
    upstream.next().await.done().await;
    client.until("response.done").await;

    let taken = collector.until(|taken| taken.named("invoke_agent reprise").len() == 3);
    let turns = taken.named("invoke_agent reprise");
    let [first, second, third] = [turns[0], turns[1], turns[2]];
    assert_eq!((first.trace.as_str(), first.parent.as_str()), (TRACE, ABOVE));
    assert_eq!(
        (&second.trace, &second.parent),
        (&first.trace, &first.id),
        "the turn with the result is in the trace of the call"
    );
    assert!(third.trace != first.trace && third.parent.is_empty(), "{third:#?}");
    for (at, turn) in turns.iter().enumerate() {
        assert_eq!(turn.attributes["gen_ai.conversation.id"], id);
        assert_eq!(turn.attributes["reprise.response.status"], "completed");
        let parts =
            |name: &str| taken.named(name).into_iter().filter(|span| span.parent == turn.id).collect::<Vec<_>>();
        assert_eq!((parts("store").len(), parts("chat default").len()), (1, 1), "turn {at}: {:#?}", taken.spans);
        within(parts("store")[0], turn);
        within(parts("chat default")[0], turn);
    }
    let chat = taken.named("chat default").into_iter().find(|span| span.parent == first.id).unwrap();
    assert_eq!(first_place, format!("00-{}-{}-01", chat.trace, chat.id));
    let [tool] = taken.named("execute_tool lamp")[..] else { panic!("{:#?}", taken.spans) };
    assert_eq!((&tool.trace, &tool.parent), (&first.trace, &first.id));
    assert_eq!(
        (&tool.attributes["gen_ai.tool.name"], &tool.attributes["gen_ai.tool.call.id"]),
        (&"lamp".into(), &call_id)
    );
    assert!(!holds(&taken, "pomegranate"), "what is said leaves the house");
}

fn holds(taken: &Taken, word: &str) -> bool {
    taken.bytes.windows(word.len()).any(|bytes| bytes == word.as_bytes())
}

#[tokio::test]
async fn an_answer_over_http_tells_what_it_waited_for() {
    let collector = StandInCollector::start();
    let folder = tempfile::tempdir().unwrap();
    let settings = [&set(&collector.url)[..], &["--set".into(), "telemetry.numbers_every_s=1".into()]].concat();
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let headers = [("OTEL_EXPORTER_OTLP_HEADERS", Path::new("x-key=abc"))];
    let service = Service::with_environment(folder, &headers, &settings).await;
    let ask = async |flags: &str| {
        let body = json!({"model": "default", "max_tokens": 8, "messages": [{"role": "user", "content": "Hello."}]});
        let (status, said) = service
            .http("POST", "/v1/chat/completions", &[("traceparent", &trace_parent(flags))], &body.to_string())
            .await;
        assert_eq!(status, 200, "{said}");
        serde_json::from_str::<Value>(&said).unwrap()["usage"].clone()
    };
    // The collector gets no spans of this answer, only its numbers: the client does not record its trace.
    ask("00").await;
    let usage = ask("01").await;

    let told = |taken: &Taken| {
        let answers = taken.number("gen_ai.server.request.duration", &[]);
        answers.is_some_and(|number| number.count == 2) && !taken.named("chat default").is_empty()
    };
    let taken = collector.until(told);
    let [answer] = taken.named("chat default")[..] else { panic!("{:#?}", taken.spans) };
    assert_eq!((answer.trace.as_str(), answer.parent.as_str()), (TRACE, ABOVE));
    for (attribute, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.request.max_tokens", "8"),
        ("gen_ai.usage.input_tokens", &usage["prompt_tokens"].to_string()),
        ("gen_ai.usage.output_tokens", &usage["completion_tokens"].to_string()),
        ("gen_ai.response.finish_reasons", "length"),
    ] {
        assert_eq!(answer.attributes[attribute], value, "{attribute}");
    }
    let mut ended_ns = answer.from_ns;
    for name in ["queue", "prefill", "first token", "decode"] {
        let [part] = taken.named(name)[..] else { panic!("{name}: {:#?}", taken.spans) };
        within(part, answer);
        // Times are rounded where they are measured.
        assert!(part.from_ns.abs_diff(ended_ns) < 1_000_000, "{name} begins where the part before it ends: {part:#?}");
        ended_ns = part.to_ns;
    }
    for (name, with, count) in [
        ("gen_ai.server.time_to_first_token", &[][..], 2),
        ("gen_ai.server.time_per_output_token", &[], 2),
        ("gen_ai.client.token.usage", &[("gen_ai.token.type", "input")], 2),
        ("gen_ai.client.token.usage", &[("gen_ai.token.type", "output")], 2),
    ] {
        let number = taken.number(name, with).unwrap_or_else(|| panic!("{name}: {:#?}", taken.numbers));
        assert_eq!(number.count, count, "{name}");
    }
    let read = taken.number("gen_ai.client.token.usage", &[("gen_ai.token.type", "output")]).unwrap();
    assert!((read.sum - 16.0).abs() < 1e-9, "{read:?}");
    assert!(taken.keys.iter().all(|key| key == "abc") && !taken.keys.is_empty());
}

#[tokio::test]
async fn no_turn_waits_for_a_dead_collector() {
    // It takes connections and never answers.
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", dead.local_addr().unwrap());
    let settings = [
        &set(&url)[..],
        &["telemetry.timeout_ms=50", "telemetry.queue_spans=2", "telemetry.numbers_every_s=1"]
            .map(|set| ["--set".to_owned(), set.to_owned()])
            .concat(),
    ]
    .concat();
    let service = Service::start(&settings.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let body = json!({"model": "default", "max_tokens": 2, "messages": [{"role": "user", "content": "Hello."}]});
    let failed = async || {
        let (_, metrics) = service.http("GET", "/metrics", &[], "").await;
        metrics.lines().any(|line| line.starts_with("reprise_telemetry_posts_total{taken=\"no\"}"))
    };
    let mut turns = 0;
    while turns < 10 || !failed().await {
        let (status, said) = service.http("POST", "/v1/chat/completions", &[], &body.to_string()).await;
        assert_eq!(status, 200, "{said}");
        turns += 1;
    }
    service.stop().await;
}
