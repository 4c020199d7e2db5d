use super::*;
use proptest::prelude::*;

const LIMITS: SentenceLimits = SentenceLimits { first_clause_chars: 24, max_sentence_chars: 320 };
const WHOLE: SentenceLimits = SentenceLimits { first_clause_chars: 10_000, max_sentence_chars: 10_000 };

fn cut_in(limits: SentenceLimits, pieces: &[&str]) -> Vec<Sentence> {
    let mut sentences = Sentences::new(limits);
    let mut out = Vec::new();
    for piece in pieces {
        sentences.push(piece, &mut out);
    }
    sentences.finish(&mut out);
    out
}

fn texts(limits: SentenceLimits, text: &str) -> Vec<String> {
    cut_in(limits, &[text]).into_iter().map(|sentence| sentence.text.trim().to_owned()).collect()
}

fn check(rows: &[&str]) {
    for row in rows {
        let expected: Vec<String> = row.split('|').map(|part| part.trim().to_owned()).collect();
        let text: String = row.replace('|', "");
        assert_eq!(texts(WHOLE, &text), expected, "{row}");
    }
}

#[test]
fn english() {
    check(&[
        "Hello. |How are you? |I am fine!",
        "Dr. Smith met Mrs. Jones at St. Mary's. |They talked.",
        "Pi is 3.14 and e is 2.718. |Both are irrational.",
        "It starts at 4:00 p.m. tomorrow.",
        "It starts at 4:00 p.m. |The doors open at 3:30 p.m. on Sunday.",
        "J. R. R. Tolkien wrote it. |J.R.R. Tolkien did.",
        "Use spices, e.g. cumin, i.e. the brown ones. |Then stir.",
        "She lives in the U.S. Virgin Islands. |He lives in the U.S. |They met there.",
        "He said \"Stop!\" and left. |\"Why?\" |She laughed.",
        "(That was a joke.) |This is not.",
        "Well... maybe. |Well... |Maybe not.",
        "Wait… what? |Yes.",
        "Really?! |Yes.",
        "See https://example.com/a.b?q=1. |Or write to me@home.example. |Thanks.",
        "Great! |😀 Let's go.",
        "Great!😀 |Let's go.",
        "We need milk, eggs, etc. |Then we bake.",
        "No. 5 is alive. |I said no. |Then I left.",
        "Open config.toml and set the port to 8080. |Restart.",
        "1. Milk\n|2. Eggs\n|3. Flour",
        "- Milk\n|- Eggs",
        "Here you go:\n\n|First line\n|Second line",
        "**Done.** |*Next* one.",
        "The meeting is on Jan. 5 at noon. |Be there.",
        "It costs $3.50. |That is cheap.",
        "You are number 7. |Please wait.",
        "Main St. |The shop is there.",
        "Acme Inc. makes anvils. |Acme Inc. |Then came the coyote.",
        "Version 2.0. |Version 3.",
        "Is it on?Yes.",
        "Yahoo! |Done",
    ]);
}

#[test]
fn german() {
    check(&[
        "Guten Tag. |Wie geht's?",
        "Das ist z. B. ein Hund. |Das auch.",
        "Das ist z.B. Holz, d. h. Natur. |Gut.",
        "Am 3. Mai 2024 um 14.30 Uhr. |Dann nicht mehr.",
        "Im 19. Jahrhundert. |Danach kam das 20. Jahrhundert.",
        "Dr. Müller und Prof. Meier bzw. Hr. Schmidt kamen. |Alle lachten.",
        "Äpfel, Birnen usw. |Dann kochen.",
        "„Halt!“ rief er. |„Warum?“ |Sie ging.",
        "Es kostet ca. 5 Euro. |Nr. 7 ist frei.",
    ]);
}

#[test]
fn french() {
    check(&[
        "Bonjour. |Ça va ?",
        "« Bonjour. » |Il est parti.",
        "Des fruits, p. ex. des pommes. |Puis du sucre.",
        "M. Dupont et Mme. Durand sont là. |Où est-il ?",
        "Quoi ! |C’est fini.",
    ]);
}

