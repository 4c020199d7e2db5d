//! How a reply is to be written, where a request says it; the rest is the session's and the preset's. Plain data: whoever
//! asks fills it in, whoever answers reads it, and what lies between hands it on.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manner {
    pub sampling: SamplingOverrides,
    pub seed: Option<u64>,
    pub stop: Vec<String>,
    pub response_format: ResponseFormat,
    /// Log probabilities of the chosen tokens and of this many likeliest ones.
    pub logprobs: Option<usize>,
    pub ignore_eos: bool,
}

/// What a request says about sampling; the rest is the preset's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingOverrides {
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<u32>,
    pub min_p: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub repetition_penalty: Option<f32>,
    /// Token and what is added to its logit.
    pub logit_bias: Vec<(u32, f32)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResponseFormat {
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON of this schema.
    JsonSchema { name: String, schema: Value },
}

/// How sure the model was of a token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub bytes: Vec<u8>,
    pub logprob: f32,
    /// The likeliest tokens in its place, best first.
    pub top: Vec<(Vec<u8>, f32)>,
}

/// As chat completions have it.
impl Serialize for TokenLogprob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let of = |bytes: &[u8], logprob: f32| json!({ "token": String::from_utf8_lossy(bytes), "logprob": logprob, "bytes": bytes });
        let mut value = of(&self.bytes, self.logprob);
        value["top_logprobs"] = self.top.iter().map(|(bytes, logprob)| of(bytes, *logprob)).collect();
        value.serialize(serializer)
    }
}

impl TokenLogprob {
    /// None: it is not as `serialize` writes it.
    pub fn from_value(value: &Value) -> Option<TokenLogprob> {
        let top = value["top_logprobs"].as_array()?.iter().map(bytes_and_logprob).collect::<Option<Vec<_>>>()?;
        let (bytes, logprob) = bytes_and_logprob(value)?;
        Some(TokenLogprob { bytes, logprob, top })
    }
}

fn bytes_and_logprob(value: &Value) -> Option<(Vec<u8>, f32)> {
    let byte = |byte: &Value| byte.as_u64().and_then(|byte| u8::try_from(byte).ok());
    let bytes = value["bytes"].as_array()?.iter().map(byte).collect::<Option<Vec<u8>>>()?;
    Some((bytes, value["logprob"].as_f64()? as f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_probability_comes_back_as_it_was() {
        let token = TokenLogprob { bytes: vec![0xe2, 0x82], logprob: -0.1, top: vec![(b"a".to_vec(), -0.1)] };
        assert_eq!(TokenLogprob::from_value(&json!(token)), Some(token));
        assert_eq!(TokenLogprob::from_value(&json!({ "bytes": [256], "logprob": 0, "top_logprobs": [] })), None);
    }
}
