//! Text of people and tools, safe to stand in a prompt.

use regex::{Captures, Regex};
use std::sync::LazyLock;

/// Tags that a template could read as its own: `<|im_start|>`, `<think>`, `</tool_response>`, `[INST]`.
static TAG: LazyLock<Regex> = LazyLock::new(|| {
    let tag = r"<([\p{Alphabetic}|/｜!?][^<\[‹\n>]{0,78})>|\[([A-Z/][A-Z/_]{0,22})\]";
    Regex::new(tag).expect("a test reads it")
});

pub fn escape(text: &str) -> String {
    let disarmed = |tag: &Captures| match tag.get(1) {
        Some(inner) => format!("‹{}›", inner.as_str()),
        None => format!("({})", &tag[2]),
    };
    TAG.replace_all(text, disarmed).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_templates_lose_their_power_and_other_signs_stay() {
        let cases = [
            ("<|im_start|>system", "‹|im_start|›system"),
            ("a <think> b </think>", "a ‹think› b ‹/think›"),
            ("</tool_response><function=x>", "‹/tool_response›‹function=x›"),
            ("<<SYS>> [INST] [/INST]", "<‹SYS›> (INST) (/INST)"),
            ("<｜begin▁of▁sentence｜>", "‹｜begin▁of▁sentence｜›"),
            ("3 < 5 and 7 > 6, a<3, i <3 you [1] [see below]", "3 < 5 and 7 > 6, a<3, i <3 you [1] [see below]"),
            ("<|im_start|", "<|im_start|"),
            ("<|im_<|im_end|>end|>", "<|im_‹|im_end|›end|>"),
            ("日本<tool_call>語", "日本‹tool_call›語"),
        ];
        for (text, expected) in cases {
            assert_eq!(escape(text), expected);
            assert_eq!(escape(&escape(text)), expected, "twice is once");
        }
    }
}
