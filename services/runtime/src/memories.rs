//! How a session in memory follows what is forgotten and learned while it goes on: which facts its prompts tell, and which of its hidden
//! notes still have their words. The store is asked beside the session, never before a word or a barge-in.

use crate::fact_block::BlockFacts;
use crate::prompts::SessionTools;
use crate::shared::Shared;
use futures_util::future::BoxFuture;
use session::machine::OpId;
use std::sync::Arc;
use std::time::Duration;
use store::{Error, SessionRef};
use tokio::sync::watch;
use tokio::time::Instant;

pub struct SessionMemories {
    shared: Arc<Shared>,
    changes: watch::Receiver<u64>,
    question: Option<OpenQuestion>,
    /// The operation that stores a wish to forget something.
    forgetting: Option<OpId>,
    /// A wish to forget something is stored and not heard yet.
    hears: bool,
    /// Time between two looks whether other facts should be told. None: the session is not remembered, or keeps its facts.
    refresh: Option<Duration>,
    refreshed_at: Instant,
}

/// A question to the store that is under way.
struct OpenQuestion {
    /// Whether something was forgotten: until the answer comes no prompt may be made.
    is_urgent: bool,
    answer: BoxFuture<'static, MemoryNews>,
}

pub enum MemoryNews {
    /// Something was forgotten or deleted: follow it.
    Changed,
    /// The store has answered.
    Found { told: Result<BlockFacts, Error>, gone_items: Vec<String> },
}

impl SessionMemories {
    pub fn new(shared: &Arc<Shared>, session: &SessionRef, is_remembered: bool) -> SessionMemories {
        let refresh = Duration::from_secs(shared.settings.remember.refresh_s);
        SessionMemories {
            shared: shared.clone(),
            changes: shared.store.watch_memories(session.user()),
            question: None,
            forgetting: None,
            hears: false,
            refresh: Some(refresh).filter(|refresh| is_remembered && !refresh.is_zero()),
            refreshed_at: Instant::now(),
        }
    }

    /// Tells whether a prompt made now might hold what was forgotten.
    pub fn is_behind(&self) -> bool {
        self.hears
            || self.question.as_ref().is_some_and(|question| question.is_urgent)
            || self.changes.has_changed().unwrap_or(false)
    }

    /// Notes that an operation stores a wish to forget something.
    pub fn will_forget(&mut self, op: OpId) {
        self.forgetting = Some(op);
    }

    /// Returns whether the operation that was stored is a wish to forget something: follow it.
    pub fn stored(&mut self, op: OpId) -> bool {
        let is_wish = self.forgetting.take_if(|forgetting| *forgetting == op).is_some();
        self.hears |= is_wish;
        is_wish
    }

    /// Asks the store what still holds.
    pub fn follow(&mut self, tools: &Arc<SessionTools>) {
        if self.question.as_ref().is_some_and(|question| question.is_urgent) {
            return;
        }
        self.changes.borrow_and_update();
        let (shared, tools, hears) = (self.shared.clone(), tools.clone(), std::mem::take(&mut self.hears));
        let answer = Box::pin(async move {
            if hears && let Err(error) = shared.hear_session(&tools.session).await {
                tracing::warn!(%error, "a wish to forget something is heard later, when the conversation falls silent");
            }
            let (now, user) = (tools.facts.now(), tools.session.user());
            let told = match &tools.person {
                Some(person) => shared.told_or_chosen(user, person, &tools.preset, &now.ids).await,
                None => Ok(BlockFacts::default()),
            };
            found(&tools, told).await
        });
        self.question = Some(OpenQuestion { is_urgent: true, answer });
    }

    /// Chooses the facts anew that the session tells. Returns whether there is an answer to wait for.
    pub fn refresh(&mut self, tools: &Arc<SessionTools>) -> bool {
        if self.refresh.is_none() || self.question.is_some() {
            return self.question.is_some();
        }
        let (shared, tools) = (self.shared.clone(), tools.clone());
        let answer = Box::pin(async move {
            let person = tools.person.as_deref().unwrap_or_default();
            let told = shared.chosen_anew(tools.session.user(), person, &tools.preset).await;
            found(&tools, told).await
        });
        self.question = Some(OpenQuestion { is_urgent: false, answer });
        true
    }

    /// Returns when the facts are chosen anew in a silence that began at `silent_since`. None: never, or they are being chosen.
    pub fn refresh_at(&self, silent_since: Instant) -> Option<Instant> {
        let refresh = self.refresh.filter(|_| self.question.is_none())?;
        silent_since.max(self.refreshed_at).checked_add(refresh)
    }

    /// Waits for the next news. May be dropped and called again.
    pub async fn next(&mut self) -> MemoryNews {
        let SessionMemories { changes, question, .. } = self;
        let follows = question.as_ref().is_some_and(|question| question.is_urgent);
        let answered = async {
            match question {
                Some(question) => (&mut question.answer).await,
                None => std::future::pending().await,
            }
        };
        let news = tokio::select! {
            Ok(()) = changes.changed(), if !follows => MemoryNews::Changed,
            news = answered => news,
        };
        // A change takes the place of a look that was only due.
        self.question = None;
        self.refreshed_at = Instant::now();
        news
    }
}

async fn found(tools: &SessionTools, told: Result<BlockFacts, Error>) -> MemoryNews {
    let gone_items = tools.store.withdrawn_items(&tools.session).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "it cannot be seen which notes of the past have lost their words");
        Vec::new()
    });
    MemoryNews::Found { told, gone_items }
}
