//! Command lines written for llama.cpp's programs: names with one dash become names that clap reads, and a name that has
//! another one here is refused with that one.

use std::ffi::OsString;

/// Rewrites the arguments of `serve` and `run`. `Err`: the sentence for the user.
pub fn rewrite(arguments: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let Some((command, at)) = command(&arguments) else { return Ok(arguments) };
    for argument in &mut arguments[at + 1..] {
        let Some(word) = argument.to_str() else { continue };
        if word == "--" {
            break;
        }
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        if let Some(instead) = refused(command, name) {
            return Err(format!("{name} is a flag of llama.cpp that `reprise {command}` does not have: {instead}"));
        }
        if let Some((_, long)) = ONE_DASH.iter().find(|(short, _)| *short == name) {
            *argument = value.map_or((*long).to_owned(), |value| format!("{long}={value}")).into();
        }
    }
    Ok(arguments)
}

/// Returns the command that takes such names, with its place.
fn command(arguments: &[OsString]) -> Option<(&'static str, usize)> {
    let mut takes_value = true; // the program's own name is no command
    for (at, argument) in arguments.iter().enumerate() {
        if std::mem::take(&mut takes_value) {
            continue;
        }
        let word = argument.to_str()?;
        if !word.starts_with('-') {
            return COMMANDS.into_iter().find(|command| *command == word).map(|command| (command, at));
        }
        takes_value = ["--config", "--set", "--threads", "-t"].contains(&word);
    }
    None
}

const COMMANDS: [&str; 2] = ["serve", "run"];

/// Names of several letters with one dash, which clap reads as several flags.
const ONE_DASH: [(&str, &str); 4] =
    [("-ngl", "--gpu-layers"), ("-ctk", "--cache-type-k"), ("-ctv", "--cache-type-v"), ("-np", "--parallel")];

fn refused(command: &str, name: &str) -> Option<&'static str> {
    let only = if command == "serve" { SERVE } else { RUN };
    let of_table = |table: &[(&[&str], &'static str)]| {
        table.iter().find(|(names, _)| names.contains(&name)).map(|(_, instead)| *instead)
    };
    let of_kind = || BEGINNINGS.iter().find(|(beginning, _)| name.starts_with(beginning)).map(|(_, instead)| *instead);
    of_table(only).or_else(|| of_table(BOTH)).or_else(of_kind)
}

type Refusals = &'static [(&'static [&'static str], &'static str)];

