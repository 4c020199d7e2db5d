//! Tool calls in the family's format, as a grammar:
//!
//! ```text
//! <tool_call>
//! <function=NAME>
//! <parameter=KEY>
//! value
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//!
//! Parameters come in any order, each at most once, the required ones always. `<tool_call>` and `</tool_call>` are
//! single tokens; the rest is ordinary text.

use std::collections::HashSet;
use std::fmt::Write as _;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Value, json};

use super::env::GrammarEnv;
use super::error::GrammarError;
use super::values::{Form, NEVER_IN_TEXT, PartsBudget, Unsupported, VALUE_END, forms_of};
use super::{CallChoice, lark, schema};
use crate::ToolSchema;

/// Bits of the number in which llguidance keeps the parameters that were written. More parameters come in one order,
/// the required ones first.
const MOST_IN_ANY_ORDER: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub struct Tools {
    functions: Vec<Function>,
    optional: bool,
    several: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Function {
    name: String,
    strict: bool,
    parameters: Vec<Parameter>,
    required: usize,
    /// True if the schema names no parameters and allows any.
    open: bool,
    root: Value,
}

#[derive(Debug, Clone, PartialEq)]
struct Parameter {
    name: String,
    forms: Vec<Form>,
    schema: Value,
}

impl Tools {
    pub fn new(tools: &[ToolSchema], choice: &CallChoice, parallel: bool) -> Result<Tools, GrammarError> {
        let budget = PartsBudget::default();
        let mut functions = tools.iter().map(|tool| Function::new(tool, &budget)).collect::<Result<Vec<_>, _>>()?;
        if functions.is_empty() {
            return Err(GrammarError::NoTools);
        }
        if let CallChoice::Named(name) = choice {
            let known = functions.iter().map(|function| function.name.as_str()).collect::<Vec<_>>().join(", ");
            functions.retain(|function| function.name == *name);
            if functions.is_empty() {
                return Err(GrammarError::UnknownTool { name: name.clone(), known });
            }
        }
        let several = parallel && !matches!(choice, CallChoice::Named(_));
        Ok(Tools { functions, optional: *choice == CallChoice::Auto, several })
    }

    pub fn is_optional(&self) -> bool {
        self.optional
    }

    /// Renders the grammar. `before`: Lark for the text before the first call.
    pub fn source(&self, before: &str, env: &GrammarEnv) -> Result<Vec<GrammarWithLexer>, GrammarError> {
        let (start, end) = env.call_tokens()?;
        let mut source = LarkSource::default();
        let more = if self.several { r#" ("\n" call)*"# } else { "" };
        let names: Vec<String> = (0..self.functions.len()).map(|index| format!("f{index}")).collect();
        source.line(&format!("start: {before}call{more}"));
        source.line(&format!(r#"call: <[{start}]> "\n" ( {} ) <[{end}]>"#, names.join(" | ")));
        source.add_text();
        for (function, name) in self.functions.iter().zip(&names) {
            source.add_function(function, name);
        }
        let mut grammars = vec![lark("whole", source.lark)];
        grammars.append(&mut source.schemas);
        Ok(grammars)
    }

    pub fn unsupported_part(&self, env: &GrammarEnv, why: String) -> GrammarError {
        for function in &self.functions {
            for parameter in &function.parameters {
                let mut source = LarkSource::default();
                source.line("start: value");
                source.add_text();
                source.add_value("value", &parameter.forms, !function.strict);
                let mut grammars = vec![lark("whole", source.lark)];
                grammars.append(&mut source.schemas);
                let Some(why) = env.why_not(TopLevelGrammar { grammars, max_tokens: None }) else { continue };
                let at = format!("#/properties/{}", parameter.name);
                let schema = schema::with_definitions(&parameter.schema, &function.root);
                let (part, why) = schema::unsupported_part(env, &schema, !function.strict, why);
                return function.refused(part.replacen('#', &at, 1), why);
            }
        }
        GrammarError::Failed { why }
    }
}

impl Function {
    fn new(tool: &ToolSchema, budget: &PartsBudget) -> Result<Function, GrammarError> {
        let (name, strict) = (tool.name.clone(), tool.strict);
        let mut made = Function { name, strict, parameters: Vec::new(), required: 0, open: false, root: Value::Null };
        if !is_plain_name(&made.name) {
            let why = "a tool's name has at least one character, and no blank, control character, < or >";
            return Err(made.refused("name".into(), why.into()));
        }
        let none = json!({});
        let schema = if tool.parameters.is_null() { &none } else { &tool.parameters };
        schema::check(schema).map_err(|error| match error {
            GrammarError::Schema { part, why } => made.refused(part, why),
            other => other,
        })?;
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: Vec<&str> = required.filter_map(Value::as_str).collect();
        let named = properties.into_iter().flatten().map(|(name, schema)| (name.as_str(), schema.clone()));
        let unnamed = required.iter().filter(|name| properties.is_none_or(|map| !map.contains_key(**name)));
        let mut seen = HashSet::new();
        for (name, schema_of_value) in named.chain(unnamed.map(|name| (*name, json!({})))) {
            if !seen.insert(name.to_string()) {
                continue;
            }
            if !is_plain_name(name) {
                let why = "a parameter's name has at least one character, and no blank, control character, < or >";
                return Err(made.refused(format!("#/properties/{name}"), why.into()));
            }
            let forms = forms_of(&schema_of_value, schema, strict, budget)
                .map_err(|Unsupported { part, why }| made.refused(format!("#/properties/{name}{part}"), why))?;
            made.parameters.push(Parameter { name: name.to_string(), forms, schema: schema_of_value });
        }
        made.root = schema.clone();
        made.parameters.sort_by_key(|parameter| !required.contains(&parameter.name.as_str()));
        made.required = made.parameters.iter().filter(|one| required.contains(&one.name.as_str())).count();
        let more = schema.get("additionalProperties");
        made.open =
            made.parameters.is_empty() && more.is_some_and(|more| *more == Value::Bool(true) || more.is_object());
        Ok(made)
    }

    fn refused(&self, part: String, why: String) -> GrammarError {
        GrammarError::Tool { tool: self.name.clone(), part, why }
    }
}

/// Lark text under construction, and the JSON schemas that it names.
#[derive(Default)]
struct LarkSource {
    lark: String,
    schemas: Vec<GrammarWithLexer>,
}

impl LarkSource {
    fn line(&mut self, line: &str) {
        self.lark.push_str(line);
        self.lark.push('\n');
    }

    fn add_text(&mut self) {
        let [end, never] = NEVER_IN_TEXT;
        self.line(&format!("text[suffix={}]: TEXT", quoted(end)));
        self.line(&format!("TEXT: /(?s:.*)/ & ~/(?s:.*){}(?s:.*)/", never.replace('/', "\\/")));
    }

    fn add_function(&mut self, function: &Function, name: &str) {
        let head = format!("<function={}>\n", function.name);
        let tail = "</function>\n";
        if function.open {
            self.line(&format!("{name}: {} {name}-any* {}", quoted(&head), quoted(tail)));
            self.line(&format!(r#"{name}-any: /<parameter=[A-Za-z_][A-Za-z0-9_.\-]*>\n/ text "\n""#));
        } else if function.parameters.is_empty() {
            self.line(&format!("{name}: {}", quoted(&(head + tail))));
        } else if function.parameters.len() <= MOST_IN_ANY_ORDER {
            self.line(&format!("{name}: {} {name}-more::0 {}", quoted(&head), quoted(tail)));
            let end =
                if function.required == 0 { "true".into() } else { format!("is_ones([0:{}])", function.required) };
            let mut choices = format!(r#"{name}-more::_ : "" %if {end}"#);
            for index in 0..function.parameters.len() {
                let _ = write!(choices, "\n  | {name}-{index} {name}-more::set_bit({index}) %if bit_clear({index})");
            }
            self.line(&choices);
        } else {
            let one = |index: usize| format!("{name}-{index}{}", if index < function.required { "" } else { "?" });
            let all: Vec<String> = (0..function.parameters.len()).map(one).collect();
            self.line(&format!("{name}: {} {} {}", quoted(&head), all.join(" "), quoted(tail)));
        }
        for (index, parameter) in function.parameters.iter().enumerate() {
            let head = quoted(&format!("<parameter={}>\n", parameter.name));
            self.line(&format!(r#"{name}-{index}: {head} {name}-{index}-value "\n""#));
            self.add_value(&format!("{name}-{index}-value"), &parameter.forms, !function.strict);
        }
    }

    /// Adds a rule for the value and the tag that ends it.
    fn add_value(&mut self, rule: &str, forms: &[Form], lenient: bool) {
        let terminal = rule.to_ascii_uppercase();
        let mut choices = Vec::new();
        for (index, form) in forms.iter().enumerate() {
            match form {
                Form::Text => choices.push("text".to_string()),
                Form::Json(schema) => {
                    let name = format!("{rule}-{index}");
                    self.schemas.push(schema::of_argument(&name, schema, lenient));
                    choices.push(format!("@{name} {}", quoted(VALUE_END)));
                }
                Form::OneOf(texts) => {
                    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                    // The end is part of the terminal, which tells "bell" from "bell tower".
                    self.line(&format!("{terminal}-{index}: ({}) {}", texts.join(" | "), quoted(VALUE_END)));
                    choices.push(format!("{terminal}-{index}"));
                }
                Form::Matching(patterns) => {
                    let patterns: Vec<String> = patterns.iter().map(|pattern| format!("/{pattern}/")).collect();
                    let never = NEVER_IN_TEXT.map(|end| end.replace('/', "\\/")).join("|");
                    let body = format!("{terminal}-{index}-BODY");
                    self.line(&format!("{body}: {} & ~/(?s:.*)({never})(?s:.*)/", patterns.join(" & ")));
                    self.line(&format!("{terminal}-{index}: {body} {}", quoted(VALUE_END)));
                    choices.push(format!("{terminal}-{index}"));
                }
            }
        }
        self.line(&format!("{rule}: {}", choices.join(" | ")));
    }
}

/// Quotes a string for Lark: as in JSON but for one control character.
fn quoted(text: &str) -> String {
    Value::String(text.to_string()).to_string().replace('\u{7f}', "\\u007f")
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c.is_control() || c.is_whitespace() || c == '<' || c == '>')
}
