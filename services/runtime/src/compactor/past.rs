//! Conversation in the store, from the last summary on that still holds.

use super::ShownPast;
use crate::prompts::SessionTools;
use prompt::leading;
use session::{Item, SessionConfig};
use std::sync::Arc;
use store::{ItemVersion, MadeBy, OrderKey, Summary, SummaryKind, View};

#[derive(Clone, Debug)]
pub struct Past {
    pub config: SessionConfig,
    pub shown_past: ShownPast,
    /// Prompt with which the model read the items that no summary covers, to ask for a summary of them.
    pub base: ShownPast,
    /// Instructions at the head, which no summary covers, then all items behind the summary, also those that left the
    /// prompt.
    pub items: Vec<Arc<Item>>,
    pub leading: usize,
    pub shown_from: usize,
    /// False if more left the prompt than was read: the items before `shown_from` are the oldest of it.
    pub is_whole: bool,
    pub last_seq: u64,
}

/// Least tokens of an item with its marks, to bound the number of items that are read.
const ITEM_TOKENS: u32 = 8;
const LEAST_ITEMS: u32 = 64;

impl Past {
    pub async fn load(tools: &SessionTools) -> Result<Past, store::Error> {
        Past::of(tools, tools.store.load(&tools.session).await?, u32::MAX).await
    }

    pub async fn for_summary(tools: &SessionTools) -> Result<Past, store::Error> {
        let most = (tools.limits.ctx_size / ITEM_TOKENS).max(LEAST_ITEMS);
        Past::of(tools, tools.store.load(&tools.session).await?, most).await
    }

    pub async fn with(tools: &SessionTools, summary: Option<&Summary>) -> Result<Past, store::Error> {
        let SessionTools { store, session, .. } = tools;
        let mut view = store.load(session).await?;
        view.items = store.items(session, summary.map(|summary| summary.to_item.as_str()), u32::MAX).await?;
        if summary.is_none() {
            view.head.clear();
        }
        view.trimmed.clear();
        view.summary = summary.cloned();
        Past::of(tools, view, u32::MAX).await
    }

    async fn of(tools: &SessionTools, view: View, most: u32) -> Result<Past, store::Error> {
        let SessionTools { store, session, .. } = tools;
        let shown_past = ShownPast::of(&view);
        let mut base = shown_past.clone();
        let mut stored = view.head.clone();
        let mut shown_from_key = OrderKey::default();
        let mut is_whole = true;
        match &view.summary {
            Some(summary) if shown_past.owes_summary => {
                let told = holding_before(tools, summary).await?;
                let mut left = store.items(session, told.as_ref().map(|told| &*told.to_item), most).await?;
                base.take_back(told.as_ref());
                let has_left = |item: &ItemVersion| item.order_key <= summary.to_order_key;
                is_whole = left.len() < most as usize || !left.last().is_some_and(has_left);
                let is_head = |item: &ItemVersion| view.head.iter().any(|head| head.item_id == item.item_id);
                left.retain(|item| has_left(item) && !is_head(item));
                stored.extend(left);
                shown_from_key = summary.to_order_key.clone();
            }
            _ => {}
        }
        stored.extend(view.items.iter().cloned());
        let items: Vec<_> = stored.iter().map(|version| Arc::new(version.item())).collect();
        let leading = leading(&items);
        let left = stored.iter().filter(|version| version.order_key <= shown_from_key).count();
        let config = view.session.config;
        Ok(Past {
            config,
            shown_past,
            base,
            items,
            leading,
            shown_from: left.max(leading),
            is_whole,
            last_seq: view.last_seq,
        })
    }

    pub fn shown(&self) -> Vec<Arc<Item>> {
        self.items[..self.leading].iter().chain(&self.items[self.shown_from..]).cloned().collect()
    }

    /// Returns true if the item behind this one was read, so that a summary may end here.
    pub fn has_read_behind(&self, through: &str) -> bool {
        let at = self.items.iter().position(|item| item.id == through);
        self.is_whole || at.is_some_and(|at| at + 1 < self.shown_from)
    }

    pub fn dropped_through(&self) -> Option<&str> {
        let last = self.items.get(self.shown_from.checked_sub(1)?)?;
        (self.shown_from > self.leading).then_some(last.id.as_str())
    }
}

/// Returns the newest ancestor of a summary whose text no later change contradicts.
async fn holding_before(tools: &SessionTools, summary: &Summary) -> Result<Option<Summary>, store::Error> {
    let SessionTools { store, session, .. } = tools;
    let all = store.summaries(session).await?;
    let mut version = summary.based_on;
    while let Some(earlier) = all.iter().find(|earlier| Some(earlier.version) == version) {
        let is_told = earlier.kind == SummaryKind::Summary && earlier.undone_at_ms.is_none();
        if is_told && (earlier.made_by == MadeBy::User || !store.is_stale(session, earlier).await?) {
            return Ok(Some(earlier.clone()));
        }
        // Versions count upwards, and so this ends.
        version = earlier.based_on.filter(|before| *before < earlier.version);
    }
    Ok(None)
}
