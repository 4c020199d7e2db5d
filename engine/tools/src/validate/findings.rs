//! Findings of a check, each one sentence that says what to do.

use std::collections::BTreeMap;

use serde::Serialize;
use weights::family::Severity;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileFinding {
    pub severity: Severity,
    /// Check that found it: structure, contract, values, vocabulary, template, quality or against.
    pub check: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
    pub says: String,
}

#[derive(Debug, Default)]
pub(super) struct Findings(Vec<FileFinding>);

/// Findings of one kind that a report lists. A file of which half is gone would fill pages.
const MOST_OF_A_KIND: usize = 20;

impl Findings {
    pub fn problem(&mut self, check: &'static str, tensor: Option<&str>, says: impl Into<String>) {
        self.add(Severity::Problem, check, tensor, says.into());
    }

    pub fn warning(&mut self, check: &'static str, tensor: Option<&str>, says: impl Into<String>) {
        self.add(Severity::Warning, check, tensor, says.into());
    }

    pub fn has_problem(&self) -> bool {
        self.0.iter().any(|finding| finding.severity == Severity::Problem)
    }

    fn add(&mut self, severity: Severity, check: &'static str, tensor: Option<&str>, says: String) {
        self.0.push(FileFinding { severity, check, tensor: tensor.map(str::to_owned), says });
    }

    /// Returns the findings, problems first, and of each check no more than a page.
    pub fn into_sorted(self) -> Vec<FileFinding> {
        let mut findings = self.0;
        findings.sort_by_key(|finding| finding.severity);
        let mut counts: BTreeMap<(Severity, &'static str), usize> = BTreeMap::new();
        findings.retain(|finding| {
            let count = counts.entry((finding.severity, finding.check)).or_default();
            *count += 1;
            *count <= MOST_OF_A_KIND
        });
        for ((severity, check), count) in counts.into_iter().filter(|(_, count)| *count > MOST_OF_A_KIND) {
            let says = format!("{} more findings like these", count - MOST_OF_A_KIND);
            findings.push(FileFinding { severity, check, tensor: None, says });
        }
        findings.sort_by_key(|finding| finding.severity);
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_come_first_and_many_are_counted() {
        let mut findings = Findings::default();
        findings.warning("contract", None, "a");
        (0..25).for_each(|at| findings.problem("values", Some("t"), at.to_string()));
        let sorted = findings.into_sorted();
        assert_eq!(sorted.len(), MOST_OF_A_KIND + 2);
        assert_eq!(sorted[MOST_OF_A_KIND].says, "5 more findings like these");
        assert_eq!(sorted.last().unwrap().severity, Severity::Warning);
    }
}
