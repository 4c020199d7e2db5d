//! Memories of a session in memory, which follow what is learned and forgotten: the facts in its prompts and its hidden
//! notes. The store answers beside the session, so words and barge-ins do not wait for it.

use crate::beside::beside;
use crate::fact_block::BlockFacts;
use crate::prompts::SessionTools;
use crate::shared::{FactNews, Shared};
use futures_util::future::BoxFuture;
use session::Event;
use session::machine::OpId;
use std::sync::Arc;
use std::time::Duration;
use store::{Error, SessionRef};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

pub struct SessionMemories {
    shared: Arc<Shared>,
    session: SessionRef,
    changes: watch::Receiver<u64>,
    news: broadcast::Receiver<Arc<FactNews>>,
    question: Option<OpenQuestion>,
    forgetting: Option<OpId>,
    hears: bool,
    refresh: Option<Duration>,
    refreshed_at: Instant,
}

struct OpenQuestion {
    /// True after something was forgotten: no prompt may be made until the answer comes.
    is_urgent: bool,
    answer: BoxFuture<'static, MemoryNews>,
}

pub enum MemoryNews {
    Changed,
    Event(Event),
    Found { told: Result<BlockFacts, Error>, gone_items: Vec<String> },
}

impl SessionMemories {
    pub fn new(shared: &Arc<Shared>, session: &SessionRef, is_remembered: bool) -> SessionMemories {
        let refresh = Duration::from_secs(shared.settings.remember.refresh_s);
        SessionMemories {
            shared: shared.clone(),
            session: session.clone(),
            news: shared.news.subscribe(),
            changes: shared.store.watch_memories(session.user()),
            question: None,
            forgetting: None,
            hears: false,
            refresh: Some(refresh).filter(|refresh| is_remembered && !refresh.is_zero()),
            refreshed_at: Instant::now(),
        }
    }

    /// Returns true if a prompt made now might tell a forgotten fact.
    pub fn is_behind(&self) -> bool {
        self.hears
            || self.question.as_ref().is_some_and(|question| question.is_urgent)
            || self.changes.has_changed().unwrap_or(false)
    }

    pub fn will_forget(&mut self, op: OpId) {
        self.forgetting = Some(op);
    }

    pub fn stored(&mut self, op: OpId) -> bool {
        let is_wish = self.forgetting.take_if(|forgetting| *forgetting == op).is_some();
        self.hears |= is_wish;
        is_wish
    }

    pub fn follow(&mut self, tools: &Arc<SessionTools>) {
        if self.question.as_ref().is_some_and(|question| question.is_urgent) {
            return;
        }
        self.changes.borrow_and_update();
        let (shared, tools, hears) = (self.shared.clone(), tools.clone(), std::mem::take(&mut self.hears));
        let answer = answer(async move {
            if hears && let Err(error) = shared.hear_session(&tools.session).await {
                tracing::warn!(%error, "a wish to forget could not be carried out yet; it is when the conversation falls silent");
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

    pub fn refresh(&mut self, tools: &Arc<SessionTools>) -> bool {
        if self.refresh.is_none() || self.question.is_some() {
            return self.question.is_some();
        }
        let (shared, tools) = (self.shared.clone(), tools.clone());
        let answer = answer(async move {
            let person = tools.person.as_deref().unwrap_or_default();
            let told = shared.chosen_anew(tools.session.user(), person, &tools.preset).await;
            found(&tools, told).await
        });
        self.question = Some(OpenQuestion { is_urgent: false, answer });
        true
    }

    pub fn refresh_at(&self, silent_since: Instant) -> Option<Instant> {
        let refresh = self.refresh.filter(|_| self.question.is_none())?;
        silent_since.max(self.refreshed_at).checked_add(refresh)
    }

    /// Waits for the next news. May be dropped and called again.
    pub async fn next(&mut self) -> MemoryNews {
        let SessionMemories { session, changes, news, question, .. } = self;
        let follows = question.as_ref().is_some_and(|question| question.is_urgent);
        let answered = async {
            match question {
                Some(question) => (&mut question.answer).await,
                None => std::future::pending().await,
            }
        };
        let news = tokio::select! {
            Ok(()) = changes.changed(), if !follows => MemoryNews::Changed,
            answer = answered => answer,
            event = news_of(session, news) => return MemoryNews::Event(event),
        };
        // A change takes the place of a look that was only due.
        self.question = None;
        self.refreshed_at = Instant::now();
        news
    }
}

fn answer(look: impl Future<Output = MemoryNews> + Send + 'static) -> BoxFuture<'static, MemoryNews> {
    let found = beside(look);
    let failed = || MemoryNews::Found { told: Err(Error::Closed), gone_items: Vec::new() };
    Box::pin(async move { found.await.unwrap_or_else(failed) })
}

async fn news_of(session: &SessionRef, news: &mut broadcast::Receiver<Arc<FactNews>>) -> Event {
    loop {
        match news.recv().await {
            Ok(news) if news.session == *session => return news.event.clone(),
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

async fn found(tools: &SessionTools, told: Result<BlockFacts, Error>) -> MemoryNews {
    let gone_items = tools.store.withdrawn_items(&tools.session).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the store could not be asked which hidden notes lost their sources");
        Vec::new()
    });
    MemoryNews::Found { told, gone_items }
}
