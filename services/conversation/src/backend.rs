//! What thinks: the engine in this process, an OpenAI-compatible server, or a script in tests. All of them take an [`Ask`]
//! and give an [`Answer`], a stream of [`Piece`]s.
//!
//! An ask carries its whole prompt. What a backend remembers of it decides how fast it is answered, never what is answered.
//! An answer always ends in exactly one `Done` or `Failed`; dropping it, or `cancel`, stops the decoding within one step.

mod answer;
mod ask;
mod builtin;
mod counting;
mod device;
mod error;
mod for_turn;
mod gpu;
mod local;
mod measure;
pub mod model;
mod plan;
mod prepare;
pub mod scripted;
mod upstream;

pub use answer::{Answer, Failure, FailureCode, Finish, Piece, Report, Usage};
pub(crate) use answer::{Writer, channel};
pub use ask::{Ask, Purpose};
pub use device::Finder;
pub use engine::RequestClass as Priority;
pub use error::Error;
pub(crate) use for_turn::{PLACEHOLDER, chat_of, chat_with};
pub use gpu::Gpu;
pub use measure::Measured;
pub use plan::{Bytes, Cell, Plan, Window, machine_bytes, plan, windows};

use counting::Counting;
use error::NoRoom;
use local::Local;
use scripted::Scripted;
use settings::{Preset, Settings};
use std::sync::Arc;
use text::chat::ChatPrompt;
use upstream::Upstream;

/// A handle: cheap to clone, for any task.
#[derive(Clone)]
pub struct Backend {
    kind: Arc<Kind>,
}

enum Kind {
    Engine(Local),
    Upstream(Upstream),
    Scripted(Scripted),
    Counting(Counting),
}

/// A backend that runs, and what is known about it.
pub struct Started {
    pub backend: Backend,
    /// As they were given, with the windows that the model file allows.
    pub settings: Settings,
    /// The chosen preset and those of the same model: what a session may have.
    pub presets: Vec<Preset>,
    /// The model's name as clients see it.
    pub model: String,
    /// Where the memory goes. None where the model runs elsewhere.
    pub plan: Option<Plan>,
    /// Lines for the start screen.
    pub notes: Vec<String>,
}

/// How long a prompt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub tokens: u64,
    /// By the model's own tokenizer. Otherwise `margin_tokens` are in `tokens`.
    pub exact: bool,
    pub margin_tokens: u64,
}

impl Counted {
    pub fn exactly(tokens: u64) -> Counted {
        Counted { tokens, exact: true, margin_tokens: 0 }
    }

    /// Of so many of these tokens.
    pub fn part(self, tokens: u64) -> Counted {
        let margin = u128::from(self.margin_tokens) * u128::from(tokens) / u128::from(self.tokens.max(1));
        Counted { tokens, exact: self.exact, margin_tokens: u64::try_from(margin).unwrap_or(u64::MAX) }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The model can answer now.
    pub ready: bool,
    /// The model's name as clients see it.
    pub model: String,
    /// Why it is not ready.
    pub trouble: Option<String>,
    /// Bytes of sequences by kind (`pages`, `snapshots`, `trails`, `live`) and what is fixed (`weights`). Empty where the
    /// model runs elsewhere.
    pub memory_bytes: Vec<(&'static str, u64)>,
    pub load: Load,
    /// How often the engine had to be started again.
    pub restarts: u64,
    /// How often a debug build looked in idle time whether all that the engine remembers agrees.
    pub checks: u64,
}

/// Asks that are not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub talk: usize,
    pub speculate: usize,
    pub background: usize,
}

impl Backend {
    /// What the configuration asks for: an upstream, or the model of the chosen preset in this process, which takes as long
    /// as opening its file. Must be called within a tokio runtime.
    pub async fn start(settings: &Settings) -> Result<Started, Error> {
        Backend::start_with(settings, |_, _| ()).await
    }

