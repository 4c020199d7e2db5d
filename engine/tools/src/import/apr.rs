//! An APR file of a checkpoint: its tensors under their own names, its small files, and metadata under the format's keys.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use weights::hf::Folder;
use weights::{Matrix, ModelWeights, Shape};

use super::metadata::SmallFiles;
use crate::Error;
use crate::planned::{PlaceOrder, Planned, PlannedValues};
use crate::target::{Addition, modules_of};

/// Returns the small files of a folder by their names, as texts.
pub fn texts(folder: &Folder) -> Map<String, Value> {
    let mut texts = Map::new();
    let files = [
        ("config.json", Some(&folder.config)),
        ("tokenizer.json", Some(&folder.tokenizer)),
        ("tokenizer_config.json", folder.tokenizer_config.as_ref()),
        ("generation_config.json", folder.generation_config.as_ref()),
    ];
    for (name, json) in files {
        if let Some(json) = json {
            texts.insert(name.to_owned(), without_spaces(&String::from_utf8_lossy(json)).into());
        }
    }
    texts
}

/// Takes out white space between the parts of a JSON text: metadata have a limit of 16 MiB, and tokenizers have a line for each token.
fn without_spaces(json: &str) -> String {
    let (mut is_text, mut is_escaped) = (false, false);
    let mut short = String::with_capacity(json.len());
    for c in json.chars() {
        if !is_text && c.is_ascii_whitespace() {
            continue;
        }
        if c == '"' && !is_escaped {
            is_text = !is_text;
        }
        is_escaped = is_text && c == '\\' && !is_escaped;
        short.push(c);
    }
    short
}

pub fn metadata(model: &ModelWeights, files: &SmallFiles, texts: Map<String, Value>) -> Value {
    let Shape { layers, hidden, ffn, q_heads, kv_heads, head_dim, vocab, rope, native_ctx, moe, .. } = &model.shape;
    let config = |key: &str| files.get(key).cloned().unwrap_or(Value::Null);
    let mut metadata = json!({
        "name": model.name,
        "model_type": config("model_type"),
        "architecture": config("model_type"),
        "hf_model_type": config("model_type"),
        "hf_architecture": config("architectures").get(0).cloned().unwrap_or(Value::Null),
        "hidden_size": hidden,
        "num_layers": layers.len(),
        "num_heads": q_heads,
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocab,
        "intermediate_size": if *ffn > 0 { json!(ffn) } else { config("intermediate_size") },
        "max_position_embeddings": native_ctx,
        "rope_theta": rope.theta,
        "rope_type": ROTATES_HALVES,
        "rms_norm_eps": config("rms_norm_eps"),
        "tied_embeddings": model.shape.tied,
        "chat_template": model.chat_template,
        "license": null,
        "data_source": null,
        "data_license": null,
        "linear_attn_hparams": linear(&model.shape, files),
    });
    if let Some(moe) = moe {
        metadata["num_experts"] = json!(moe.experts);
        metadata["num_experts_per_tok"] = json!(moe.used);
        metadata["moe_intermediate_size"] = json!(moe.expert_ffn);
    }
    if let Value::Object(keys) = &mut metadata {
        keys.extend(texts);
    }
    metadata
}

const ROTATES_HALVES: u32 = 2;

fn linear(shape: &Shape, files: &SmallFiles) -> Value {
    let mut keys = json!({
        "linear_num_key_heads": shape.key_heads,
        "linear_num_value_heads": shape.value_heads,
        "linear_key_head_dim": shape.key_dim,
        "linear_value_head_dim": shape.value_dim,
        "linear_conv_kernel_dim": shape.conv_kernel,
        "partial_rotary_factor": shape.rope.dims as f64 / shape.head_dim as f64,
    });
    if let Some(interval) = files.get("full_attention_interval") {
        keys["full_attention_interval"] = interval.clone();
    }
    keys
}

/// Plans the tensors that a model uses, in the order of their names. `of_gguf` are those of a GGUF file of the same model.
pub fn plan(
    source: &Path,
    model: &ModelWeights,
    of_gguf: &[Planned],
    addition: Option<&Addition>,
) -> Result<Vec<Planned>, Error> {
    let contents = weights::contents(source, true)?;
    let experts = model.shape.moe.as_ref().map_or(0, |moe| moe.experts);
    let fused =
        (0..model.shape.layers.len() + model.shape.mtp_blocks).map(|at| format!("blk.{at}.ffn_gate_up_exps.weight"));
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for name in of_gguf.iter().map(|tensor| tensor.name.clone()).chain(fused) {
        let single = contents.expert_names(&name, experts).unwrap_or_default();
        known.extend(contents.names_of(&name).into_iter().chain(single).map(|own| (own, name.clone())));
    }
    let mut planned = Vec::new();
    for tensor in &contents.tensors {
        let Some(known_as) = known.get(&tensor.name) else { continue };
        let cols = tensor.dims.last().copied().unwrap_or(1);
        let rows = tensor.dims.iter().rev().skip(1).product();
        let matrix = tensor.format.and_then(|format| Matrix::of_blocks(format, rows, cols, tensor.data.clone()));
        let parts = |matrix: Matrix| match addition {
            None => Some(vec![matrix]),
            Some(addition) => addition.to(&modules_of(&tensor.name, &tensor.dims, model.shape.layers.len()), &matrix),
        };
        let stack = matrix.and_then(parts).ok_or_else(|| {
            let what = format!("{} of {:?} values cannot be read", tensor.type_name, tensor.dims);
            Error::tensor(source, &tensor.name, what)
        })?;
        let dims = match tensor.dims.is_empty() {
            true => vec![1],
            false => tensor.dims.iter().rev().map(|&dim| dim as u64).collect(),
        };
        let values = PlannedValues::Matrices { stack, rows: PlaceOrder::Kept, cols: PlaceOrder::Kept };
        planned.push(Planned { known_as: known_as.clone(), ..Planned::new(tensor.name.clone(), dims, values) });
    }
    Ok(planned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_white_space_between_parts_goes() {
        let text = "{\n  \"a b\": [1, 2],\n  \"\\\"  \\\\\": \" \\n\"\n}";
        let short = without_spaces(text);
        assert_eq!(short, r#"{"a b":[1,2],"\"  \\":" \n"}"#);
        let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(parsed(&short), parsed(text));
    }
}
