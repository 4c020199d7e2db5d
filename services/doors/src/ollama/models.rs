//! Models, for clients that list, choose and fetch them.

use super::render::timestamp;
use super::untagged;
use crate::ApiError;
use crate::json::{check_name, read_fields};
use access::Caller;
use axum::body::Bytes;
use axum::extract::State;
use axum::{Extension, Json};
use replies::Completions;
use runtime::ModelChoice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::LazyLock;

#[derive(Serialize)]
struct ListedModel {
    name: String,
    model: String,
    modified_at: String,
    size: u64,
    digest: String,
    details: Details,
    /// The window. Only of a model in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    context_length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_vram: Option<u64>,
}

#[derive(Serialize)]
struct Details {
    parent_model: &'static str,
    format: &'static str,
    family: String,
    families: Vec<String>,
    parameter_size: &'static str,
    quantization_level: &'static str,
}

#[derive(Deserialize, JsonSchema)]
pub struct NamedModel {
    /// `name` in older clients.
    #[serde(alias = "name")]
    pub model: String,
    pub stream: Option<bool>,
}

/// The model stays in memory while the service runs.
const NEVER: &str = "2318-04-10T00:00:00Z";

/// Seconds since 1970 at which the service was first asked: the models of a service are those that it started with.
static FIRST_ASKED: LazyLock<i64> = LazyLock::new(|| runtime::wall_ms() / 1000);

pub async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// `GET /api/tags`: presets, the chosen one first, and personas.
pub async fn tags(State(completions): State<Completions>) -> Json<Value> {
    let models = completions.runtime.presets().choices().map(|choice| listed(&completions, &choice));
    Json(json!({ "models": models.collect::<Vec<_>>() }))
}

/// `GET /api/ps`: the model that is in memory, as the chosen preset. None while it sleeps.
pub async fn ps(State(completions): State<Completions>) -> Json<Value> {
    let is_awake = !completions.model.status().asleep;
    let model = completions.runtime.presets().choices().next().filter(|_| is_awake).map(|chosen| ListedModel {
        expires_at: Some(NEVER.to_owned()),
        size_vram: Some(0),
        context_length: Some(chosen.preset.ctx_size),
        ..listed(&completions, &chosen)
    });
    Json(json!({ "models": model.into_iter().collect::<Vec<_>>() }))
}

pub async fn show(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let NamedModel { model, .. } = named(&completions, &body).await?;
    let choice = completions.runtime.presets().choose(&caller.identity.user, untagged(&model))?;
    let (listed, preset) = (listed(&completions, &choice), &choice.preset);
    let architecture = "reprise";
    let sampling = &preset.sampling;
    Ok(Json(json!({
        "modelfile": format!("# {} of {}, served by Reprise\n", preset.name, completions.runtime.presets().model),
        "parameters": format!("num_ctx {}\ntemperature {}\ntop_p {}", preset.ctx_size, sampling.temperature, sampling.top_p),
        "template": "",
        "modified_at": listed.modified_at,
        "details": listed.details,
        "model_info": {
            "general.architecture": architecture,
            format!("{architecture}.context_length"): preset.ctx_size,
        },
        "capabilities": ["completion", "tools", "thinking"],
    })))
}

pub async fn named(completions: &Completions, body: &[u8]) -> Result<NamedModel, ApiError> {
    let named: NamedModel = read_fields(body).await?;
    check_name("model", &named.model, completions.settings.limits.id_chars)?;
    Ok(named)
}

fn listed(completions: &Completions, choice: &ModelChoice) -> ListedModel {
    let (presets, name) = (completions.runtime.presets(), choice.name.clone());
    let bytes = completions.model.status().memory_bytes;
    let size = bytes.iter().find(|(kind, _)| *kind == "weights").map_or(0, |(_, bytes)| *bytes);
    let family = presets.model.clone();
    ListedModel {
        model: name.clone(),
        modified_at: timestamp(*FIRST_ASKED),
        size,
        digest: digest(&format!("{name} {family} {}", choice.preset.ctx_size)),
        details: Details {
            parent_model: "",
            format: "gguf",
            families: vec![family.clone()],
            family,
            parameter_size: "",
            quantization_level: "",
        },
        name,
        context_length: None,
        expires_at: None,
        size_vram: None,
    }
}

/// Clients show twelve digits of it and compare it. It tells presets apart, and is no hash of a file.
fn digest(text: &str) -> String {
    let of = |seed: u64| {
        text.bytes()
            .fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    (0..4).map(|seed| format!("{:016x}", of(seed))).collect()
}
