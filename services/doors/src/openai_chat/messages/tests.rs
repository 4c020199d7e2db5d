//! Bodies to prompts, and what the makers' template prints of them.

use super::*;
use text::template::options_json;
use text::{Template, TemplateInput};

fn read(file: &str) -> Value {
    let path = format!("{}/../../tests/data/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Checks the text against that of Python's Jinja, which takes tags that a user typed for the template's own.
fn check(case: &Value, prompt: &Prompt) {
    let is_typed = |message: &Message| {
        let text = message.text();
        message.role == MessageRole::User
            && text.trim().starts_with("<tool_response>")
            && text.trim().ends_with("</tool_response>")
    };
    if prompt.messages.iter().any(is_typed) {
        return;
    }
    let path = format!("{}/../../tests/data/reference/chat_template.jinja", env!("CARGO_MANIFEST_DIR"));
    let template = Template::new(&std::fs::read_to_string(path).unwrap()).unwrap();
    match (template.render(&TemplateInput::of(prompt)), case["text"].as_str(), case["refused"].as_str()) {
        (Ok(rendered), Some(text), None) => assert_eq!(rendered.text, text, "{}", case["name"]),
        (Err(text::Error::Refused(words)), None, Some(refused)) => assert_eq!(words, refused, "{}", case["name"]),
        (outcome, ..) => panic!("{}: {outcome:?}", case["name"]),
    }
}

#[test]
fn bodies_of_chat_completions_mean_what_the_template_wants() {
    let file: Value = read("reference-extra/more_prompts.json");
    let mut count = 0;
    for case in file["cases"].as_array().unwrap().iter().filter(|case| case.get("body").is_some()) {
        let prompt = prompt_of(&case["body"]).unwrap();
        assert_eq!(Value::from(options_json(&prompt.options)), case["options"], "{}", case["name"]);
        check(case, &prompt);
        count += 1;
    }
    assert!(count >= 10);
    // The input of transformers is itself a valid body.
    let cases = read("reference/prompts.json");
    for case in cases.as_array().unwrap().iter().chain(file["cases"].as_array().unwrap()) {
        let body =
            json!({"messages": case["messages"], "tools": case["tools"], "chat_template_kwargs": case["options"]});
        // A part that is a bare string, and values of a wrong type, are either read or refused before the template.
        let starts = ["parts: strings", "content: a ", "thinking: reasoning_content empty", "role: unknown"];
        let strange = starts.iter().any(|start| case["name"].as_str().unwrap().starts_with(start));
        match prompt_of(&body) {
            Ok(prompt) if !strange => check(case, &prompt),
            Ok(_) => {}
            Err(error) => assert!(strange || case["name"] == "content: true", "{}: {error}", case["name"]),
        }
    }
}

#[test]
fn wrong_bodies_are_told_where_they_are_wrong() {
    let user = json!({"role": "user", "content": "x"});
    let call = |arguments: Value| json!({"messages": [user, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}]});
    let cases = [
        (json!([]), "the body is an array, but must be an object"),
        (json!({"messages": {}}), "messages is an object, but must be an array"),
        (json!({"messages": ["x"]}), "messages[0] is a string, but must be an object"),
        (json!({"messages": [{"content": "x"}]}), "messages[0].role is missing"),
        (json!({"messages": [{"role": 5}]}), "messages[0].role is a number, but must be a string"),
        (
            json!({"messages": [user, {"role": "user", "content": 5}]}),
            "messages[1].content is a number, but must be a string or an array of parts",
        ),
        (
            json!({"messages": [{"role": "user", "content": [5]}]}),
            "messages[0].content[0] is a number, but must be a part",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"text": null}]}]}),
            "messages[0].content[0].text is null, but must be a string",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": {}}]}),
            "messages[0].tool_calls is an object, but must be an array",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}),
            "messages[0].tool_calls[0] has no function name",
        ),
        (
            call(json!("{\"a\": ")),
            "the arguments of messages[1].tool_calls[0] are not JSON: EOF while parsing a value at line 1 column 6",
        ),
        (call(json!("[1]")), "messages[1].tool_calls[0].arguments is an array, but must be an object"),
        (json!({"messages": [], "tools": [1]}), "tools[0] is a number, but must be an object"),
        (
            json!({"messages": [], "tools": [{"function": {"name": "f", "parameters": []}}]}),
            "tools[0].function.parameters is an array, but must be a JSON schema",
        ),
        (
            json!({"messages": [{"role": "tool", "tool_call_id": 1}]}),
            "messages[0].tool_call_id is a number, but must be a string",
        ),
        (
            json!({"messages": [], "reasoning_effort": "huge"}),
            "reasoning_effort is \"huge\", allowed are none, minimal, low, medium, high, xhigh, max",
        ),
        (json!({"messages": [], "enable_thinking": "no"}), "enable_thinking is a string, but must be true or false"),
        (json!({"messages": [], "chat_template_kwargs": 1}), "chat_template_kwargs is a number, but must be an object"),
    ];
    for (body, expected) in cases {
        let message = prompt_of(&body).unwrap_err().message;
        assert_eq!(message, format!("the request is not valid: {expected}"), "{body}");
    }
    let missing = prompt_of(&json!({})).unwrap_err();
    assert_eq!((missing.code, missing.param.as_deref()), ("missing_required_parameter", Some("messages")));
}

#[test]
fn options_are_passed_through_and_images_counted() {
    let body = json!({
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}, {"type": "text", "text": "x"}, "y"]}],
        "chat_template_kwargs": {"preserve_thinking": true, "enable_thinking": false},
        "reasoning_effort": "low", "unknown": {"a": 1}});
    let prompt = prompt_of(&body).unwrap();
    assert_eq!(prompt.messages[0].images(), 1);
    assert_eq!(
        Value::from(options_json(&prompt.options)),
        json!({"add_generation_prompt": true, "enable_thinking": false, "reasoning_effort": "low", "preserve_thinking": true})
    );
}
