//! `reprise import`: a checkpoint's folder to a GGUF or APR file.

use std::path::PathBuf;

use anyhow::Result;
use tools::import::{FormatChoice, ImportOptions, import};
use tools::mixture::Mixture;

use super::quantize::{ModelFileArgs, say};

/// Writes the safetensors folder of a model to a GGUF or APR file, in its own type or quantised
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(help = "Folder with config.json, tokenizer.json and safetensors, or an APR file")]
    source: PathBuf,
    #[arg(long, help = "The file to write, .gguf or .apr; one of that name is replaced")]
    out: PathBuf,
    #[arg(
        long,
        value_name = "TYPE",
        conflicts_with = "bytes",
        value_parser = Mixture::parse,
        help = "Type: f32, f16, bf16, q4_0, iq4_xs, q8_0, q4_k_m, q5_k_m or q6_k; of an .apr file f32, f16, bf16, q4k or q6k \
                [default: the checkpoint's own, and bf16 of a quantised APR file]"
    )]
    quantize: Option<Mixture>,
    #[command(flatten)]
    file: ModelFileArgs,
}

pub fn run(args: Args) -> Result<()> {
    let Args { source, out, quantize, file } = &args;
    say(out, file, |threads, progress| {
        let ModelFileArgs { rules, imatrix, dry_run, bytes, .. } = file;
        let choice = bytes.map(FormatChoice::Bytes).or(quantize.map(FormatChoice::Mixture));
        let (imatrix, dry_run) = (imatrix.as_deref(), *dry_run);
        import(&ImportOptions { source, out, choice, rules, imatrix, threads, dry_run }, progress)
    })
}
