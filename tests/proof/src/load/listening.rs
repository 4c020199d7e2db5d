//! A satellite that listens: a websocket that says nothing, and answers pings.

use super::talker::TalkedSession;
use anyhow::{Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinHandle;

pub struct SilentClient {
    address: Arc<str>,
    key: Arc<str>,
    session: String,
    lost: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl SilentClient {
    pub async fn open(address: Arc<str>, key: Arc<str>, lost: Arc<AtomicU64>) -> Result<SilentClient> {
        let conversation = TalkedSession::open(&address, &key, "").await?;
        Ok(SilentClient {
            session: conversation.session.clone(),
            task: listen(conversation, lost.clone()),
            address,
            key,
            lost,
        })
    }

    pub fn break_off(&self) {
        self.task.abort();
    }

    pub async fn come_back(&mut self) -> Result<()> {
        let conversation = TalkedSession::open(&self.address, &self.key, &self.session).await?;
        if conversation.session != self.session {
            bail!("{} came back, and {} was asked for", conversation.session, self.session);
        }
        self.task = listen(conversation, self.lost.clone());
        Ok(())
    }
}

impl Drop for SilentClient {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn listen(mut conversation: TalkedSession, lost: Arc<AtomicU64>) -> JoinHandle<()> {
    tokio::spawn(async move {
        while conversation.event().await.is_ok() {}
        lost.fetch_add(1, Ordering::Relaxed);
    })
}
