//! Log lines: to the standard error, for people or for collectors.

use anyhow::{Result, anyhow};
use settings::{LogFormat, LoggingSettings};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

const OURS: [&str; 6] = ["doors", "engine", "model", "reprise", "runtime", "store"];

pub fn start(logging: &LoggingSettings) -> Result<()> {
    let level = logging.level.into_str();
    // The libraries tell what they do and not what went wrong for a user: warnings are enough.
    let ours = OURS.map(|name| format!(",{name}={level}")).concat();
    let others = if matches!(level, "error" | "warn") { level } else { "warn" };
    let filter = EnvFilter::try_new(format!("{others}{ours}"))?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let started = match logging.format {
        LogFormat::Human => lines.with_ansi(std::io::stderr().is_terminal()).compact().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(true).with_span_list(true).try_init(),
    };
    started.map_err(|error| anyhow!("the log cannot be started: {error}"))
}
