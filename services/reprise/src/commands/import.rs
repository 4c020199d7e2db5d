//! `reprise import`: a checkpoint's folder to a GGUF file.

use std::path::PathBuf;

use anyhow::Result;
use lab::synth::mixture;
use tools::import::{ImportOptions, TypeRule, import};
use tools::mixture::Mixture;

use super::quantize::{ModelFileArgs, say};

/// Writes the safetensors folder of a model to a GGUF file, in its own type or quantised
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(help = "Folder with config.json, tokenizer.json and safetensors")]
    source: PathBuf,
    #[arg(long, help = "The GGUF file to write; one of that name is replaced")]
    out: PathBuf,
    #[arg(
        long,
        value_name = "TYPE",
        value_parser = mixture,
        help = "Type: f32, f16, bf16, q4_0, iq4_xs, q8_0, q4_k_m, q5_k_m or q6_k [default: the checkpoint's own]"
    )]
    quantize: Option<Mixture>,
    #[arg(
        long = "type",
        value_name = "PATTERN=TYPE",
        value_parser = TypeRule::parse,
        help = "Type of the matrices with these names, PATTERN=TYPE: a part of a name, or with * a whole one"
    )]
    rules: Vec<TypeRule>,
    #[command(flatten)]
    file: ModelFileArgs,
}

pub fn run(args: Args) -> Result<()> {
    let Args { source, out, quantize, rules, file } = &args;
    say(out, file, |threads, progress| {
        let imatrix = file.imatrix.as_deref();
        let dry_run = file.dry_run;
        import(&ImportOptions { source, out, mixture: *quantize, rules, imatrix, threads, dry_run }, progress)
    })
}
