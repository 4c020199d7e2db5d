//! Memories of persons: the rules that tell persons apart, and the conversations that the store keeps.

use jiff::civil::Date;
use jiff::fmt::strtime;
use strum::{IntoStaticStr, VariantArray};

use crate::reader::{SectionReader, sections};
use crate::value::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

sections! {
    pub struct RememberSettings {
        pub who: Vec<PersonRule> = person_rules(),
        pub persons: usize = whole(1..=1 << 20),
        pub rule_bytes: usize = bytes(1024..=1 << 24),
        pub recent_requests: usize = whole(0..=1000),
        pub conversations: KeptConversations = choice(),
        pub cut_log_minutes: u64 = whole(0..=10_080),
        pub waiting: usize = whole(1..=10_000),
        pub silence_s: u64 = time(1..=86_400),
        pub refresh_s: u64 = time(0..=31_536_000),
        pub facts: usize = whole(1..=100_000),
        pub messages: usize = whole(0..=10_000_000),
        pub facts_per_message: usize = whole(1..=1000),
        pub heard_bytes: usize = bytes(1024..=1 << 24),
        pub fact_bytes: usize = bytes(16..=1 << 20),
        pub unused_days: u64 = time(0..=36_500),
        pub heading: String = text(),
        pub home_mark: String = text(),
        pub said_on: String = said_on(),
        pub confirmation: String = text(),
        pub encoder: String = text(),
        pub encoders: BTreeMap<String, String> = encoders(),
    }
}

