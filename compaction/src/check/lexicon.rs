//! The few words that stand for numbers and dates, and those that turn a sentence into its opposite.

/// 1 to 7, Monday first.
pub fn weekday(word: &str) -> Option<u32> {
    at(WEEKDAYS, word)
}

/// 1 to 12.
pub fn month(word: &str) -> Option<u32> {
    at(MONTHS, word)
}

/// Small numbers that are said rather than written.
pub fn number(word: &str) -> Option<u32> {
    if let Some((_, value)) = TENS.iter().find(|(words, _)| words.contains(&word)) {
        return Some(*value);
    }
    if let Some(value) = at(UNITS, word) {
        return Some(value);
    }
    // twenty-one; einundzwanzig
    let (tens, unit) = word.split_once('-').or_else(|| word.split_once("und").map(|(unit, tens)| (tens, unit)))?;
    let tens = TENS.iter().find(|(words, value)| words.contains(&tens) && *value < 100)?.1;
    let unit = if unit == "ein" { 1 } else { at(UNITS, unit).filter(|unit| *unit < 10)? };
    Some(tens + unit)
}

/// A digit of Chinese and Japanese, or a power of ten to be multiplied with.
pub fn ideograph(character: char) -> Option<u32> {
    let digits = ['〇', '一', '二', '三', '四', '五', '六', '七', '八', '九'];
    let found = digits.iter().position(|digit| *digit == character).map(|value| value as u32);
    found.or(match character {
        '零' => Some(0),
        '两' | '兩' => Some(2),
        '十' => Some(10),
        '百' => Some(100),
        '千' => Some(1000),
        '万' | '萬' => Some(10_000),
        _ => None,
    })
}

pub fn is_negation(word: &str) -> bool {
    NEGATIONS.contains(&word) || word.ends_with("n't") || word.ends_with("n’t")
}

/// In scripts without spaces a negation is a part of the text.
pub fn has_unspaced_negation(text: &str) -> bool {
    UNSPACED_NEGATIONS.iter().any(|negation| text.contains(negation))
}

/// People who speak of themselves say what is worth remembering.
pub fn is_first_person(word: &str) -> bool {
    let word = word.split(['\'', '’']).next().unwrap_or(word);
    FIRST_PERSON.contains(&word)
}

pub fn has_unspaced_first_person(text: &str) -> bool {
    ["我", "私", "僕", "俺", "うち", "わたし"].iter().any(|word| text.contains(word))
}

/// Before a noun, also one with a capital.
pub fn is_determiner(word: &str) -> bool {
    DETERMINERS.contains(&word)
}

fn at(lists: &[&[&str]], word: &str) -> Option<u32> {
    lists.iter().find_map(|list| list.iter().position(|known| *known == word)).map(|index| index as u32 + 1)
}

const WEEKDAYS: &[&[&str]] = &[
    &["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"],
    &["montag", "dienstag", "mittwoch", "donnerstag", "freitag", "samstag", "sonntag"],
    &["lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"],
    &["lunes", "martes", "miércoles", "jueves", "viernes", "sábado", "domingo"],
    &["lunedì", "martedì", "mercoledì", "giovedì", "venerdì", "sabato", "domenica"],
    &["segunda-feira", "terça-feira", "quarta-feira", "quinta-feira", "sexta-feira", "sábado", "domingo"],
    &["maandag", "dinsdag", "woensdag", "donderdag", "vrijdag", "zaterdag", "zondag"],
    &["понедельник", "вторник", "среда", "четверг", "пятница", "суббота", "воскресенье"],
    &["poniedziałek", "wtorek", "środa", "czwartek", "piątek", "sobota", "niedziela"],
    &["월요일", "화요일", "수요일", "목요일", "금요일", "토요일", "일요일"],
];

