//! The words with which people ask to be remembered, and with which they lay down how they want it from now on.

use crate::words::{folded, words};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Here,
    /// The sentence only announces it.
    Next,
    /// It was said before.
    Before,
}

pub fn find(sentence: &str) -> Found {
    let text = folded(sentence).replace('’', "'");
    let text = text.trim_matches(|character: char| character.is_whitespace() || "\"'“”«»„-–*".contains(character));
    let is_question = text.ends_with('?') || text.ends_with("吗") || text.ends_with("嗎");
    let start = without_fillers(text);
    let (asked, start) = match POLITE.iter().find_map(|polite| start.strip_prefix(polite)) {
        Some(rest) => (true, without_fillers(rest)),
        None => (false, start),
    };
    if is_question && !asked {
        return Found::Nothing;
    }
    if THAT.contains(&without_ends(start)) {
        return Found::Before;
    }
    if let Some(rest) = REMEMBER.iter().find_map(|phrase| after(start, phrase)) {
        return match rest.chars().filter(|character| character.is_alphabetic()).count() {
            0..=2 => Found::Next,
            _ => Found::Here,
        };
    }
    let standing = STANDING.iter().any(|phrase| after(start, phrase).is_some_and(says_something))
        || INSIDE.iter().any(|phrase| text.contains(phrase))
        || is_always(start)
        || is_name_wish(sentence, start);
    if standing { Found::Here } else { Found::Nothing }
}

/// 'Remember that for me, please.'
fn without_ends(text: &str) -> &str {
    let mut text = text.trim_end_matches(|character: char| !character.is_alphanumeric());
    while let Some(rest) = ENDS.iter().find_map(|end| text.strip_suffix(end)) {
        text = rest.trim_end_matches(|character: char| !character.is_alphanumeric());
    }
    text
}

/// 'Speak always slowly', in languages that put the word behind the verb.
fn is_always(text: &str) -> bool {
    let words = words(text);
    let [verb, rest @ ..] = words.as_slice() else { return false };
    let rest = &rest[..rest.len().min(4)];
    IMPERATIVES.contains(verb) && rest.iter().any(|word| ALWAYS.contains(word))
}

/// 'Call me Ann', but not 'call me a taxi': what follows is written as a name.
fn is_name_wish(sentence: &str, start: &str) -> bool {
    let Some(rest) = CALL_ME.iter().find_map(|phrase| after(start, phrase)) else { return false };
    let spoken = words(rest);
    let Some(name) = spoken.iter().find(|word| !matches!(**word, "just" | "bitte" | "einfach")) else { return false };
    let written = words(sentence).into_iter().rev().find(|word| folded(word) == *name);
    written.is_some_and(|word| word.starts_with(char::is_uppercase) && !crate::language::is_common(name))
}

fn without_fillers(text: &str) -> &str {
    let mut text = text.trim_start();
    loop {
        let shorter = FILLERS.iter().find_map(|filler| {
            let rest = text.strip_prefix(filler)?;
            let is_whole = rest.starts_with([' ', ',', '!', '，', '、', ':']) || !filler.is_ascii();
            is_whole.then(|| rest.trim_start_matches([' ', ',', '!', '.', '，', '、', ':']))
        });
        match shorter {
            Some(rest) if !rest.is_empty() => text = rest,
            _ => return text,
        }
    }
}

/// What follows a phrase, if the phrase ends where a word does.
fn after<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(phrase)?;
    let spaced =
        phrase.chars().next_back().is_some_and(|last| last.is_alphanumeric() && !crate::words::is_unspaced(last));
    let ends = !spaced || rest.chars().next().is_none_or(|next| !next.is_alphanumeric());
    ends.then_some(rest)
}

/// 'Never mind.' says nothing that lasts.
fn says_something(rest: &str) -> bool {
    let rest = rest.trim_matches(|character: char| !character.is_alphanumeric());
    rest.chars().count() > 1 && !matches!(rest, "mind" | "again" | "ever")
}

#[rustfmt::skip]
const FILLERS: &[&str] = &[
    "please", "ok", "okay", "hey", "hi", "hello", "oh", "yes", "no", "so", "and", "also", "well", "but", "just",
    "bitte", "ja", "nein", "und", "also", "ach", "gut", "hallo", "s'il te plaît", "s'il vous plaît", "oui", "non",
    "et", "alors", "por favor", "sí", "y", "oye", "vale", "per favore", "sì", "e", "allora", "请", "請", "好", "好的", "嗯",
    "那", "あと", "えっと", "はい", "じゃあ", "alsjeblieft", "пожалуйста",
];

#[rustfmt::skip]
const POLITE: &[&str] = &[
    "can you", "could you", "will you", "would you", "kannst du", "könntest du", "können sie", "peux-tu",
    "pouvez-vous", "tu peux", "puedes", "podrías", "puoi", "potresti",
];

