//! Origins of values: the layer, the place in it, and the key there.

use std::fmt;

use config::Value;
use strum::VariantArray;

/// Layers in the order of their merge: a later one wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, VariantArray)]
pub enum SettingsLayer {
    #[default]
    Default,
    ModelFile,
    UserFile,
    Environment,
    Flag,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub layer: SettingsLayer,
    /// `reprise.toml:2`, `environment REPRISE__SERVER__PORT` or `flag --port`.
    pub place: String,
    /// Key as written there: a preset's `thinking` may come from `preset.thinking`.
    pub key: String,
}

impl Origin {
    /// Renders the text that a `config::Value` carries. No file, variable or flag has a zero byte in its name.
    pub(crate) fn carried(&self) -> String {
        format!("{}\0{}\0{}", self.place, self.layer as usize, self.key)
    }

    pub(crate) fn of(value: &Value) -> Origin {
        let mut parts = value.origin().unwrap_or_default().splitn(3, '\0');
        let mut part = || parts.next().unwrap_or_default();
        let (place, layer, key) = (part().to_string(), part(), part().to_string());
        let layer = layer.parse().ok().and_then(|number: usize| SettingsLayer::VARIANTS.get(number));
        Origin { layer: layer.copied().unwrap_or_default(), place, key }
    }

    /// Shortens the place for the comments of `--print-config`, in which lines of built-in files help no reader.
    pub fn short(&self) -> &str {
        match self.layer {
            SettingsLayer::Default => "default",
            SettingsLayer::ModelFile => self.place.rsplit_once(':').map_or(&self.place, |(file, _)| file),
            _ => &self.place,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

pub(crate) fn join(path: &str, name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let name = if bare { name.to_string() } else { quoted(name) };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}
