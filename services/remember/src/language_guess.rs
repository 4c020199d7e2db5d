//! Language of a text, if it is clear.
//!
//! The word lists decide, not `whatlang`: the figures are in this crate's README.md.

use crate::languages::{LANGUAGES, LanguageWords};
use crate::text::{folded, words};
use std::collections::HashMap;
use std::sync::LazyLock;
use unicode_script::{Script, UnicodeScript};

/// Returns true only if both texts are long enough to tell and clearly differ.
pub fn differs(conversation: &str, summary: &str) -> bool {
    let (Some(said), Some(written)) = (main_script(conversation), main_script(summary)) else { return false };
    if said != written {
        return true;
    }
    let code = |text| language_of(text).map(|language| language.code);
    matches!((code(conversation), code(summary)), (Some(said), Some(written)) if said != written)
}

/// Returns the language with at least twice as many common words as any other; `None` if it is unclear.
pub fn language_of(text: &str) -> Option<&'static LanguageWords> {
    let text = folded(text);
    let words = words(&text);
    let count = |language: &LanguageWords| words.iter().filter(|word| language.common.contains(**word)).count();
    let mut counts: Vec<_> = LANGUAGES.iter().map(|language| (count(language), language)).collect();
    counts.sort_unstable_by_key(|(count, _)| std::cmp::Reverse(*count));
    let [(most, language), (second, _), ..] = counts[..] else { return None };
    (most >= LEAST_COMMON_WORDS && most >= second * 2).then_some(language)
}

/// Tells whether a text is in none of these languages. Short ones in Latin letters may be in any.
pub fn is_foreign(text: &str, codes: &[String]) -> bool {
    if let Some(script) = commonest(&letters(text)).filter(|script| *script != Script::Latin) {
        return !SCRIPTS.iter().any(|(code, known)| *known == script && codes.iter().any(|own| own == code));
    }
    let text = folded(text);
    let words = words(&text);
    let count = |language: &LanguageWords| words.iter().filter(|word| language.common.contains(**word)).count();
    let most = |own: bool| {
        let those = LANGUAGES.iter().filter(|language| codes.iter().any(|code| code == language.code) == own);
        those.map(count).max().unwrap_or_default()
    };
    most(false) > most(true)
        || text.chars().any(|character| character.is_alphabetic() && !character.is_ascii() && most(true) == 0)
}

fn letters(text: &str) -> HashMap<Script, usize> {
    let mut counts: HashMap<Script, usize> = HashMap::new();
    for character in text.chars() {
        match character.script() {
            Script::Common | Script::Inherited | Script::Unknown => {}
            Script::Katakana => *counts.entry(Script::Hiragana).or_default() += 1,
            script => *counts.entry(script).or_default() += 1,
        }
    }
    counts
}

// Kana among ideographs are Japanese.
fn commonest(letters: &HashMap<Script, usize>) -> Option<Script> {
    let has_kana = letters.contains_key(&Script::Hiragana);
    let most = letters.iter().max_by_key(|(_, count)| **count).map(|(script, _)| *script);
    most.map(|script| if has_kana && script == Script::Han { Script::Hiragana } else { script })
}

/// Script of each language, by words that each has.
static SCRIPTS: LazyLock<Vec<(&'static str, Script)>> = LazyLock::new(|| {
    let script = |language: &'static LanguageWords| {
        let sets = [&language.common, &language.first_person, &language.negations];
        let lists = [&language.first_person_inside, &language.negations_inside];
        let words = sets.into_iter().flatten().chain(lists.into_iter().flatten()).map(String::as_str);
        commonest(&letters(&words.collect::<String>())).map(|script| (language.code, script))
    };
    LANGUAGES.iter().filter_map(script).collect()
});

fn main_script(text: &str) -> Option<Script> {
    let counts = letters(text);
    let letters: usize = counts.values().sum();
    if letters < LEAST_LETTERS {
        return None;
    }
    let count = |script| counts.get(&script).copied().unwrap_or_default();
    let (kana, han) = (count(Script::Hiragana), count(Script::Han));
    if kana * 10 > han && (kana + han) * 10 >= letters * 7 {
        return Some(Script::Hiragana);
    }
    counts.into_iter().find(|(_, count)| count * 10 >= letters * 7).map(|(script, _)| script)
}

const LEAST_LETTERS: usize = 24;
const LEAST_COMMON_WORDS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    const GERMAN: &str = "Ich habe einen Hund und er ist nicht mehr jung. Bitte sprich mit mir auf Deutsch.";
    const ENGLISH: &str = "The user has a dog and it is not young. They want you to speak to them in German.";
    const FRENCH: &str = "Je ne mange pas de viande et mon fils est dans une école qui est sur la colline.";
    const SPANISH: &str = "No como carne y mi hijo está en una escuela que es muy bonita, por favor no lo olvides.";
    const JAPANESE: &str = "田中さんはピーナッツのアレルギーがあります。毎朝七時に起こしてください。";
    const CHINESE: &str = "用户叫王小明，对花生过敏，每天早上七点起床，喜欢听古典音乐，住在上海。";

    #[test]
    fn languages_are_told_apart() {
        let texts = [GERMAN, ENGLISH, FRENCH, SPANISH, JAPANESE, CHINESE];
        for (one, first) in texts.iter().enumerate() {
            for (other, second) in texts.iter().enumerate() {
                assert_eq!(differs(first, second), one != other, "{first} / {second}");
            }
        }
    }

    #[test]
    fn a_text_is_foreign_to_languages_of_other_words_or_letters() {
        let codes = |codes: &[&str]| codes.iter().map(|code| (*code).to_owned()).collect::<Vec<_>>();
        assert!(is_foreign(GERMAN, &codes(&["en"])) && !is_foreign(GERMAN, &codes(&["en", "de"])));
        assert!(is_foreign("姉はリスボンに住んでいます", &codes(&["en", "zh"])));
        assert!(!is_foreign("姉はリスボンに住んでいます", &codes(&["ja"])));
        assert!(!is_foreign("моя сестра живёт в Лиссабоне", &codes(&["ru"])));
        assert!(!is_foreign("제 여동생은 리스본에 살아요", &codes(&["ko"])));
        assert_eq!(SCRIPTS.len(), LANGUAGES.len());
        assert!(!is_foreign("ok", &codes(&["en"])));
    }

    #[test]
    fn what_is_not_clear_does_not_differ() {
        assert!(!differs(GERMAN, "- Ann"));
        assert!(!differs("ok", ENGLISH));
        assert!(!differs("Play Bohemian Rhapsody, Stairway to Heaven, Hotel California", GERMAN));
        // A name in another script is no other language.
        assert!(!differs(ENGLISH, &format!("{ENGLISH} The user's wife is called 王小明.")));
    }
}