    /// As `start`; `progress` is told how many bytes of how many of a model are ready.
    pub async fn start_with(
        settings: &Settings,
        progress: impl FnMut(usize, usize) + Send + 'static,
    ) -> Result<Started, Error> {
        if let Some(url) = settings.upstream.url.clone() {
            let key = match &settings.upstream.key_env {
                None => None,
                Some(name) => Some(std::env::var(name).map_err(|_| Error::NoKey { name: name.clone() })?),
            };
            return start_upstream(settings, &url, key).await;
        }
        let settings = settings.clone();
        match tokio::task::spawn_blocking(move || start_engine(&Finder::new(&settings), settings, progress)).await {
            Ok(started) => started,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Counts the prompts of this preset's model and answers nothing, for commands beside a service: it opens no weights.
    /// Where the model's file is not known, counts are estimated.
    pub async fn counting(settings: &Settings, preset: &str) -> Result<Backend, Error> {
        if settings.upstream.url.is_some() {
            return Ok(Backend::start(settings).await?.backend);
        }
        Ok(Backend { kind: Arc::new(Kind::Counting(Counting::of(settings, preset)?)) })
    }

    /// Never waits. What is wrong with an ask comes as the answer's only piece.
    pub fn ask(&self, ask: Ask) -> Answer {
        match &*self.kind {
            Kind::Engine(local) => local.ask(ask),
            Kind::Upstream(upstream) => upstream.ask(ask),
            Kind::Scripted(scripted) => scripted.ask(ask),
            Kind::Counting(counting) => counting.ask(&ask),
        }
    }

    /// How many tokens the prompt of a reply has: template, tools and the opening of the reply included.
    pub async fn count(&self, chat: &ChatPrompt, preset: &Arc<Preset>) -> Result<Counted, Failure> {
        match &*self.kind {
            Kind::Engine(local) => local.count(chat, preset).await,
            Kind::Upstream(upstream) => upstream.count(chat, preset).await,
            Kind::Scripted(scripted) => scripted.count(chat, preset),
            Kind::Counting(counting) => counting.count(chat, preset).await,
        }
    }

    /// As `count`, and how much of it each message takes.
    pub async fn measure(&self, chat: &ChatPrompt, preset: &Arc<Preset>) -> Result<Measured, Failure> {
        match &*self.kind {
            Kind::Engine(local) => local.measure(chat, preset).await,
            Kind::Upstream(upstream) => upstream.measure(chat, preset).await,
            Kind::Scripted(scripted) => Ok(scripted.measure(chat)),
            Kind::Counting(counting) => counting.measure(chat, preset).await,
        }
    }

    pub fn status(&self) -> Status {
        match &*self.kind {
            Kind::Engine(local) => local.status(),
            Kind::Upstream(upstream) => upstream.status(),
            Kind::Scripted(scripted) => scripted.status(),
            Kind::Counting(_) => Status::default(),
        }
    }

    /// Returns when nothing will compute in this process any more, though a new one may.
    pub async fn worn_out(&self) {
        match &*self.kind {
            Kind::Engine(local) => local.worn_out().await,
            Kind::Upstream(_) | Kind::Scripted(_) | Kind::Counting(_) => std::future::pending().await,
        }
    }

    /// Ends every open answer as cancelled and takes no more. Returns when the engine's thread has ended.
    pub async fn shutdown(&self) {
        match &*self.kind {
            Kind::Engine(local) => local.shutdown().await,
            Kind::Upstream(upstream) => upstream.shutdown(),
            Kind::Scripted(scripted) => scripted.shutdown(),
            Kind::Counting(_) => {}
        }
    }

    /// A conversation was deleted: what was computed of it goes too, in memory and on disk, and is gone when this returns.
    /// What runs elsewhere forgets as it likes.
    pub async fn forget(&self, past_owner: u64) -> Result<(), Failure> {
        match &*self.kind {
            Kind::Engine(local) => local.forget(past_owner).await,
            Kind::Upstream(_) | Kind::Counting(_) => Ok(()),
            Kind::Scripted(scripted) => {
                scripted.forget(past_owner);
                Ok(())
            }
        }
    }

    /// Whose token ids the store keeps. None where the model runs elsewhere.
    pub fn tokenizer_fingerprint(&self) -> Option<[u8; 32]> {
        match &*self.kind {
            Kind::Engine(local) => Some(local.tokenizer_fingerprint()),
            Kind::Upstream(_) | Kind::Scripted(_) | Kind::Counting(_) => None,
        }
    }

    /// What the engine's thread does when it meets a bug.
    #[cfg(test)]
    pub(crate) fn panic(&self) {
        if let Kind::Engine(local) = &*self.kind {
            local.panic();
        }
    }

    /// Answers come from a test: see [`scripted`].
    pub fn scripted() -> (Backend, scripted::Script) {
        let (scripted, script) = Scripted::new();
        (Backend { kind: Arc::new(Kind::Scripted(scripted)) }, script)
    }
}

/// The upstream's model is behind every preset. Its window is the configuration's, unless the upstream tells a smaller one.
async fn start_upstream(settings: &Settings, url: &str, key: Option<String>) -> Result<Started, Error> {
    let mut settings = settings.clone();
    let upstream = Upstream::start(&settings, url, key).await?;
    let status = upstream.status();
    let mut notes: Vec<String> = status.trouble.iter().map(|trouble| format!("upstream {url}: {trouble}")).collect();
    let chosen = settings.model.preset.clone();
    if let Some(ctx_size) = upstream.ctx_size() {
        notes.extend(settings.fit_to_model(&chosen, ctx_size)?);
    }
    let chosen = settings.preset(&chosen)?.clone();
    let limit = upstream.ctx_size().unwrap_or(u32::MAX);
    let same = |preset: &&Preset| {
        let is_window_of_it = !chosen.model.is_empty() && preset.model == chosen.model && preset.ctx_size <= limit;
        preset.name == chosen.name || is_window_of_it
    };
    let presets = settings.presets.values().filter(same).cloned().collect();
    let model = if status.model.is_empty() { chosen.model.clone() } else { status.model };
    let backend = Backend { kind: Arc::new(Kind::Upstream(upstream)) };
    Ok(Started { backend, settings, presets, model, plan: None, notes })
}

/// A conversation in less is no conversation: better to say so than to start.
const LEAST_WINDOW: u32 = 2000;

fn start_engine(
    finder: &Finder,
    mut settings: Settings,
    mut progress: impl FnMut(usize, usize),
) -> Result<Started, Error> {
    let chosen = settings.model.preset.clone();
    let opened = model::open_on(finder, &settings, &chosen, model::precision(&settings), &mut progress)?;
    let native_ctx = model::native_ctx(&opened.network, &opened.file)?;
    // Presets of the same file, or of the model that another file was named for, are windows of the same model. One that
    // asks for more than the file has is left out.
    let folder = settings.model.models_dir.clone();
    let renamed = settings.model.path.is_some() && !opened.preset.model.is_empty();
    let same = |preset: &Preset| {
        let same_file = preset.model_path(&folder).is_some_and(|file| file == opened.file);
        same_file || (renamed && preset.model == opened.preset.model)
    };
    let others: Vec<String> = settings.presets.values().filter(|p| same(p)).map(|p| p.name.clone()).collect();
    let mut notes = opened.notes.clone();
    let mut presets = Vec::new();
    for name in others.iter().filter(|name| **name != chosen).chain([&chosen]) {
        match settings.fit_to_model(name, native_ctx) {
            Ok(_) => presets.push(settings.preset(name)?.clone()),
            Err(error) if *name == chosen => return Err(error.into()),
            Err(error) => notes.push(error.to_string()),
        }
    }
    let mut opened = opened;
    let memory = opened.executor.as_ref().map(|(_, memory)| memory.clone());
    let device = memory.as_ref();
    let plan = match plan::plan(&settings, &opened.network, device, &opened.file, &opened.preset, &presets) {
        Ok(plan) => plan,
        // A window that nobody asked for gives way to the machine as it does to the model.
        Err(Error::Memory(no_room))
            if no_room.fits_tokens >= LEAST_WINDOW && settings.fit_to_model(&chosen, no_room.fits_tokens).is_ok() =>
        {
            opened.preset = settings.preset(&chosen)?.clone();
            presets
                .iter_mut()
                .filter(|preset| preset.name == chosen)
                .for_each(|preset| *preset = opened.preset.clone());
            let NoRoom { fits_tokens, key, .. } = *no_room;
            notes.push(format!("window {fits_tokens} tokens: more does not fit the memory ({key})"));
            plan::plan(&settings, &opened.network, device, &opened.file, &opened.preset, &presets)?
        }
        Err(error) => return Err(error),
    };
    let local = Local::start(&settings, finder, opened, &plan)?;
    let model = local.status().model;
    let backend = Backend { kind: Arc::new(Kind::Engine(local)) };
    Ok(Started { backend, settings, presets, model, plan: Some(plan), notes })
}
