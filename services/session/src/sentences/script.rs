//! Classes of characters that matter to speech.

/// Weighs a character in letters: an ideograph, a kana or a Hangul syllable says about as much as three.
pub fn weight(character: char) -> usize {
    if is_wide(character) { 3 } else { 1 }
}

/// True for scripts that write a syllable or a word with one character.
pub fn is_wide(character: char) -> bool {
    matches!(character,
        '\u{1100}'..='\u{115F}'      // Hangul consonants
        | '\u{3041}'..='\u{33FF}'    // kana, compatibility
        | '\u{3400}'..='\u{4DBF}'    // ideographs, extension A
        | '\u{4E00}'..='\u{9FFF}'    // ideographs
        | '\u{A960}'..='\u{A97F}'
        | '\u{AC00}'..='\u{D7FF}'    // Hangul syllables
        | '\u{F900}'..='\u{FAFF}'    // compatibility ideographs
        | '\u{20000}'..='\u{3FFFD}') // further ideographs
}

/// True for scripts that use a space as others use a comma or a full stop.
pub fn spaces_are_clauses(character: char) -> bool {
    matches!(character, '\u{0E01}'..='\u{0E5B}' | '\u{0E81}'..='\u{0EDF}')
}

pub fn is_hard_stop(character: char) -> bool {
    !character.is_ascii() && "。！？．｡।॥؟۔։።፧។៕။།༎".contains(character)
}

/// True for question and exclamation marks, which no abbreviation ends with.
pub fn is_strong_stop(character: char) -> bool {
    matches!(character, '!' | '?' | '‼' | '⁇' | '⁈' | '⁉' | '\u{037E}')
}

pub fn is_stop(character: char) -> bool {
    matches!(character, '.' | '…') || is_strong_stop(character) || is_hard_stop(character)
}

/// True for a closing quote, bracket or emphasis that still belongs to the sentence. Straight quotes, and those that
/// open in one language and close in another, are closers here because they follow the stop directly.
pub fn is_closer(character: char) -> bool {
    is_closing_quote(character) || matches!(character, ')' | ']' | '}' | '）' | '］' | '】' | '〕' | '*' | '_' | '`')
}

pub fn is_closing_quote(character: char) -> bool {
    r#""'”’“‘»«›‹」』》〉＂＇"#.contains(character)
}

pub fn is_clause_mark(character: char) -> bool {
    matches!(character, ',' | ';' | ':' | '،' | '؛' | '–' | '-') || is_hard_clause_mark(character)
}

pub fn is_hard_clause_mark(character: char) -> bool {
    matches!(character, '，' | '、' | '；' | '：' | '､' | '—' | '⸺')
}

pub fn is_emoji(character: char) -> bool {
    matches!(character, '\u{2600}'..='\u{27BF}' | '\u{2B50}' | '\u{2B55}' | '\u{1F000}'..='\u{1FAFF}')
        || continues_a_character(character)
}

/// True for characters that belong to the one before them: combining marks, joiners, selectors, skin tones.
pub fn continues_a_character(character: char) -> bool {
    matches!(character,
        '\u{0300}'..='\u{036F}' | '\u{0591}'..='\u{05BD}' | '\u{064B}'..='\u{065F}' | '\u{093A}'..='\u{094F}'
        | '\u{0E31}' | '\u{0E34}'..='\u{0E3A}' | '\u{0E47}'..='\u{0E4E}' | '\u{200D}' | '\u{20D0}'..='\u{20FF}'
        | '\u{3099}' | '\u{309A}' | '\u{FE00}'..='\u{FE0F}' | '\u{1F3FB}'..='\u{1F3FF}')
}

/// True for a letter, a digit, or a symbol that voices read out.
pub fn is_speakable(chars: &[char]) -> bool {
    chars.iter().any(|&character| character.is_alphanumeric() || is_emoji(character) || "€$£¥%".contains(character))
}
