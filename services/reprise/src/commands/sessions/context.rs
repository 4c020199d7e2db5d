//! Summaries and pins of a session, which stand in its prompt for the turns that left it.
//!
//! Changes are made in the store. A running service looks for them every few seconds, and its next prompt shows them.

use super::{Sessions, open};
use crate::owners::forget_computed;
use anyhow::Result;
use model::Model;
use runtime::{Presets, Runtime, RuntimeParts, wall_ms};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use store::{SessionRef, Summary};
use terminal::output::{clean, clean_lines, print_json, print_rows};
use terminal::say;

#[derive(Debug, clap::Subcommand)]
pub enum Pins {
    /// Lists the pins
    List { session: String },
    /// Adds a pin
    Add {
        session: String,
        #[arg(required = true)]
        text: Vec<String>,
    },
    /// Removes a pin by its id
    Remove { session: String, pin: String },
}

impl Sessions<'_> {
    pub async fn pins(&self, pins: Pins) -> Result<()> {
        match pins {
            Pins::List { session } => {
                let pins = self.store.pins(&self.find(&session).await?, false).await?;
                if self.json {
                    return print_json(&pins);
                }
                // Without an item: added by hand.
                let columns =
                    [("pin", "id"), ("said in", "source_item"), ("made (UTC)", "created_at_ms"), ("text", "text")];
                print_rows(&pins, &columns)
            }
            Pins::Add { session, text } => {
                let session = self.find(&session).await?;
                let pin = self.as_the_service(&session).await?.add_pin(&session, &text.join(" ")).await?;
                self.done(&pin, &pin.id)
            }
            Pins::Remove { session, pin } => {
                self.store.remove_pin(&self.find(&session).await?, &pin, wall_ms()).await?;
                forget_computed(self.settings, self.store).await?;
                self.done(&json!({"id": pin}), &format!("{} is removed", clean(&pin)))
            }
        }
    }

    pub async fn summaries(&self, session: &SessionRef) -> Result<()> {
        let summaries = self.store.summaries(session).await?;
        // Of several that are not undone the newest stands.
        let in_use = summaries.iter().rev().find(|summary| summary.is_in_use());
        let rows = summaries.iter().rev().map(|summary| {
            let is_in_use = in_use.is_some_and(|in_use| in_use.version == summary.version);
            let mut row = json!(summary);
            row["in_use"] = json!(is_in_use);
            if !self.json {
                let state = match summary {
                    _ if is_in_use => "in use",
                    Summary { undone_at_ms: Some(_), .. } => "undone",
                    Summary { applied_at_ms: None, .. } => "not used yet",
                    _ => "replaced",
                };
                row["in_use"] = json!(state);
            }
            row
        });
        let rows: Vec<Value> = rows.collect();
        if self.json {
            return print_json(&rows);
        }
        let columns = [
            ("version", "version"),
            ("", "in_use"),
            ("kind", "kind"),
            ("by", "made_by"),
            ("made (UTC)", "created_at_ms"),
            ("before", "tokens_before"),
            ("after", "tokens_after"),
            ("up to", "to_item"),
        ];
        print_rows(&rows, &columns)?;
        if let Some(summary) = in_use {
            say!("\n{}", clean_lines(&summary.text))?;
        }
        Ok(())
    }

    pub async fn undo(&self, session: &SessionRef) -> Result<()> {
        let undone = self.as_the_service(session).await?.undo_summary(session, None).await?;
        self.done(&undone, &format!("summary {} is undone", undone.version))
    }

    pub async fn redo(&self, session: &SessionRef, version: Option<u64>) -> Result<()> {
        let redone = self.as_the_service(session).await?.redo_summary(session, version).await?;
        self.done(&redone, &format!("summary {} is in use again", redone.version))
    }

    pub async fn edit(&self, session: &SessionRef, version: Option<u64>, file: &Path) -> Result<()> {
        let text = std::io::read_to_string(open(file)?)?;
        let edited = self.as_the_service(session).await?.edit_summary(session, version, &text).await?;
        self.done(&edited, &format!("summary {} is in use", edited.version))
    }

    fn done(&self, changed: &impl Serialize, words: &str) -> Result<()> {
        if self.json {
            return print_json(changed);
        }
        say!("{words}")?;
        Ok(())
    }

    /// Builds a runtime without a model, so that a change is checked as the service checks it.
    async fn as_the_service(&self, session: &SessionRef) -> Result<Runtime> {
        let settings = self.settings;
        let preset = self.store.session(session).await?.placement.preset;
        let model = Model::counting(settings, &preset).await?;
        let presets = Presets::new(settings.presets.values().cloned(), settings.chosen()?.clone(), "");
        let settings = Arc::new(settings.clone());
        Ok(Runtime::new(RuntimeParts { settings, store: self.store.clone(), model, presets }))
    }
}
