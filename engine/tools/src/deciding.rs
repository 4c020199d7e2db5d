//! Formats of a file's tensors: of a mixture, or by measured error under a limit of bytes; and the importance of their columns.

use std::path::Path;

use kernels::cpu::Cpu;
use kernels::format::{Format, is_weighted};

use crate::Error;
use crate::file_head::FileHead;
use crate::imatrix::Imatrix;
use crate::mixture::fitting::{self, MeasuredFormat};
use crate::mixture::{Mixture, MixtureModel, is_matrix};
use crate::planned::{Planned, WriteStep, again_note};
use crate::tensors::on_all;
use crate::type_rule::TypeRule;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatChoice {
    Mixture(Mixture),
    /// Limit of the file's bytes, under which formats are chosen by measured error.
    Bytes(u64),
}

#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    pub choice: FormatChoice,
    pub rules: &'a [TypeRule],
    pub imatrix: Option<&'a Imatrix>,
    pub threads: usize,
}

/// Gives each tensor its format, and the importance of its columns. `source` is for messages.
pub fn decide(
    tensors: &mut [Planned],
    wanted: &Wanted,
    model: MixtureModel,
    head: &mut FileHead,
    source: &Path,
    progress: &mut dyn FnMut(WriteStep),
) -> Result<Vec<String>, Error> {
    let model = MixtureModel { has_importance: wanted.imatrix.is_some(), ..model };
    let mut used = vec![0; wanted.rules.len()];
    let mut open = Vec::new();
    let matrices = tensors.iter_mut().enumerate().filter(|(_, tensor)| is_matrix(&tensor.known_as, &tensor.dims));
    for (at, tensor) in matrices {
        let Some(rule) = wanted.rules.iter().position(|rule| rule.holds_for(&tensor.name)) else {
            open.push(at);
            continue;
        };
        used[rule] += 1;
        tensor.format = wanted.rules[rule].format;
        let wrong = |what: String| Err(Error::tensor(source, &tensor.name, what));
        let format = tensor.format.name();
        if !head.takes(tensor.format) {
            return wrong(format!("an APR file has no type {format}: {}", crate::apr::TYPES));
        }
        if tensor.info().size().is_none() {
            return wrong(format!("its rows of {} values are not whole blocks of {format}", tensor.cols()));
        }
    }
    if let Some((rule, _)) = wanted.rules.iter().zip(&used).find(|(_, used)| **used == 0) {
        let what =
            format!("no matrix is named like '{}'; norms, convolutions and routers keep their type", rule.pattern);
        return Err(Error::file(source, what));
    }
    let mut notes = Vec::new();
    match wanted.choice {
        FormatChoice::Mixture(mixture) => {
            for at in open {
                let tensor = &mut tensors[at];
                let format = mixture.format_of(&tensor.known_as, &tensor.dims, &model);
                tensor.format = if head.takes(format) { format } else { Format::F16 };
            }
            head.set_file_type(mixture.file_type());
        }
        FormatChoice::Bytes(most) => {
            let fitted = FittedFile { most, wanted, model: &model, head, source };
            notes.push(fit(tensors, &open, &fitted, progress)?);
            head.set_file_type(file_type(tensors));
        }
    }
    if let Some(imatrix) = wanted.imatrix {
        notes.extend(weigh(tensors, imatrix, source)?);
    }
    let again = tensors.iter().filter(|tensor| {
        let from = tensor.values.format();
        from.is_quantised() && from != tensor.format
    });
    let again = again.count();
    if again > 0 {
        notes.push(again_note(again));
    }
    Ok(notes)
}

/// Formats that `fit` chooses from, by the values that must be in a block of them.
const CHOICE: [Format; 13] = [
    Format::IQ4_XS,
    Format::Q4_K,
    Format::Q5_K,
    Format::Q6_K,
    Format::IQ4_NL,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::F16,
    Format::BF16,
    Format::F32,
    Format::Q4_0,
];

struct FittedFile<'a> {
    most: u64,
    wanted: &'a Wanted<'a>,
    model: &'a MixtureModel,
    head: &'a FileHead,
    source: &'a Path,
}

