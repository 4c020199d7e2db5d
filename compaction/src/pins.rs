//! The passages that users want kept word for word, and whether there is room for them.

use crate::types::{CompactionLimits, Passage, PassageKind, PinnedText};
use remember::{asked_to_keep, asked_to_keep_before, estimate_tokens, folded};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Add,
    Known,
    /// No room until another pin is removed. Until then a summary must hold it before anything else.
    Full,
}

pub fn detect(passage: &Passage) -> Vec<String> {
    if passage.kind == PassageKind::User { asked_to_keep(&passage.text) } else { Vec::new() }
}

/// Returns what the user said before, where the passage asks to keep just that: 'Remember that.'
pub fn detect_before(passage: &Passage, before: &Passage) -> Option<String> {
    let of_user = passage.kind == PassageKind::User && before.kind == PassageKind::User;
    of_user.then(|| asked_to_keep_before(&passage.text, &before.text)).flatten()
}

pub fn admit(pins: &[PinnedText], text: &str, limits: &CompactionLimits) -> Admission {
    let same = |text: &str| folded(text).chars().filter(|character| character.is_alphanumeric()).collect::<String>();
    if pins.iter().any(|pin| same(&pin.text) == same(text)) {
        return Admission::Known;
    }
    let tokens: u64 = pins.iter().map(|pin| pin_tokens(&pin.text)).sum();
    if tokens + pin_tokens(text) > u64::from(limits.pins_tokens()) { Admission::Full } else { Admission::Add }
}

fn pin_tokens(text: &str) -> u64 {
    u64::from(estimate_tokens(text)) + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_users_make_pins() {
        let said = |kind, text: &str| Passage { id: "i".into(), kind, text: text.into(), tokens: 0 };
        let (wish, back) = ("Remember that my sister is called Ann.", "Remember that.");
        let before = said(PassageKind::User, "My sister is called Ann.");
        assert_eq!(detect(&said(PassageKind::User, wish)), [wish]);
        assert_eq!(detect_before(&said(PassageKind::User, back), &before).as_ref(), Some(&before.text));
        for kind in [PassageKind::Assistant, PassageKind::Output { call_id: "c".into() }, PassageKind::System] {
            assert_eq!(detect(&said(kind.clone(), wish)), Vec::<String>::new());
            assert_eq!(detect_before(&said(kind.clone(), back), &before), None);
            assert_eq!(detect_before(&said(PassageKind::User, back), &said(kind, &before.text)), None);
        }
    }

    #[test]
    fn pins_have_a_limit_and_are_told_once() {
        let limits = CompactionLimits {
            ctx_size: 1000,
            soft_fill: 0.7,
            hard_fill: 0.9,
            target_fill: 0.5,
            tail_tokens: 100,
            summary_tokens: 40,
            reply_reserve_tokens: 50,
        };
        let mut pins = Vec::new();
        assert_eq!(admit(&pins, "Call me Ann.", &limits), Admission::Add);
        pins.push(PinnedText { id: "1".into(), text: "Call me Ann.".into(), source: None });
        assert_eq!(admit(&pins, "call me Ann!", &limits), Admission::Known);
        let long = "Always tell me how the weather is before I ask for it, and what to wear, and how the trains run.";
        assert_eq!(admit(&pins, long, &limits), Admission::Add);
        pins.push(PinnedText { id: "2".into(), text: long.into(), source: None });
        assert_eq!(admit(&pins, "Never sing, never dance, never shout at night.", &limits), Admission::Full);
    }
}
