//! The presets that a session may have: those whose model is the one that runs.

use crate::Error;
use settings::Preset;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Presets {
    presets: BTreeMap<String, Arc<Preset>>,
    /// What a session gets that asks for none.
    pub chosen: Arc<Preset>,
    /// The model's name as clients see it.
    pub model: String,
}

/// What stock clients ask for that were told no other name.
const STOCK_NAMES: &str = "gpt-";

impl Presets {
    /// `chosen` is one of `presets` or stands beside them.
    pub fn new(presets: impl IntoIterator<Item = Preset>, chosen: Preset, model: &str) -> Presets {
        let mut presets: BTreeMap<String, Arc<Preset>> =
            presets.into_iter().map(|preset| (preset.name.clone(), Arc::new(preset))).collect();
        let chosen = Arc::new(chosen);
        presets.insert(chosen.name.clone(), chosen.clone());
        Presets { presets, chosen, model: model.to_owned() }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Preset>> {
        self.presets.values()
    }

    /// All of them, the chosen one first: many clients take the first.
    pub fn chosen_first(&self) -> impl Iterator<Item = &Arc<Preset>> {
        [&self.chosen].into_iter().chain(self.iter().filter(|preset| preset.name != self.chosen.name))
    }

    pub fn names(&self) -> String {
        self.presets.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Whether a client that asks for this model leaves the preset to us.
    pub fn is_anything(&self, name: &str) -> bool {
        let is_preset = self.presets.contains_key(name);
        !is_preset
            && (name.is_empty() || name == self.model || name == self.chosen.model || name.starts_with(STOCK_NAMES))
    }

    /// What a client means by the name of a model: a preset, the model itself, or nothing in particular.
    pub fn named(&self, name: &str) -> Result<&Arc<Preset>, Error> {
        if let Some(preset) = self.presets.get(name) {
            return Ok(preset);
        }
        if self.is_anything(name) {
            return Ok(&self.chosen);
        }
        let there_are = self.names();
        Err(Error::NoSuchModel { name: name.to_owned(), there_are, chosen: self.chosen.name.clone() })
    }

    /// The preset that a session was made with, with the window it was made with. A preset that is not there any more
    /// gives way to the chosen one: the conversation goes on.
    pub fn of_session(&self, name: &str, ctx_size: u64) -> Arc<Preset> {
        let preset = self.presets.get(name).unwrap_or_else(|| {
            tracing::warn!(preset = name, chosen = %self.chosen.name, "the session's preset is not there any more");
            &self.chosen
        });
        match u32::try_from(ctx_size) {
            Ok(ctx_size) if ctx_size != preset.ctx_size && ctx_size > 0 => {
                let widest = preset.native_ctx.unwrap_or(ctx_size);
                Arc::new(preset.with_ctx_size(ctx_size.min(widest)))
            }
            _ => preset.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::{Settings, Sources};

    fn presets() -> Presets {
        let settings = Settings::load(&Sources::default()).unwrap().settings;
        let some = ["qwen3.5-9b-16k", "qwen3.5-9b-64k"].map(|name| settings.preset(name).unwrap().clone());
        let chosen = some[1].clone();
        Presets::new(some, chosen, "qwen3.5-9b")
    }

    #[test]
    fn names_that_clients_use() {
        let presets = presets();
        let found = |name| presets.named(name).map(|preset| preset.name.clone());
        assert_eq!(found("qwen3.5-9b-16k").unwrap(), "qwen3.5-9b-16k");
        for name in ["", "qwen3.5-9b", "gpt-realtime", "qwen3.5-9b-64k"] {
            assert_eq!(found(name).unwrap(), "qwen3.5-9b-64k", "{name}");
        }
        let error = found("qwen3.5-9b-46k").unwrap_err().to_string();
        assert!(error.contains("qwen3.5-9b-16k, qwen3.5-9b-64k"), "{error}");
    }

    #[test]
    fn a_session_keeps_its_window() {
        let presets = presets();
        let native = u64::from(presets.chosen.native_ctx.unwrap());
        assert_eq!(presets.of_session("qwen3.5-9b-16k", 5000).ctx_size, 5000);
        assert_eq!(u64::from(presets.of_session("qwen3.5-9b-16k", native * 2).ctx_size), native);
        let gone = presets.of_session("tools", 6000);
        assert_eq!((gone.name.as_str(), gone.ctx_size), ("qwen3.5-9b-64k", 6000));
    }
}
