//! Tokens of the parts of a session's next prompt, for a view of its window.

use super::Past;
use super::shown_past::message_of;
use crate::prompts::SessionTools;
use prompt::{Audience, LaidOut, Layout, PLACEHOLDER, lay_out};
use session::{Context, Failure, SessionConfig};

/// Tokens of a session's next prompt by their part, exact where the model counts them itself. The parts add up to `total_tokens`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowParts {
    pub ctx_size: u32,
    pub reply_reserve_tokens: u32,
    pub instructions_tokens: u64,
    pub tools_tokens: u64,
    pub facts_tokens: u64,
    pub summary_tokens: u64,
    pub pins_tokens: u64,
    pub turns_tokens: u64,
    pub marks_tokens: u64,
    pub total_tokens: u64,
    /// Margin within `total_tokens` of a count that is an estimate.
    pub margin_tokens: u64,
    /// Tokens at which the next silence brings a summary.
    pub soft_tokens: u32,
}

impl SessionTools {
    pub async fn window_parts(&self, past: &Past) -> Result<WindowParts, Failure> {
        let shown = past.shown();
        let context = self.context(&past.shown_past, &shown);
        let told = self.facts.now();
        let laid_out = |config: &SessionConfig, context: &Context| {
            let layout = Layout { partial: Some(PLACEHOLDER), ..self.layout(config, context, &told, Audience::Asker) };
            lay_out(&shown, &layout)
        };
        let whole = laid_out(&past.config, &context);
        let total = self.model.measure(&whole.prompt, &self.preset).await?.total;
        // Templates put tools into the same block as the instructions, so the prompt is counted without them, too.
        let bare_config = SessionConfig { tools: Vec::new(), ..past.config.clone() };
        let bare_context = Context { recall: false, ..context };
        let LaidOut { prompt, marks, .. } = laid_out(&bare_config, &bare_context);
        let bare = self.model.measure(&prompt, &self.preset).await?;
        let of =
            |from: usize, to: usize| bare.messages.get(from..to).map_or(0, |messages| messages.iter().sum::<u64>());
        let context_tokens = of(marks.remembered, marks.context);
        let pins_tokens = match past.shown_past.text.is_empty() {
            true => context_tokens,
            false => self.placed_pins_tokens(past).await?.min(context_tokens),
        };
        let said: u64 = bare.messages.iter().sum();
        Ok(WindowParts {
            ctx_size: self.preset.ctx_size,
            reply_reserve_tokens: self.limits.reply_reserve_tokens,
            instructions_tokens: of(0, marks.head),
            tools_tokens: total.tokens.saturating_sub(bare.total.tokens),
            facts_tokens: of(marks.head, marks.remembered),
            summary_tokens: context_tokens - pins_tokens,
            pins_tokens,
            turns_tokens: of(marks.context, bare.messages.len()),
            marks_tokens: bare.total.tokens.saturating_sub(said),
            total_tokens: total.tokens,
            margin_tokens: total.margin_tokens,
            soft_tokens: self.limits.soft_tokens(),
        })
    }

    async fn placed_pins_tokens(&self, past: &Past) -> Result<u64, Failure> {
        let mut pins_alone = past.shown_past.clone();
        pins_alone.text.clear();
        let pins = pins_alone.memory(&self.limits).as_ref().map(message_of);
        Ok(self.rule(&past.config, pins).await?[0])
    }
}
