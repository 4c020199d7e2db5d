//! The card of a repository: what its files hold, what was measured of them, and where they come from.

use anyhow::{Context, Result};
use engine::Format;
use indicatif::HumanBytes;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use weights::ModelWeights;

pub struct Card<'c> {
    pub repo: &'c str,
    pub base: Option<&'c str>,
    pub license: Option<&'c str>,
    pub files: &'c [CardFile],
    /// Reports by the names of their files.
    pub reports: &'c [(String, Value)],
}

/// A file, and what is known of the model in it.
pub struct CardFile {
    name: String,
    bytes: u64,
    model: Option<CardModel>,
}

struct CardModel {
    rows: Vec<(&'static str, String)>,
    /// Matrices by their type.
    types: BTreeMap<&'static str, usize>,
    bits_per_weight: f64,
}

impl CardFile {
    pub fn read(path: &Path) -> Result<CardFile> {
        let found = std::fs::metadata(path).with_context(|| path.display().to_string())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_model = found.is_dir() || path.extension().is_some_and(|extension| extension == "gguf");
        let model = match is_model {
            true => Some(CardModel::of(&weights::open(path, true)?)),
            false => None,
        };
        Ok(CardFile { name, bytes: found.len(), model })
    }
}

impl CardModel {
    fn of(model: &ModelWeights) -> CardModel {
        let shape = &model.shape;
        let attention = shape.layers.iter().filter(|kind| **kind == weights::LayerKind::Attention).count();
        let mut rows = vec![
            ("architecture", shape.arch.clone()),
            ("layers", format!("{}, {attention} of them attention, the others gated delta rule", shape.layers.len())),
            ("width", shape.hidden.to_string()),
            ("vocabulary", shape.vocab.to_string()),
            ("window that the file states", format!("{} tokens", shape.native_ctx)),
        ];
        if let Some(moe) = &shape.moe {
            rows.push(("experts", format!("{} of {} for each token", moe.used, moe.experts)));
        }
        if model.prediction.is_some() {
            rows.push(("multi-token prediction", "one block".to_owned()));
        }
        let (mut types, mut bytes, mut values) = (BTreeMap::new(), 0, 0);
        for matrix in model.matrices() {
            *types.entry(matrix.format().map_or("trellis", Format::name)).or_default() += 1;
            bytes += matrix.bytes();
            values += matrix.rows() * matrix.cols();
        }
        CardModel { rows, types, bits_per_weight: bytes as f64 * 8.0 / values.max(1) as f64 }
    }
}

impl Display for Card<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "---")?;
        if let Some(base) = self.base {
            writeln!(out, "base_model: {}", quoted(base.split('@').next().unwrap_or(base)))?;
        }
        if let Some(license) = self.license {
            writeln!(out, "license: {}", quoted(license))?;
        }
        let is_gguf = self.files.iter().any(|file| file.name.ends_with(".gguf"));
        writeln!(out, "pipeline_tag: text-generation\ntags:")?;
        for tag in is_gguf.then_some("gguf").into_iter().chain(["reprise"]) {
            writeln!(out, "- {tag}")?;
        }
        writeln!(out, "---\n\n# {}\n", self.repo)?;
        if let Some(model) = self.files.iter().find_map(|file| file.model.as_ref()) {
            writeln!(out, "| | |\n|---|---|")?;
            for (what, value) in &model.rows {
                writeln!(out, "| {what} | {value} |")?;
            }
            writeln!(out)?;
        }
        writeln!(out, "## Files\n\n| file | size | bits a weight | matrices by type |\n|---|---|---|---|")?;
        for CardFile { name, bytes, model } in self.files {
            let (bits, types) = match model {
                None => (String::new(), String::new()),
                Some(model) => {
                    let types = model.types.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>();
                    (format!("{:.2}", model.bits_per_weight), types.join(", "))
                }
            };
            writeln!(out, "| `{name}` | {} | {bits} | {types} |", HumanBytes(*bytes))?;
        }
        for (name, report) in self.reports {
            writeln!(out, "\n## Measured: {name}\n\n| | |\n|---|---|")?;
            let mut rows = Vec::new();
            figures("", report, &mut rows);
            for (what, value) in rows {
                writeln!(out, "| {what} | {value} |")?;
            }
        }
        writeln!(out, "\n## Where it comes from\n")?;
        if let Some(base) = self.base {
            writeln!(out, "- made from {base}")?;
        }
        writeln!(out, "- made and measured with reprise {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(out, "- the hub tells the SHA-256 of each file\n\nRun it: `reprise pull {}`", self.repo)
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Most rows of one report: a card is read by people.
const ROWS: usize = 40;
const DEPTH: usize = 3;

/// Lists the plain values of a report by their paths. Lists are left out.
fn figures(path: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) if path.matches('.').count() < DEPTH => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                figures(&path, value, rows);
            }
        }
        _ if rows.len() >= ROWS => {}
        Value::Number(number) => rows.push((path.to_owned(), number.to_string())),
        Value::String(text) if !text.contains(['|', '\n']) => rows.push((path.to_owned(), text.clone())),
        Value::Bool(is) => rows.push((path.to_owned(), if *is { "yes" } else { "no" }.to_owned())),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_card_of_the_built_in_model() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/builtin/builtin.gguf");
        let files = [CardFile::read(&path).unwrap()];
        let reports = [("quality.json".to_owned(), json!({ "kl": { "mean": 0.5 }, "rows": [1], "text": "a|b" }))];
        let card = Card {
            repo: "someone/model",
            base: Some("someone/base@abc"),
            license: Some("apache-2.0"),
            files: &files,
            reports: &reports,
        };
        let card = card.to_string();
        for expected in [
            "---\nbase_model: \"someone/base\"\nlicense: \"apache-2.0\"\n",
            "| architecture | qwen35 |",
            "| `builtin.gguf` |",
            "| kl.mean | 0.5 |",
            "- made from someone/base@abc",
        ] {
            assert!(card.contains(expected), "{expected} is not in\n{card}");
        }
        assert!(!card.contains("a|b") && !card.contains("rows"), "{card}");
    }
}
