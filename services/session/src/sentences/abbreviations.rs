//! Words that carry a full stop without ending a sentence, in the languages that assistants at home are spoken to in.
//! All in lower case, inner stops left out (`e.g.` is `eg`).

/// How a full stop after a word is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abbreviation {
    /// Something always follows: a title, `e.g.`.
    Never,
    /// Only where a number follows: `No. 5`.
    BeforeNumber,
    /// Ends the sentence if a capital (or a script without case) follows: `etc.`, `p.m.`.
    UnlessCapital,
    /// Names go on with capitals too (`St. Louis`, `U.S. Senate`): ends only before a word that opens sentences.
    UnlessOpener,
}

/// What `word` (lower case, without stops) is known as.
pub fn known(word: &str) -> Option<Abbreviation> {
    let lists = [
        (NEVER, Abbreviation::Never),
        (BEFORE_NUMBER, Abbreviation::BeforeNumber),
        (UNLESS_CAPITAL, Abbreviation::UnlessCapital),
        (UNLESS_OPENER, Abbreviation::UnlessOpener),
    ];
    lists.iter().find(|(list, _)| list.contains(&word)).map(|&(_, kind)| kind)
}

/// Words that often open a sentence and are hardly ever a name.
pub fn opens_sentences(word: &str) -> bool {
    OPENERS.contains(&word)
}

/// Words before an ordinal (`am 3. Mai`), where languages write ordinals with a full stop.
pub fn precedes_ordinal(word: &str) -> bool {
    BEFORE_ORDINAL.contains(&word)
}

/// Words after an ordinal.
pub fn follows_ordinal(word: &str) -> bool {
    AFTER_ORDINAL.contains(&word)
}

const NEVER: &[&str] = &[
    // English
    "mr", "mrs", "ms", "messrs", "dr", "prof", "rev", "hon", "gen", "col", "capt", "lt", "sgt", "gov", "pres", "eg",
    "ie", "vs", "cf", "viz", "approx", "dept", "mt", // German
    "hr", "hrn", "fr", "frl", "zb", "dh", "bzw", "ca", "vgl", "evtl", "ggf", "inkl", "exkl", "sog", "bspw", "nr",
    "str", "dipl", "tel", "geb", "gest", "abzgl", "zzgl", "allg", "insb", "urspr", // French
    "mme", "mlle", "pex", "cad", // Spanish, Portuguese
    "sra", "srta", "dra", "ud", "uds", "pej", "dna", "exmo", "exma", "aprox", "avda", // Italian
    "sig", "sigra", "dott", "dottssa", "avv", "pes", // Dutch
    "dhr", "mevr", "bijv", "bv", // Polish, Czech
    "np", "tj", "tzn", "ul", "inż", "św", "tzv", "např", "mudr", "judr", // Russian, Ukrainian
    "напр", "ул", "гр", "им", "проф", "акад", "тел", "тов", // Scandinavian, Finnish
    "tex", "feks", "bla", "dvs", "fx", "esim", "rva", // Turkish, Hungarian
    "örn", "sn", "kb", "ún",
];

const BEFORE_NUMBER: &[&str] = &[
    "no", "nos", "nr", "num", "núm", "pp", "pg", "fig", "figs", "vol", "vols", "ch", "chap", "sec", "sect", "art",
    "abs", "kap", "bd", "s", "max", "min", "op", "ziff", "abb", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep",
    "sept", "oct", "okt", "nov", "dec", "dez", "dic", "gen", "juil", "janv", "févr", "mon", "tue", "wed", "thu", "fri",
    "sat", "sun", "стр", "рис", "табл", "str", "č", "pag", "cap", "tab", "ext", "apt", "ste", "rm",
];

const UNLESS_CAPITAL: &[&str] = &[
    "etc", "am", "pm", "inc", "ltd", "co", "corp", "jr", "bros", "al", "usw", "usf", "uvm", "dgl", "ff", "oä", "enz",
    "ecc", "itd", "itp", "atd", "apod", "osv", "mfl", "jne", "ym", "stb", "vs", "vd", "тд", "тп", "др", "gmbh", "md",
    "phd", "bc", "ad", "hrs", "min", "std", "tsd", "mio", "mrd", "млн", "млрд", "тыс", "руб", "уч", "к",
];

