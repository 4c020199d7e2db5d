//! Tables of a card: what reports of `validate`, `bench` and `qa` say of files.

use std::fmt::{self, Formatter};
use std::path::Path;

use serde_json::Value;

/// Writes the tables of all reports: errors, speed, checks, and of other reports their plain figures.
pub fn write(reports: &[(String, Value)], out: &mut Formatter<'_>) -> fmt::Result {
    let compared: Vec<[String; 6]> = reports.iter().filter_map(|(_, report)| error_row(report)).collect();
    let headings =
        ["file", "compared with", "error, mean of tensors that differ", "KL, mean", "KL, p95", "same likeliest token"];
    table(out, "Error", headings, &compared)?;
    let speeds: Vec<[String; 6]> = reports.iter().flat_map(|(_, report)| speed_rows(report)).collect();
    let headings = ["file", "tokens before", "tokens/s read", "tokens/s written", "memory at most", "machine"];
    table(out, "Speed", headings, &speeds)?;
    let checks: Vec<[String; 4]> = reports.iter().flat_map(|(_, report)| check_rows(report)).collect();
    table(out, "Checks", ["file", "check", "", ""], &checks)?;
    let is_known = |report: &Value| !report["against"].is_null() || is_speed(report) || report["checks"].is_array();
    for (name, report) in reports.iter().filter(|(_, report)| !is_known(report)) {
        let mut rows = Vec::new();
        figures("", report, &mut rows);
        table(out, &format!("Measured: {name}"), ["", ""], &rows)?;
    }
    Ok(())
}

// Returns true if a table of the card has something of the report.
pub fn shows(report: &Value) -> bool {
    fn has_number(value: &Value, depth: usize) -> bool {
        let fields = value.as_object().filter(|_| depth < DEPTH);
        value.is_number() || fields.is_some_and(|fields| fields.values().any(|value| has_number(value, depth + 1)))
    }
    let has_rows = error_row(report).is_some() || !speed_rows(report).is_empty() || !check_rows(report).is_empty();
    has_rows || report.is_object() && (has_number(report, 0) || report["findings"].is_array())
}

fn table<const N: usize>(
    out: &mut Formatter<'_>,
    title: &str,
    headings: [&str; N],
    rows: &[[String; N]],
) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n## {title}\n\n| {} |\n|{}", headings.join(" | "), "---|".repeat(N))?;
    for row in rows {
        writeln!(out, "| {} |", row.each_ref().map(|cell| cell.replace(['|', '\n'], " ")).join(" | "))?;
    }
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}

/// Returns a file's name. Its folder says nothing to readers of the card.
fn file(value: &Value) -> String {
    let path = text(value);
    Path::new(&path).file_name().map_or(path.clone(), |name| name.to_string_lossy().into_owned())
}

fn number(value: &Value, digits: usize) -> String {
    value.as_f64().map_or_else(|| "?".to_owned(), |value| format!("{value:.digits$}"))
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| format!("{:.2} %", 100.0 * value))
}

fn error_row(report: &Value) -> Option<[String; 6]> {
    let against = report.get("against").filter(|against| against.is_object())?;
    let errors = against["tensors"].as_array()?.iter().filter_map(|tensor| tensor["error"].as_f64());
    let errors: Vec<f64> = errors.filter(|error| *error > 0.0).collect();
    let mean = (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64);
    let seen = &against["text"];
    Some([
        file(&report["file"]),
        file(&against["other"]),
        percent(mean.or(Some(0.0))),
        number(&seen["kl_mean"], 5),
        number(&seen["kl_p95"], 5),
        percent(seen["same_top_share"].as_f64()),
    ])
}

fn is_speed(report: &Value) -> bool {
    report["bench"] == "speed"
}

fn speed_rows(report: &Value) -> Vec<[String; 6]> {
    let contexts = report["contexts"].as_array().filter(|_| is_speed(report));
    let machine = &report["machine"];
    let device = machine["gpu"].as_str().map_or_else(|| text(&machine["cpu"]), str::to_owned);
    let threads = machine["threads"].as_u64().map_or_else(String::new, |threads| format!(", {threads} threads"));
    let row = |at: &Value| {
        let memory = at["peak_rss_bytes"].as_u64().map_or("?".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        [
            file(&report["model"]["file"]),
            at["ctx"].to_string(),
            number(&at["prefill_tokens_per_s"], 1),
            number(&at["decode"][0]["tokens_per_s"], 1),
            memory,
            format!("{device}{threads}"),
        ]
    };
    contexts.into_iter().flatten().map(row).collect()
}

fn check_rows(report: &Value) -> Vec<[String; 4]> {
    let checks = report["checks"].as_array();
    let row = |check: &Value| {
        let [name, outcome, detail] = ["name", "outcome", "detail"].map(|key| check[key].as_str().unwrap_or_default());
        [file(&report["model"]), name.to_owned(), outcome.to_owned(), detail.to_owned()]
    };
    checks.into_iter().flatten().map(row).collect()
}

/// Most rows of one report: a card is read by people.
const ROWS: usize = 40;
const DEPTH: usize = 3;

/// Lists the plain values of a report by their paths. Lists are left out.
fn figures(path: &str, value: &Value, rows: &mut Vec<[String; 2]>) {
    match value {
        Value::Object(fields) if path.matches('.').count() < DEPTH => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                figures(&path, value, rows);
            }
        }
        _ if rows.len() >= ROWS => {}
        Value::Number(number) => rows.push([path.to_owned(), number.to_string()]),
        Value::String(text) if !text.contains(['|', '\n']) => rows.push([path.to_owned(), text.clone()]),
        Value::Bool(is) => rows.push([path.to_owned(), if *is { "yes" } else { "no" }.to_owned()]),
        _ => {}
    }
}
