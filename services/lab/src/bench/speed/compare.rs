//! Two measurements beside each other.

use crate::bench::BenchOutput;
use crate::charts::{Chart, Series};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use terminal::note;

/// One figure of both. More is better, but for those whose names end in `_ms` or `_bytes`.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    what: String,
    ctx: u64,
    a: f64,
    b: f64,
    /// B divided by A.
    ratio: f64,
}

const FIGURES: [&str; 4] =
    ["prefill_tokens_per_s", "prefill_last_chunk_tokens_per_s", "cached_prefill_ms", "peak_rss_bytes"];

pub fn run(a: &Path, b: &Path, output: &BenchOutput) -> Result<()> {
    let [measured_a, measured_b] = [read(a)?, read(b)?];
    for (what, path) in [
        ("machines", "/machine/processor"),
        ("threads", "/machine/threads"),
        ("models", "/model/name"),
        ("weights", "/model/weight_bytes"),
    ] {
        let [of_a, of_b] = [&measured_a, &measured_b].map(|measured| measured.pointer(path));
        if of_a != of_b {
            let [of_a, of_b] = [of_a, of_b].map(|value| value.map_or_else(|| "unknown".to_owned(), Value::to_string));
            note!("note: the {what} differ: {of_a} and {of_b}");
        }
    }
    let rows = rows(&measured_a, &measured_b);
    if rows.is_empty() {
        bail!("the two measure no context alike: measure both with the same --ctx");
    }
    let chart = chart(&measured_a, &measured_b);
    let report = json!({ "bench": "compare", "a": a, "b": b, "rows": rows });
    output.tell(&report, &[&report["rows"]], &[chart])
}

fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let measured: Value = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not what `bench --json` prints", path.display()))?;
    match measured["bench"] == "speed" {
        true => Ok(measured),
        false => bail!("{} is no measurement of `bench speed`, only those are compared", path.display()),
    }
}

fn contexts(measured: &Value) -> impl Iterator<Item = &Value> {
    measured["contexts"].as_array().into_iter().flatten()
}

fn rows(a: &Value, b: &Value) -> Vec<Row> {
    let mut rows = Vec::new();
    for at_a in contexts(a) {
        let Some(at_b) = contexts(b).find(|at_b| at_b["ctx"] == at_a["ctx"]) else { continue };
        let ctx = at_a["ctx"].as_u64().unwrap_or(0);
        let mut row = |what: String, a: &Value, b: &Value| {
            if let (Some(a), Some(b)) = (a.as_f64(), b.as_f64()) {
                rows.push(Row { what, ctx, a, b, ratio: b / a });
            }
        };
        for figure in FIGURES {
            row(figure.to_owned(), &at_a[figure], &at_b[figure]);
        }
        for decode_a in at_a["decode"].as_array().into_iter().flatten() {
            let mut all = at_b["decode"].as_array().into_iter().flatten();
            if let Some(decode_b) = all.find(|decode_b| decode_b["batch"] == decode_a["batch"]) {
                let what = format!("decode_tokens_per_s, batch {}", decode_a["batch"]);
                row(what, &decode_a["tokens_per_s"], &decode_b["tokens_per_s"]);
            }
        }
    }
    rows
}

fn chart(a: &Value, b: &Value) -> Chart {
    let series = |name, mark, measured: &Value| {
        let point = |at: &Value| Some((at["ctx"].as_f64()?, at.pointer("/decode/0/tokens_per_s")?.as_f64()?));
        Series::dots(name, mark, contexts(measured).filter_map(point).collect())
    };
    let series = vec![series("A", 'a', a), series("B", 'b', b)];
    Chart { title: "Decode".to_owned(), x: "tokens of context", y: "tokens/s", series }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_at_the_same_context_are_compared() {
        let measured = |factor: f64, ctx: u64| {
            json!({ "contexts": [{ "ctx": ctx, "prefill_tokens_per_s": 100.0 * factor, "cached_prefill_ms": 8.0 / factor,
                "decode": [{ "batch": 1, "tokens_per_s": 10.0 * factor }, { "batch": 4, "tokens_per_s": 30.0 }] }] })
        };
        let told: Vec<(String, f64)> =
            rows(&measured(1.0, 512), &measured(2.0, 512)).into_iter().map(|row| (row.what, row.ratio)).collect();
        let expected = [
            ("prefill_tokens_per_s", 2.0),
            ("cached_prefill_ms", 0.5),
            ("decode_tokens_per_s, batch 1", 2.0),
            ("decode_tokens_per_s, batch 4", 1.0),
        ];
        assert_eq!(told, expected.map(|(what, ratio)| (what.to_owned(), ratio)));
        assert!(rows(&measured(1.0, 512), &measured(1.0, 4096)).is_empty());
    }
}
