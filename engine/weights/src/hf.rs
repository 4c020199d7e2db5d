//! A Hugging Face folder: config.json, safetensors in one file or several, and the tokenizer's files. Or the same in one APR file.

mod apr;
mod config;
mod folder;
mod header;

use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::bytes::ModelBytes;
use crate::contents::{self, FileContents, FileForm, FileNames, FileTensor};
use crate::error::{Error, shown};
use crate::fingerprint::fingerprint;
use crate::layers::{self, Source};
use crate::model::{ModelWeights, VocabSource};
use crate::stop;
use crate::tensors::Tensors;
use config::Config;
pub use folder::Folder;

pub fn open(path: &Path, mmap: bool) -> Result<ModelWeights, Error> {
    load(read(path, mmap)?)
}

/// Reads the small files of a folder or of an APR file, and maps or reads its tensors' files.
pub fn read(path: &Path, mmap: bool) -> Result<Folder, Error> {
    if is_apr(path) { apr::folder(path, mmap) } else { folder::read(path, mmap) }
}

pub fn is_apr(path: &Path) -> bool {
    let mut begin = [0; apr::MAGIC.len()];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && apr::is_apr(&begin)
}

fn add_tensors(path: &Path, bytes: &ModelBytes, tensors: &mut Tensors) -> Result<ModelBytes, Error> {
    match apr::is_apr(bytes) {
        true => apr::add_tensors(path, bytes, tensors),
        false => header::add_tensors(path, bytes, tensors),
    }
}

pub fn load(folder: Folder) -> Result<ModelWeights, Error> {
    let config_path = folder.path.join("config.json");
    let json = parse(&config_path, &folder.config)?;
    let config = Config::new(&config_path, &json)?;

    let family = config.family;
    let mut tensors = Tensors::new(&folder.path);
    let mut described = vec![folder.config.clone()];
    for (path, bytes) in &folder.shards {
        described.push(add_tensors(path, bytes, &mut tensors)?.to_vec());
    }
    if tensors.has_any(|name| name.ends_with(".trellis")) {
        let what =
            "holds trellis tiles (EXL3), which the engine does not multiply yet: take the bf16 model, or a GGUF file";
        return Err(Error::file(&folder.path, what));
    }
    // From here on a few bytes of each tensor are read.
    folder.shards.iter().for_each(|(_, bytes)| bytes.read_ahead(false));
    let fingerprint = fingerprint(described.iter().map(|bytes| &bytes[..]), &tensors);

    let mut notes = Vec::new();
    let vision = tensors.drop_all(is_vision);
    if vision > 0 {
        notes.push(format!("{vision} tensors of the vision encoder are skipped: this runs the text model"));
    }
    let mtp_prefix = mtp_prefix(&mut tensors, &mut notes);
    let head_name = tensors.one_of(&HEADS.map(String::from));
    let shape = config.shape(&tensors, usize::from(mtp_prefix.is_some()), tensors.has(&head_name))?;

    let prefix = PREFIXES.into_iter().find(|prefix| tensors.has(&format!("{prefix}embed_tokens.weight")));
    let prefix = prefix.unwrap_or("model.");
    let embed = tensors.matrix(&format!("{prefix}embed_tokens.weight"), shape.vocab, shape.hidden)?;
    let output = match shape.tied {
        false => Some(tensors.matrix(&head_name, shape.vocab, shape.hidden)?),
        true => {
            if tensors.drop_all(|name| name == head_name) > 0 {
                notes.push(format!("'{head_name}' is not used: the configuration ties the head to the embedding"));
            }
            None
        }
    };
    let output_norm =
        layers::norm(&mut tensors, Source::Folder(family), &format!("{prefix}norm.weight"), shape.hidden)?;
    let mut layers = Vec::new();
    for (index, kind) in shape.layers.clone().into_iter().enumerate() {
        let prefix = format!("{prefix}layers.{index}.");
        layers.push(layers::layer(&mut tensors, &shape, Source::Folder(family), prefix, kind)?);
    }
    let prediction = mtp_prefix.map(|own| {
        let prefixes = [format!("{own}layers.0."), own.to_string()];
        layers::prediction(&mut tensors, &shape, Source::Folder(family), prefixes, &output_norm)
    });
    let prediction = prediction.transpose()?;
    if tensors.drop_all(|name| mtp_name(name).is_some()) > 0 {
        notes.push("of the blocks for multi-token prediction the first is used".to_string());
    }
    tensors.check_left_over(&mut notes)?;
    folder.shards.iter().for_each(|(_, bytes)| bytes.read_ahead(true));

    let folder_name = || folder.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(ModelWeights {
        name: config.name().map_or_else(folder_name, shown),
        chat_template: chat_template(&folder)?,
        stop_tokens: stop_tokens(&folder, &config, shape.vocab)?,
        vocab: VocabSource::Json(folder.tokenizer),
        shape,
        embed,
        output,
        output_norm,
        layers,
        prediction,
        fingerprint,
        notes,
    })
}

