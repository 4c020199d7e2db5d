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
use crate::upstream::count;
use engine::Precision;
use futures_util::future::{BoxFuture, FutureExt, ready};
use session::{Failure, FailureCode, Prompt};
use settings::{Preset, Settings};
use std::path::Path;
use std::sync::Arc;

pub(crate) struct Counting {
    /// Counter of the model's file. `None`: the file is unknown here, and a public tokenizer estimates.
    preparer: Option<Box<Preparer>>,
    margin: f64,
}

impl Counting {
    /// Builds a counter. A missing model is no error: a flag may have named the service's model, which a command cannot
    /// know.
    pub fn of(settings: &Settings, preset: &str) -> Result<Counting, Error> {
        let preparer = match resolve(settings, preset) {
            Ok((file, _)) => Some(Box::new(preparer(&file)?)),
            Err(Error::NoModel { .. } | Error::NoModelFile { .. } | Error::NoSuchModel { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Counting { preparer, margin: settings.upstream.count_margin })
    }
}

impl Answerer for Counting {
    fn ask(&self, _: ModelRequest) -> Answer {
        Answer::failed(Failure::new(FailureCode::Unavailable, "no model runs here; ask the service"))
    }

    fn measure<'a>(&'a self, prompt: &'a Prompt, preset: &'a Preset) -> BoxFuture<'a, Result<Measured, Failure>> {
        Box::pin(async move {
            match &self.preparer {
                Some(preparer) => preparer.measure(prompt, thinking_of(&prompt.options, preset)),
                None => {
                    let total = count::estimate(prompt, self.margin).await?;
                    Ok(Measured::from_weights(total, &count::weights(prompt).await?))
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

fn preparer(file: &Path) -> Result<Preparer, Error> {
    let (tokenizer, template) = engine::vocabulary::open(file)?;
    Ok(Preparer {
        longest_token_bytes: tokenizer.longest_token_bytes(),
        tokenizer: Arc::new(tokenizer),
        template,
        precision: Precision::Integer,
        native_ctx: u32::MAX,
        shares_users: false,
        own_heads: Arc::default(),
        stop_tokens: Vec::new(),
        grammars: Default::default(),
    })
}
