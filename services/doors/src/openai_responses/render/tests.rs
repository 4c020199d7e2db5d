//! Events of a response, in the order of their frames.

use super::*;
use session::machine::OneShot;
use session::{Delta, FailureCode, Finish, MaxTokens};

fn reply(shape: FrameShape, tells_reasoning: bool) -> ResponsesReply {
    let base = json!({ "model": "m", "created_at": 1, "tools": [] }).as_object().cloned().unwrap();
    ResponsesReply::new("resp_1".into(), base, tells_reasoning, shape)
}

fn frames(mut reply: ResponsesReply, deltas: Vec<Delta>) -> (Vec<Value>, ResponsesReply) {
    let mut one_shot = OneShot::new("resp_1".into(), MaxTokens::Unlimited, 1);
    let (mut events, mut frames) = (Vec::new(), Vec::new());
    deltas.into_iter().for_each(|delta| one_shot.delta(delta, &mut events));
    events.iter().for_each(|event| reply.add(event, &mut frames).unwrap());
    (frames.iter().map(|frame| serde_json::from_str(frame).unwrap()).collect(), reply)
}

fn done(finish: Finish) -> Delta {
    Delta::Done { finish, usage: None, report: None }
}

fn thought(text: &str) -> Delta {
    Delta::Reasoning { text: text.into(), tokens: 1 }
}

fn kinds(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap().trim_start_matches("response.")).collect()
}

#[test]
fn text_comes_in_the_order_that_strict_readers_need() {
    let deltas = vec![thought("Hm."), Delta::text("Hi", 1), Delta::text(" there.", 1), done(Finish::Stop)];
    let (frames, reply) = frames(reply(FrameShape::Message, false), deltas);
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(kinds(&frames), expected);
    for (at, frame) in frames.iter().enumerate() {
        assert_eq!(frame["sequence_number"], at);
    }
    let id = &frames[2]["item"]["id"];
    assert_eq!(frames[2]["item"]["content"], json!([]));
    for frame in &frames[3..8] {
        assert_eq!((&frame["item_id"], &frame["output_index"], &frame["content_index"]), (id, &json!(0), &json!(0)));
    }
    assert_eq!((&frames[5]["delta"], &frames[5]["logprobs"]), (&json!(" there."), &json!([])));
    assert_eq!(frames[6]["text"], "Hi there.");
    let response = &frames[9]["response"];
    assert_eq!(response["output"], json!([frames[8]["item"]]));
    assert_eq!(response["output"][0]["content"][0]["text"], "Hi there.");
    assert_eq!((&response["status"], &response["id"]), (&json!("completed"), &json!("resp_1")));
    assert_eq!(response["usage"]["input_tokens_details"], json!({ "cached_tokens": 0, "cache_write_tokens": 0 }));
    assert_eq!(response["usage"]["output_tokens_details"]["reasoning_tokens"], 1);
    assert!(reply.is_over());
    assert_eq!(reply.whole(), *response);
}

#[test]
fn arguments_come_as_deltas_and_never_with_the_begin() {
    let call = |name: &str| Delta::CallStarted { name: name.into(), call_id: None };
    let arguments = |json: &str| Delta::CallArguments { json: json.into(), tokens: 1 };
    let deltas = vec![call("light"), arguments("{\"on\":"), arguments("true}"), call("time"), done(Finish::ToolCalls)];
    let (frames, _) = frames(reply(FrameShape::Message, false), deltas);
    let added: Vec<&Value> = frames.iter().filter(|frame| frame["type"] == "response.output_item.added").collect();
    assert_eq!((&added[0]["item"]["name"], &added[0]["item"]["arguments"]), (&json!("light"), &json!("")));
    assert_eq!((&added[1]["output_index"], &added[1]["item"]["arguments"]), (&json!(1), &json!("")));
    for (index, expected) in ["{\"on\":true}", "{}"].into_iter().enumerate() {
        let of = |kind: &str| -> Vec<&Value> {
            let is_it = |frame: &&Value| frame["type"] == kind && frame["output_index"] == index;
            frames.iter().filter(is_it).collect()
        };
        let deltas = of("response.function_call_arguments.delta");
        let all: String = deltas.iter().map(|frame| frame["delta"].as_str().unwrap()).collect();
        assert_eq!(all, expected);
        assert_eq!(of("response.function_call_arguments.done")[0]["arguments"], expected);
        assert_eq!(of("response.output_item.done")[0]["item"]["arguments"], expected);
    }
}

#[test]
fn a_client_that_wants_it_is_told_what_the_model_thought() {
    let deltas = vec![thought("Hm"), thought("."), Delta::text("Hi", 1), done(Finish::Stop)];
    let (frames, _) = frames(reply(FrameShape::Message, true), deltas);
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
    ];
    assert_eq!(kinds(&frames)[..10], expected);
    assert_eq!(frames[8]["item"]["summary"], json!([{ "type": "summary_text", "text": "Hm." }]));
    assert_eq!((&frames[8]["output_index"], &frames[9]["output_index"]), (&json!(0), &json!(1)));
    let output = frames.last().unwrap()["response"]["output"].as_array().unwrap().clone();
    assert_eq!((&output[0]["type"], &output[1]["type"]), (&json!("reasoning"), &json!("message")));
}

#[test]
fn a_response_always_ends_with_an_event_that_clients_know() {
    for (finish, kind, status, details) in [
        (Finish::Length, "response.incomplete", "incomplete", json!({ "reason": "max_output_tokens" })),
        (Finish::Cancelled, "response.incomplete", "cancelled", Value::Null),
    ] {
        let (frames, _) = frames(reply(FrameShape::Message, false), vec![Delta::text("Hi", 1), done(finish)]);
        let last = frames.last().unwrap();
        assert_eq!((&last["type"], &last["response"]["status"]), (&json!(kind), &json!(status)));
        assert_eq!(last["response"]["incomplete_details"], details);
        assert_eq!(last["response"]["output"][0]["status"], "incomplete");
    }
    let failure = Failure::new(FailureCode::EngineFailed, "the engine failed");
    let (frames, _) = frames(reply(FrameShape::Message, false), vec![Delta::text("Hi", 1), Delta::Failed(failure)]);
    let last = frames.last().unwrap();
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["error"], json!({ "code": "server_error", "message": "the engine failed" }));
}

#[test]
fn errors_are_flat_in_a_stream_and_an_object_on_a_websocket() {
    let failure = Failure::new(FailureCode::Unavailable, "the service stops");
    let mut out = Vec::new();
    reply(FrameShape::Sse, false).failed(&failure, &mut out);
    let data = out[0].strip_prefix("event: error\ndata: ").expect(&out[0]).trim_end();
    let flat: Value = serde_json::from_str(data).unwrap();
    assert_eq!((&flat["code"], &flat["message"]), (&json!("model_unavailable"), &json!("the service stops")));
    assert!(flat.get("error").is_none() && flat["sequence_number"] == 0, "{flat}");
    reply(FrameShape::Message, false).failed(&failure, &mut out);
    let frame: Value = serde_json::from_str(&out[1]).unwrap();
    assert_eq!((&frame["status"], &frame["error"]["message"]), (&json!(500), &json!("the service stops")));
}
