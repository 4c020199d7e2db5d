//! Replies to prompts that the model reads as they are: there is no conversation, and nothing of it is remembered.

use super::{Completion, Completions};
use crate::Error;
use crate::identity::Scope;
use model::{ModelRequest, RawPrompt};
use runtime::ModelChoice;
use session::machine::OneShot;
use session::{GenerationOptions, MaxTokens, Priority, Prompt};
use settings::{Questions, Thinking};
#[derive(Clone, Debug)]
pub struct RawRequest {
    pub max_tokens: u32,
    pub options: GenerationOptions,
    /// Number of most probable tokens to report with the log probability of each token of a prompt.
    pub prompt_logprobs: Option<usize>,
    pub choices: usize,
    pub priority: Priority,
    pub scope: Scope,
}

impl Completions {
    pub fn ask_raw(
        &self,
        id: &str,
        choice: &ModelChoice,
        request: &RawRequest,
        prompt: RawPrompt,
    ) -> Result<Vec<Completion>, Error> {
        self.owners.note(&request.scope);
        let mut asked = ModelRequest::new(Prompt::default(), choice.preset.clone());
        (asked.raw, asked.prompt_logprobs) = (Some(prompt), request.prompt_logprobs);
        (asked.max_tokens, asked.priority) = (Some(request.max_tokens), request.priority);
        (asked.questions, asked.thinking) = (Questions::Any, Some(Thinking::Off));
        asked.options = request.options.clone();
        // A harness asks for thousands of prompts: they take no room from conversations.
        asked.one_off = true;
        request.scope.own(&mut asked);
        let max_tokens = MaxTokens::Tokens(request.max_tokens);
        let answers = self.model.ask_choices(asked, request.choices).into_iter();
        let completion =
            |answer| Ok(Completion::of_model(answer, OneShot::new(id.to_owned(), max_tokens, runtime::random()?)));
        answers.map(completion).collect()
    }
}