pub(crate) fn contents(path: &Path, mmap: bool) -> Result<FileContents, Error> {
    let folder = read(path, mmap)?;
    let config_path = folder.path.join("config.json");
    let json = parse(&config_path, &folder.config)?;
    let config = Config::new(&config_path, &json)?;
    let mut tensors = Tensors::new(&folder.path);
    for (path, bytes) in &folder.shards {
        add_tensors(path, bytes, &mut tensors)?;
    }
    let listed = contents::listed(&tensors);
    tensors.drop_all(is_vision);
    let mtp_prefix = mtp_prefix(&mut tensors, &mut Vec::new());
    let has_head = HEADS.iter().any(|head| tensors.has(head));
    let shape = config.shape(&tensors, usize::from(mtp_prefix.is_some()), has_head);
    let trunk = shape.as_ref().map_or(0, |shape| shape.layers.len());
    let prefix = PREFIXES.into_iter().find(|prefix| tensors.has(&format!("{prefix}embed_tokens.weight")));
    let names = FileNames::Folder {
        family: config.family,
        prefix: prefix.unwrap_or("model.").to_owned(),
        prediction: mtp_prefix.unwrap_or(MTP_PREFIXES[0]).to_owned(),
        trunk,
        heads: &HEADS,
    };
    let vocab = shape.as_ref().map_or(usize::MAX, |shape| shape.vocab);
    Ok(FileContents {
        form: FileForm::Folder,
        files: folder.shards.iter().map(|(path, _)| path.clone()).collect(),
        tensors: listed,
        family: config.architecture(),
        shape,
        stop_tokens: stop_tokens(&folder, &config, vocab),
        chat_template: chat_template(&folder),
        vocab: Ok(VocabSource::Json(folder.tokenizer)),
        names,
    })
}

/// Lists the tensors of a folder's safetensors, or of one such file.
pub(crate) fn tensors_of(path: &Path, mmap: bool) -> Result<Vec<FileTensor>, Error> {
    let mut tensors = Tensors::new(path);
    for file in folder::shards(path)? {
        let bytes = ModelBytes::open(&file, mmap)?;
        add_tensors(&file, &bytes, &mut tensors)?;
    }
    Ok(contents::listed(&tensors))
}

/// Checks the family before the reader looks at other files, which a folder of another kind lacks for good reasons.
fn check_family(path: &Path, config: &[u8]) -> Result<(), Error> {
    Config::new(path, &parse(path, config)?).map(|_| ())
}

/// Prefixes of `embed_tokens` and `layers`: in multimodal checkpoints, in text models, in files of other tools.
pub(crate) const PREFIXES: [&str; 4] = ["model.language_model.", "model.", "language_model.model.", "language_model."];
const HEADS: [&str; 3] = ["lm_head.weight", "language_model.lm_head.weight", "model.language_model.lm_head.weight"];

