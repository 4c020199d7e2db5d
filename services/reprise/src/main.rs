//! `reprise`: one binary for the home server and for everything around it.

mod commands;
mod configuration;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A conversation service for voice assistants at home
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    configuration: configuration::Args,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Ab(lab::ab::Args),
    Bench(lab::bench::Args),
    Chat(commands::chat::Args),
    Doctor(commands::doctor::Args),
    Eval(lab::eval::Args),
    Keys(commands::keys::Args),
    Logits(commands::logits::Args),
    Plan(commands::plan::Args),
    Pull(commands::pull::Args),
    Run(commands::run::Args),
    Render(commands::render::Args),
    Serve(commands::serve::Args),
    Sessions(commands::sessions::Args),
    Synth(lab::synth::Args),
}

fn main() -> ExitCode {
    // An HTTP client must know how TLS is done, also where it is not spoken.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::parse();
    let flags = match &cli.command {
        Command::Serve(args) => args.flags(),
        _ => Vec::new(),
    };
    let loaded = configuration::load_with(&cli.configuration, flags);
    if let Command::Doctor(args) = &cli.command {
        return commands::doctor::run(args, loaded);
    }
    let done = loaded.and_then(|loaded| match cli.command {
        Command::Ab(args) => lab::ab::run(args, &loaded.settings),
        Command::Bench(args) => lab::bench::run(args, &cli.configuration.passed_on(), &loaded.settings),
        Command::Chat(args) => commands::chat::run(args, &loaded.settings),
        Command::Doctor(_) => Ok(()),
        Command::Eval(args) => lab::eval::run(args, &loaded.settings),
        Command::Keys(args) => commands::keys::run(args, &loaded.settings),
        Command::Logits(args) => commands::logits::run(args, &loaded.settings),
        Command::Plan(args) => commands::plan::run(args, &loaded.settings),
        Command::Pull(args) => commands::pull::run(args, &loaded.settings),
        Command::Run(args) => commands::run::run(args, &loaded.settings),
        Command::Render(args) => commands::render::run(args, &loaded.settings),
        Command::Serve(args) => commands::serve::run(args, &loaded),
        Command::Sessions(args) => commands::sessions::run(args, &loaded.settings),
        Command::Synth(args) => lab::synth::run(args),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain on one line: each part says what the next one was needed for.
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}
