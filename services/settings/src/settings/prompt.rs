//! What becomes of instructions that change while a conversation goes on, by client, and what is kept of prompts for it.

use strum::{IntoStaticStr, VariantArray};

use super::remember::{RuleCondition, conditions};
use crate::reader::{SectionReader, sections};

sections! {
    pub struct PromptSettings {
        pub clients: Vec<ChangedHeadRule> = changed_head_rules(),
        pub kept_bytes: usize = bytes(0..=1 << 40),
        pub kept_bytes_per_user: usize = bytes(0..=1 << 40),
        pub changed: String = text(),
        pub changed_at: String = text(),
        pub changed_from: String = text(),
        pub changed_to: String = text(),
        pub changed_back: String = text(),
    }
}

/// How instructions of a client that sends its whole conversation are put that differ from those before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum ChangedHead {
    /// As they are: all behind the change is read anew.
    #[default]
    Exact,
    /// Those before stay, and what changed stands before the question.
    Notes,
}

/// What a preset says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum ChangedHeadChoice {
    /// As the rules say of the client.
    Client,
    Exact,
    Notes,
}

impl ChangedHeadChoice {
    /// For a client of which the rules say this.
    pub fn of_client(self, client: ChangedHead) -> ChangedHead {
        match self {
            ChangedHeadChoice::Client => client,
            ChangedHeadChoice::Exact => ChangedHead::Exact,
            ChangedHeadChoice::Notes => ChangedHead::Notes,
        }
    }
}

/// All of its conditions hold: then it says how changed instructions of the client are put.
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
