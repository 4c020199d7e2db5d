//! Bad JSON for any door, and a wrong type for every field of a good body.

use serde_json::{Value, json};

/// Depth at which no reader goes on.
const DEEP: usize = 100_000;

pub fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let bytes = |text: &str| text.as_bytes().to_vec();
    let nested = |open: &str, close: &str, depth: usize| bytes(&(open.repeat(depth) + "1" + &close.repeat(depth)));
    vec![
        ("words", bytes("turn on the lamp")),
        ("a body that is cut off", bytes(r#"{"model":"default","messages":[{"ro"#)),
        ("single quotes", bytes("{'model':'default'}")),
        ("a number that is none", bytes(r#"{"model":NaN}"#)),
        ("two bodies", bytes("{} {}")),
        ("a comma too many", bytes(r#"{"model":"default",}"#)),
        ("a null", bytes("null")),
        ("a number", bytes("3")),
        ("a text", bytes(r#""hello""#)),
        ("a list", bytes("[]")),
        ("a text of invalid UTF-8", b"{\"model\":\"\xff\xfe\",\"messages\":[]}".to_vec()),
        ("a key of invalid UTF-8", b"{\"mod\xc3\x28el\":\"default\"}".to_vec()),
        ("half of a surrogate pair", bytes(r#"{"model":"\ud800"}"#)),
        ("a line break in a text", bytes("{\"model\":\"a\nb\"}")),
        ("bytes without sense", (0..=255).collect()),
        ("lists in lists", nested("[", "]", DEEP)),
        ("objects in objects", nested("{\"a\":", "}", DEEP)),
        ("lists that never end", bytes(&"[".repeat(DEEP))),
        ("lists in a field", bytes(&format!("{{\"messages\":{}1{}}}", "[".repeat(200), "]".repeat(200)))),
    ]
}

/// A value of each kind.
const KINDS: [&str; 5] = ["bool", "number", "string", "list", "object"];

fn value_of(kind: &str) -> Value {
    match kind {
        "bool" => json!(true),
        "number" => json!(7.5),
        "string" => json!("wrong"),
        "list" => json!([[]]),
        _ => json!({ "wrong": [] }),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

pub struct WrongField {
    /// `messages.*.content`.
    pub field: String,
    pub kind: &'static str,
    pub body: Value,
}

/// Every field of the body, also inside, with every kind that it has not.
pub fn wrong_fields(body: &Value) -> Vec<WrongField> {
    let mut pointers = Vec::new();
    collect(body, String::new(), &mut pointers);
    let mut wrong = Vec::new();
    for pointer in pointers {
        let own = kind_of(body.pointer(&pointer).expect("it was collected"));
        let part = |part: &str| if part.parse::<usize>().is_ok() { "*".to_owned() } else { part.to_owned() };
        let field = pointer.split('/').skip(1).map(part).collect::<Vec<_>>().join(".");
        for kind in KINDS.into_iter().filter(|kind| *kind != own) {
            let mut body = body.clone();
            *body.pointer_mut(&pointer).expect("it was collected") = value_of(kind);
            wrong.push(WrongField { field: field.clone(), kind, body });
        }
    }
    wrong
}

/// The body with each of its fields of this kind replaced.
pub fn with_every(body: &Value, kind: &str, value: &Value) -> Vec<Value> {
    let mut pointers = Vec::new();
    collect(body, String::new(), &mut pointers);
    pointers.retain(|pointer| kind_of(body.pointer(pointer).expect("it was collected")) == kind);
    let replaced = |pointer: String| {
        let mut body = body.clone();
        *body.pointer_mut(&pointer).expect("it was collected") = value.clone();
        body
    };
    pointers.into_iter().map(replaced).collect()
}

fn collect(value: &Value, pointer: String, all: &mut Vec<String>) {
    if !pointer.is_empty() {
        all.push(pointer.clone());
    }
    match value {
        Value::Array(entries) => {
            for (at, entry) in entries.iter().enumerate() {
                collect(entry, format!("{pointer}/{at}"), all);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                collect(value, format!("{pointer}/{name}"), all);
            }
        }
        _ => {}
    }
}

/// Numbers beyond every range, for a field that is a number.
pub fn wrong_numbers() -> [Value; 4] {
    [json!(-1), json!(1e300), json!(u64::MAX), json!(i64::MIN)]
}

/// More messages than any window holds.
pub fn huge_history() -> Value {
    (0..1500)
        .map(|at| json!({ "role": if at % 2 == 0 { "user" } else { "assistant" }, "content": "Is it late already?" }))
        .collect()
}
