//! Summaries and pins of a session: what stands in its prompt for what left it.
//!
//! Changes are made in the store. A service that runs beside it looks for them every few seconds, and its next prompt
//! shows them.

use super::One;
use anyhow::{Context, Result};
use lab::output::{TextTable, clean, clean_lines, print_json, time};
use model::Model;
use runtime::{Parts, Presets, Runtime, wall_ms};
use serde_json::json;
use settings::Settings;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use store::{SessionRef, Store, Summary, SummaryKind};

#[derive(Debug, clap::Subcommand)]
pub enum Pins {
    /// What the assistant always sees word for word
    List {
        #[command(flatten)]
        one: One,
        #[arg(long)]
        json: bool,
    },
    /// Adds a pin
    Add {
        #[command(flatten)]
        one: One,
        #[arg(required = true)]
        text: Vec<String>,
    },
    /// Removes a pin by its id
    Remove {
        #[command(flatten)]
        one: One,
        pin: String,
    },
}

pub async fn pins(store: &Store, pins: Pins, settings: &Settings) -> Result<()> {
    match pins {
        Pins::List { one, json } => list_pins(store, &one.find(store).await?, json).await,
        Pins::Add { one, text } => {
            let session = one.find(store).await?;
            let pin = as_the_service(store, &session, settings).await?.add_pin(&session, &text.join(" ")).await?;
            println!("{}", pin.id);
            Ok(())
        }
        Pins::Remove { one, pin } => {
            store.remove_pin(&one.find(store).await?, &pin, wall_ms()).await?;
            println!("{} is removed", clean(&pin));
            Ok(())
        }
    }
}

pub async fn summaries(store: &Store, session: &SessionRef, json: bool) -> Result<()> {
    let summaries = store.summaries(session).await?;
    let in_use = in_use(&summaries).map(|summary| summary.version);
    if json {
        let told = |summary: &Summary| {
            let mut told = json!(summary);
            told["in_use"] = json!(Some(summary.version) == in_use);
            told
        };
        return print_json(&summaries.iter().rev().map(told).collect::<Vec<_>>());
    }
    let mut table = TextTable::new(&[">version", "", "kind", "by", "made (UTC)", ">before", ">after", "up to"]);
    for summary in summaries.iter().rev() {
        let state = match summary {
            summary if Some(summary.version) == in_use => "in use",
            Summary { undone_at_ms: Some(_), .. } => "undone",
            Summary { applied_at_ms: None, .. } => "not used yet",
            _ => "replaced",
        };
        table.row([
            summary.version.to_string(),
            state.to_owned(),
            match summary.kind {
                SummaryKind::Summary => "summary".to_owned(),
                SummaryKind::Drop => "left out".to_owned(),
            },
            summary.made_by.to_string(),
            time(summary.created_at_ms),
            summary.tokens_before.to_string(),
            summary.tokens_after.to_string(),
            clean(&summary.to_item),
        ]);
    }
    table.print()?;
    let mut out = std::io::stdout().lock();
    if let Some(summary) = summaries.iter().find(|summary| Some(summary.version) == in_use) {
        writeln!(out, "\n{}", clean_lines(&summary.text))?;
    }
    Ok(())
}

pub async fn undo(store: &Store, session: &SessionRef, settings: &Settings) -> Result<()> {
    let undone = as_the_service(store, session, settings).await?.undo_summary(session, None).await?;
    println!("summary {} is undone", undone.version);
    Ok(())
}

pub async fn redo(store: &Store, session: &SessionRef, version: Option<u64>, settings: &Settings) -> Result<()> {
    let redone = as_the_service(store, session, settings).await?.redo_summary(session, version).await?;
    println!("summary {} is in use again", redone.version);
    Ok(())
}

/// The text comes from a file, or from the standard input.
pub async fn edit(
    store: &Store,
    session: &SessionRef,
    version: Option<u64>,
    file: &Path,
    settings: &Settings,
) -> Result<()> {
    let text = match file.to_str() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        _ => std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?,
    };
    let edited = as_the_service(store, session, settings).await?.edit_summary(session, version, &text).await?;
    println!("summary {} is in use", edited.version);
    Ok(())
}

/// What the service does when it is asked for the same, without a model that answers: it is checked in one way.
async fn as_the_service(store: &Store, session: &SessionRef, settings: &Settings) -> Result<Runtime> {
    let preset = store.session(session).await?.placement.preset;
    let model = Model::counting(settings, &preset).await?;
    let presets = Presets::new(settings.presets.values().cloned(), settings.chosen()?.clone(), "");
    let settings = Arc::new(settings.clone());
    Ok(Runtime::new(Parts { settings, store: store.clone(), model, presets }))
}

async fn list_pins(store: &Store, session: &SessionRef, json: bool) -> Result<()> {
    let pins = store.pins(session, false).await?;
    if json {
        return print_json(&pins);
    }
    let mut table = TextTable::new(&["pin", "by", "made (UTC)", "text"]);
    for pin in &pins {
        let by = if pin.source_item.is_some() { "said" } else { "hand" };
        table.row([clean(&pin.id), by.to_owned(), time(pin.created_at_ms), clean(&pin.text)]);
    }
    table.print()
}

/// Of several that are not undone the newest stands.
fn in_use(summaries: &[Summary]) -> Option<&Summary> {
    summaries.iter().rev().find(|summary| summary.is_in_use())
}
