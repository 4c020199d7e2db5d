//! Presets that a session may have, which are those of the model that runs, and the personas that use them.

use crate::Error;
use crate::once::first_time;
use settings::{Persona, Preset, Settings, UnknownModel};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Presets {
    presets: BTreeMap<String, Arc<Preset>>,
    personas: BTreeMap<String, Persona>,
    pub chosen: Arc<Preset>,
    pub model: String,
    unknown: UnknownModel,
}

#[derive(Clone, Debug)]
pub struct ModelChoice {
    pub name: String,
    pub preset: Arc<Preset>,
    /// Instructions of a persona, which stand before the client's. Empty without a persona.
    pub instructions: String,
    pub is_any_preset: bool,
}

const STOCK_NAMES: &str = "gpt-";

impl Presets {
    pub fn new(presets: impl IntoIterator<Item = Preset>, chosen: Preset, model: &str) -> Presets {
        let mut presets: BTreeMap<String, Arc<Preset>> =
            presets.into_iter().map(|preset| (preset.name.clone(), Arc::new(preset))).collect();
        let chosen = Arc::new(chosen);
        presets.insert(chosen.name.clone(), chosen.clone());
        let (personas, unknown) = (BTreeMap::new(), UnknownModel::Error);
        Presets { presets, personas, chosen, model: model.to_owned(), unknown }
    }

    pub fn with_names(mut self, settings: &Settings) -> Result<Presets, Error> {
        for persona in settings.personas.values() {
            if let Some(preset) = persona.preset.as_ref().filter(|preset| !self.presets.contains_key(*preset)) {
                let (persona, preset) = (persona.name.clone(), preset.clone());
                return Err(Error::PersonaOfAnotherModel { persona, preset, there_are: self.names() });
            }
        }
        self.personas = settings.personas.clone();
        self.unknown = settings.model.unknown;
        Ok(self)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Preset>> {
        self.presets.values()
    }

    /// Lists what clients may choose: the chosen preset first, because many clients take the first, personas last.
    pub fn choices(&self) -> impl Iterator<Item = ModelChoice> {
        let others = self.iter().filter(|preset| preset.name != self.chosen.name);
        let presets = [&self.chosen].into_iter().chain(others).map(|preset| self.choice(preset, false));
        presets.chain(self.personas.values().map(|persona| self.choice_of_persona(persona)))
    }

    pub fn names(&self) -> String {
        self.presets.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    /// Returns the choice for a name that a client of this user gives: a persona, a preset, the model itself, or a stock name.
    pub fn choose(&self, user: &str, name: &str) -> Result<ModelChoice, Error> {
        if let Some(persona) = self.personas.get(name) {
            return Ok(self.choice_of_persona(persona));
        }
        match self.named(name) {
            Ok(preset) => Ok(self.choice(preset, !self.presets.contains_key(name))),
            Err(_) if self.unknown == UnknownModel::Default => {
                if first_time(user, format!("model {name}")) {
                    let chosen = &self.chosen.name;
                    tracing::warn!(model = name, preset = %chosen, "a client named an unknown model and gets the chosen preset");
                }
                Ok(self.choice(&self.chosen, true))
            }
            Err(error) => Err(error),
        }
    }

    pub fn name_of<'a>(&'a self, preset: &'a Preset) -> &'a str {
        if preset.name == "default" { &self.model } else { &preset.name }
    }

    fn choice(&self, preset: &Arc<Preset>, is_any_preset: bool) -> ModelChoice {
        let name = self.name_of(preset).to_owned();
        ModelChoice { name, preset: preset.clone(), instructions: String::new(), is_any_preset }
    }

    fn choice_of_persona(&self, persona: &Persona) -> ModelChoice {
        let preset = persona.preset.as_ref().and_then(|preset| self.presets.get(preset)).unwrap_or(&self.chosen);
        let (name, instructions) = (persona.name.clone(), persona.instructions.clone());
        ModelChoice { name, preset: preset.clone(), instructions, is_any_preset: persona.preset.is_none() }
    }

    pub fn named(&self, name: &str) -> Result<&Arc<Preset>, Error> {
        if let Some(preset) = self.presets.get(name) {
            return Ok(preset);
        }
        let is_own = [self.model.as_str(), &self.chosen.model, "default", ""].contains(&name);
        if is_own || name.starts_with(STOCK_NAMES) {
            return Ok(&self.chosen);
        }
        let names = self.presets.keys().chain(self.personas.keys()).map(String::as_str);
        let there_are = names.collect::<Vec<_>>().join(", ");
        Err(Error::NoSuchModel { name: name.to_owned(), there_are, chosen: self.chosen.name.clone() })
    }

    /// Returns the preset of a session with the window that the session was made with. If the preset no longer exists,
    /// the chosen one takes its place.
    pub fn of_session(&self, name: &str, ctx_size: u64) -> Arc<Preset> {
        let preset = self.presets.get(name).unwrap_or_else(|| {
            tracing::warn!(preset = name, chosen = %self.chosen.name, "the session's preset no longer exists; the chosen one takes its place");
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
        for name in ["", "default", "qwen3.5-9b", "gpt-realtime", "qwen3.5-9b-64k"] {
            assert_eq!(found(name).unwrap(), "qwen3.5-9b-64k", "{name}");
        }
        let error = found("qwen3.5-9b-46k").unwrap_err().to_string();
        assert!(error.contains("qwen3.5-9b-16k, qwen3.5-9b-64k"), "{error}");
    }

    #[test]
    fn a_persona_has_a_preset_and_instructions() {
        let mut settings = Settings::load(&Sources::default()).unwrap().settings;
        let mut persona = |name: &str, preset: Option<&str>| {
            let (name, preset) = (name.to_owned(), preset.map(str::to_owned));
            let instructions = format!("You are {name}.");
            settings.personas.insert(name.clone(), Persona { name, preset, instructions, ..Persona::default() });
        };
        persona("butler", Some("qwen3.5-9b-16k"));
        persona("gpt-cook", None);
        let there = presets().with_names(&settings).unwrap();
        let butler = there.choose("ann", "butler").unwrap();
        assert_eq!((butler.name.as_str(), butler.preset.name.as_str()), ("butler", "qwen3.5-9b-16k"));
        assert_eq!((butler.instructions.as_str(), butler.is_any_preset), ("You are butler.", false));
        let cook = there.choose("ann", "gpt-cook").unwrap();
        assert_eq!((cook.preset.name.as_str(), cook.is_any_preset), ("qwen3.5-9b-64k", true));
        let names: Vec<String> = there.choices().map(|choice| choice.name).collect();
        assert_eq!(names, ["qwen3.5-9b-64k", "qwen3.5-9b-16k", "butler", "gpt-cook"]);
        let error = there.choose("ann", "maid").unwrap_err().to_string();
        assert!(error.contains("qwen3.5-9b-64k, butler, gpt-cook"), "{error}");
        // An operator names a preset to move a session.
        assert!(there.named("butler").is_err());

        settings.model.unknown = UnknownModel::Default;
        let there = presets().with_names(&settings).unwrap();
        assert_eq!(there.choose("ann", "maid").unwrap().preset.name, "qwen3.5-9b-64k");
        assert!(there.named("maid").is_err());

        settings.personas.get_mut("butler").unwrap().preset = Some("qwen3.5-4b".to_owned());
        let error = presets().with_names(&settings).unwrap_err().to_string();
        assert!(error.contains("\"butler\"") && error.contains("\"qwen3.5-4b\""), "{error}");
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
