//! `reprise`: the home server and all its tools in one binary.

#![deny(clippy::print_stdout, clippy::print_stderr)] // they panic where nothing reads: `say!` and `note!` do not

mod commands;
mod configuration;
mod llama;
mod owners;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use settings::Flag;
use terminal::flags::WrongUse;
use terminal::note;

/// A conversation service for voice assistants at home
#[derive(Parser)]
#[command(version = version::short(), long_version = version::long(), max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    configuration: configuration::Args,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    #[command(subcommand)]
    Ab(lab::ab::AbCommand),
    Bench(Box<lab::bench::Args>),
    Chat(commands::chat::Args),
    Completions(commands::completions::Args),
    Doctor(commands::doctor::Args),
    #[command(subcommand)]
    Eval(lab::eval::EvalCommand),
    Imatrix(commands::imatrix::Args),
    Import(commands::import::Args),
    #[command(subcommand)]
    Keys(commands::keys::KeysAction),
    /// Prints the licences of this program and its parts
    Licenses,
    Logits(commands::logits::Args),
    #[command(subcommand)]
    Lora(commands::lora::LoraCommand),
    Man(commands::man::Args),
    Merge(commands::merge::Args),
    Plan(commands::plan::Args),
    Probe(lab::probe::Args),
    Publish(commands::publish::Args),
    Pull(commands::pull::Args),
    Qa(lab::qa::Args),
    Quantize(commands::quantize::Args),
    Run(commands::run::Args),
    Render(commands::render::Args),
    Serve(commands::serve::Args),
    Sessions(commands::sessions::Args),
    Memories(commands::memories::Args),
    Synth(lab::synth::Args),
    Tensors(commands::tensors::Args),
    Validate(commands::validate::Args),
    Who(commands::who::Args),
}

impl Cli {
    /// Returns the keys of the configuration that the flags of the command set.
    fn flags(&self) -> Vec<Flag> {
        match &self.command {
            CliCommand::Run(args) => args.flags(),
            CliCommand::Serve(args) => args.flags(),
            _ => Vec::new(),
        }
    }
}

fn main() -> ExitCode {
    // An HTTP client must know how TLS is done, also where it is not spoken.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = match llama::rewrite(std::env::args_os()) {
        Ok(arguments) => Cli::parse_from(arguments),
        Err(sentence) => {
            note!("error: {sentence}");
            return ExitCode::from(WRONG_USE);
        }
    };
    // Commands that no configuration concerns, and no mistake in it.
    match &cli.command {
        CliCommand::Licenses => {
            return exit_code(commands::licenses::print());
        }
        CliCommand::Completions(args) => {
            return exit_code(commands::completions::print(args, Cli::command()));
        }
        CliCommand::Man(args) => return exit_code(commands::man::write(args, Cli::command())),
        _ => {}
    }
    let loaded = configuration::load_with(&cli.configuration, cli.flags());
    if let CliCommand::Doctor(args) = &cli.command {
        return commands::doctor::run(args, &cli.configuration, loaded);
    }
    if let CliCommand::Validate(args) = &cli.command {
        return commands::validate::run(args, loaded);
    }
    let done = loaded.and_then(|loaded| match cli.command {
        CliCommand::Ab(args) => lab::ab::run(args, &loaded.settings),
        CliCommand::Bench(args) => lab::bench::run(*args, &cli.configuration.passed_on(), &loaded.settings),
        CliCommand::Chat(args) => commands::chat::run(args, &loaded.settings),
        CliCommand::Completions(_) | CliCommand::Doctor(_) | CliCommand::Licenses => Ok(()),
        CliCommand::Man(_) | CliCommand::Validate(_) => Ok(()),
        CliCommand::Eval(args) => lab::eval::run(args, &loaded.settings),
        CliCommand::Imatrix(args) => commands::imatrix::run(&args, &loaded.settings),
        CliCommand::Import(args) => commands::import::run(args),
        CliCommand::Keys(args) => commands::keys::run(args, &loaded.settings),
        CliCommand::Logits(args) => commands::logits::run(args, &loaded.settings),
        CliCommand::Lora(command) => commands::lora::run(command),
        CliCommand::Merge(args) => commands::merge::run(args, &loaded.settings),
        CliCommand::Plan(args) => commands::plan::run(args, &loaded.settings),
        CliCommand::Probe(args) => lab::probe::run(&args, &cli.configuration.passed_on(), &loaded.settings),
        CliCommand::Publish(args) => commands::publish::run(args, &loaded.settings),
        CliCommand::Qa(args) => lab::qa::run(&args, &cli.configuration.passed_on(), &loaded.settings),
        CliCommand::Pull(args) => commands::pull::run(args, &loaded.settings),
        CliCommand::Quantize(args) => commands::quantize::run(args),
        CliCommand::Run(args) => commands::run::run(args, &loaded.settings),
        CliCommand::Render(args) => commands::render::run(args, &loaded.settings),
        CliCommand::Serve(args) => commands::serve::run(args, &cli.configuration, loaded),
        CliCommand::Sessions(args) => commands::sessions::run(args, &loaded.settings),
        CliCommand::Memories(args) => commands::memories::run(args, &loaded.settings),
        CliCommand::Synth(args) => lab::synth::run(args),
        CliCommand::Tensors(args) => commands::tensors::run(args, &loaded.settings),
        CliCommand::Who(args) => commands::who::run(args, &loaded.settings),
    });
    exit_code(done)
}

fn exit_code(done: anyhow::Result<()>) -> ExitCode {
    match terminal::output::unless_closed(done) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain on one line: each part says what the next one was needed for.
            note!("error: {}", terminal::output::chain(&error));
            ExitCode::from(if error.is::<WrongUse>() { WRONG_USE } else { 1 })
        }
    }
}

/// Exit code of a command line that is wrong, as clap has it.
const WRONG_USE: u8 = 2;
