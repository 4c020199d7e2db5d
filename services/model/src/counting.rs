//! A model that counts prompts and answers none: for commands that change a store beside the service. It opens no
//! weights.

use crate::answer::Answer;
use crate::error::Error;
use crate::handle::Answerer;
use crate::measure::Measured;
use crate::opened::resolve;
use crate::prepare::Preparer;
use crate::request::{ModelRequest, thinking_of};
use crate::status::ModelStatus;
use crate::template_input::chat_prompt;
use crate::upstream::count;
use engine::Precision;
use futures_util::future::{BoxFuture, FutureExt, ready};
use session::{Failure, FailureCode, Prompt};
use settings::{Preset, Settings, ToolOrder};
use std::path::Path;
use std::sync::Arc;

pub(crate) struct Counting {
    /// Counter of the model's file. `None`: the file is unknown here, and a public tokenizer estimates.
    preparer: Option<Box<Preparer>>,
    margin: f64,
    tool_order: ToolOrder,
}

impl Counting {
    /// Builds a counter. A missing model is no error: a flag may have named the service's model, which a command cannot
    /// know.
    pub fn of(settings: &Settings, preset: &str) -> Result<Counting, Error> {
        let preparer = match resolve(settings, preset) {
            Ok((file, _)) => Some(Box::new(preparer(&file, settings.conversation.tool_order)?)),
            Err(Error::NoModel { .. } | Error::NoModelFile { .. } | Error::NoSuchModel { .. }) => None,
            Err(error) => return Err(error),
        };
        let tool_order = settings.conversation.tool_order;
        Ok(Counting { preparer, margin: settings.upstream.count_margin, tool_order })
    }
}

impl Answerer for Counting {
    fn ask(&self, _: ModelRequest) -> Answer {
        Answer::failed(Failure::new(FailureCode::Unavailable, "no model runs here; ask the service"))
    }

    fn measure<'a>(&'a self, prompt: &'a Prompt, preset: &'a Preset) -> BoxFuture<'a, Result<Measured, Failure>> {
        let chat = chat_prompt(prompt, self.tool_order);
        Box::pin(async move {
            match &self.preparer {
                Some(preparer) => preparer.measure(&chat, thinking_of(&chat.options, preset)),
                None => {
                    let total = count::estimate(&chat, self.margin).await?;
                    Ok(Measured::from_weights(total, &count::weights(&chat.messages).await?))
                }
            }
        })
    }

    fn status(&self) -> ModelStatus {
        ModelStatus::default()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}

fn preparer(file: &Path, tool_order: ToolOrder) -> Result<Preparer, Error> {
    let (tokenizer, template) = engine::vocabulary::open(file)?;
    Ok(Preparer {
        longest_token_bytes: tokenizer.longest_token_bytes(),
        tokenizer: Arc::new(tokenizer),
        template,
        precision: Precision::Integer,
        native_ctx: u32::MAX,
        shares_users: false,
        own_heads: Arc::default(),
        tool_order,
        stop_tokens: Vec::new(),
        grammars: Default::default(),
    })
}
