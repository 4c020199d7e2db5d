//! Counts prompts and answers none: for commands that change a store beside the service, and open no weights for it.

use super::answer::{Answer, Failure, FailureCode, channel_for};
use super::ask::{Ask, thinking_of};
use super::model::resolve;
use super::prepare::Preparer;
use super::upstream::count;
use super::{Counted, Error, Measured};
use engine::Precision;
use settings::{Preset, Settings};
use std::path::Path;
use std::sync::Arc;
use text::chat::ChatPrompt;

pub(super) struct Counting {
    /// None: no model file is known here, and a public tokenizer estimates.
    preparer: Option<Arc<Preparer>>,
    margin: f64,
}

impl Counting {
    /// A service may have been given its model by a flag, which no command can know.
    pub fn of(settings: &Settings, preset: &str) -> Result<Counting, Error> {
        let preparer = match resolve(settings, preset) {
            Ok((file, _)) => Some(Arc::new(preparer(&file)?)),
            Err(Error::NoModel { .. } | Error::NoModelFile { .. } | Error::NoSuchModel { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Counting { preparer, margin: settings.upstream.count_margin })
    }

    pub fn ask(&self, ask: &Ask) -> Answer {
        let (writer, answer) = channel_for(ask);
        writer.fail(Failure::new(FailureCode::Unavailable, "no model runs here; ask the service"));
        answer
    }

    pub async fn count(&self, chat: &ChatPrompt, preset: &Preset) -> Result<Counted, Failure> {
        match &self.preparer {
            Some(preparer) => {
                let tokens = preparer.count(chat, thinking_of(chat, preset))?;
                Ok(Counted { tokens, exact: true, margin_tokens: 0 })
            }
            None => count::estimate(chat, self.margin).await,
        }
    }

    pub async fn measure(&self, chat: &ChatPrompt, preset: &Preset) -> Result<Measured, Failure> {
        match &self.preparer {
            Some(preparer) => preparer.measure(chat, thinking_of(chat, preset)),
            None => {
                let total = count::estimate(chat, self.margin).await?;
                Ok(Measured::from_weights(total, &count::weights(&chat.messages).await?))
            }
        }
    }
}

/// Nothing is computed, so only what makes prompts matters.
fn preparer(file: &Path) -> Result<Preparer, Error> {
    let (tokenizer, template) = engine::vocabulary::open(file)?;
    Ok(Preparer {
        tokenizer: Arc::new(tokenizer),
        template,
        precision: Precision::Integer,
        native_ctx: u32::MAX,
        stop_tokens: Vec::new(),
        grammars: Default::default(),
    })
}
