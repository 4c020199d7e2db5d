//! Compiles what a request asks for into the matcher of one sequence. The latest grammars are kept compiled.

use super::env::GrammarEnv;
use super::error::{GrammarError, why};
use super::matcher::Matcher;
use super::{Constraint, Grammar, schema};

/// How many grammars are kept compiled, the latest ones: a conversation asks for the same tools at every turn. Enough for a
/// household's sessions, at some hundred KiB each.
const MOST_COMPILED: usize = 8;

impl GrammarEnv {
    /// Compiles the grammar for one sequence: some milliseconds, more for large schemas. A schema that is not supported
    /// is refused here, and the error says at which part.
    pub fn matcher(&self, grammar: &Grammar) -> Result<Matcher, GrammarError> {
        if grammar.after_reasoning && self.shared.think_end.is_none() {
            return Err(GrammarError::MissingToken { name: "</think>" });
        }
        let source = grammar.source(self)?;
        let key = serde_json::to_string(&source).unwrap_or_default();
        if let Some(inner) = self.copy_of_compiled(&key) {
            return Ok(Matcher::new(self.shared.clone(), inner, grammar));
        }
        let inner = llguidance::Matcher::new(self.shared.factory.create_parser(source));
        if let Some(error) = inner.get_error() {
            return Err(self.refusal(grammar, why(error)));
        }
        self.keep_compiled(key, &inner);
        Ok(Matcher::new(self.shared.clone(), inner, grammar))
    }

    fn refusal(&self, grammar: &Grammar, why: String) -> GrammarError {
        match &grammar.constraint {
            Constraint::Json(schema) => {
                let (part, why) = schema::unsupported_part(self, schema, false, why);
                GrammarError::Schema { part, why }
            }
            Constraint::Tools(tools) => tools.unsupported_part(self, why),
        }
    }

    /// A deep copy: the states that one sequence adds to it do not slow the others down.
    fn copy_of_compiled(&self, key: &str) -> Option<llguidance::Matcher> {
        let mut compiled = self.shared.compiled.lock();
        let at = compiled.iter().position(|(known, _)| known == key)?;
        let found = compiled.remove(at)?;
        let fresh = found.1.deep_clone();
        compiled.push_back(found);
        Some(fresh)
    }

    fn keep_compiled(&self, key: String, inner: &llguidance::Matcher) {
        let mut compiled = self.shared.compiled.lock();
        compiled.push_back((key, inner.deep_clone()));
        while compiled.len() > MOST_COMPILED {
            compiled.pop_front();
        }
    }
}
