//! Grammars: which tokens may come next, so that a reply is JSON of a schema, matches a pattern, or calls tools in the
//! model family's own format with arguments that fit their schemas.
//!
//! ```text
//! GrammarEnv  (one a model, costs about a second)     the vocabulary as llguidance wants it
//! Grammar     (one a request, plain data, cheap)       what is asked for
//! Matcher     (one a sequence, some milliseconds)      env.matcher(&grammar); then mask(), accept(token), mask(), …
//! ```
//!
//! **Free text costs nothing.** Reasoning before the constrained part, and the words before an optional tool call, are
//! not parsed: there `mask` answers `None` (everything is allowed) until the control token that ends the free part. One
//! thing is forbidden there: to spell that control token's name with ordinary tokens, because a parser of the reply's
//! text could not tell the two apart.
//!
//! Architecture invariant: llguidance is told nothing but bytes, control tokens and stop tokens. It never sees a
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

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Value, json};

/// What a reply must look like. Plain data: nothing is compiled before `GrammarEnv::matcher`.
#[derive(Debug, Clone, PartialEq)]
pub struct Grammar {
    constraint: Constraint,
    /// The prompt ends inside the reasoning block: everything is allowed until `</think>`.
    after_reasoning: bool,
}

/// Whether tools are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallChoice {
    /// The model decides, and may speak first.
    Auto,
    /// At least one call and nothing else.
    Required,
    /// One call of this tool and nothing else.
    Named(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Constraint {
    Json(Value),
    Tools(tools::Tools),
}

impl Grammar {
    /// JSON that fits the schema. Properties come in the schema's order.
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

    /// Any JSON object.
    pub fn json_object() -> Grammar {
        Grammar::of(Constraint::Json(json!({ "type": "object" })))
    }

    /// Calls of these tools, as in the `tools` of a chat-completions request, written as the family's template shows
    /// them. With `parallel`, a reply may hold more than one. A demand of a schema that a grammar cannot keep is an
    /// error for a tool with `"strict": true`, and dropped for others.
    pub fn tool_calls(tools: &[Value], choice: &CallChoice, parallel: bool) -> Result<Grammar, GrammarError> {
        Ok(Grammar::of(Constraint::Tools(tools::Tools::new(tools, choice, parallel)?)))
    }

    /// The prompt ends inside the reasoning block: the grammar holds for what comes after `</think>`.
    pub fn after_reasoning(mut self) -> Grammar {
        self.after_reasoning = true;
        self
    }

    fn of(constraint: Constraint) -> Grammar {
        Grammar { constraint, after_reasoning: false }
    }

    /// Whether a reply without the constrained part is complete.
    fn is_optional(&self) -> bool {
        matches!(&self.constraint, Constraint::Tools(tools) if tools.is_optional())
    }

    /// In the form llguidance reads: the first grammar is the whole, the others are named parts of it.
    fn source(&self, env: &GrammarEnv) -> Result<TopLevelGrammar, GrammarError> {
        // The template puts an empty line after the reasoning. Where the model speaks freely it writes that itself.
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