const BOTH: Refusals = &[
    (
        &["--mlock"],
        "`--no-mmap` reads the weights into memory, and the operating system decides about locking (`LimitMEMLOCK`)",
    ),
    (&["-fa", "--flash-attn"], "attention is always computed in one pass; leave it out"),
    (&["-b", "--batch-size", "-ub", "--ubatch-size"], "use `--set engine.prefill_chunk_tokens=N`"),
    (
        &[
            "--rope-scaling",
            "--rope-scale",
            "--rope-freq-base",
            "--rope-freq-scale",
            "--yarn-orig-ctx",
            "--yarn-ext-factor",
            "--yarn-attn-factor",
            "--yarn-beta-slow",
            "--yarn-beta-fast",
        ],
        "use `--set preset.rope.yarn=4`, or `rope = { yarn = 4 }` in a preset; the rotation itself is the model file's",
    ),
    (
        &["-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-hft", "--hf-token", "-mu", "--model-url"],
        "fetch the file with `reprise pull OWNER/REPO` and give it with `--model`",
    ),
    (&["-tb", "--threads-batch"], "use `--threads N`, which holds for prompts and replies"),
    (
        &["-C", "--cpu-mask", "-Cr", "--cpu-range", "--cpu-strict", "--prio", "--poll", "--numa"],
        "use `--set engine.pin_threads=true`, or start the program with taskset or numactl",
    ),
    (
        &["-dev", "--device", "-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu"],
        "use `--set engine.device=cpu|cuda`; the variable CUDA_VISIBLE_DEVICES names the GPU",
    ),
    (
        &["-ot", "--override-tensor", "-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe", "-nkvo", "--no-kv-offload"],
        "use `--gpu-layers N`: of the other layers the CPU computes the feed-forward part",
    ),
    (&["--override-kv"], "write the value into the model file"),
    (&["--lora-scaled", "--control-vector"], "use `--lora PATH:FACTOR`"),
    (
        &["-md", "--model-draft", "--draft", "--draft-max", "--draft-min", "--draft-n", "-ngld", "--gpu-layers-draft"],
        DRAFTS,
    ),
    (
        &["--chat-template", "--chat-template-file", "--no-jinja"],
        "the template of the model file is used; a GGUF file holds it as tokenizer.chat_template",
    ),
    (&["--reasoning-format"], "thoughts always come apart from the answer"),
    (&["-v", "--verbose", "-lv", "--verbosity", "--log-file", "--log-disable"], "use the section [logging]"),
    (&["-mm", "--mmproj", "--mmproj-url", "--no-mmproj"], "this program reads text only"),
    (&["--no-warmup", "--warmup"], "the model is ready when the start screen comes; leave it out"),
    (
        &["--context-shift", "--no-context-shift", "--keep", "--cache-reuse", "--swa-full"],
        "a full window is summarised; the section [preset.compaction] says when",
    ),
    (
        &[
            "--samplers",
            "--sampler-seq",
            "--sampling-seq",
            "--top-nsigma",
            "--top-n-sigma",
            "--typical",
            "--typical-p",
            "--repeat-last-n",
            "-bs",
            "--backend-sampling",
        ],
        SAMPLERS,
    ),
    (&["-l", "--logit-bias"], "a request says `logit_bias`"),
    (&["-jf", "--json-schema-file"], "a request says `response_format`"),
    (
        &["-ctxcp", "--ctx-checkpoints", "--swa-checkpoints", "-cms", "--checkpoint-min-step"],
        "use `--set memory.snapshot_spacing_tokens=N`",
    ),
    (
        &[
            "-cram",
            "--cache-ram",
            "-cl",
            "--cache-list",
            "-fit",
            "--fit",
            "-fitt",
            "--fit-target",
            "-fitc",
            "--fit-ctx",
        ],
        "use `--set memory.total=SIZE` and `--set memory.gpu_total=SIZE`; `reprise plan` shows what fits",
    ),
    (
        &[
            "--cache-prompt",
            "--no-cache-prompt",
            "--cache-idle-slots",
            "--no-cache-idle-slots",
            "-lcs",
            "--lookup-cache-static",
            "-lcd",
            "--lookup-cache-dynamic",
            "--kv-unified-per-slot",
            "-dt",
            "--defrag-thold",
        ],
        "what was computed is always kept and used again within memory.total and memory.disk_bytes; leave it out",
    ),
    (&["-lm", "--load-mode", "-lzm", "--lazy-mode"], "use `--no-mmap`, or leave it out"),
    (
        &["--repack", "-nr", "--no-repack"],
        "weights are packed once, into the folder `engine.packed_path`; leave it out",
    ),
    (&["--check-tensors"], "use `reprise validate FILE`"),
    (&["--list-devices"], "use `reprise doctor`"),
    (
        &["-ncffn", "--n-cpu-ffn", "--no-host", "--op-offload", "--no-op-offload"],
        "use `--gpu-layers N`: of the other layers the CPU computes the feed-forward part",
    ),
    (&["--rpc"], "one machine computes; `[upstream]` asks another server"),
    (&["-dr", "--docker-repo"], "fetch the file with `reprise pull OWNER/REPO` and give it with `--model`"),
    (&["--offline"], "nothing is fetched unless `reprise pull` is asked to; leave it out"),
    (
        &[
            "-sp",
            "--special",
            "--skip-chat-parsing",
            "--no-skip-chat-parsing",
            "--prefill-assistant",
            "--no-prefill-assistant",
        ],
        "chat answers are always parsed; `/v1/completions` gives the text as it is",
    ),
    (
        &["--chat-template-kwargs"],
        "use `--set preset.thinking=off`, on or a number of tokens, or `reasoning_effort` of a request",
    ),
    (
        &["--reasoning-effort", "--reasoning-budget-message", "--reasoning-preserve", "--no-reasoning-preserve"],
        "use `--reasoning-budget N`, or `reasoning_effort` of a request",
    ),
    (&["-e", "--escape", "--no-escape"], "the shell writes such characters: $'a\\nb'"),
    (&["-bf", "--binary-file"], "use `--prompt \"$(cat FILE)\"` of `reprise run`"),
    (&["--perf", "--no-perf"], "use `reprise bench`; a turn's times are in its report"),
    (
        &[
            "-td", "-tbd", "-Cd", "-Crd", "-Cbd", "-ctkd", "-ctvd", "-otd", "-cmoed", "-ncmoed", "-devd", "-hfd",
            "-hfrd",
        ],
        DRAFTS,
    ),
    (&["-Cb", "-Crb"], "use `--set engine.pin_threads=true`, or start the program with taskset or numactl"),
    (&["-s"], "use `--seed N` of `reprise run`, or the `seed` of a request"),
];