impl RememberSettings {
    /// Returns the folder of the sentence encoder. `None`: words alone decide.
    pub fn encoder_folder(&self, models_dir: &Path) -> Option<PathBuf> {
        match self.encoder.as_str() {
            "" => None,
            "auto" => self.encoders.get("encoder").map(|repo| models_dir.join(repo)),
            name => Some(self.encoders.get(name).map_or_else(|| PathBuf::from(name), |repo| models_dir.join(repo))),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum KeptConversations {
    Named,
    All,
    None,
}

impl KeptConversations {
    /// True if a conversation is kept. No rule names the persons behind a program that talks for many with one key: the
    /// words of one must not reach another.
    pub fn keeps(self, is_named: bool) -> bool {
        match self {
            KeptConversations::Named => is_named,
            KeptConversations::All => true,
            KeptConversations::None => false,
        }
    }

    /// True if what is said outlives its conversation. `is_of_household`: the client asks for a session that stays, and names no
    /// person that no rule knows.
    pub fn remembers(self, is_named: bool, is_of_household: bool) -> bool {
        self.keeps(is_named) || self == KeptConversations::Named && is_of_household
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PersonRule {
    pub person: RuleName,
    pub room: RuleName,
    pub conditions: Vec<RuleCondition>,
    pub is_private: bool,
    pub continue_minutes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleName {
    /// Name. Empty for the home's guest, or no room.
    Named(String),
    Found,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCondition {
    pub clue: RuleClue,
    pub wanted: WantedText,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleClue {
    /// Name or id of the API key.
    Key,
    /// First part of the URL's path.
    Path,
    Model,
    /// Header, by its name in small letters.
    Header(String),
    User,
    SafetyIdentifier,
    PromptCacheKey,
    Satellite,
    Device,
    Instructions,
    Speaker,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedText {
    Any,
    Exactly(String),
    /// Name between these texts.
    Around {
        before: String,
        after: String,
    },
}

impl fmt::Display for WantedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WantedText::Any => f.write_str("*"),
            WantedText::Exactly(text) => f.write_str(text),
            WantedText::Around { before, after } => write!(f, "{before}{{name}}{after}"),
        }
    }
}

impl WantedText {
    pub fn is_open(&self) -> bool {
        !matches!(self, WantedText::Exactly(_))
    }
}

impl RuleClue {
    pub fn key(&self) -> &'static str {
        match self {
            RuleClue::Key => "key",
            RuleClue::Path => "path",
            RuleClue::Model => "model",
            RuleClue::Header(_) => "header",
            RuleClue::User => "user",
            RuleClue::SafetyIdentifier => "safety_identifier",
            RuleClue::PromptCacheKey => "prompt_cache_key",
            RuleClue::Satellite => "satellite",
            RuleClue::Device => "device",
            RuleClue::Instructions => "instructions",
            RuleClue::Speaker => "speaker",
        }
    }
}

/// Characters of the name of a person or a room: clients write it.
const NAME_CHARS: usize = 64;
const NAME: &str = "{name}";
const ANY: &str = "*";

/// Normalises a name: small letters, one space between words. `None` for no name, one that is too long, or one with
/// invisible characters.
pub fn person_name(text: &str) -> Option<String> {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
    };
    // No trimming makes a name of longer text.
    let is_short = text.chars().nth(NAME_CHARS * 2).is_none();
    let name = is_short.then(|| text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "))?;
    let name = name.to_lowercase();
    let is_name = !name.is_empty()
        && name.chars().count() <= NAME_CHARS
        && !name.chars().any(|c| is_hidden(c) || c.is_whitespace() && c != ' ' || matches!(c, '/' | '\\'))
        && name != ANY;
    is_name.then_some(name)
}

impl SectionReader<'_> {
    fn person_rules(&self, key: &'static str) -> Vec<PersonRule> {
        let allowed = "a list of rules such as [{ person = \"anna\", key = \"phone\" }]";
        self.rules_in_order(key, allowed, rule, |rule| &rule.conditions)
    }

    fn said_on(&self, key: &'static str) -> String {
        self.text_as(key, String::new(), "a text with parts of a date such as %A, %-d %B %Y, or nothing", |text| {
            let is_date = strtime::format(text, Date::default()).is_ok();
            if is_date { Ok(text.to_string()) } else { Err(None) }
        })
    }

    fn encoders(&self, key: &'static str) -> BTreeMap<String, String> {
        let allowed = "names with repositories such as { encoder = \"sentence-transformers/all-MiniLM-L6-v2\" }";
        let repo = |value: Option<&Value>| match value {
            Some(Value::Text(repo)) if repo.split('/').count() == 2 => Ok(repo.clone()),
            _ => Err(None),
        };
        self.map(key, allowed, repo).into_iter().collect()
    }

    /// Reads rules, of which the first that matches wins: one without conditions must be the last.
    pub(super) fn rules_in_order<T>(
        &self,
        key: &'static str,
        allowed: &str,
        rule: fn(&SectionReader<'_>) -> T,
        conditions: fn(&T) -> &[RuleCondition],
    ) -> Vec<T> {
        let rules = self.tables(key, allowed, rule);
        if let Some(at) = rules.iter().position(|rule| conditions(rule).is_empty())
            && at + 1 < rules.len()
        {
            let found = format!("rule {} without a condition, so that none behind it ever holds", at + 1);
            self.mistake(key, found, "conditions, or nothing behind such a rule");
        }
        rules
    }
}

fn rule(r: &SectionReader<'_>) -> PersonRule {
    let allowed = format!(
        "a name of 1 to {NAME_CHARS} characters without \"/\", \"\" for the home's guest, or \"*\" for what the \
         condition with \"*\" or \"{NAME}\" finds"
    );
    let name = |key: &'static str| {
        r.text_as(key, RuleName::Named(String::new()), &allowed, |text| match text {
            ANY => Ok(RuleName::Found),
            "" => Ok(RuleName::Named(String::new())),
            text => person_name(text).map(RuleName::Named).ok_or(None),
        })
    };
    let (person, room) = (name("person"), name("room"));
    let conditions = conditions(r);
    let is_private = r.has("private") && r.bool("private");
    let continue_minutes = r.has("continue_minutes").then(|| r.whole("continue_minutes", 0..=10_080));
    if !r.has("person") && !r.has("room") {
        r.mistake("person", "neither a person nor a room".to_string(), &allowed);
    }
    let open = conditions.iter().filter(|condition| condition.wanted.is_open()).count();
    for (key, _) in [("person", &person), ("room", &room)].into_iter().filter(|(_, name)| **name == RuleName::Found) {
        if open == 1 {
            continue;
        }
        let found = format!("\"*\" with {open} conditions that find a name");
        r.mistake(key, found, "\"*\" with one condition that finds a name by \"*\" or \"{name}\"");
    }
    PersonRule { person, room, conditions, is_private, continue_minutes }
}

pub(super) fn conditions(r: &SectionReader<'_>) -> Vec<RuleCondition> {
    let clues = [
        RuleClue::Key,
        RuleClue::Path,
        RuleClue::Model,
        RuleClue::User,
        RuleClue::SafetyIdentifier,
        RuleClue::PromptCacheKey,
        RuleClue::Satellite,
        RuleClue::Device,
        RuleClue::Instructions,
        RuleClue::Speaker,
    ];
    let mut conditions = Vec::new();
    for clue in clues {
        if r.has(clue.key()) {
            let wanted = r.text_as(clue.key(), WantedText::Any, allowed_of(&clue), |text| wanted(&clue, text));
            conditions.push(RuleCondition { clue, wanted });
        }
    }
    if r.has("header") {
        let allowed = "the name of a header, such as \"X-OpenWebUI-User-Name\"";
        let name = r.text_as("header", String::new(), allowed, |name| {
            let is_header = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
            if is_header { Ok(name.to_ascii_lowercase()) } else { Err(None) }
        });
        let clue = RuleClue::Header(name);
        let wanted = match r.has("value") {
            true => r.text_as("value", WantedText::Any, allowed_of(&clue), |text| wanted(&clue, text)),
            false => WantedText::Any,
        };
        conditions.push(RuleCondition { clue, wanted });
    } else if r.has("value") {
        r.mistake("value", "a value without a header".to_string(), "value beside header");
    }
    conditions
}

fn allowed_of(clue: &RuleClue) -> &'static str {
    match clue {
        RuleClue::Path => {
            "one part of a path, of letters, digits, \"-\", \"_\" and \".\", and neither \"v1\" nor \"api\""
        }
        RuleClue::Instructions => {
            "words to look for, such as \"You are in area {name} (floor\", with {name} once and \
                                   words on both sides of it"
        }
        _ => "\"*\" for any, a text, or a text with {name} once",
    }
}

fn wanted(clue: &RuleClue, text: &str) -> Result<WantedText, Option<String>> {
    if text.is_empty() || text.chars().count() > WANTED_CHARS {
        return Err(None);
    }
    if *clue == RuleClue::Path {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_free = !matches!(text, "v1" | "api" | "." | "..") && text.chars().all(is_part);
        return if is_free { Ok(WantedText::Exactly(text.to_string())) } else { Err(None) };
    }
    let words = |before: &str, after: &str| !before.trim().is_empty() && !after.trim().is_empty();
    match text.split_once(NAME) {
        Some((_, after)) if after.contains(NAME) => Err(None),
        Some((before, after)) if *clue == RuleClue::Instructions && !words(before, after) => Err(None),
        Some((before, after)) if before.is_empty() && after.is_empty() => Ok(WantedText::Any),
        Some((before, after)) => Ok(WantedText::Around { before: before.to_string(), after: after.to_string() }),
        None if text == ANY && *clue == RuleClue::Instructions => Err(None),
        None if text == ANY => Ok(WantedText::Any),
        None => Ok(WantedText::Exactly(text.to_string())),
    }
}

const WANTED_CHARS: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_in_one_way() {
        for (text, name) in [
            ("Anna", Some("anna")),
            ("  Living   Room ", Some("living room")),
            ("Küche (EG)", Some("küche (eg)")),
            ("İ", Some("i\u{307}")),
            ("ann@home.example", Some("ann@home.example")),
            ("", None),
            ("   ", None),
            ("*", None),
            ("../anna", None),
            ("a\\b", None),
            ("a\nb", None),
            ("a\tb", None),
            ("a\u{202e}b", None),
            ("a\u{200b}", None),
            ("a\u{a0}b", None),
            ("\u{0}", None),
        ] {
            assert_eq!(person_name(text).as_deref(), name, "{text:?}");
        }
        assert_eq!(person_name(&"x".repeat(64)), Some("x".repeat(64)));
        assert_eq!(person_name(&"x".repeat(65)), None);
        assert_eq!(person_name(&"x".repeat(1 << 20)), None);
        // A letter that becomes two small ones counts as two.
        assert_eq!(person_name(&"İ".repeat(40)), None);
    }
}
