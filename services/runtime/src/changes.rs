//! Changes that a person makes to the view of a session: undone, redone and edited summaries, and pins.
//!
//! Each change is one transaction of the store. A session in memory shows it in its next prompt.

use crate::clock::wall_ms;
use crate::command::Command;
use crate::compactor::{Past, WindowParts, pin_of};
use crate::prompts::SessionTools;
use crate::{Error, Runtime, heavy};
use compaction::Admission;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use store::{MadeBy, Pin, SessionRef, Summary, SummaryKind};
use tokio::sync::oneshot;

/// Longest wait for a session in memory to show the change. A session that talks without a break shows it later.
const FOLLOWING: Duration = Duration::from_secs(5);

impl Runtime {
    /// Undoes the summary in use, or version `version` if it is the one in use. The summary before it takes its place,
    /// or the whole history if that fits the window.
    pub async fn undo_summary(&self, session: &SessionRef, version: Option<u64>) -> Result<Summary, Error> {
        let all = self.store().summaries(session).await?;
        let shown_past = all.iter().rev().find(|summary| summary.is_in_use());
        let shown_past = shown_past.filter(|summary| version.is_none_or(|version| version == summary.version));
        let Some(undone) = shown_past else { return Err(Error::NoSummaryToUndo) };
        let before = all.iter().rev().find(|summary| summary.is_in_use() && summary.version < undone.version);
        self.check_fit(session, before).await?;
        self.store().undo_summary(session, undone.version, wall_ms()).await?;
        self.follow(session).await;
        self.summary(session, undone.version).await
    }

    pub async fn redo_summary(&self, session: &SessionRef, version: Option<u64>) -> Result<Summary, Error> {
        let all = self.store().summaries(session).await?;
        let is_meant = |summary: &&Summary| {
            summary.undone_at_ms.is_some() && version.is_none_or(|version| version == summary.version)
        };
        let Some(redone) = all.iter().rev().find(is_meant) else { return Err(Error::NoSummaryToRedo) };
        // The newest is what the model sees: an older one beside it would change nothing.
        let newer = all.iter().rev().find(|summary| summary.is_in_use() && summary.version > redone.version);
        if let Some(newer) = newer {
            return Err(Error::NewerSummaryInUse { version: redone.version, in_use: newer.version });
        }
        self.store().apply_summary(session, redone.version, Vec::new(), wall_ms()).await?;
        self.follow(session).await;
        self.summary(session, redone.version).await
    }

    pub async fn edit_summary(&self, session: &SessionRef, version: Option<u64>, text: &str) -> Result<Summary, Error> {
        let text = self.checked(text)?;
        let all = self.store().summaries(session).await?;
        let is_meant = |summary: &&Summary| match version {
            Some(version) => summary.version == version,
            None => summary.is_in_use(),
        };
        let Some(edited) = all.iter().rev().find(is_meant) else { return Err(Error::NoSummaryToEdit) };
        let tools = self.tools(session).await?;
        let limit = 2 * tools.limits.summary_tokens;
        let tokens = heavy::run(text.len(), || remember::estimate_tokens(text)).await;
        if tokens > limit {
            return Err(Error::SummaryTooLong { tokens, limit });
        }
        let written = Summary {
            text: text.to_owned(),
            kind: SummaryKind::Summary,
            made_by: MadeBy::User,
            based_on: Some(edited.version),
            checks: json!({}),
            tokens_before: edited.tokens_after,
            created_at_ms: wall_ms(),
            applied_at_ms: None,
            undone_at_ms: None,
            ..edited.clone()
        };
        let tokens_after = self.check_fit(session, Some(&written)).await?;
        let new = Summary { tokens_after, ..written };
        let version = self.store().add_applied_summary(session, new, Vec::new()).await?;
        self.follow(session).await;
        self.summary(session, version).await
    }