const UNLESS_OPENER: &[&str] =
    &["sr", "st", "ave", "blvd", "rd", "sq", "us", "uk", "usa", "eu", "un", "dc", "la", "nyc"];

const OPENERS: &[&str] = &[
    // English
    "the",
    "a",
    "an",
    "it",
    "its",
    "he",
    "she",
    "they",
    "we",
    "i",
    "you",
    "this",
    "that",
    "these",
    "those",
    "there",
    "here",
    "in",
    "on",
    "at",
    "for",
    "from",
    "if",
    "when",
    "while",
    "but",
    "and",
    "so",
    "or",
    "as",
    "then",
    "what",
    "who",
    "why",
    "how",
    "where",
    "which",
    "do",
    "does",
    "did",
    "is",
    "are",
    "was",
    "were",
    "can",
    "could",
    "would",
    "should",
    "will",
    "shall",
    "may",
    "my",
    "your",
    "his",
    "her",
    "our",
    "their",
    "to",
    "not",
    "no",
    "yes",
    "please",
    "let",
    "after",
    "before",
    "because",
    "however",
    "also",
    "now",
    "once",
    "since",
    "until",
    "with",
    "by",
    "some",
    "all",
    "any",
    "many",
    "most",
    "both",
    "each",
    "next",
    "today",
    "tomorrow",
    "yesterday",
    "also",
    "i'm",
    "i'll",
    "it's",
    "that's",
    "there's",
    "you're",
    "we're",
    "they're",
    "don't",
    "let's", // German
    "der",
    "die",
    "das",
    "er",
    "sie",
    "es",
    "wir",
    "ich",
    "ein",
    "eine",
    "und",
    "aber",
    "dann",
    "danach",
    "dort",
    "hier",
    "wenn",
    "als",
    "im",
    "auch",
    "jetzt", // French
    "le",
    "les",
    "il",
    "elle",
    "on",
    "nous",
    "vous",
    "ils",
    "elles",
    "je",
    "un",
    "une",
    "et",
    "mais",
    "puis",
    "dans",
    "ce",
    "cette",
    "c'est",
    "l'", // Spanish, Portuguese, Italian
    "el",
    "los",
    "las",
    "ella",
    "yo",
    "una",
    "pero",
    "luego",
    "después",
    "en",
    "o",
    "os",
    "ele",
    "ela",
    "mas",
    "depois",
    "gli",
    "lui",
    "lei",
    "io",
    "ma",
    "poi",
    "nel", // Dutch
    "het",
    "hij",
    "zij",
    "ze",
    "wij",
    "ik",
    "maar",
    "toen",
    "dan",
];

const BEFORE_ORDINAL: &[&str] = &[
    "der",
    "die",
    "das",
    "dem",
    "den",
    "des",
    "am",
    "vom",
    "zum",
    "zur",
    "im",
    "beim",
    "bis",
    "ab",
    "jeder",
    "jede",
    "jedes",
    "jeden",
    "sein",
    "seine",
    "ihr",
    "ihre",
    "unser",
    "unsere",
    "det",
    "dne",
    "do",
    "od",
    "dnia",
    "a",
    "az",
    "ponedjeljak",
    "montag",
    "dienstag",
    "mittwoch",
    "donnerstag",
    "freitag",
    "samstag",
    "sonntag",
];

const AFTER_ORDINAL: &[&str] = &[
    // Months: German, Nordic, Czech, Polish, Hungarian, Slovenian, Turkish write the day as an ordinal.
    "januar",
    "jänner",
    "februar",
    "märz",
    "april",
    "mai",
    "juni",
    "juli",
    "august",
    "september",
    "oktober",
    "november",
    "dezember",
    "mars",
    "maj",
    "december",
    "desember",
    "január",
    "február",
    "március",
    "április",
    "május",
    "június",
    "július",
    "augusztus",
    "szeptember",
    "október", // Nouns that are counted by ordinals.
    "jahrhundert",
    "jahrhunderts",
    "jahrestag",
    "geburtstag",
    "stock",
    "stockwerk",
    "etage",
    "klasse",
    "platz",
    "mal",
    "woche",
    "monat",
    "jahr",
    "tag",
    "kapitel",
    "auflage",
    "runde",
    "liga",
    "weltkrieg",
    "etappe",
    "teil",
    "gang",
];
