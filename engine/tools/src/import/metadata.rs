//! The metadata of an imported model, under the ecosystem's keys.

use std::path::{Path, PathBuf};

use serde_json::Value;
use text::GgufVocabulary;
use weights::hf::Folder;
use weights::{LayerKind, ModelWeights, Shape, VocabSource};

use crate::Error;
use crate::gguf_writer::GgufValue;

/// The folder's JSON files, for keys that a model's weights do not tell.
pub struct SmallFiles {
    path: PathBuf,
    config: Value,
    tokenizer_config: Value,
}

impl SmallFiles {
    pub fn of(folder: &Folder) -> Result<SmallFiles, Error> {
        let parse = |name: &str, json: &[u8]| {
            serde_json::from_slice(json)
                .map_err(|error| Error::file(&folder.path.join(name), format!("is not valid JSON: {error}")))
        };
        Ok(SmallFiles {
            path: folder.path.clone(),
            config: parse("config.json", &folder.config)?,
            tokenizer_config: match &folder.tokenizer_config {
                Some(json) => parse("tokenizer_config.json", json)?,
                None => Value::Null,
            },
        })
    }

    /// Returns a key of the part about the text model, or of the whole around it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let places = [self.config.get("text_config"), Some(&self.config)];
        places.into_iter().flatten().filter_map(|place| place.get(key)).find(|value| !value.is_null())
    }

    /// Returns a token that both files may name: the one by its text, the other by its number or a list of them.
    fn token(&self, name: &str, vocabulary: &GgufVocabulary) -> Option<u32> {
        let named = self.tokenizer_config.get(name).map(|named| named.get("content").unwrap_or(named));
        let named = named.and_then(Value::as_str);
        let place = named.and_then(|named| vocabulary.tokens.iter().position(|token| token == named));
        let number = || {
            let found = self.get(&format!("{name}_id"))?;
            found.as_array().map_or(Some(found), |list| list.first())?.as_u64()
        };
        u32::try_from(place.map(|place| place as u64).or_else(number)?).ok()
    }

    fn rope_sections(&self, dims: usize) -> Vec<i32> {
        let stated = ["rope_parameters", "rope_scaling"].into_iter().find_map(|key| {
            let list = self.get(key)?.get("mrope_section")?.as_array()?;
            list.iter()
                .map(|part| part.as_i64().and_then(|part| i32::try_from(part).ok()))
                .collect::<Option<Vec<i32>>>()
        });
        let mut sections = stated.unwrap_or_else(|| {
            // Positions in text are the same on all axes, so any shares compute the same; these are the family's.
            let half = (dims / 2) as i32;
            let first = half.div_euclid(3) + i32::from(half % 3 > 0);
            let second = (half - first + 1) / 2;
            vec![first, second, half - first - second]
        });
        sections.resize(4, 0);
        sections
    }
}

pub fn of(model: &ModelWeights, files: &SmallFiles, source: &Path) -> Result<Vec<(String, GgufValue)>, Error> {
    let shape = &model.shape;
    let arch = &shape.arch;
    let text = |value: &str| GgufValue::Text(value.to_string());
    let mut list = vec![
        ("general.architecture".to_string(), text(arch)),
        ("general.type".to_string(), text("model")),
        ("general.name".to_string(), text(&model.name)),
        ("general.quantization_version".to_string(), GgufValue::U32(2)),
        // Overwritten when the types are decided.
        ("general.file_type".to_string(), GgufValue::U32(0)),
    ];
    let own = sizes(shape, files)?;
    list.extend(own.into_iter().map(|(key, value)| (format!("{arch}.{key}"), value)));
    let VocabSource::Json(json) = &model.vocab else {
        return Err(Error::file(source, "holds no tokenizer.json"));
    };
    let vocabulary = GgufVocabulary::from_json(json, shape.vocab)
        .map_err(|source| Error::Text { path: files.path.join("tokenizer.json"), source })?;
    list.extend(
        tokenizer(model, files, vocabulary).into_iter().map(|(key, value)| (format!("tokenizer.{key}"), value)),
    );
    Ok(list)
}

