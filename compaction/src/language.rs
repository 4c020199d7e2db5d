//! Which language a text is in, only where that is clear.

use crate::words::{Script, folded, script, words};

/// True only if both texts are long enough to tell and clearly differ.
pub fn differs(conversation: &str, summary: &str) -> bool {
    let (Some(said), Some(written)) = (main_script(conversation), main_script(summary)) else { return false };
    if said != written {
        return true;
    }
    let (said, written) = (latin_language(conversation), latin_language(summary));
    matches!((said, written), (Some(said), Some(written)) if said != written)
}

/// One of the languages below; none where it is not clear.
pub fn latin_language(text: &str) -> Option<&'static str> {
    let text = folded(text);
    let words = words(&text);
    let mut counts: Vec<(usize, &'static str)> = COMMON
        .iter()
        .map(|(name, common)| (words.iter().filter(|word| common.contains(word)).count(), *name))
        .collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let [(most, name), (second, _), ..] = counts[..] else { return None };
    (most >= LEAST_COMMON_WORDS && most >= second * 2).then_some(name)
}

/// A word that says nothing of what a text is about.
pub fn is_common(word: &str) -> bool {
    COMMON.iter().any(|(_, common)| common.contains(&word))
}

/// Japanese is written in two scripts; the one that no other language has decides.
fn main_script(text: &str) -> Option<Script> {
    let mut counts: Vec<(usize, Script)> = Vec::new();
    for found in text.chars().filter_map(script) {
        match counts.iter_mut().find(|(_, script)| *script == found) {
            Some((count, _)) => *count += 1,
            None => counts.push((1, found)),
        }
    }
    let letters: usize = counts.iter().map(|(count, _)| count).sum();
    let count = |wanted| counts.iter().find(|(_, script)| *script == wanted).map_or(0, |(count, _)| *count);
    let (kana, han) = (count(Script::Kana), count(Script::Han));
    if letters < LEAST_LETTERS {
        return None;
    }
    let found = match kana * 10 > han {
        true if (kana + han) * 10 >= letters * 7 => Some(Script::Kana),
        _ => None,
    };
    found.or_else(|| counts.iter().find(|(count, _)| count * 10 >= letters * 7).map(|(_, script)| *script))
}

const LEAST_LETTERS: usize = 24;
const LEAST_COMMON_WORDS: usize = 5;

#[rustfmt::skip]
const COMMON: &[(&str, &[&str])] = &[
    (
        "en",
        &[
            "the", "and", "is", "are", "was", "of", "to", "in", "that", "you", "your", "it", "for", "on", "with",
            "not", "have", "has", "i", "my", "we", "he", "she", "they", "at", "be", "this", "what", "from", "will",
            "his", "her", "about", "please", "can", "do", "does", "but", "when", "user", "who",
        ],
    ),
    (
        "de",
        &[
            "der", "die", "das", "und", "ist", "ich", "nicht", "ein", "eine", "einen", "zu", "mit", "auf", "für",
            "von", "dem", "den", "mir", "mich", "mein", "meine", "du", "wir", "er", "sie", "es", "hat", "habe", "war",
            "bitte", "um", "im", "am", "auch", "aber", "wie", "was", "soll", "wird", "kein", "keine", "nach",
        ],
    ),
    (
        "fr",
        &[
            "le", "la", "les", "et", "est", "je", "ne", "pas", "un", "une", "des", "du", "de", "que", "qui", "pour",
            "dans", "avec", "mon", "ma", "mes", "il", "elle", "nous", "vous", "sur", "au", "à", "son", "sa", "c'est",
            "j'ai", "sont", "mais", "ce", "cette", "l'utilisateur", "être", "avoir", "plus",
        ],
    ),
    (
        "es",
        &[
            "el", "la", "los", "las", "y", "es", "yo", "no", "un", "una", "de", "que", "para", "en", "con", "mi",
            "mis", "se", "por", "su", "del", "al", "me", "lo", "está", "tiene", "pero", "como", "más", "este",
            "usuario", "soy", "ella", "él", "muy", "también",
        ],
    ),
    (
        "it",
        &[
            "il", "la", "i", "gli", "le", "e", "è", "io", "non", "un", "una", "di", "che", "per", "in", "con", "mio",
            "mia", "si", "del", "della", "al", "mi", "lo", "ha", "ho", "ma", "come", "più", "questo", "sono", "suo",
            "sua", "alle", "dal", "nel", "anche", "utente",
        ],
    ),
    (
        "pt",
        &[
            "o", "a", "os", "as", "e", "é", "eu", "não", "um", "uma", "de", "que", "para", "em", "com", "meu", "minha",
            "se", "por", "do", "da", "ao", "me", "está", "tem", "mas", "como", "mais", "este", "são", "ele", "ela",
            "no", "na", "dos", "das", "você", "usuário",
        ],
    ),
    (
        "nl",
        &[
            "de", "het", "een", "en", "is", "ik", "niet", "van", "te", "dat", "met", "op", "voor", "mijn", "je", "we",
            "hij", "zij", "heeft", "heb", "was", "om", "ook", "maar", "hoe", "wat", "geen", "naar", "aan", "zijn",
            "die", "er", "bij", "uit", "gebruiker",
        ],
    ),
];

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
    fn what_is_not_clear_does_not_differ() {
        assert!(!differs(GERMAN, "- Ann"));
        assert!(!differs("ok", ENGLISH));
        assert!(!differs("Play Bohemian Rhapsody, Stairway to Heaven, Hotel California", GERMAN));
        // A name in another script is no other language.
        assert!(!differs(ENGLISH, &format!("{ENGLISH} The user's wife is called 王小明.")));
    }
}