const DRAFTS: &str =
    "use `--set draft.tokens=N` and `--set draft.mtp=N`: drafts come from the text and from the model itself";
const SAMPLERS: &str = "use temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty and frequency_penalty of \
                        `preset.sampling` or of a request";
const CONSOLE: &str = "the page at / is `reprise serve`'s own, and tools are what clients bring";
const TEXT_ONLY: &str = "this program reads text only";

/// Names of one kind, by their beginning, where no table has the whole name.
const BEGINNINGS: &[(&str, &str)] = &[
    ("--spec-", DRAFTS),
    ("--draft-", DRAFTS),
    ("--threads-draft", DRAFTS),
    ("--threads-batch-draft", DRAFTS),
    ("--cache-type-k-draft", DRAFTS),
    ("--cache-type-v-draft", DRAFTS),
    ("--override-tensor-draft", DRAFTS),
    ("--device-draft", DRAFTS),
    ("--hf-repo-draft", DRAFTS),
    ("--n-cpu-moe-draft", DRAFTS),
    ("--dry-", SAMPLERS),
    ("--xtc-", SAMPLERS),
    ("--mirostat", SAMPLERS),
    ("--dynatemp-", SAMPLERS),
    ("--adaptive-", SAMPLERS),
    ("--cpu-", "use `--set engine.pin_threads=true`, or start the program with taskset or numactl"),
    ("--prio-", "use `--set engine.pin_threads=true`, or start the program with nice"),
    ("--poll-", "use `--set engine.pin_threads=true`"),
    ("--log-", "use the section [logging]"),
    ("--no-log-", "use the section [logging]"),
    ("--cors-", "use `--set server.allowed_origins=[...]`"),
    ("--no-cors-", "use `--set server.allowed_origins=[...]`"),
    ("--models-", "use `--set model.models_dir=PATH`; a request names its model"),
    ("--no-models-", "use `--set model.models_dir=PATH`; a request names its model"),
    ("--ui-", CONSOLE),
    ("--no-ui-", CONSOLE),
    ("--webui-", CONSOLE),
    ("--no-webui-", CONSOLE),
    ("--mcp-", CONSOLE),
    ("--image-", TEXT_ONLY),
    ("--video-", TEXT_ONLY),
    ("--mtmd-", TEXT_ONLY),
    ("--mmproj-", TEXT_ONLY),
    ("--no-mmproj-", TEXT_ONLY),
    ("--control-vector-", "use `--lora PATH:FACTOR`"),
    ("--lora-init-", "an adapter holds for all requests; give it with `--lora PATH:FACTOR`"),
    ("--fim-", "give a model with `--model`"),
    ("--embd-", "this program makes replies and no embeddings"),
];

