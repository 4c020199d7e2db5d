//! Values of the configuration with their origins and with what `default.toml` says of their keys, for people.

use crate::built_in::DEFAULT;
use crate::load::LoadedSettings;
use crate::origin::SettingsLayer;
use crate::password::without_password;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedValue {
    pub section: String,
    pub key: String,
    pub value: String,
    /// True for a value that the user's file, a variable or a flag decided.
    pub is_chosen: bool,
    pub origin: String,
    pub comment: String,
}

pub fn explained(loaded: &LoadedSettings) -> Vec<ExplainedValue> {
    let (comments, chosen) = (comments(DEFAULT), crate::origin::join("presets", &loaded.settings.model.preset));
    let shown = loaded.origins.iter().filter_map(|value| {
        let of_preset = value.section.strip_prefix(&chosen).filter(|rest| rest.is_empty() || rest.starts_with('.'));
        let documented = match of_preset {
            Some(rest) => format!("preset{rest}"),
            None if value.section.starts_with("presets.") => return None,
            None => value.section.clone(),
        };
        Some(ExplainedValue {
            section: value.section.clone(),
            key: value.key.clone(),
            value: without_password(&value.value),
            is_chosen: value.origin.layer > SettingsLayer::ModelFile,
            origin: value.origin.short().to_owned(),
            comment: comments.get(&(documented, value.key.clone())).cloned().unwrap_or_default(),
        })
    });
    shown.collect()
}

/// Reads the comment above each key. A blank line ends a comment that is about more than one key.
fn comments(text: &str) -> BTreeMap<(String, String), String> {
    let (mut found, mut section, mut above) = (BTreeMap::new(), String::new(), Vec::new());
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix('#') {
            above.push(comment.trim());
        } else if let Some(name) = line.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            section = name.to_owned();
            above.clear();
        } else if let Some((key, _)) = line.split_once(" = ") {
            found.insert((section.clone(), key.to_owned()), std::mem::take(&mut above).join(" "));
        } else {
            above.clear();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flag, Settings, Sources};

    #[test]
    fn a_value_comes_with_its_origin_and_the_comment_of_its_key() {
        let flags = vec![
            Flag::new("--port", "server.port", 9000),
            Flag::new("--set", "upstream.url", "http://a:b@gpu.local/v1"),
        ];
        let all = explained(&Settings::load(&Sources { flags, ..Sources::default() }).unwrap());
        let of =
            |section: &str, key: &str| all.iter().find(|value| value.section == section && value.key == key).unwrap();
        let port = of("server", "port");
        assert_eq!((&*port.value, port.is_chosen, &*port.origin), ("9000", true, "flag --port"));
        assert!(port.comment.starts_with("TCP port; 0 lets the system choose one"), "{}", port.comment);
        let host = of("server", "host");
        assert_eq!((host.is_chosen, &*host.origin), (false, "default"));
        assert_eq!(of("upstream", "url").value, "\"http://…@gpu.local/v1\"");
        assert!(of("presets.default.compaction", "soft_fill").comment.len() > 20);
    }

    #[test]
    fn nearly_every_key_is_explained() {
        let all = explained(&Settings::load(&Sources::default()).unwrap());
        let bare: Vec<_> = all.iter().filter(|value| value.comment.is_empty()).map(|value| &value.key).collect();
        assert!(all.len() > 100 && bare.len() * 10 < all.len(), "{} of {}: {bare:?}", bare.len(), all.len());
    }
}
