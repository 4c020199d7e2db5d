//! Where a value was written: its layer, its place there, and the key under which it stands there.

use std::fmt;

use config::Value;
use strum::VariantArray;

/// In the order in which layers are laid: a later one wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, VariantArray)]
pub enum SettingsLayer {
    /// `config/default.toml` inside the binary.
    #[default]
    Default,
    /// A model file: inside the binary, or from `[model] presets_dir`.
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
    /// The key as it is written there: a preset's `thinking` may come from `preset.thinking`.
    pub key: String,
}

impl Origin {
    /// The text that a `config::Value` carries. No file, variable or flag has a zero byte in its name.
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

    /// For the comments of `--print-config`, where lines of built-in files tell a reader nothing.
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

/// `presets` and `qwen3.5-9b` as `presets."qwen3.5-9b"`, as TOML writes it.
pub(crate) fn join(path: &str, name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let name = if bare { name.to_string() } else { quoted(name) };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}
