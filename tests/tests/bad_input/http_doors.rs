//! The doors that take a body over HTTP: what is good through each, and how each tells of a mistake.

use serde_json::{Value, json};
use tests::http::{HttpAnswer, raw, request};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ErrorForm {
    /// `{"error": {"message", "type", "param", "code"}}`
    OpenAi,
    /// `{"error": "text"}`
    Ollama,
}

pub struct HttpDoor {
    pub path: &'static str,
    pub form: ErrorForm,
    pub good: Value,
    /// The good request with every field that is read.
    pub full: Value,
    /// Fields that take more kinds than that of the full body, and the kinds.
    pub takes: &'static [(&'static str, &'static str)],
}

pub async fn post(address: &str, path: &str, body: &[u8]) -> HttpAnswer {
    raw(address, &request(address, "POST", path, &[("content-type", "application/json")], body))
        .await
        .expect("an answer")
}

impl HttpDoor {
    pub async fn post(&self, address: &str, body: &[u8]) -> HttpAnswer {
        post(address, self.path, body).await
    }

    pub fn takes(&self, field: &str, kind: &str) -> bool {
        self.takes.iter().any(|(known, kinds)| *known == field && kinds.split(' ').any(|known| known == kind))
    }
}

impl ErrorForm {
    pub fn message(self, answer: &HttpAnswer) -> Result<String, String> {
        let HttpAnswer { status, head, body } = answer;
        let wrong = |why: &str| format!("{why}: {status} {body:.400}");
        if !(400..500).contains(status) {
            return Err(wrong("it is no refusal"));
        }
        if !head.contains("content-type: application/json") {
            return Err(wrong("it is no JSON"));
        }
        let told: Value = serde_json::from_str(body).map_err(|error| wrong(&error.to_string()))?;
        let message = match self {
            ErrorForm::Ollama => told["error"].as_str(),
            ErrorForm::OpenAi => {
                let error = &told["error"];
                let param = &error["param"];
                if !error["type"].is_string() || !error["code"].is_string() || !(param.is_string() || param.is_null()) {
                    return Err(wrong("it is not in the form that clients read"));
                }
                error["message"].as_str()
            }
        };
        let message = message.ok_or_else(|| wrong("it has no message"))?;
        check_words(message).map_err(wrong)?;
        Ok(message.to_owned())
    }
}

/// Words of a service, short enough to be spoken, and none of the language that the service is written in.
pub fn check_words(message: &str) -> Result<(), &'static str> {
    const FOREIGN: [&str; 8] = ["Some(", "None", "Ok(", "Err(", "panicked", "::", ".rs", "at line 0"];
    match () {
        () if message.trim().is_empty() => Err("it has no words"),
        () if message.chars().count() > 400 => Err("nobody listens so long"),
        () if message.chars().any(char::is_control) => Err("it has control characters"),
        () if FOREIGN.iter().any(|foreign| message.contains(foreign)) => Err("it is in Rust"),
        () => Ok(()),
    }
}

/// Each of them but the sockets.
pub fn doors() -> Vec<HttpDoor> {
    let talk = json!([{ "role": "user", "content": "Hi." }]);
    vec![
        HttpDoor {
            path: "/v1/chat/completions",
            form: ErrorForm::OpenAi,
            good: json!({ "messages": talk, "max_tokens": 1 }),
            full: read(include_str!("full/chat.json")),
            takes: &[
                ("messages.*.content", "string"),
                ("messages.*.content.*", "string"),
                ("messages.*.tool_calls.*.function.arguments", "object"),
            ],
        },
        HttpDoor {
            path: "/v1/completions",
            form: ErrorForm::OpenAi,
            good: json!({ "prompt": "Hi.", "max_tokens": 1 }),
            full: read(include_str!("full/completions.json")),
            takes: &[("prompt", "string"), ("prompt.*", "string")],
        },
        HttpDoor {
            path: "/api/chat",
            form: ErrorForm::Ollama,
            good: json!({ "model": "default", "stream": false, "messages": talk, "options": { "num_predict": 1 } }),
            full: read(include_str!("full/ollama_chat.json")),
            takes: &[
                ("options.stop", "string"),
                ("messages.*.tool_calls.*.function.arguments.a", "bool string list object"),
            ],
        },
        HttpDoor {
            path: "/api/generate",
            form: ErrorForm::Ollama,
            good: json!({ "model": "default", "stream": false, "prompt": "Hi.", "options": { "num_predict": 1 } }),
            full: read(include_str!("full/ollama_generate.json")),
            takes: &[],
        },
        HttpDoor {
            path: "/api/pull",
            form: ErrorForm::Ollama,
            good: json!({ "model": "default", "stream": false }),
            full: read(include_str!("full/ollama_pull.json")),
            takes: &[],
        },
        HttpDoor {
            path: "/v1/responses",
            form: ErrorForm::OpenAi,
            good: json!({ "input": "Hi.", "max_output_tokens": 16, "store": false }),
            full: read(include_str!("full/responses.json")),
            takes: &[
                ("input", "string"),
                ("input.*.content", "string"),
                // A tool that gave an object may not have written it out.
                ("input.*.output", "bool number object"),
            ],
        },
    ]
}

fn read(json: &str) -> Value {
    serde_json::from_str(json).expect("a body")
}
