//! Facts and words of earlier conversations before a client's log, as far as there is room for them.

use super::Completions;
use super::keeping::Before;
use prompt::ClientLog;
use settings::Preset;

impl Completions {
    /// Puts what was said before in front of the log. It takes half of the window at most, and less where the client's
    /// own log needs the room: oldest turns leave first.
    pub async fn put_before(&self, log: &mut ClientLog, before: Before, preset: &Preset) {
        (log.remembered, log.carried) = (before.remembered, before.carried);
        if log.carried.is_empty() {
            return;
        }
        let laid_out = log.lay_out(&self.wording);
        match self.model.measure(&laid_out.prompt, preset).await {
            Ok(measured) => {
                let carried = laid_out.marks.remembered..laid_out.marks.context;
                let tokens = measured.messages.get(carried).unwrap_or_default();
                let of_log = measured.total.tokens.saturating_sub(tokens.iter().sum());
                let most = u64::from(preset.ctx_size.saturating_sub(preset.reply_reserve_tokens));
                log.shorten_carried(tokens, u64::from(preset.ctx_size) / 2, most.saturating_sub(of_log));
            }
            Err(failure) => {
                tracing::warn!(%failure, "a conversation goes on without what was said before it");
                log.carried.clear();
            }
        }
    }
}
