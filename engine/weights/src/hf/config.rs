//! config.json to a shape.

use std::path::Path;

use kernels::rotation::Yarn;
use serde_json::{Map, Value};

use crate::error::{Error, shown};
use crate::family::{self, Architecture, Family, Known};
use crate::shape::{HeadOrder, LayerKind, Moe, Rope, Shape, yarn_magnitude};
use crate::tensors::Tensors;

/// Maps in which a key is looked up, in this order: config.json's part about the text model, and the whole around it.
pub(crate) struct Config<'a> {
    path: &'a Path,
    places: Vec<&'a Map<String, Value>>,
    pub family: &'static Family,
}

impl<'a> Config<'a> {
    /// Checks the family first: that is the one clear line for a folder of another kind.
    pub fn new(path: &'a Path, json: &'a Value) -> Result<Config<'a>, Error> {
        let Value::Object(whole) = json else {
            return Err(Error::file(path, "is not a JSON object"));
        };
        let places = match whole.get("text_config") {
            None | Some(Value::Null) => vec![whole],
            Some(Value::Object(text)) => vec![text, whole],
            Some(other) => return Err(Error::key(path, "text_config", describe(other), "an object")),
        };
        // Multimodal checkpoints name the family outside and its text part inside.
        let found = places.iter().filter_map(|place| place.get("model_type")).find(|value| !value.is_null());
        let found = found.ok_or_else(|| Error::key(path, "model_type", "no such key", family::all_model_types()))?;
        let model_type = found.as_str().ok_or_else(|| Error::key(path, "model_type", describe(found), "a string"))?;
        let family = match family::of_folder(model_type) {
            Known::Family(family, _) => family,
            Known::OlderSibling(family) => {
                return Err(Error::older_sibling(path, model_type, &family.name, &family.model_types()));
            }
            Known::Other => return Err(Error::other_family(path, model_type)),
        };
        let config = Config { path, places, family };
        if let Some(found) = config.get("quantization_config") {
            let method = found.get("quant_method").and_then(Value::as_str).unwrap_or("an unnamed method");
            let what = format!("is quantised by {}: take the bf16 model, or a GGUF file", shown(method));
            return Err(Error::file(path, what));
        }
        Ok(config)
    }

    /// Returns the family and its architecture with experts, or without, as the configuration has them.
    pub fn architecture(&self) -> Result<(&'static Family, &'static Architecture), Error> {
        let name = self.family.architecture(self.moe()?.is_some());
        let found = self.family.architectures.iter().find(|one| one.name == name);
        found.map(|one| (self.family, one)).ok_or_else(|| Error::other_family(self.path, name))
    }

    /// Reads the shape; `has_head` says that the tensors have a head.
    pub fn shape(&self, tensors: &Tensors, mtp_blocks: usize, has_head: bool) -> Result<Shape, Error> {
        for (key, needed) in [("attention_bias", false), ("attn_output_gate", true)] {
            if self.bool(key)?.is_some_and(|found| found != needed) {
                return Err(Error::key(self.path, key, (!needed).to_string(), format!("{needed}: the family's own")));
            }
        }
        if let Some(act) = self.text("hidden_act")?.filter(|&act| act != "silu") {
            return Err(Error::key(self.path, "hidden_act", format!("'{}'", shown(act)), "silu"));
        }
        if self.get("mlp_only_layers").and_then(Value::as_array).is_some_and(|layers| !layers.is_empty()) {
            return Err(Error::key(self.path, "mlp_only_layers", "a list of layers", "none: all layers are alike"));
        }
        let count = self.size("num_hidden_layers")?;
        // Each layer has tensors: this bounds the list of layers by what the files really hold.
        if count > tensors.len() {
            let expected = format!("fewer than the {} tensors", tensors.len());
            return Err(Error::key(self.path, "num_hidden_layers", count.to_string(), expected));
        }
        let head_dim = self.size("head_dim")?;
        let native_ctx = self.size("max_position_embeddings")?;
        let moe = self.moe()?;
        let shape = Shape {
            arch: self.family.architecture(moe.is_some()).to_string(),
            layers: self.layers(count)?,
            hidden: self.size("hidden_size")?,
            ffn: if moe.is_some() { 0 } else { self.size("intermediate_size")? },
            q_heads: self.size("num_attention_heads")?,
            kv_heads: self.size("num_key_value_heads")?,
            head_dim,
            key_heads: self.size("linear_num_key_heads")?,
            value_heads: self.size("linear_num_value_heads")?,
            key_dim: self.size("linear_key_head_dim")?,
            value_dim: self.size("linear_value_head_dim")?,
            conv_kernel: self.size("linear_conv_kernel_dim")?,
            value_head_order: HeadOrder::Grouped,
            vocab: self.size("vocab_size")?,
            rms_eps: self.needed("rms_norm_eps", "a small number")? as f32,
            rope: self.rope(head_dim, native_ctx)?,
            native_ctx,
            moe,
            tied: self.bool("tie_word_embeddings")?.unwrap_or(!has_head),
            mtp_blocks,
        };
        shape.check(self.path)?;
        Ok(shape)
    }

    fn moe(&self) -> Result<Option<Moe>, Error> {
        if self.unsigned("num_experts")?.unwrap_or(0) == 0 {
            return Ok(None);
        }
        Ok(Some(Moe {
            experts: self.size("num_experts")?,
            used: self.size("num_experts_per_tok")?,
            expert_ffn: self.size("moe_intermediate_size")?,
            shared_ffn: match self.unsigned("shared_expert_intermediate_size")? {
                None | Some(0) => 0,
                Some(_) => self.size("shared_expert_intermediate_size")?,
            },
            renormalise: self.bool("norm_topk_prob")?.unwrap_or(true),
        }))
    }

    fn layers(&self, count: usize) -> Result<Vec<LayerKind>, Error> {
        const KEY: &str = "layer_types";
        match self.get(KEY) {
            Some(Value::Array(kinds)) => {
                if kinds.len() != count {
                    let expected = format!("one for each of the {count} layers");
                    return Err(Error::key(self.path, KEY, format!("a list of {}", kinds.len()), expected));
                }
                let kind = |kind: &Value| match kind.as_str() {
                    Some("linear_attention") => Ok(LayerKind::Delta),
                    Some("full_attention") => Ok(LayerKind::Attention),
                    _ => Err(Error::key(self.path, KEY, describe(kind), "linear_attention or full_attention")),
                };
                kinds.iter().map(kind).collect()
            }
            Some(other) => Err(Error::key(self.path, KEY, describe(other), "a list of strings")),
            None => {
                // The family's pattern, where a file says nothing.
                let interval = match self.unsigned("full_attention_interval")? {
                    None => self.family.attention_every,
                    Some(_) => self.size("full_attention_interval")?,
                };
                let kind =
                    |i: usize| if (i + 1).is_multiple_of(interval) { LayerKind::Attention } else { LayerKind::Delta };
                Ok((0..count).map(kind).collect())
            }
        }
    }

    fn rope(&self, head_dim: usize, native_ctx: usize) -> Result<Rope, Error> {
        let rope = self.with_rope_places()?;
        let theta = rope.needed("rope_theta", "the base of the rotation")?;
        let share = rope.float("partial_rotary_factor")?.unwrap_or(self.family.partial_rotary_factor);
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::key(self.path, "partial_rotary_factor", share.to_string(), "more than 0, at most 1"));
        }
        let kind = match rope.text("rope_type")? {
            None => rope.text("type")?,
            found => found,
        };
        let scaling = match kind {
            None | Some("default" | "mrope") => None,
            Some("yarn") => Some(rope.yarn(native_ctx)?),
            Some(other) => {
                return Err(Error::key(self.path, "rope_type", format!("'{}'", shown(other)), "default or yarn"));
            }
        };
        Ok(Rope { theta, dims: (head_dim as f64 * share) as usize, scaling })
    }

    fn yarn(&self, native_ctx: usize) -> Result<Yarn, Error> {
        const ORIGINAL: &str = "original_max_position_embeddings";
        let original_ctx = match self.float(ORIGINAL)? {
            None => native_ctx,
            Some(n) if n >= 1.0 && n <= f64::from(u32::MAX) => n as usize,
            Some(n) => return Err(Error::key(self.path, ORIGINAL, n.to_string(), "a number of tokens")),
        };
        let factor = match self.float("factor")? {
            Some(factor) => factor as f32,
            None => native_ctx as f32 / original_ctx as f32,
        };
        // Zero stands for 'not given' in all of these.
        let given = |key: &str| Ok::<_, Error>(self.float(key)?.filter(|&n| n != 0.0).map(|n| n as f32));
        let magnitude = match (given("attention_factor")?, given("mscale")?, given("mscale_all_dim")?) {
            (Some(stated), ..) => stated,
            (None, Some(one), Some(all)) => yarn_magnitude(factor, one) / yarn_magnitude(factor, all),
            _ => yarn_magnitude(factor, 1.0),
        };
        Ok(Yarn {
            factor: factor.into(),
            original_ctx,
            beta_fast: given("beta_fast")?.unwrap_or(32.0).into(),
            beta_slow: given("beta_slow")?.unwrap_or(1.0).into(),
            magnitude,
            truncate: self.bool("truncate")?.unwrap_or(true),
        })
    }

    pub fn eos(&self) -> Result<Vec<u32>, Error> {
        self.get("eos_token_id").map_or(Ok(Vec::new()), |found| token_ids(self.path, "eos_token_id", found))
    }

    pub fn name(&self) -> Option<&str> {
        self.places.last()?.get("_name_or_path").and_then(Value::as_str).filter(|name| !name.is_empty())
    }

    /// Returns the configuration with the rotation's keys: in `rope_parameters`, in the older `rope_scaling`, or beside them.
    fn with_rope_places(&self) -> Result<Config<'a>, Error> {
        let mut places = Vec::new();
        for key in ["rope_parameters", "rope_scaling"] {
            match self.get(key) {
                None => {}
                // Some writers keep one set for each kind of layer.
                Some(Value::Object(map)) => {
                    places.push(map.get("full_attention").and_then(Value::as_object).unwrap_or(map))
                }
                Some(other) => return Err(Error::key(self.path, key, describe(other), "an object")),
            }
        }
        places.push(self.places[0]);
        Ok(Config { path: self.path, places, family: self.family })
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.places.iter().filter_map(|place| place.get(key)).find(|value| !value.is_null())
    }

    fn size(&self, key: &str) -> Result<usize, Error> {
        const EXPECTED: &str = "a whole number, 1 or more";
        let size = |found: &Value| found.as_u64().and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
        self.read(key, EXPECTED, size)?.ok_or_else(|| self.missing(key, EXPECTED))
    }

    fn read<T>(&self, key: &str, expected: &str, of: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, Error> {
        let wrong = |found| Error::key(self.path, key, describe(found), expected);
        self.get(key).map(|found| of(found).ok_or_else(|| wrong(found))).transpose()
    }

    fn unsigned(&self, key: &str) -> Result<Option<u64>, Error> {
        self.read(key, "a whole number that is not negative", Value::as_u64)
    }

    fn float(&self, key: &str) -> Result<Option<f64>, Error> {
        self.read(key, "a number", |found| found.as_f64().filter(|number| number.is_finite()))
    }

    fn needed(&self, key: &str, expected: &str) -> Result<f64, Error> {
        self.float(key)?.ok_or_else(|| self.missing(key, expected))
    }

    fn bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.read(key, "true or false", Value::as_bool)
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, Error> {
        self.read(key, "a string", Value::as_str)
    }

    fn missing(&self, key: &str, expected: &str) -> Error {
        Error::key(self.path, key, "no such key", expected)
    }
}

pub(crate) fn token_ids(path: &Path, key: &str, found: &Value) -> Result<Vec<u32>, Error> {
    let one = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| Error::key(path, key, describe(value), "a token's number, or a list of them"))
    };
    match found {
        Value::Array(list) => list.iter().map(one).collect(),
        Value::Null => Ok(Vec::new()),
        value => Ok(vec![one(value)?]),
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(_) => "an object".to_string(),
        other => shown(&other.to_string()),
    }
}