#[test]
fn other_alphabets_with_spaces() {
    check(&[
        // Spanish, Portuguese, Italian
        "¡Hola! |¿Cómo estás? |Muy bien, gracias.",
        "El Sr. García y la Sra. López llegaron. |Luego comimos.",
        "Olá. |A Dra. Costa chegou às 9.30 horas. |Tudo bem?",
        "Il sig. Rossi è qui. |Ecco, ecc. |Poi andiamo.",
        // Dutch, Swedish, Danish
        "Dhr. Jansen komt. |Het regent.",
        "Frukt, t. ex. äpplen. |Bra.",
        "Den 3. maj kommer han. |Godt.",
        // Polish, Czech
        "To jest np. kot. |Dobrze.",
        "Přijede 3. května. |Dobře.",
        // Russian, Greek
        "Это ул. Ленина. |Т. е. здесь. |Хорошо?",
        "Γεια σου. |Τι κάνεις\u{037E} |Καλά.",
        // Turkish
        "Merhaba. |Nasılsın? |İyiyim.",
    ]);
}

#[test]
fn right_to_left_and_indic() {
    check(&[
        "مرحبا. |كيف حالك؟ |أنا بخير.",
        "آپ کیسے ہیں؟ |میں ٹھیک ہوں۔ |شکریہ۔",
        "שלום. |מה שלומך? |טוב.",
        "नमस्ते। |आप कैसे हैं? |मैं ठीक हूँ।",
        "নমস্কার। |কেমন আছেন?",
    ]);
}

#[test]
fn languages_without_spaces() {
    check(&[
        "你好。|你今天怎么样？|我很好！",
        "他说：「走吧。」|然后他走了。",
        "温度是23.5度。|很舒服。",
        "こんにちは。|元気ですか？|はい！",
        "「本当？」|そうです。",
        "안녕하세요. |잘 지내세요? |네.",
        "ជំរាបសួរ។|សុខសប្បាយទេ?",
    ]);
    // Thai has no full stop: a space ends a clause, once there is something to say.
    assert_eq!(
        texts(LIMITS, "วันนี้อากาศดีมากและแดดออก พรุ่งนี้ฝนจะตกในตอนบ่าย อย่าลืมร่ม"),
        ["วันนี้อากาศดีมากและแดดออก", "พรุ่งนี้ฝนจะตกในตอนบ่าย อย่าลืมร่ม"]
    );
}

#[test]
fn first_sentence_ends_early_at_a_clause() {
    let rows = [
        "Sure, I can help you with that, |but it takes a moment, or two. |So wait, please, for the next one, and relax.",
        "Here is what you need for it: |flour, eggs. |Then mix.",
        "The answer is quite simple — |it depends. |Yes.",
        "There are 1,000,000 reasons why, |but one will do.",
        "A well-known fact about temperatures between 5–6 degrees",
        "好的，没问题，我马上帮你查一下，|请稍等。|查到了，明天下雨。",
        "わかりました、すぐに調べます、|少々お待ちください。",
        "بالتأكيد يمكنني مساعدتك في ذلك، |لحظة واحدة.",
    ];
    for row in rows {
        let expected: Vec<String> = row.split('|').map(|part| part.trim().to_owned()).collect();
        assert_eq!(texts(LIMITS, &row.replace('|', "")), expected, "{row}");
    }
}

#[test]
fn a_sentence_without_an_end_is_cut_at_a_space() {
    let limits = SentenceLimits { first_clause_chars: 1000, max_sentence_chars: 40 };
    let cut = texts(limits, "one two three four five six seven eight nine ten eleven twelve thirteen");
    assert_eq!(cut, ["one two three four five six seven", "eight nine ten eleven twelve thirteen"]);
    let cut = texts(limits, "one two three four five six, seven eight nine ten eleven twelve");
    assert_eq!(cut, ["one two three four five six,", "seven eight nine ten eleven twelve"]);
    // No space at all: anywhere, but never inside a character.
    let family = "👨\u{200D}👩\u{200D}👧";
    for sentence in cut_in(limits, &[&family.repeat(30)]) {
        assert!(!sentence.text.starts_with('\u{200D}') && !sentence.text.ends_with('\u{200D}'), "{sentence:?}");
    }
}