const SERVE: Refusals = &[
    (
        &["-n", "--predict", "--n-predict"],
        "a request says `max_tokens`; `--set preset.reply_reserve_tokens=N` is the limit of the others",
    ),
    (
        &[
            "--temp",
            "--temperature",
            "--top-k",
            "--top-p",
            "--min-p",
            "--repeat-penalty",
            "--presence-penalty",
            "--frequency-penalty",
        ],
        "use `--set preset.sampling.temperature=X`, and so for top_k, top_p, min_p, repetition_penalty, presence_penalty \
         and frequency_penalty",
    ),
    (&["-a", "--alias"], "a persona gives a model another name: the section [personas.NAME]"),
    (&["--api-key-file"], "make a key for each client with `reprise keys create --user NAME`"),
    (&["--ssl-key-file", "--ssl-cert-file"], "put a reverse proxy in front; docs/security.md says how"),
    (
        &["-cb", "--cont-batching", "-nocb", "--no-cont-batching"],
        "requests are always batched; `--parallel N` says how many",
    ),
    (&["-kvu", "--kv-unified"], "each conversation has the whole window; leave it out"),
    (
        &["--slots", "--no-slots", "--props", "--slot-save-path", "-sps", "--slot-prompt-similarity"],
        "`reprise sessions` shows conversations, and memory.disk_path keeps what was computed of them",
    ),
    (&["--metrics"], "/metrics is always there, for a key with the scope admin"),
    (
        &["--path", "--webui", "--no-webui", "--api-prefix"],
        "the page is at /, and other paths are a reverse proxy's work",
    ),
    (
        &["--embedding", "--embeddings", "--pooling", "--rerank", "--reranking"],
        "this program makes replies and no embeddings",
    ),
    (&["-to", "--timeout"], "use `--set limits.write_ms=N` and `--set limits.body_ms=N`"),
    (&["--ignore-eos"], "a request says `logit_bias`"),
    (&["--sleep-idle-seconds"], "use `--set memory.idle_s=N`"),
    (&["--sse-ping-interval"], "use `--set limits.comment_ms=N`"),
    (&["--reuse-port"], "one process listens on a port; leave it out"),
    (&["--media-path"], TEXT_ONLY),
    (&["--tags"], "a persona gives a model another name: the section [personas.NAME]"),
    (&["--tools", "--tools-runtime", "-ag", "--agent", "-no-ag", "--no-agent"], CONSOLE),
    (&["--threads-http"], "connections need no threads of their own; `limits.connections` says how many there may be"),
];