fn sizes(shape: &Shape, files: &SmallFiles) -> Result<Vec<(&'static str, GgufValue)>, Error> {
    let number = |value: usize| GgufValue::U32(value as u32);
    let blocks = shape.layers.len() + shape.mtp_blocks;
    let mut list = vec![
        ("block_count", number(blocks)),
        ("context_length", number(shape.native_ctx)),
        ("embedding_length", number(shape.hidden)),
        ("attention.head_count", number(shape.q_heads)),
        ("attention.head_count_kv", number(shape.kv_heads)),
        ("attention.key_length", number(shape.head_dim)),
        ("attention.value_length", number(shape.head_dim)),
        ("attention.layer_norm_rms_epsilon", GgufValue::F32(shape.rms_eps)),
        ("rope.dimension_count", number(shape.rope.dims)),
        ("rope.dimension_sections", GgufValue::I32s(files.rope_sections(shape.rope.dims))),
        ("rope.freq_base", GgufValue::F32(shape.rope.theta as f32)),
        ("ssm.conv_kernel", number(shape.conv_kernel)),
        ("ssm.state_size", number(shape.key_dim)),
        ("ssm.group_count", number(shape.key_heads)),
        ("ssm.time_step_rank", number(shape.value_heads)),
        ("ssm.inner_size", number(shape.delta_values())),
        ("attention.recurrent_layers", {
            let trunk = shape.layers.iter().map(|&kind| kind == LayerKind::Delta);
            GgufValue::Bools(trunk.chain(std::iter::repeat_n(false, shape.mtp_blocks)).collect())
        }),
    ];
    if let Some(first) = shape.layers.iter().position(|&kind| kind == LayerKind::Attention) {
        list.push(("full_attention_interval", number(first + 1)));
    }
    if shape.mtp_blocks > 0 {
        list.push(("nextn_predict_layers", number(shape.mtp_blocks)));
    }
    let stated = files.get("intermediate_size").and_then(Value::as_u64).and_then(|width| u32::try_from(width).ok());
    if let Some(width) = stated {
        list.push(("feed_forward_length", GgufValue::U32(width)));
    }
    if let Some(moe) = &shape.moe {
        list.push(("expert_count", number(moe.experts)));
        list.push(("expert_used_count", number(moe.used)));
        list.push(("expert_feed_forward_length", number(moe.expert_ffn)));
        list.push(("expert_shared_feed_forward_length", number(moe.shared_ffn)));
        if !moe.renormalise {
            list.push(("expert_weights_norm", GgufValue::Bool(false)));
        }
    }
    if let Some(yarn) = &shape.rope.scaling {
        if !yarn.truncate {
            let what = "states rope 'truncate': false, which GGUF files cannot state";
            return Err(Error::file(&files.path.join("config.json"), what));
        }
        list.push(("rope.scaling.type", GgufValue::Text("yarn".to_string())));
        list.push(("rope.scaling.factor", GgufValue::F32(yarn.factor as f32)));
        list.push(("rope.scaling.original_context_length", number(yarn.original_ctx)));
        let own_magnitude = 0.1 * (yarn.factor as f32).ln() + 1.0;
        let more = [
            ("rope.scaling.yarn_beta_fast", yarn.beta_fast as f32, 32.0),
            ("rope.scaling.yarn_beta_slow", yarn.beta_slow as f32, 1.0),
            ("rope.scaling.yarn_attn_factor", yarn.magnitude, own_magnitude),
        ];
        let unusual = more.into_iter().filter(|(_, value, usual)| value != usual);
        list.extend(unusual.map(|(key, value, _)| (key, GgufValue::F32(value))));
    }
    Ok(list)
}

fn tokenizer(model: &ModelWeights, files: &SmallFiles, vocabulary: GgufVocabulary) -> Vec<(&'static str, GgufValue)> {
    let special = [
        ("ggml.bos_token_id", files.token("bos_token", &vocabulary)),
        ("ggml.eos_token_id", files.token("eos_token", &vocabulary)),
        ("ggml.padding_token_id", files.token("pad_token", &vocabulary)),
    ];
    let mut list = vec![
        ("ggml.model", GgufValue::Text("gpt2".to_string())),
        ("ggml.pre", GgufValue::Text(vocabulary.pre.to_string())),
        ("ggml.tokens", GgufValue::Texts(vocabulary.tokens)),
        ("ggml.token_type", GgufValue::I32s(vocabulary.types)),
        ("ggml.merges", GgufValue::Texts(vocabulary.merges)),
    ];
    list.extend(special.iter().filter_map(|(key, token)| Some((*key, GgufValue::U32((*token)?)))));
    // The ecosystem has one end token; a file whose model has more says so in a key that other engines pass over.
    let is_known = |token: &u32| special.iter().any(|(_, known)| known.as_ref() == Some(token));
    if !model.stop_tokens.iter().all(is_known) {
        let all = model.stop_tokens.iter().map(|&token| token as i32).collect();
        list.push(("ggml.eos_token_ids", GgufValue::I32s(all)));
    }
    if let Some(adds) = files.tokenizer_config.get("add_bos_token").and_then(Value::as_bool) {
        list.push(("ggml.add_bos_token", GgufValue::Bool(adds)));
    }
    if let Some(template) = &model.chat_template {
        list.push(("chat_template", GgufValue::Text(template.clone())));
    }
    list
}
