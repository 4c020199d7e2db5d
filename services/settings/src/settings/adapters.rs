//! Adapters of the running model.

use std::path::PathBuf;

use crate::reader::SectionReader;

/// Adapter with its factor, written `PATH` or `PATH:FACTOR`.
#[derive(Debug, Clone, PartialEq)]
pub struct AdapterChoice {
    pub path: PathBuf,
    pub scale: f32,
}

impl AdapterChoice {
    pub fn parse(text: &str) -> Option<AdapterChoice> {
        let (path, scale) = match text.rsplit_once(':').map(|(path, scale)| (path, scale.parse::<f32>())) {
            Some((path, Ok(scale))) => (path, scale),
            _ => (text, 1.0),
        };
        (!path.is_empty() && scale.is_finite()).then(|| AdapterChoice { path: path.into(), scale })
    }
}

impl SectionReader<'_> {
    pub(super) fn adapters(&self, key: &'static str) -> Vec<AdapterChoice> {
        let allowed =
            "a list of folders such as [\"adapters/voice\", \"adapters/home:0.5\"], each with a factor or without";
        self.list_of(key, allowed, |text| AdapterChoice::parse(text).ok_or(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_stands_behind_the_last_colon() {
        let parsed = |text| AdapterChoice::parse(text).map(|one| (one.path.display().to_string(), one.scale));
        assert_eq!(parsed("a/b"), Some(("a/b".into(), 1.0)));
        assert_eq!(parsed("a/b:-0.5"), Some(("a/b".into(), -0.5)));
        assert_eq!(parsed("a:b"), Some(("a:b".into(), 1.0)));
        for wrong in ["", ":2", "a:inf", "a:NaN"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
