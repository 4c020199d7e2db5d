//! `reprise render`: the prompt that a chat-completions body becomes, without running the model.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use runtime::wall_ms;
use serde_json::{Value, json};
use settings::Settings;
use terminal::note;
use terminal::output::stdout;
use text::template::utc;
use text::{Template, TemplateInput};

/// Prints the prompt that a chat-completions body becomes
#[derive(clap::Args)]
pub struct Args {
    /// GGUF file, Hugging Face folder, or preset
    #[arg(long)]
    model: String,
    /// File with the body as JSON; - reads the standard input
    #[arg(long)]
    request: PathBuf,
    /// Prints a JSON object with text, tokens and marks instead of the bare text
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let body = read_body(&args.request)?;
    let prompt = doors::chat_prompt(&body)?;
    let (path, _) = model::resolve(settings, &args.model)?;
    let model = weights::open(&path, true)?;
    let template = match &model.chat_template {
        Some(source) => Template::new(source)?,
        None => {
            note!("note: {} has no chat template: this prompt uses its family's", path.display());
            Template::family()?
        }
    };
    // Only for templates that ask for the date. In UTC: what a household's clock says is known to its session, not here.
    let now = utc(wall_ms().div_euclid(1000));
    let rendered = template.render(&TemplateInput { now: Some(now), ..TemplateInput::of(&prompt) })?;
    let mut out = stdout();
    if args.json {
        let tokenizer = engine::vocabulary::tokenizer(model.vocab)?;
        let prompt = text::encode_prompt(&tokenizer, &rendered);
        let object = json!({"text": rendered.text, "tokens": prompt.tokens, "marks": prompt.marks});
        writeln!(out, "{object}")?;
    } else {
        // Not a byte more than the prompt has: no line break at its end.
        out.write_all(rendered.text.as_bytes())?;
    }
    Ok(out.flush()?)
}

fn read_body(path: &Path) -> Result<Value> {
    let name = path.display();
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("cannot read the request from standard input")?;
        bytes
    } else {
        std::fs::read(path).with_context(|| format!("cannot read the request {name}"))?
    };
    serde_json::from_slice(&bytes).with_context(|| format!("the request {name} is not valid JSON"))
}
