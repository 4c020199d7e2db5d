//! The vocabulary and the chat template: whether text comes back, and whether a prompt can be rendered.

use chat::{Message, MessageRole, Prompt};
use text::{Template, TemplateInput, Tokenizer};
use weights::FileContents;

use super::findings::Findings;

pub(super) fn check(contents: &FileContents, findings: &mut Findings) {
    // Without a family the vocabulary is not read, and its finding is there already.
    if contents.family.is_err() {
        return;
    }
    if let Some(tokenizer) = tokenizer(contents, findings) {
        end_tokens(contents, &tokenizer, findings);
    }
    template(contents, findings);
}

const VOCABULARY: &str = "vocabulary";

fn tokenizer(contents: &FileContents, findings: &mut Findings) -> Option<Tokenizer> {
    let advice = "take the file of another converter, or convert again";
    let source = match &contents.vocab {
        Ok(source) => source.clone(),
        Err(error) => {
            findings.problem(VOCABULARY, None, format!("{error}; {advice}"));
            return None;
        }
    };
    let tokenizer = match engine::vocabulary::tokenizer(source) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            findings.problem(
                VOCABULARY,
                None,
                format!("no tokenizer can be made of the vocabulary: {error}; {advice}"),
            );
            return None;
        }
    };
    for sample in SAMPLES {
        let back = tokenizer.decode(&tokenizer.encode_plain(sample));
        if back != sample {
            let says = format!("the vocabulary does not give text back: '{sample}' comes back as '{back}'; {advice}");
            findings.problem(VOCABULARY, None, says);
        }
    }
    let rows = contents.shape.as_ref().map_or(usize::MAX, |shape| shape.vocab);
    if tokenizer.len() > rows {
        let says = format!("the vocabulary has {} tokens and the embedding {rows} rows; {advice}", tokenizer.len());
        findings.problem(VOCABULARY, None, says);
    }
    Some(tokenizer)
}

/// Texts in several scripts, with white space and digits.
const SAMPLES: [&str; 3] =
    ["Good morning. It is 7:15, and 23 °C.", "def f(x):\n\treturn x  # tabs", "Grüße, 明天早上八点, आज, 🙂"];

fn end_tokens(contents: &FileContents, tokenizer: &Tokenizer, findings: &mut Findings) {
    let stops = match &contents.stop_tokens {
        Ok(stops) => stops,
        Err(error) => return findings.problem(VOCABULARY, None, format!("{error}; convert again")),
    };
    let Ok((family, _)) = &contents.family else { return };
    if stops.is_empty() {
        let says =
            format!("no token ends a reply, so replies never end; the family's are {}", family.end_tokens.join(", "));
        findings.problem(VOCABULARY, None, says);
    }
    for end in family.end_tokens.iter().filter(|end| tokenizer.id_of(end).is_none_or(|id| !tokenizer.is_control(id))) {
        let says = format!("the vocabulary has no control token {end}: replies may not end where the model ends them");
        findings.warning(VOCABULARY, None, says);
    }
}

const TEMPLATE: &str = "template";

fn template(contents: &FileContents, findings: &mut Findings) {
    let source = match &contents.chat_template {
        Ok(Some(source)) => source,
        Ok(None) => {
            let says = "the file has no chat template: the engine uses the family's; convert again if it had one";
            return findings.warning(TEMPLATE, None, says);
        }
        Err(error) => return findings.problem(TEMPLATE, None, error.to_string()),
    };
    let rendered = Template::new(source).and_then(|template| render(&template));
    let text = match rendered {
        Ok(text) => text,
        Err(error) => {
            let says = format!("the chat template does not work: {error}; put the model's own one in its place");
            return findings.problem(TEMPLATE, None, says);
        }
    };
    if !text.contains(QUESTION) {
        let says = "the chat template leaves out what the user says; put the model's own one in its place";
        return findings.problem(TEMPLATE, None, says);
    }
    if Template::family().and_then(|family| render(&family)).is_ok_and(|own| own != text) {
        let says = "the chat template renders a question in another way than the family's: right for a fine-tune that was \
                    trained with it";
        findings.warning(TEMPLATE, None, says);
    }
}

const QUESTION: &str = "Is the light on?";

fn render(template: &Template) -> Result<String, text::Error> {
    let messages = vec![Message::new(MessageRole::System, "Be brief."), Message::new(MessageRole::User, QUESTION)];
    let prompt = Prompt { messages, ..Prompt::default() };
    let now = Some(text::template::utc(0));
    Ok(template.render(&TemplateInput { now, thinks: Some(false), ..TemplateInput::of(&prompt) })?.text)
}
