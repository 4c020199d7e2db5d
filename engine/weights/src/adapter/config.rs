//! An adapter's adapter_config.json: how large the change of each module is.

use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::{Map, Value};

use crate::error::{Error, shown};
use crate::hf;

pub(super) struct AdapterConfig {
    rank: usize,
    alpha: f64,
    by_root: bool,
    ranks: Vec<(Regex, f64)>,
    alphas: Vec<(Regex, f64)>,
    /// Stacks of experts, by the last part of their names in `target_parameters`.
    stacks: Vec<String>,
}

/// Keys of parts that a product with A and B leaves out, each with the values that mean 'not used'.
const NOT_APPLIED: [(&str, &[&str]); 12] = [
    ("use_dora", &["false"]),
    ("fan_in_fan_out", &["false"]),
    ("bias", &["\"none\""]),
    ("lora_bias", &["false"]),
    ("use_qalora", &["false"]),
    ("modules_to_save", &["[]"]),
    ("trainable_token_indices", &["[]", "{}"]),
    ("layer_replication", &["[]"]),
    ("alora_invocation_tokens", &["[]"]),
    ("use_bdlora", &["false"]),
    ("arrow_config", &["{}"]),
    // Other ways to begin change the base as well, so that the adapter does not fit what was published.
    ("init_lora_weights", &["true", "false", "\"gaussian\"", "\"eva\"", "\"orthogonal\""]),
];

/// Stacks of experts and the parts of their rows. PEFT wraps a layer's stacks one in the other, and the first of these is outside.
pub(super) const STACKS: [(&str, &[&str]); 2] =
    [("down_proj", &["down_proj"]), ("gate_up_proj", &["gate_proj", "up_proj"])];

const LARGEST_RANK: f64 = 50_000.0; // more than any matrix has rows

impl AdapterConfig {
    pub fn read(folder: &Path) -> Result<AdapterConfig, Error> {
        let path = folder.join("adapter_config.json");
        let bytes = std::fs::read(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                Error::file(folder, "holds no adapter_config.json: it is no adapter of PEFT")
            }
            _ => Error::Io { path: path.clone(), source },
        })?;
        let Value::Object(json) = hf::parse(&path, &bytes)? else {
            return Err(Error::file(&path, "is not a JSON object"));
        };
        if json.get("peft_type").and_then(Value::as_str) != Some("LORA") {
            let found = json.get("peft_type").map_or("no such key".to_owned(), Value::to_string);
            return Err(Error::key(&path, "peft_type", shown(&found), "\"LORA\""));
        }
        for (key, unused) in NOT_APPLIED {
            let found = json.get(key).filter(|value| !value.is_null()).map(Value::to_string);
            if let Some(found) = found.filter(|found| !unused.contains(&found.as_str())) {
                let expected = format!("null or {}: other values are not applied", unused.join(", "));
                return Err(Error::key(&path, key, shown(&found), expected));
            }
        }
        let reader = Reader { path, json };
        let rank = reader.number("r", 8.0)?;
        if rank.fract() != 0.0 || !(1.0..=LARGEST_RANK).contains(&rank) {
            let expected = format!("a whole number from 1 to {LARGEST_RANK}");
            return Err(Error::key(&reader.path, "r", rank.to_string(), expected));
        }
        Ok(AdapterConfig {
            rank: rank as usize,
            alpha: reader.number("lora_alpha", 8.0)?,
            by_root: reader.json.get("use_rslora").and_then(Value::as_bool).unwrap_or(false),
            ranks: reader
                .patterns("rank_pattern", "a whole number from 1", |rank| rank >= 1.0 && rank.fract() == 0.0)?,
            alphas: reader.patterns("alpha_pattern", "a number above 0", |alpha| alpha > 0.0)?,
            stacks: reader.stacks()?,
        })
    }

    pub fn targets(&self, stack: &str) -> bool {
        self.stacks.iter().any(|known| known == stack)
    }

    pub fn rank_and_scale(&self, module: &str) -> (usize, f32) {
        let of = |patterns: &[(Regex, f64)]| {
            patterns.iter().find(|(pattern, _)| pattern.is_match(module)).map(|(_, value)| *value)
        };
        let rank = of(&self.ranks).map_or(self.rank, |rank| rank as usize);
        let alpha = of(&self.alphas).unwrap_or(self.alpha);
        let divisor = if self.by_root { (rank as f64).sqrt() } else { rank as f64 };
        (rank, (alpha / divisor) as f32)
    }
}

struct Reader {
    path: PathBuf,
    json: Map<String, Value>,
}

impl Reader {
    fn number(&self, key: &str, default: f64) -> Result<f64, Error> {
        match self.json.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value
                .as_f64()
                .filter(|number| number.is_finite())
                .ok_or_else(|| Error::key(&self.path, key, shown(&value.to_string()), "a number")),
        }
    }

    fn stacks(&self) -> Result<Vec<String>, Error> {
        const KEY: &str = "target_parameters";
        let list = match self.json.get(KEY) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(Error::key(&self.path, KEY, shown(&other.to_string()), "a list")),
        };
        let stack = |value: &Value| {
            let (module, stack) = value.as_str()?.rsplit_once('.')?;
            let is_known =
                module.rsplit('.').next() == Some("experts") && STACKS.iter().any(|(name, _)| *name == stack);
            is_known.then(|| stack.to_owned())
        };
        let read = |value: &Value| {
            let expected = "experts.gate_up_proj and experts.down_proj: other parameters are not applied";
            stack(value).ok_or_else(|| Error::key(&self.path, KEY, shown(&value.to_string()), expected))
        };
        list.iter().map(read).collect()
    }

    /// Reads expressions for modules' paths with their values, as PEFT matches them: at the end of the path.
    fn patterns(&self, key: &str, expected: &str, is_right: fn(f64) -> bool) -> Result<Vec<(Regex, f64)>, Error> {
        let patterns = match self.json.get(key) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Object(patterns)) => patterns,
            Some(other) => return Err(Error::key(&self.path, key, shown(&other.to_string()), "a map")),
        };
        let read = |(pattern, value): (&String, &Value)| {
            let wrong = |found: &str, expected: &str| Error::key(&self.path, key, shown(found), expected);
            let regex = Regex::new(&format!(r"^(?:.*\.)?(?:{pattern})$"))
                .map_err(|_| wrong(pattern, "a regular expression without look-around"))?;
            let number = value.as_f64().filter(|number| number.is_finite() && is_right(*number));
            Ok((regex, number.ok_or_else(|| wrong(&value.to_string(), expected))?))
        };
        patterns.iter().map(read).collect()
    }
}
