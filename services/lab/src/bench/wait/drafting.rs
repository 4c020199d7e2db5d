//! Gain of drafting: the same replies with it and without it, of each kind of text.

use super::row::WaitRow;
use anyhow::Result;
use engine::DraftLimits;
use experiment::median;
use serde_json::{Value, json};
use session::{Message, MessageRole, Prompt, Tool, ToolCall};
use settings::Settings;
use std::time::Duration;
use terminal::answer::LocalModel;
use terminal::opening::ModelArgs;

struct Text {
    kind: &'static str,
    prompt: Prompt,
    repeats: bool, // such text repeats earlier text, so that drafts are right
}

struct Written {
    tokens: Vec<u32>,
    rest: usize, // tokens behind the first one, and their time
    time: Duration,
    drafted: usize,
    accepted: usize,
}

const REPLY_TOKENS: usize = 160;
const KEPT_BYTES: usize = 1 << 30; // enough for one conversation

/// Measures by turns, so that a slow moment of the machine meets both.
pub fn rows(model: ModelArgs, rounds: u64, settings: &Settings) -> Result<Vec<WaitRow>> {
    let mut model = LocalModel::new(model.open(settings)?, settings, KEPT_BYTES);
    let texts = texts(&model);
    let mut seen: Vec<[Vec<Written>; 2]> = texts.iter().map(|_| Default::default()).collect();
    for round in 0..=rounds {
        for (with, drafts) in [model::drafts(settings), DraftLimits::default()].into_iter().enumerate() {
            model.use_drafts(drafts);
            for (text, seen) in texts.iter().zip(&mut seen) {
                let written = write(&mut model, &text.prompt)?;
                // In the first round the engine learns which drafts are right, and their cost.
                if round > 0 {
                    seen[with].push(written);
                }
            }
        }
    }
    Ok(texts.iter().zip(&seen).map(|(text, seen)| row(text, seen)).collect())
}

fn write(model: &mut LocalModel, prompt: &Prompt) -> Result<Written> {
    let prompt = model.encode(prompt, false)?;
    let options = |request: &mut engine::EngineRequest| {
        request.max_new_tokens = REPLY_TOKENS;
        request.sampling.temperature = 0.0;
    };
    let answer = model.answer(prompt, options, &mut |_| Ok(()))?;
    let report = &answer.report;
    Ok(Written {
        rest: answer.tokens.len().saturating_sub(1),
        time: answer.total.saturating_sub(answer.first_token.unwrap_or(answer.total)),
        drafted: report.drafted_tokens,
        accepted: report.accepted_tokens,
        tokens: answer.tokens,
    })
}

fn row(text: &Text, [with, without]: &[Vec<Written>; 2]) -> WaitRow {
    let row = |gain| WaitRow::new(format!("decode with drafting on, to off: {}", text.kind), "x", gain);
    let first = without.first().map(|written| &written.tokens[..]).unwrap_or_default();
    let alike = |written: &Written| written.tokens.iter().zip(first).take_while(|(one, other)| one == other).count();
    if let Some(other) = with.iter().chain(without).find(|written| written.tokens != *first) {
        // A step of several rows adds in another order, which decides between nearly equal tokens, as a random model
        // has them.
        return row(None).noted(format!("with drafts another reply after {} of {} tokens", alike(other), first.len()));
    }
    let rate = |seen: &[Written]| median(seen.iter().map(|one| one.rest as f64 / one.time.as_secs_f64().max(1e-9)));
    let sum = |count: fn(&Written) -> usize| with.iter().map(count).sum::<usize>();
    let (rest, accepted, drafted) = (sum(|one| one.rest), sum(|one| one.accepted), sum(|one| one.drafted));
    let (on, off) = (rate(with), rate(without));
    let gain = on.zip(off).map(|(on, off)| on / off).filter(|_| rest > 0);
    let note = format!(
        "{:.2} tokens a step, {accepted} of {drafted} drafts came, {} tokens, {:.1} and {:.1} tokens/s",
        rest as f64 / (rest - accepted.min(rest)).max(1) as f64,
        first.len(),
        on.unwrap_or_default(),
        off.unwrap_or_default(),
    );
    let row = row(gain).noted(note);
    if text.repeats { row.at_least(1.5, Some(2.0)) } else { row.at_least(0.98, None) }
}