fn is_vision(name: &str) -> bool {
    ["model.visual.", "visual.", "vision_tower.", "model.vision_tower."].iter().any(|prefix| name.starts_with(prefix))
}

const MTP_PREFIXES: [&str; 4] = ["mtp.", "model.mtp.", "language_model.mtp.", "model.language_model.mtp."];

fn mtp_name(name: &str) -> Option<&str> {
    MTP_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))
}

/// Returns the prefix of the tensors of multi-token prediction. None: there are none, or the engine cannot use them.
fn mtp_prefix(tensors: &mut Tensors, notes: &mut Vec<String>) -> Option<&'static str> {
    let prefix = MTP_PREFIXES.into_iter().find(|prefix| tensors.has_any(|name| name.starts_with(prefix)))?;
    let is_own = |name: &str| mtp_name(name).is_some_and(|name| name.starts_with("embed_tokens"));
    let left_out = match tensors.unreadable(|name| mtp_name(name).is_some()) {
        Some(unknown) => format!("type {} is not supported", shown(unknown)),
        None if tensors.has_any(is_own) => "it has an embedding of its own".to_string(),
        None => return Some(prefix),
    };
    notes.push(format!("multi-token prediction is left out: {left_out}"));
    tensors.drop_all(|name| mtp_name(name).is_some());
    None
}

/// Reads the chat template from its own file, or from tokenizer_config.json: a string, or a list with a default.
fn chat_template(folder: &Folder) -> Result<Option<String>, Error> {
    if let Some(template) = &folder.chat_template {
        return Ok(Some(template.clone()));
    }
    let Some(json) = &folder.tokenizer_config else { return Ok(None) };
    let path = folder.path.join("tokenizer_config.json");
    match parse(&path, json)?.get("chat_template") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(template)) => Ok(Some(template.clone())),
        Some(Value::Array(named)) => {
            let default = named.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"));
            let template = default.and_then(|entry| entry.get("template")).and_then(Value::as_str);
            match template {
                Some(template) => Ok(Some(template.to_string())),
                None => {
                    Err(Error::key(&path, "chat_template", "a list without 'default'", "a template, or one so named"))
                }
            }
        }
        Some(_) => Err(Error::key(&path, "chat_template", "neither text nor list", "a template")),
    }
}

/// Collects the end tokens of config.json, of generation_config.json and of the family.
fn stop_tokens(folder: &Folder, config: &Config, vocab: usize) -> Result<Vec<u32>, Error> {
    let mut tokens = config.eos()?;
    if let Some(json) = &folder.generation_config {
        let path = folder.path.join("generation_config.json");
        if let Some(found) = parse(&path, json)?.get("eos_token_id") {
            tokens.extend(config::token_ids(&path, "eos_token_id", found)?);
        }
    }
    if let Some(beyond) = tokens.iter().find(|&&token| usize::try_from(token).is_ok_and(|token| token >= vocab)) {
        let expected = format!("a token, less than {vocab}");
        return Err(Error::key(&folder.path, "eos_token_id", beyond.to_string(), expected));
    }
    let path = folder.path.join("tokenizer.json");
    let added: AddedTokens = serde_json::from_slice(&folder.tokenizer)
        .map_err(|error| Error::file(&path, format!("is damaged: {}", shown(&error.to_string()))))?;
    let ends = added.added_tokens.into_iter().filter(|token| token.special && config.family.ends_with(&token.content));
    tokens.extend(ends.map(|token| token.id).filter(|&id| usize::try_from(id).is_ok_and(|id| id < vocab)));
    Ok(stop::sorted(tokens))
}

/// Part of tokenizer.json that this crate reads; the tokenizer reads the rest.
#[derive(serde::Deserialize)]
struct AddedTokens {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(serde::Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

pub(crate) fn parse(path: &Path, json: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(json)
        .map_err(|error| Error::file(path, format!("is not valid JSON: {}", shown(&error.to_string()))))
}