/// Chooses the formats of these tensors by measured error, so that the whole file fits.
fn fit(
    tensors: &mut [Planned],
    open: &[usize],
    file: &FittedFile,
    progress: &mut dyn FnMut(WriteStep),
) -> Result<String, Error> {
    /// Matrices between two words of progress.
    const TOGETHER: usize = 16;
    let FittedFile { most, wanted, model, head, source } = *file;
    let padded = |bytes: u64| bytes.next_multiple_of(head.alignment());
    let io = |error| Error::io(source, error);
    let infos: Vec<_> = tensors.iter().map(Planned::info).collect();
    let now: u64 = open.iter().map(|&at| padded(infos[at].size().unwrap_or(0))).sum();
    let others = head.file_bytes(&infos).map_err(io)? - now;
    if let Some(imatrix) = wanted.imatrix {
        open.iter().try_for_each(|&at| add_importance(&mut tensors[at], imatrix))?;
    }
    let cpu = Cpu::new(wanted.threads);
    let measure = |&at: &usize| {
        let tensor = &tensors[at];
        let from = tensor.values.format();
        let size = |format| crate::gguf_writer::TensorInfo { format, ..tensor.info() }.size();
        let most = size(from).unwrap_or(u64::MAX);
        let is_worth =
            |format: &Format| head.takes(*format) && *format != from && size(*format).is_some_and(|bytes| bytes < most);
        let formats: Vec<Format> = CHOICE.into_iter().filter(is_worth).collect();
        let cost = cost_of(&tensor.known_as, model);
        let errors = tensor.rounding_errors(&formats, source)?;
        let kept = (from, 0.0);
        let all = formats.into_iter().zip(errors).chain(head.takes(from).then_some(kept));
        let measured = all.filter_map(|(format, error)| {
            Some(MeasuredFormat { format, bytes: padded(size(format)?), error: cost * error })
        });
        Ok::<_, Error>(measured.collect::<Vec<_>>())
    };
    let mut measured: Vec<Vec<MeasuredFormat>> = Vec::new();
    for some in open.chunks(TOGETHER) {
        for one in on_all(&cpu, some, measure) {
            measured.push(one?);
        }
        progress(WriteStep::Measured(measured.len() as u64, open.len() as u64));
    }
    let chosen = fitting::choose(&measured, most.saturating_sub(others)).map_err(|least| {
        let what = format!(
            "takes {} bytes or more, and {most} are allowed: allow more, or take a smaller model",
            least + others
        );
        Error::file(source, what)
    })?;
    let used = others + chosen.iter().map(|format| format.bytes).sum::<u64>();
    for (&at, chosen) in open.iter().zip(&chosen) {
        (tensors[at].format, tensors[at].importance) = (chosen.format, None);
    }
    Ok(format!("types were chosen by measured error: {used} of {most} bytes"))
}

/// Cost of the squared relative error of a matrix, by its kind: divergence of the predictions from the whole model's where only
/// matrices of the kind were in q4_k, measured on the built-in model over 512 tokens. Errors of linear attention stay in its state,
/// and cost most: 4.0 of `attn_qkv`, 1.8 of `ssm_out`, 0.9 of `attn_gate`. The others had 0.03 to 0.08, and count more here because
/// one small model is not all.
const COSTS: [(&str, f64); 6] =
    [("attn_qkv", 4.0), ("ssm_", 2.0), ("attn_gate", 1.0), ("attn_", 0.5), ("nextn.", 0.1), ("ffn_", 0.25)];

/// Cost of the head's error, which reaches the words whole: 7.9 in the built-in model of 6 layers. In a model of more layers each
/// layer is a smaller part of the rest.
const COST_OF_HEAD: f64 = 8.0 / 6.0;

fn cost_of(name: &str, model: &MixtureModel) -> f64 {
    let head = COST_OF_HEAD * model.layers as f64;
    match name {
        "output.weight" => head,
        "token_embd.weight" if model.tied => head,
        _ => COSTS.iter().find(|(part, _)| name.contains(part)).map_or(1.0, |(_, cost)| *cost),
    }
}

/// Returns the number of the mixture that most values are of.
fn file_type(tensors: &[Planned]) -> u32 {
    let values = |mixture: &Mixture| -> u64 {
        tensors.iter().filter(|tensor| tensor.format == mixture.base()).map(Planned::parameters).sum()
    };
    Mixture::ALL.into_iter().max_by_key(values).unwrap_or(Mixture::BF16).file_type()
}

fn add_importance(tensor: &mut Planned, imatrix: &Imatrix) -> Result<(), Error> {
    let stack = tensor.dims.get(2).map_or(1, |&stack| stack as usize);
    let importance = imatrix.importance(&tensor.known_as, tensor.cols(), stack);
    tensor.importance = importance.map_err(|what| Error::tensor(&imatrix.path, &tensor.name, what))?;
    Ok(())
}

/// Gives tensors the importance of their columns, where the format can use it.
fn weigh(tensors: &mut [Planned], imatrix: &Imatrix, source: &Path) -> Result<Vec<String>, Error> {
    let is_searched = |tensor: &&mut Planned| is_weighted(tensor.format) == Some(true);
    let (mut weighted, mut searched) = (0, 0);
    for tensor in tensors.iter_mut().filter(is_searched) {
        searched += 1;
        add_importance(tensor, imatrix)?;
        weighted += usize::from(tensor.importance.is_some());
    }
    if searched == 0 {
        let what = "changes nothing in these types: only those with a search of 4 to 6 bits have a use for it";
        return Err(Error::file(&imatrix.path, what));
    }
    if weighted == 0 {
        let what = format!("names none of the tensors of {}: it was made for another model", source.display());
        return Err(Error::file(&imatrix.path, what));
    }
    let missing = searched - weighted;
    Ok(vec![format!(
        "the importance matrix weights {weighted} tensors; {missing} that it does not name are searched without"
    )])
}
