//! Compiles a request's grammar into the matcher of one sequence, and keeps the latest compiled grammars.

use std::collections::VecDeque;

use super::env::{CompiledGrammar, GrammarEnv};
use super::error::{GrammarError, why};
use super::matcher::Matcher;
use super::{Constraint, Grammar, schema};

/// Number of compiled grammars that are kept, the latest ones: a conversation asks for the same tools at every turn.
/// Enough for a household's sessions, at some hundred KiB each.
const MOST_COMPILED: usize = 8;
/// Memory of all kept grammars. A schema that was written to be large takes tens of MiB, and is compiled anew at each
/// turn.
const MOST_COMPILED_BYTES: usize = 16 << 20;

impl GrammarEnv {
    /// Compiles the grammar for one sequence: some milliseconds, more for large schemas. An unsupported schema is an
    /// error that names the part.
    pub fn matcher(&self, grammar: &Grammar) -> Result<Matcher, GrammarError> {
        if grammar.after_reasoning && self.shared.think_end.is_none() {
            return Err(GrammarError::MissingToken { name: "</think>" });
        }
        let source = grammar.source(self)?;
        let key = serde_json::to_string(&source).unwrap_or_default();
        if let Some(inner) = self.copy_of_compiled(&key) {
            return Ok(Matcher::new(self.shared.clone(), inner, grammar));
        }
        let parser = self.shared.factory.create_parser(source);
        let bytes = parser.as_ref().map_or(0, |parser| parser.parser.lexer_stats().num_bytes);
        let mut inner = llguidance::Matcher::new(parser);
        // The first mask finds an error that compiling misses: that no token fits.
        if let Err(error) = inner.compute_mask_or_eos() {
            return Err(self.refusal(grammar, why(error)));
        }
        self.keep_compiled(key, &inner, bytes);
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

    /// Returns a deep copy: states that one sequence adds to it do not slow the others down.
    fn copy_of_compiled(&self, key: &str) -> Option<llguidance::Matcher> {
        let mut compiled = self.shared.compiled.lock();
        let at = compiled.iter().position(|known| known.source == key)?;
        let found = compiled.remove(at)?;
        let fresh = found.matcher.deep_clone();
        compiled.push_back(found);
        Some(fresh)
    }

    fn keep_compiled(&self, source: String, inner: &llguidance::Matcher, bytes: usize) {
        let bytes = bytes + source.len();
        if bytes > MOST_COMPILED_BYTES {
            return;
        }
        let mut compiled = self.shared.compiled.lock();
        compiled.push_back(CompiledGrammar { source, matcher: inner.deep_clone(), bytes });
        let bytes = |compiled: &VecDeque<CompiledGrammar>| compiled.iter().map(|known| known.bytes).sum::<usize>();
        while compiled.len() > MOST_COMPILED || bytes(&compiled) > MOST_COMPILED_BYTES {
            compiled.pop_front();
        }
    }
}
