//! Random messages and events: none harms, and every frame is as the schema says.

use super::*;
use proptest::prelude::*;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "message",
            "function_call",
            "function_call_output",
            "item_reference",
            "user",
            "assistant",
            "input_text",
            "auto",
            "none",
            "inf",
            "root",
            "function",
            "",
            "x",
        ])
        .prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "type",
        "event_id",
        "session",
        "item",
        "item_id",
        "previous_item_id",
        "content",
        "content_index",
        "text",
        "role",
        "id",
        "call_id",
        "name",
        "arguments",
        "output",
        "response",
        "input",
        "conversation",
        "metadata",
        "tools",
        "tool_choice",
        "max_output_tokens",
        "temperature",
        "reasoning",
        "effort",
        "extensions",
        "audio_end_ms",
        "text_end",
        "instructions",
        "create_response",
        "response_id",
        "function",
        "parameters",
        "output_modalities",
    ]);
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..8)
                .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn no_message_can_harm(kind in prop::sample::select(vec![
        "session.update", "conversation.item.create", "conversation.item.retrieve", "conversation.item.truncate",
        "conversation.item.delete", "response.create", "response.cancel", "response.stop_thinking", "input_text_buffer.update",
        "input_text_buffer.commit", "input_audio_buffer.append", "?",
    ]), mut value in any_json(), text in "\\PC{0,60}") {
        let _ = parse(&text, &LIMITS);
        if let Some(map) = value.as_object_mut() {
            map.insert("type".into(), kind.into());
        }
        match read(value.clone()) {
            Ok(_) => {}
            Err(error) => {
                let mut renderer = Renderer::new(Arc::new(AtomicBool::new(false)), 7);
                let frame: Value = serde_json::from_str(&renderer.error(&error)).unwrap();
                prop_assert!(check_against_schema("server_event", &frame).is_ok(), "{}", frame);
            }
        }
    }
}

fn any_item() -> impl Strategy<Value = Item> {
    let text = || "\\PC{0,12}";
    let role = prop::sample::select(vec![Role::User, Role::Assistant, Role::System]);
    let body = prop_oneof![
        (role, prop::collection::vec(text(), 0..3), prop::option::of(text())).prop_map(|(role, parts, name)| {
            let speaker = name.map(|name| NamedSpeaker { name, person: None });
            ItemBody::Message { role, parts, speaker }
        }),
        (text(), text(), text()).prop_map(|(call_id, name, arguments)| ItemBody::FunctionCall {
            call_id,
            name,
            arguments
        }),
        (text(), text()).prop_map(|(call_id, output)| ItemBody::FunctionCallOutput { call_id, output }),
    ];
    let status = prop::sample::select(vec![ItemStatus::InProgress, ItemStatus::Completed, ItemStatus::Incomplete]);
    (text(), body, status).prop_map(|(id, body, status)| Item::new(id, body, status))
}

fn any_response() -> impl Strategy<Value = Box<Response>> {
    use ResponseStatus::*;
    let status = prop::sample::select(vec![InProgress, Completed, Cancelled, Incomplete, Failed]);
    let failed = "\\PC{0,12}".prop_map(|why| StatusDetails::Failed(Failure::new(FailureCode::Busy, why)));
    let details = prop_oneof![Just(StatusDetails::Cancelled), Just(StatusDetails::MaxOutputTokens), failed];
    let output = prop::collection::vec(any_item(), 0..3);
    (status, prop::option::of(details), output, any::<(u32, bool, bool)>()).prop_map(
        |(status, details, output, (tokens, in_conversation, has_usage))| {
            Box::new(Response {
                details,
                output,
                conversation_id: in_conversation.then(|| "conv_1".into()),
                max_output_tokens: MaxTokens::Tokens(tokens),
                usage: has_usage.then(|| Usage { input_tokens: tokens.into(), ..Usage::default() }),
                ..response(status)
            })
        },
    )
}

/// Draws an event of those whose fields are a reply's or a client's words.
fn any_event() -> impl Strategy<Value = Event> {
    let text = || "\\PC{0,12}";
    let place = || prop::option::of(prop::option::of(text()).prop_map(|id| Placed { previous_item_id: id }));
    prop_oneof![
        (any_item(), prop::option::of(text()), any::<bool>())
            .prop_map(|(item, previous_item_id, is_new)| Event::ItemAdded { item, previous_item_id, is_new }),
        any_item().prop_map(|item| Event::ItemRead { item }),
        (text(), any::<(usize, u64, usize)>()).prop_map(|(item_id, (part, heard_ms, heard_chars))| {
            Event::ItemTruncated { item_id, part, heard_ms, heard_chars }
        }),
        text().prop_map(|item_id| Event::ItemDeleted { item_id }),
        (prop::option::of(text()), text())
            .prop_map(|(input_id, item_id)| { Event::Refused { input_id, refusal: Refusal::ItemExists { item_id } } }),
        any_response().prop_map(|response| Event::ResponseStarted { response }),
        any_response().prop_map(|response| Event::ResponseDone { response }),
        (text(), any::<usize>(), any_item(), place()).prop_map(|(response_id, output_index, item, place)| {
            Event::ReplyStarted { response_id, output_index, item, place }
        }),
        (text(), any::<usize>(), any_item(), place()).prop_map(|(response_id, output_index, item, place)| {
            Event::ReplyDone { response_id, output_index, item, place }
        }),
        (text(), text(), text()).prop_map(|(response_id, item_id, text)| {
            Event::TextDelta { response_id, item_id, output_index: 0, text, logprobs: Vec::new() }
        }),
        (text(), text(), text()).prop_map(|(response_id, item_id, text)| Event::TextDone {
            response_id,
            item_id,
            output_index: 0,
            text
        }),
        (text(), text(), text()).prop_map(|(response_id, call_id, json)| {
            Event::ArgumentsDelta { response_id, item_id: "i".into(), output_index: 1, call_id, json }
        }),
        (text(), text(), any::<usize>(), prop::option::of(text()))
            .prop_map(|(response_id, query, places, note)| Event::RecallDone { response_id, query, places, note }),
    ]
}

proptest! {
    #[test]
    fn whatever_a_session_tells_is_written_as_the_schema_says(
        events in prop::collection::vec(any_event(), 0..20),
        extensions in any::<bool>(),
    ) {
        let mut renderer = Renderer::new(Arc::new(AtomicBool::new(extensions)), 7);
        let mut frames = Vec::new();
        events.iter().for_each(|event| renderer.render(event, &mut frames));
        let mut event_ids = std::collections::HashSet::new();
        for frame in frames {
            let frame: Value = serde_json::from_str(&frame).unwrap();
            let checked = check_against_schema("server_event", &frame);
            prop_assert!(checked.is_ok(), "{}: {:?}", frame, checked);
            prop_assert!(event_ids.insert(frame["event_id"].to_string()), "{}", frame);
            prop_assert!(extensions || frame["type"] != "response.recall.done", "{}", frame);
        }
    }
}