const RUN: Refusals = &[
    (&["-n", "--predict", "--n-predict"], "use `--max-tokens N`"),
    (&["-p"], "use `--prompt TEXT`"),
    (&["-f", "--file"], "use `--request @FILE`, or `--prompt \"$(cat FILE)\"`"),
    (&["-sys", "--system-prompt"], "use `--system TEXT`"),
    (&["-r", "--reverse-prompt"], "use `--stop TEXT`"),
    (&["-cnv", "--conversation", "-i", "--interactive"], "use `reprise chat`"),
    (&["--temp"], "use `--temperature X`"),
    (
        &["--repeat-penalty", "--presence-penalty", "--frequency-penalty"],
        "use `--set preset.sampling.repetition_penalty=X`, presence_penalty or frequency_penalty",
    ),
    (
        &["-np", "--parallel", "--host", "--port", "--api-key", "--api-key-file"],
        "it answers one prompt and serves no client; use `reprise serve`",
    ),
    (&["-j", "--json-schema", "--grammar", "--grammar-file"], "use `--request JSON` with a response_format"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::{CommandFactory, Parser};

    fn rewritten(line: &str) -> Result<Vec<String>, String> {
        let arguments = rewrite(line.split_whitespace().map(OsString::from))?;
        Ok(arguments.into_iter().map(|argument| argument.into_string().unwrap()).collect())
    }

    #[test]
    fn names_of_several_letters_behind_one_dash_are_read() {
        let read = rewritten("reprise serve -m a.gguf -ngl 99 -ctk=q8_0 -ctv q4_0 -np 4 -c 500").unwrap().join(" ");
        assert_eq!(
            read,
            "reprise serve -m a.gguf --gpu-layers 99 --cache-type-k=q8_0 --cache-type-v q4_0 --parallel 4 -c 500"
        );
        // Before the command stand flags of all commands; other commands, and what follows `--`, stay as they are.
        for line in ["reprise pull -ngl 1", "reprise run -- -ngl", "reprise --set a=serve keys -np"] {
            assert_eq!(rewritten(line).unwrap().join(" "), line);
        }
        assert_eq!(rewritten("reprise --set engine.threads=1 -t 2 run -ngl 3").unwrap()[6], "--gpu-layers");
    }

    #[test]
    fn an_unknown_name_of_theirs_is_refused_with_what_to_use_instead() {
        for (line, says) in [
            ("reprise serve --mlock", "--no-mmap"),
            ("reprise serve --flash-attn=on", "leave it out"),
            ("reprise serve -fa", "leave it out"),
            ("reprise run -n 5", "--max-tokens N"),
            ("reprise serve --n-predict 5", "max_tokens"),
            ("reprise run --batch-size 5", "engine.prefill_chunk_tokens"),
            ("reprise run -np 5", "reprise serve"),
            ("reprise serve --rope-scaling yarn", "preset.rope.yarn"),
            ("reprise serve --spec-draft-n-max 4", "draft.tokens"),
            ("reprise run --dry-multiplier 0.8", "repetition_penalty"),
            ("reprise serve --cache-ram 8192", "memory.total"),
            ("reprise serve --log-colors on", "[logging]"),
        ] {
            let refused = rewritten(line).unwrap_err();
            assert!(
                refused.contains(says)
                    && refused.contains(line.split_whitespace().nth(2).unwrap().split('=').next().unwrap()),
                "{refused}"
            );
        }
    }

    #[test]
    fn no_name_that_is_refused_is_one_that_is_read() {
        let cli = Cli::command();
        for (command, tables) in [("serve", [SERVE, BOTH]), ("run", [RUN, BOTH])] {
            let begins = |name: &String| BEGINNINGS.iter().find(|(beginning, _)| name.starts_with(beginning));
            let ours = cli.find_subcommand(command).unwrap();
            let flags = ours.get_arguments().chain(cli.get_arguments().filter(|flag| flag.is_global_set()));
            let mut names: Vec<String> = Vec::new();
            for flag in flags {
                names.extend(flag.get_long_and_visible_aliases().into_iter().flatten().map(|name| format!("--{name}")));
                names.extend(flag.get_short().map(|name| format!("-{name}")));
            }
            assert!(names.len() > 10, "{names:?}");
            let refused = tables.iter().flat_map(|table| table.iter()).flat_map(|(names, _)| names.iter());
            let both: Vec<&&str> = refused.filter(|name| names.iter().any(|ours| ours == **name)).collect();
            assert!(both.is_empty(), "{command}: {both:?}");
            assert_eq!(names.iter().find_map(begins), None, "{command}");
        }
    }

    #[test]
    fn each_name_of_theirs_sets_a_key_that_is_there() {
        let serve = "reprise serve -m a.gguf -c 4000 -t 3 -ngl 12 --no-mmap -ctk q8_0 -ctv q4_0 --reasoning-budget 0 -np 5 \
                     --host 0.0.0.0 --port 81 --api-key secret --jinja";
        let run = "reprise run -m qwen3.5-4b -c 4000 -t 3 -ngl all --no-mmap -ctk bf16 -ctv f16 --reasoning-budget -1 --jinja \
                   --prompt Hello";
        let read = |line: &str| {
            let cli = Cli::try_parse_from(rewritten(line).unwrap()).unwrap();
            let flags = cli.flags();
            let sources = settings::Sources { flags: cli.configuration.all(flags).unwrap(), ..Default::default() };
            settings::Settings::load(&sources).unwrap().settings
        };
        let settings = read(serve);
        let preset = settings.chosen().unwrap();
        assert_eq!(settings.model.path.as_deref(), Some(std::path::Path::new("a.gguf")));
        assert_eq!((preset.ctx_size, settings.engine.threads, settings.engine.gpu_layers), (4000, 3, Some(12)));
        assert_eq!((settings.engine.mmap, settings.engine.max_sequences), (false, 5));
        assert_eq!((preset.kv.k, preset.kv.v), (settings::KvFormat::Q8, settings::KvFormat::Q4));
        assert_eq!(preset.thinking, settings::Thinking::Off);
        assert_eq!((settings.server.host.to_string(), settings.server.port), ("0.0.0.0".to_owned(), 81));
        assert_eq!(settings.auth.required, settings::KeysRequired::Always);
        let settings = read(run);
        let preset = settings.chosen().unwrap();
        assert_eq!((preset.ctx_size, preset.thinking), (4000, settings::Thinking::On));
        assert_eq!((preset.kv.k, preset.kv.v), (settings::KvFormat::Bf16, settings::KvFormat::F16));
        assert_eq!(settings.engine.gpu_layers, Some(1000));
        // Without a layer on the GPU it is not used at all.
        assert_eq!(read("reprise serve -ngl 0").engine.device, settings::DeviceChoice::Cpu);
        let refused = Cli::try_parse_from(rewritten("reprise serve -ctk q5_1").unwrap()).err().unwrap().to_string();
        assert!(refused.contains("f32, f16, bf16, q8_0, q4_0, tq4 or tq3"), "{refused}");
    }
}
