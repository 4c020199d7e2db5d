//! The card of a repository: what its files hold, what was measured of them, and where they come from.

use super::measured;
use anyhow::{Context, Result};
use engine::Format;
use hub::Content;
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
    /// Hashes in hexadecimal digits by name: its own, or those of a folder's files.
    hashes: BTreeMap<String, String>,
    model: Option<CardModel>,
}

struct CardModel {
    rows: Vec<(&'static str, String)>,
    /// Matrices by their type.
    types: BTreeMap<&'static str, usize>,
    bits_per_weight: f64,
}

impl CardFile {
    /// Reads a file, or a folder with those of the files to publish that are in it.
    pub fn read(path: &Path, uploads: &BTreeMap<String, Content>) -> Result<CardFile> {
        let found = std::fs::metadata(path).with_context(|| path.display().to_string())?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_model =
            found.is_dir() || path.extension().is_some_and(|extension| extension == "gguf" || extension == "apr");
        let (mut bytes, mut hashes) = (0, BTreeMap::new());
        for (name, content) in uploads {
            let Content::File(file) = content else { continue };
            if file.as_path() == path || file.parent() == Some(path) {
                bytes += std::fs::metadata(file).with_context(|| file.display().to_string())?.len();
                hashes.insert(name.clone(), hub::sha256_of(file)?);
            }
        }
        let model = match is_model {
            true => Some(CardModel::of(&weights::open(path, true)?)),
            false => None,
        };
        Ok(CardFile { name, bytes, hashes, model })
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
        for CardFile { name, bytes, model, .. } in self.files {
            let (bits, types) = match model {
                None => (String::new(), String::new()),
                Some(model) => {
                    let types = model.types.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>();
                    (format!("{:.2}", model.bits_per_weight), types.join(", "))
                }
            };
            writeln!(out, "| `{name}` | {} | {bits} | {types} |", HumanBytes(*bytes))?;
        }
        measured::write(self.reports, out)?;
        writeln!(out, "\n## Where it comes from\n")?;
        if let Some(base) = self.base {
            writeln!(out, "- made from {base}")?;
        }
        writeln!(out, "- made and measured with reprise {}", env!("CARGO_PKG_VERSION"))?;
        for (name, sha256) in self.files.iter().flat_map(|file| &file.hashes) {
            writeln!(out, "- SHA-256 of `{name}`: {sha256}")?;
        }
        writeln!(out, "\nRun it: `reprise pull {}`", self.repo)
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_card_of_the_built_in_model() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/builtin/builtin.gguf");
        let uploads = BTreeMap::from([("builtin.gguf".to_owned(), Content::File(path.clone()))]);
        let files = [CardFile::read(&path, &uploads).unwrap()];
        let against = json!({
            "other": "folder/whole.gguf",
            "text": { "kl_mean": 0.5, "kl_p95": 1.5, "same_top_share": 0.75 },
            "tensors": [{ "error": 0.01 }, { "error": 0.03 }, { "error": 0.0 }],
        });
        let contexts = json!([{
            "ctx": 512, "prefill_tokens_per_s": 80.25, "peak_rss_bytes": 3 << 20, "decode": [{ "tokens_per_s": 12.5 }],
        }]);
        let machine = json!({ "cpu": "a processor", "threads": 2 });
        let reports = [
            ("quality.json", json!({ "file": "builtin.gguf", "against": against })),
            (
                "speed.json",
                json!({
                    "bench": "speed", "machine": machine, "contexts": contexts, "model": { "file": "builtin.gguf" },
                }),
            ),
            (
                "qa.json",
                json!({
                    "model": "builtin.gguf",
                    "checks": [{ "name": "replies", "outcome": "holds", "detail": "Yes | no" }],
                }),
            ),
            ("other.json", json!({ "figures": { "one": 7 }, "rows": [1], "text": "a|b" })),
        ];
        let reports = reports.map(|(name, report)| (name.to_owned(), report));
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
            "| builtin.gguf | whole.gguf | 2.00 % | 0.50000 | 1.50000 | 75.00 % |",
            "| builtin.gguf | 512 | 80.2 | 12.5 | 3 MiB | a processor, 2 threads |",
            "| builtin.gguf | replies | holds | Yes   no |",
            "## Measured: other.json\n\n|  |  |\n|---|---|\n| figures.one | 7 |\n\n",
            "- SHA-256 of `builtin.gguf`: ",
            "- made from someone/base@abc",
        ] {
            assert!(card.contains(expected), "{expected} is not in\n{card}");
        }
        assert!(!card.contains("a|b") && !card.contains("rows"), "{card}");
    }
}