#[test]
fn a_sentence_comes_as_soon_as_the_next_begins() {
    let mut sentences = Sentences::new(LIMITS);
    let mut out = Vec::new();
    sentences.push("Yes.", &mut out);
    assert!(out.is_empty());
    sentences.push(" I", &mut out);
    assert_eq!(out, [Sentence { index: 0, text: "Yes. ".into(), text_start: 0, text_end: 5 }]);
    sentences.push(" do. 我是", &mut out);
    assert_eq!(out[1], Sentence { index: 1, text: "I do. ".into(), text_start: 5, text_end: 11 });
    sentences.finish(&mut out);
    assert_eq!(out[2], Sentence { index: 2, text: "我是".into(), text_start: 11, text_end: 13 });
}

#[test]
fn nothing_and_white_space() {
    assert_eq!(cut_in(LIMITS, &[]), []);
    assert_eq!(cut_in(LIMITS, &["", ""]), []);
    assert_eq!(texts(LIMITS, " \n \n"), [""]);
    assert_eq!(texts(LIMITS, "Hello.\n\n "), ["Hello."]);
}

fn spoken_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            ".",
            "!",
            "?",
            "…",
            "...",
            "。",
            "？",
            "؟",
            "।",
            ",",
            "，",
            "、",
            ":",
            ";",
            " — ",
            "-",
            "\n",
            " ",
            "  ",
            "\t",
            "\"",
            "”",
            "»",
            " »",
            "(",
            ")",
            "「",
            "」",
            "*",
            "Dr.",
            "z. B.",
            "p. ex.",
            "e.g.",
            "St.",
            "3.14",
            "4:00 p.m.",
            "J. R. R.",
            "U.S.",
            "am 3. Mai",
            "No. 5",
            "www.a.b",
            "me@x.y",
            "😀",
            "👨\u{200D}👩\u{200D}👧",
            "The",
            "the",
            "word",
            "Haus",
            "это",
            "你好",
            "ありがとう",
            "สวัสดี",
            "مرحبا",
            "नमस्ते",
            "e\u{301}",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,4}",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_sentences(
        text in spoken_text(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        first_clause_chars in 0usize..40,
        max_sentence_chars in 1usize..80,
    ) {
        let limits = SentenceLimits { first_clause_chars, max_sentence_chars };
        let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let mut at: Vec<usize> = cuts.iter().map(|cut| starts[cut.index(starts.len())]).collect();
        at.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for to in at {
            pieces.push(&text[from..to]);
            from = to;
        }
        pieces.push(&text[from..]);
        prop_assert_eq!(cut_in(limits, &pieces), cut_in(limits, &[&text]));
    }

    #[test]
    fn sentences_tile_the_text(text in spoken_text(), first_clause_chars in 0usize..40, max_sentence_chars in 1usize..80) {
        let limits = SentenceLimits { first_clause_chars, max_sentence_chars };
        let sentences = cut_in(limits, &[&text]);
        let mut end = 0;
        for (index, sentence) in sentences.iter().enumerate() {
            prop_assert_eq!(sentence.index, index);
            prop_assert_eq!(sentence.text_start, end);
            prop_assert_eq!(sentence.text_end - sentence.text_start, sentence.text.chars().count());
            prop_assert!(sentence.text_end > sentence.text_start);
            // A wide character may pass the limit by its own weight, nothing else may.
            let weight: usize = sentence.text.chars().map(script::weight).sum();
            prop_assert!(weight <= max_sentence_chars.max(1) + 2, "{} > {}", weight, max_sentence_chars);
            end = sentence.text_end;
        }
        prop_assert_eq!(sentences.iter().map(|s| s.text.as_str()).collect::<String>(), text);
    }
}
