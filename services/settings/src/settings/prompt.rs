//! Changing instructions of a conversation: the rules by client, and the memory for earlier prompts.

use strum::{IntoStaticStr, VariantArray};

use super::remember::{RuleCondition, conditions};
use crate::reader::{SectionReader, sections};

sections! {
    pub struct PromptSettings {
        pub clients: Vec<ChangedHeadRule> = changed_head_rules(),
        pub kept_bytes: usize = bytes(0..=1 << 40),
        pub kept_bytes_per_user: usize = bytes(0..=1 << 40),
        pub compared_bytes: usize = bytes(0..=1 << 24),
        pub changed: String = text(),
        pub changed_at: String = text(),
        pub changed_from: String = text(),
        pub changed_to: String = text(),
        pub changed_back: String = text(),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum ChangedHead {
    /// The new text: the engine computes everything behind the change again.
    #[default]
    Exact,
    /// The old text, with a note of the changes before the question.
    Notes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum ChangedHeadChoice {
    Client,
    Exact,
    Notes,
}

impl ChangedHeadChoice {
    pub fn of_client(self, client: ChangedHead) -> ChangedHead {
        match self {
            ChangedHeadChoice::Client => client,
            ChangedHeadChoice::Exact => ChangedHead::Exact,
            ChangedHeadChoice::Notes => ChangedHead::Notes,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ChangedHeadRule {
    pub changed_head: ChangedHead,
    pub conditions: Vec<RuleCondition>,
}

impl SectionReader<'_> {
    fn changed_head_rules(&self, key: &'static str) -> Vec<ChangedHeadRule> {
        let allowed = "a list of rules such as [{ changed_head = \"notes\", header = \"User-Agent\", value = \"*\" }]";
        self.rules_in_order(key, allowed, rule, |rule| &rule.conditions)
    }
}

fn rule(r: &SectionReader<'_>) -> ChangedHeadRule {
    if !r.has("changed_head") {
        r.mistake("changed_head", "no changed_head".to_string(), "\"exact\" or \"notes\"");
    }
    let changed_head = if r.has("changed_head") { r.choice("changed_head") } else { ChangedHead::Exact };
    ChangedHeadRule { changed_head, conditions: conditions(r) }
}