#[rustfmt::skip]
const REMEMBER: &[&str] = &[
    "remember that", "remember this", "remember,", "remember:", "remember i ", "remember i'm", "remember my",
    "remember the following", "don't forget that", "do not forget that", "never forget that", "keep in mind that",
    "don't forget:", "keep in mind:",
    "make a note that", "take note that", "for future reference", // English
    "merk dir", "merke dir", "merkt euch", "merken sie sich", "vergiss nicht, dass", "vergiss nicht dass",
    "vergessen sie nicht, dass", "denk daran, dass", "denk dran, dass", "behalte, dass", "dir merken, dass", // German
    "souviens-toi que", "souviens-toi :", "souvenez-vous que", "rappelle-toi que", "rappelez-vous que",
    "n'oublie pas que", "n'oubliez pas que", "retiens que", "retenez que", "note que", "notez que", // French
    "recuerda que", "recuerde que", "recuerda:", "acuérdate de que", "acuérdate que", "no olvides que",
    "no olvide que", "ten en cuenta que", // Spanish
    "ricorda che", "ricordati che", "si ricordi che", "ricorda:", "non dimenticare che", "tieni presente che",
    "tieni a mente che", // Italian
    "lembra-te que", "lembra-te de que", "lembre-se que", "lembre-se de que", "não te esqueças que",
    "não se esqueça de que", "não esqueça que", // Portuguese
    "onthoud dat", "onthoud:", "vergeet niet dat", // Dutch
    "запомни", "запомните", "не забудь, что", "не забывай, что", "zapamiętaj", "pamiętaj, że", "nie zapomnij, że",
    "记住", "記住", "帮我记住", "幫我記住", "你要记住", "记一下", "別忘了我", "别忘了我",
];

/// A whole sentence that points at what was said before it.
#[rustfmt::skip]
const THAT: &[&str] = &[
    "remember that", "remember it", "don't forget that", "do not forget that", "never forget that", "keep in mind that",
    "keep that in mind", "make a note of that", "take a note of that", "note that down", // English
    "merk dir das", "merke dir das", "merken sie sich das", "dir das merken", "vergiss das nicht", "behalte das",
    "behalt das", "notier dir das", // German
    "retiens ça", "retiens cela", "retenez cela", "souviens-toi de ça", "n'oublie pas ça", "note ça", // French
    "recuerda eso", "recuérdalo", "no olvides eso", "no lo olvides", // Spanish
    "ricordalo", "ricordatelo", "ricordati questo", "non dimenticarlo", // Italian
    "lembra-te disso", "lembre-se disso", "não te esqueças disso", "onthoud dat", "vergeet dat niet", "запомни это",
    "не забудь это", "zapamiętaj to", "记住这个", "记住这一点", "請記住這個", "覚えておいて", "覚えておいてください", "기억해 줘", "기억해",
];

#[rustfmt::skip]
const ENDS: &[&str] = &[
    " please", " for me", " too", " as well", " for later", " then", " okay", " bitte", " auch", " mal", " s'il te plaît",
    " por favor", " per favore",
];

/// At the start of a sentence.
#[rustfmt::skip]
const STANDING: &[&str] = &[
    "from now on", "always", "never", "don't ever", "in future", "in the future", "for the future", "every time i",
    "whenever i", "you should always", "you should never", "you must always", "you must never",
    "i want you to always", "i want you to never", "remember to always", "remember to never", // English
    "ab jetzt", "ab sofort", "von jetzt an", "von nun an", "in zukunft", "künftig", "jedes mal, wenn ich",
    "immer wenn ich", // German
    "à partir de maintenant", "désormais", "dorénavant", "à l'avenir", "chaque fois que je", // French
    "a partir de ahora", "de ahora en adelante", "desde ahora", "en el futuro", "en adelante", "cada vez que yo",
    "nunca", // Spanish
    "d'ora in poi", "da ora in poi", "d'ora in avanti", "in futuro", "ogni volta che io", // Italian
    "a partir de agora", "de agora em diante", "daqui em diante", // Portuguese
    "vanaf nu", "voortaan", "с этого момента", "отныне", "теперь всегда", "od teraz", // others
    "从现在起", "从现在开始", "從現在起", "從現在開始", "今后", "今後", "以后请", "以后都", "以后不要", "以后别", "以后叫我", "以后要", "以後請", "以後都", "以後不要",
    "以後別", "以後叫我", "永远不要", "请永远", "これからは", "これから先", "今後は", "앞으로는", "앞으로", "이제부터",
];

/// Anywhere: these languages put the request last.
#[rustfmt::skip]
const INSIDE: &[&str] = &[
    "覚えておいて", "覚えといて", "覚えておけ", "おぼえておいて", "忘れないで", "と呼んで", "って呼んで", "기억해 줘", "기억해줘", "기억해 주세요", "기억해둬", "라고 불러",
];

#[rustfmt::skip]
const CALL_ME: &[&str] = &[
    "call me", "nenn mich", "nenne mich", "nennen sie mich", "appelle-moi", "appelez-moi", "llámame", "llámeme",
    "chiamami", "mi chiami", "me chama", "me chame", "chama-me", "noem me", "noem mij", "называй меня", "зови меня",
    "mów mi", "mów do mnie",
];

#[rustfmt::skip]
const IMPERATIVES: &[&str] = &[
    "sprich", "rede", "antworte", "sag", "sage", "gib", "mach", "mache", "schalte", "benutze", "nimm", "lies",
    "spiel", "erinnere", "weck", "wecke", "frag", "frage", "sei", "parle", "réponds", "répondez", "dis", "utilise",
    "fais", "mets", "sois", "habla", "responde", "di", "usa", "haz", "pon", "sé", "parla", "rispondi", "dimmi", "fai",
    "metti", "sii", "fala", "praat", "antwoord", "spreek", "говори", "отвечай", "mów", "odpowiadaj",
];

#[rustfmt::skip]
const ALWAYS: &[&str] = &[
    "immer", "nie", "niemals", "stets", "toujours", "jamais", "siempre", "nunca", "sempre", "mai", "altijd", "nooit",
    "всегда", "никогда", "zawsze", "nigdy",
];
