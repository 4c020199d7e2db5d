//! Grammars decide which tokens may come next, so that a reply is JSON of a schema, matches a pattern, or calls tools
//! in the model family's own format with arguments that fit their schemas.
//!
//! ```text
//! GrammarEnv  (one a model, costs about a second)     the vocabulary as llguidance wants it
//! Grammar     (one a request, plain data, cheap)       the demands on the reply
//! Matcher     (one a sequence, some milliseconds)      env.matcher(&grammar); then mask(), accept(token), mask(), …
//! ```
//!
//! **Free text costs nothing.** Reasoning before the constrained part, and text before an optional tool call, are not
//! parsed: `mask` returns `None` (every token is allowed) until the control token that ends the free part. Only
//! spelling that control token's name with ordinary tokens is forbidden there, because a parser of the reply's text
//! could not tell the two apart.
//!
//! Architecture invariant: llguidance receives nothing but bytes, control tokens and stop tokens. It never sees a
//! tokenizer of another library, and its types do not leave this module.

mod circles;
mod compile;
mod env;
mod error;
mod free;
mod matcher;
mod parts;
mod schema;
#[cfg(test)]
mod tests;
mod tools;
mod values;

pub use env::GrammarEnv;
pub use error::GrammarError;
pub use matcher::Matcher;

use crate::ToolSchema;
use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Value, json};

/// Demands on a reply. Plain data: `GrammarEnv::matcher` compiles it.
#[derive(Debug, Clone, PartialEq)]
pub struct Grammar {
    constraint: Constraint,
    /// True if the prompt ends inside the reasoning block: every token is allowed until `</think>`.
    after_reasoning: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallChoice {
    /// The model decides, and may speak first.
    Auto,
    Required,
    Named(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Constraint {
    Json(Value),
    Tools(tools::Tools),
}

impl Grammar {
    /// Builds a grammar for JSON that fits the schema, with properties in the schema's order.
    pub fn json_schema(schema: &Value) -> Result<Grammar, GrammarError> {
        schema::check(schema)?;
        let schema = match schema {
            Value::Object(_) => schema.clone(),
            Value::Bool(true) => json!({}),
            other => {
                let why = format!("{other} is not a schema; use an object");
                return Err(GrammarError::Schema { part: "#".into(), why });
            }
        };
        Ok(Grammar::of(Constraint::Json(schema)))
    }

    pub fn json_object() -> Grammar {
        Grammar::of(Constraint::Json(json!({ "type": "object" })))
    }

    /// Builds a grammar for calls of these tools, written as the family's template shows them. With `parallel`, a reply may hold several. A schema's demand that a grammar cannot keep is
    /// an error for a tool with `"strict": true`, and dropped for others.
    pub fn tool_calls(tools: &[ToolSchema], choice: &CallChoice, parallel: bool) -> Result<Grammar, GrammarError> {
        Ok(Grammar::of(Constraint::Tools(tools::Tools::new(tools, choice, parallel)?)))
    }

    pub fn after_reasoning(mut self) -> Grammar {
        self.after_reasoning = true;
        self
    }

    fn of(constraint: Constraint) -> Grammar {
        Grammar { constraint, after_reasoning: false }
    }

    fn is_optional(&self) -> bool {
        matches!(&self.constraint, Constraint::Tools(tools) if tools.is_optional())
    }

    /// Renders the grammar for llguidance: the first part is the whole, the others are parts that it names.
    fn source(&self, env: &GrammarEnv) -> Result<TopLevelGrammar, GrammarError> {
        // The template puts an empty line after the reasoning. A model that may speak freely writes that line itself.
        let before = if self.after_reasoning && !self.is_optional() { r#""\n\n" "# } else { "" };
        let grammars = match &self.constraint {
            Constraint::Json(schema) => {
                vec![lark("whole", format!("start: {before}@body")), schema::of_reply("body", schema)]
            }
            Constraint::Tools(tools) => tools.source(before, env)?,
        };
        Ok(TopLevelGrammar { grammars, max_tokens: None })
    }
}

fn lark(name: &str, text: String) -> GrammarWithLexer {
    GrammarWithLexer { name: Some(name.into()), lark_grammar: Some(text), json_schema: None }
}