    pub async fn add_pin(&self, session: &SessionRef, text: &str) -> Result<Pin, Error> {
        let text = self.checked(text)?;
        let limits = self.tools(session).await?.limits;
        let pins = self.store().pins(session, false).await?;
        let there: Vec<_> = pins.iter().map(pin_of).collect();
        match heavy::run(text.len(), || compaction::admit(&there, text, &limits)).await {
            Admission::Add => {}
            Admission::Known => {
                let known =
                    pins.into_iter().find(|pin| compaction::admit(&[pin_of(pin)], text, &limits) == Admission::Known);
                return known.ok_or(Error::EmptyText);
            }
            Admission::Full => return Err(Error::PinsFull { limit: limits.pins_tokens() }),
        }
        let pin = self.store().add_pin(session, text, None, MadeBy::User, wall_ms()).await?;
        self.follow(session).await;
        Ok(pin)
    }

    fn checked<'a>(&self, text: &'a str) -> Result<&'a str, Error> {
        let (text, limit) = (text.trim(), self.shared.settings.limits.item_bytes);
        match text.len() {
            0 => Err(Error::EmptyText),
            bytes if bytes > limit => Err(Error::TextTooLong { limit }),
            _ => Ok(text),
        }
    }

    pub async fn remove_pin(&self, session: &SessionRef, pin: &str) -> Result<(), Error> {
        self.store().remove_pin(session, pin, wall_ms()).await?;
        self.follow(session).await;
        Ok(())
    }

    /// Reloads the sessions in memory whose summaries or pins another process has changed in the store, and ends those that it has
    /// deleted.
    pub async fn look_for_changes(&self) {
        if let Err(error) = self.store().look_for_forgotten().await {
            tracing::debug!(%error, "the store could not be asked whether something was forgotten");
        }
        for (session, seen) in self.in_memory() {
            match self.store().context_stamp(&session).await {
                Ok(stamp) if seen.is_some_and(|seen| seen != stamp) => {
                    self.see(&session, stamp);
                    self.follow(&session).await;
                }
                Ok(stamp) => self.see(&session, stamp),
                Err(store::Error::NoSession { .. }) => {
                    let runtime = self.clone();
                    tokio::spawn(async move { runtime.deleted(&session).await });
                }
                Err(error) => tracing::debug!(%error, "the summaries and pins of a session could not be read"),
            }
        }
    }

    pub async fn window(&self, session: &SessionRef) -> Result<WindowParts, Error> {
        let tools = self.tools(session).await?;
        let past = Past::load(&tools).await?;
        tools.window_parts(&past).await.map_err(Error::Model)
    }

    async fn follow(&self, session: &SessionRef) {
        let Some(commands) = self.commands(session) else { return };
        let (done, followed) = oneshot::channel();
        let following = async {
            if commands.send(Box::new(Command::Reload { done })).await.is_ok() {
                let _ = followed.await;
            }
        };
        let _ = tokio::time::timeout(FOLLOWING, following).await;
    }

    async fn summary(&self, session: &SessionRef, version: u64) -> Result<Summary, Error> {
        let all = self.store().summaries(session).await?;
        all.into_iter().find(|summary| summary.version == version).ok_or(Error::NoSummaryToUndo)
    }

    async fn check_fit(&self, session: &SessionRef, summary: Option<&Summary>) -> Result<u64, Error> {
        let tools = self.tools(session).await?;
        let past = Past::with(&tools, summary).await?;
        let shown = past.shown();
        let context = tools.context(&past.shown_past, &shown);
        let tokens = tools.count(&past.config, &shown, &context).await.map_err(Error::Model)?.tokens;
        let limit = u64::from(tools.limits.hard_tokens());
        if tokens > limit { Err(Error::DoesNotFit { tokens, limit }) } else { Ok(tokens) }
    }

    async fn tools(&self, session: &SessionRef) -> Result<Arc<SessionTools>, Error> {
        let record = self.store().session(session).await?;
        let preset = self.shared.presets.of_session(&record.placement.preset, record.placement.ctx_size);
        let told = self.shared.facts_of(session, &record, &preset).await;
        Ok(self.shared.tools_of(&record, session, told))
    }
}