fn texts(model: &LocalModel) -> Vec<Text> {
    use MessageRole::{Assistant, System, User};
    let say = |role: MessageRole, text: &str| Message::new(role, text);
    let system = say(System, "You are a voice assistant at home. Answer in short plain sentences.");
    let asked = |told: &[Message], last: Message, tools: &[Tool]| {
        let messages = [std::slice::from_ref(&system), told, &[last]].concat();
        Prompt { messages, tools: tools.to_vec(), ..Prompt::default() }
    };
    let told: Vec<Message> =
        TOLD.iter().flat_map(|(user, assistant)| [say(User, user), say(Assistant, assistant)]).collect();
    let tool = |name: &str, description: &str, properties: Value| {
        let required: Vec<&String> = properties.as_object().into_iter().flatten().map(|(name, _)| name).collect();
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        let (name, parameters) = (name.to_owned(), Some(parameters.to_string().into()));
        Tool { name, description: Some(description.to_owned()), parameters, verbatim: None }
    };
    let tools = [
        tool("set_timer", "Starts a timer.", json!({"amount": {"type": "integer"}, "unit": {"type": "string"}})),
        tool("add_to_list", "Puts something on the shopping list.", json!({"item": {"type": "string"}})),
        tool("read_list", "Reads the shopping list.", json!({})),
    ];
    let call = |name: &str, arguments: Value| {
        let call = ToolCall { id: Some("call".to_owned()), name: name.to_owned(), arguments: arguments.to_string() };
        Message { calls: vec![call], ..say(Assistant, "") }
    };
    let result = |text: &str| say(MessageRole::Tool, text);
    let put = |item: &&str| {
        let (asked, done) = (format!("Put {item} on the shopping list."), format!("I put {item} on the list."));
        let call = call("add_to_list", json!({"item": item}));
        [say(User, &asked), call, result("done"), say(Assistant, &done)]
    };
    let list: Vec<Message> = ITEMS.iter().flat_map(put).collect();
    let read = [say(User, "What is on the shopping list?"), call("read_list", json!({}))];
    let items = result(&json!(ITEMS).to_string());
    let pegs = say(User, "Put clothes pegs on the shopping list.");
    let reminder = say(User, "Please note: on Saturday, remind me to call Plinni.");
    let limits = runtime::limits_of(&model.preset);
    let summary = say(User, &compaction::summary_request(&limits).text);
    let text = |kind, prompt, repeats| Text { kind, prompt, repeats };
    vec![
        text("talk", asked(&told, reminder, &[]), false),
        text("a tool call", asked(&list, pegs, &tools), true),
        text("a list read back", asked(&[&list[..], &read].concat(), items, &tools), true),
        text("a summary", asked(&told, summary, &[]), true),
    ]
}

const ITEMS: [&str; 5] = ["washing powder", "black bread", "green apples", "toothpaste", "olive oil"];
const TOLD: [(&str, &str); 8] = [
    ("My dog is called Rex.", "Noted, your dog is called Rex."),
    ("Our daughter is called Plinni.", "Noted, your daughter is called Plinni."),
    ("We live in Gaivem.", "Noted, you live in Gaivem."),
    ("At 3:55 my train leaves.", "Noted, your train leaves at 3:55."),
    ("My allergy is hazelnuts.", "Noted, you are allergic to hazelnuts."),
    ("On Friday, remind me to call Jack.", "Noted, on Friday I remind you to call Jack."),
    ("My favourite food is soplis.", "Noted, your favourite food is soplis."),
    ("Our next holiday is in Valno.", "Noted, your next holiday is in Valno."),
];