#[rustfmt::skip]
const MONTHS: &[&[&str]] = &[
    &[
        "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
        "december",
    ],
    &["jan", "feb", "mar", "apr", "mai", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    &[
        "januar", "februar", "märz", "april", "mai", "juni", "juli", "august", "september", "oktober", "november",
        "dezember",
    ],
    &[
        "janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août", "septembre", "octobre", "novembre",
        "décembre",
    ],
    &[
        "enero", "febrero", "marzo", "abril", "mayo", "junio", "julio", "agosto", "septiembre", "octubre",
        "noviembre", "diciembre",
    ],
    &[
        "gennaio", "febbraio", "marzo", "aprile", "maggio", "giugno", "luglio", "agosto", "settembre", "ottobre",
        "novembre", "dicembre",
    ],
    &[
        "janeiro", "fevereiro", "março", "abril", "maio", "junho", "julho", "agosto", "setembro", "outubro",
        "novembro", "dezembro",
    ],
    &[
        "januari", "februari", "maart", "april", "mei", "juni", "juli", "augustus", "september", "oktober",
        "november", "december",
    ],
    &[
        "января", "февраля", "марта", "апреля", "мая", "июня", "июля", "августа", "сентября", "октября", "ноября",
        "декабря",
    ],
    &[
        "stycznia", "lutego", "marca", "kwietnia", "maja", "czerwca", "lipca", "sierpnia", "września", "października",
        "listopada", "grudnia",
    ],
];

/// From one on.
#[rustfmt::skip]
const UNITS: &[&[&str]] = &[
    &[
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
        "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
    ],
    &[
        "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf", "dreizehn",
        "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
    ],
    &[
        "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze", "treize",
        "quatorze", "quinze", "seize", "dix-sept", "dix-huit", "dix-neuf",
    ],
    &[
        "uno", "dos", "tres", "cuatro", "cinco", "seis", "siete", "ocho", "nueve", "diez", "once", "doce", "trece",
        "catorce", "quince", "dieciséis", "diecisiete", "dieciocho", "diecinueve",
    ],
    &[
        "uno", "due", "tre", "quattro", "cinque", "sei", "sette", "otto", "nove", "dieci", "undici", "dodici",
        "tredici", "quattordici", "quindici", "sedici", "diciassette", "diciotto", "diciannove",
    ],
];

const TENS: &[(&[&str], u32)] = &[
    (&["twenty", "zwanzig", "vingt", "veinte", "venti"], 20),
    (&["thirty", "dreißig", "dreissig", "trente", "treinta", "trenta"], 30),
    (&["forty", "vierzig", "quarante", "cuarenta", "quaranta"], 40),
    (&["fifty", "fünfzig", "cinquante", "cincuenta", "cinquanta"], 50),
    (&["sixty", "sechzig", "soixante", "sesenta", "sessanta"], 60),
    (&["seventy", "siebzig", "soixante-dix", "setenta", "settanta"], 70),
    (&["eighty", "achtzig", "quatre-vingts", "ochenta", "ottanta"], 80),
    (&["ninety", "neunzig", "quatre-vingt-dix", "noventa", "novanta"], 90),
    (&["hundred", "hundert", "einhundert", "cent", "cien", "cento"], 100),
    (&["thousand", "tausend", "mille", "mil"], 1000),
];

#[rustfmt::skip]
const NEGATIONS: &[&str] = &[
    "not", "no", "never", "none", "nothing", "nobody", "cannot", "without", "neither", "nor", // English
    "nicht", "kein", "keine", "keinen", "keinem", "keiner", "nie", "niemals", "nichts", "ohne", // German
    "ne", "pas", "jamais", "rien", "aucun", "aucune", "sans", "n'est", "n'ai", "n'a", // French
    "nunca", "jamás", "nada", "ningún", "ninguna", "sin", "tampoco", // Spanish
    "non", "niente", "nessun", "nessuno", "nessuna", "senza", // Italian
    "não", "nem", "sem", "nenhum", "nenhuma", // Portuguese
    "niet", "geen", "nooit", "niets", "zonder", // Dutch
    "не", "нет", "никогда", "без", "ничего", // Russian
    "nie", "nigdy", "bez", "inte", "ikke", "aldrig", "ei", "değil", "yok", "안", "않", "없", "لا", "ليس", "नहीं",
];

const UNSPACED_NEGATIONS: &[&str] =
    &["不", "没", "沒", "别", "別", "勿", "无", "無", "ない", "ません", "なかった", "ぬ", "ไม่", "않", "없", "안 "];

const FIRST_PERSON: &[&str] = &[
    "i", "my", "me", "mine", "we", "our", "us", "ich", "mein", "meine", "meinen", "meinem", "meiner", "mir", "mich",
    "wir", "unser", "unsere", "je", "j", "mon", "ma", "mes", "moi", "nous", "notre", "nos", "yo", "mi", "mis", "soy",
    "tengo", "nuestro", "nuestra", "io", "mio", "mia", "miei", "mie", "sono", "ho", "eu", "meu", "minha", "ik", "mijn",
    "wij", "я", "мой", "моя", "мне", "меня", "mój", "moja",
];

const DETERMINERS: &[&str] = &[
    "der", "die", "das", "den", "dem", "des", "ein", "eine", "einen", "einem", "einer", "eines", "mein", "meine",
    "meinen", "meinem", "meiner", "dein", "deine", "sein", "seine", "ihr", "ihre", "kein", "keine", "keinen", "unser",
    "unsere", "im", "am", "zum", "zur", "vom", "beim", "ins", "ans", "diese", "dieser", "dieses", "jeden", "jede",
    "jeder", "viel", "viele", "mehr", "alle", "neue", "neuen", "neues", "guten", "gute",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_said() {
        for (word, value) in
            [("seven", 7), ("twenty-one", 21), ("einundzwanzig", 21), ("siebzig", 70), ("quinze", 15), ("cento", 100)]
        {
            assert_eq!(number(word), Some(value), "{word}");
        }
        assert_eq!([number("hund"), number("und"), number("twenty-twelve"), number("")], [None; 4]);
    }

    #[test]
    fn every_list_is_whole() {
        assert!(WEEKDAYS.iter().all(|days| days.len() == 7));
        assert!(MONTHS.iter().all(|months| months.len() == 12));
        assert!(UNITS.iter().all(|units| units.len() == 19));
        assert_eq!((weekday("sonntag"), month("août"), weekday("mai")), (Some(7), Some(8), None));
    }
}
