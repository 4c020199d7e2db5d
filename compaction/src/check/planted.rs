//! Orders that a text planted in a summary.

use crate::types::{Passage, PassageKind};
use remember::{has_role_tokens, is_order_like, said_lines, stems};
use std::collections::HashSet;

/// Tells whether a summary carries on what a text planted: tokens of templates, the usual formulas, or an instruction that
/// only a tool's result gave.
pub fn is_instruction_like(summary: &str, covered: &[Passage], earlier: &str) -> bool {
    has_role_tokens(summary)
        || said_lines(summary).iter().any(|line| is_order_like(line))
        || has_planted_instruction(summary, covered, earlier)
}

/// Tells whether a line among the instructions has its words from a tool and not from the user.
fn has_planted_instruction(summary: &str, covered: &[Passage], earlier: &str) -> bool {
    let of = |wanted: fn(&PassageKind) -> bool| -> HashSet<String> {
        covered.iter().filter(|passage| wanted(&passage.kind)).flat_map(|passage| stems(&passage.text)).collect()
    };
    let from_tools = of(|kind| matches!(kind, PassageKind::Output { .. }));
    if from_tools.is_empty() {
        return false;
    }
    let mut from_people = of(|kind| *kind == PassageKind::User);
    from_people.extend(stems(earlier));
    instructions(summary).iter().any(|line| {
        let about = stems(line);
        let shared = |known: &HashSet<String>| about.iter().filter(|stem| known.contains(*stem)).count();
        let (tools, people) = (shared(&from_tools), shared(&from_people));
        about.len() >= 2 && tools * 5 >= about.len() * 3 && people * 2 < about.len() && tools > people
    })
}

fn instructions(summary: &str) -> Vec<&str> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in summary.lines() {
        match line.trim().strip_prefix('#') {
            Some(heading) => inside = heading.trim_start_matches('#').trim().eq_ignore_ascii_case("instructions"),
            None if inside => lines.push(line),
            None => {}
        }
    }
    lines
}
