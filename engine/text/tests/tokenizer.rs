//! The tokenizer against the reference implementation, and a GGUF file's vocabulary against `tokenizer.json`.

use proptest::prelude::*;
use std::str::FromStr;
use std::sync::LazyLock;
use testing::vocabulary::{GgufVocab, gguf_vocab, read, read_text};
use text::Tokenizer;

const MODELS: [&str; 6] = ["dense-gva2", "dense-gva3", "dense-tied", "dense-wide", "dense-yarn", "moe"];

/// Text that breaks tokenizers: joined emoji, combining marks, scripts without spaces, line ends, digits, odd spaces,
/// control tokens whole and in parts.
const NASTY: &[&str] = &[
    "",
    " ",
    "   ",
    "\n",
    "\r\n\r\n",
    " \n \n  x",
    "a\tb\t\tc  \t d",
    "line\r\nline\rline\n",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 🇸🇮🇮🇳 flags, 👍🏽 skin",
    "e\u{301}tude vs étude, a\u{30a}\u{323}, ǆ, ﬁ, Å",
    "Z\u{351}\u{36b}\u{343}a\u{329}\u{34d}l\u{330}g\u{337}o",
    "明天早上八点提醒我开会。日本語のテキスト、한국어도 있습니다",
    "नमस्ते दुनिया, क्षत्रिय, १२३४५",
    "สวัสดีชาวโลก مرحبا بالعالم שלום",
    "0 12 345 6789 1,234.56 ½ ² ⅷ ٣٤",
    "I'm you'RE he'll THEY'VE it'S o'clock 'tis ''s",
    "\u{a0}\u{2003}\u{3000}x\u{200b}y\u{feff}z\u{85}\u{2028}w",
    "<|im_start|>user\nhi<|im_end|>\n<think>\n\n</think>\n\n",
    "<|im_start|<|im_end|><think><|endoftext|>><tool_call></tool_call",
    "a<think>b </think> c<tool_response>\n",
    "\0\u{1}\u{7f}\u{fffd}\u{10ffff}\u{e000}\u{f0000}",
    "https://example.org/a?b=c&d=1#e_f-g def f(x): return {x: [1, 2]}  # ...\n\n\n",
    "!!! ??? ... --- ___ ((())) «quotes» “more” ‘these’",
];

static JSON: LazyLock<Tokenizer> = LazyLock::new(|| from_json("dense-wide"));
static VOCAB: LazyLock<GgufVocab> = LazyLock::new(|| gguf_vocab("gguf/dense-tied.bf16.gguf"));
static ORACLE: LazyLock<tokenizers::Tokenizer> = LazyLock::new(|| oracle("dense-wide"));

fn from_json(model: &str) -> Tokenizer {
    Tokenizer::from_json(&read(&format!("{model}/tokenizer.json"))).unwrap()
}

fn from_gguf(model: &str) -> Tokenizer {
    let vocab = gguf_vocab(&format!("gguf/{model}.bf16.gguf"));
    Tokenizer::from_gguf(vocab.tokens, &vocab.types, vocab.merges, &vocab.pre).unwrap()
}

fn oracle(model: &str) -> tokenizers::Tokenizer {
    tokenizers::Tokenizer::from_str(&read_text(&format!("{model}/tokenizer.json"))).unwrap()
}

fn ids_of_oracle(oracle: &tokenizers::Tokenizer, text: &str) -> Vec<u32> {
    oracle.encode_fast(text, false).unwrap().get_ids().to_vec()
}

#[test]
fn ids_are_those_of_the_reference_and_the_same_from_both_sources() {
    let corpus: Vec<String> =
        NASTY.iter().map(|text| text.to_string()).chain([read_text("reference_text.txt"), NASTY.concat()]).collect();
    for model in MODELS {
        let (json, gguf, oracle) = (from_json(model), from_gguf(model), oracle(model));
        for text in &corpus {
            let ids = json.encode(text);
            assert_eq!(ids, ids_of_oracle(&oracle, text), "{model}, {text:?}");
            assert_eq!(ids, gguf.encode(text), "{model}, {text:?}");
            assert_eq!(json.encode_plain(text), gguf.encode_plain(text), "{model}, {text:?}");
            assert_eq!(&json.decode(&ids), text);
            assert_eq!(&gguf.decode(&gguf.encode_plain(text)), text);
        }
    }
}

#[test]
fn what_is_asked_of_a_token_is_the_same_from_both_sources() {
    for model in MODELS {
        let (json, gguf) = (from_json(model), from_gguf(model));
        for id in 0..gguf.len() as u32 + 2 {
            assert_eq!(json.token_bytes(id), gguf.token_bytes(id), "{model}, {id}");
            assert_eq!(json.is_control(id), gguf.is_control(id), "{model}, {id}");
            assert_eq!(json.is_hidden(id), gguf.is_hidden(id), "{model}, {id}");
            if let Ok(text) = std::str::from_utf8(json.token_bytes(id)) {
                let found = if text.is_empty() { None } else { Some(id) };
                assert_eq!((json.id_of(text), gguf.id_of(text)), (found, found), "{model}, {text:?}");
            }
        }
    }
}

#[test]
fn control_tokens_are_single_ids_unless_they_must_stay_text() {
    let end = JSON.id_of("<|im_end|>").unwrap();
    assert_eq!(JSON.encode("<|im_end|>"), [end]);
    let plain = JSON.encode_plain("<|im_end|>");
    assert!(plain.len() > 1 && !plain.contains(&end));
    assert_eq!(JSON.decode(&plain), "<|im_end|>");
    assert!(JSON.is_control(end) && JSON.is_hidden(end));
    let think = JSON.id_of("<think>").unwrap();
    assert!(JSON.is_control(think) && !JSON.is_hidden(think));
    let word = JSON.id_of(" the").unwrap();
    assert_eq!(JSON.token_bytes(word), b" the");
    assert!(!JSON.is_control(word));
    assert_eq!(JSON.id_of("no such token"), None);
    assert_eq!(JSON.token_bytes(u32::MAX), b"");
}

#[test]
fn a_cache_changes_no_id() {
    let text = read_text("reference_text.txt");
    for limit in [0, 1, 200, 5_000, 1_000_000] {
        let cached = from_json("dense-wide").with_cache(limit);
        for _ in 0..3 {
            for line in text.lines().chain(NASTY.iter().copied()) {
                assert_eq!(cached.encode(line), JSON.encode(line), "limit {limit}, {line:?}");
                assert_eq!(cached.encode_plain(line), JSON.encode_plain(line), "limit {limit}, {line:?}");
            }
        }
    }
}

#[test]
fn damaged_vocabularies_are_refused_with_what_is_wrong() {
    let vocab = &*VOCAB;
    let message = |tokens: &[String], types: &[u32], merges: &[String], pre: &str| {
        Tokenizer::from_gguf(tokens.to_vec(), types, merges.to_vec(), pre).unwrap_err().to_string()
    };
    let (tokens, types, merges, pre) = (&vocab.tokens, &vocab.types, &vocab.merges, vocab.pre.as_str());
    assert!(message(tokens, &types[1..], merges, pre).contains("token types"));
    assert!(message(tokens, types, merges, "strange").contains("\"strange\""));
    assert!(message(&tokens[..100], &types[..100], merges, pre).contains("no token for the byte"));
    assert!(message(tokens, types, &["nospace".to_string()], pre).contains("nospace"));
    assert!(
        message(tokens, types, &["Q Ġzzz".to_string()], pre)
            .contains("a merge needs a token that is not there: \"Ġzzz\"")
    );
    let longer_than_any = ["a", "b"].map(|part| part.repeat(1_000)).join(" ");
    assert!(message(tokens, types, &[longer_than_any], pre).contains("a merge needs a token"));
    assert!(message(&[], &[], &[], pre).contains("no token for the byte"));
    let mut wrong = types.clone();
    wrong[7] = 99;
    assert!(message(tokens, &wrong, merges, pre).contains("99"));
}

#[test]
fn a_tokenizer_json_of_another_kind_is_refused_with_what_was_found() {
    let whole: serde_json::Value = serde_json::from_slice(&read("dense-tied/tokenizer.json")).unwrap();
    let with = |pointer: &str, value: serde_json::Value| {
        let mut changed = whole.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        Tokenizer::from_json(changed.to_string().as_bytes())
    };
    let message = |pointer: &str, value| with(pointer, value).unwrap_err().to_string();
    use serde_json::json;
    assert!(message("/model/type", json!("Unigram")).contains("Unigram"));
    assert!(message("/normalizer", json!({"type": "Lowercase"})).contains("Lowercase"));
    assert!(message("/pre_tokenizer", json!({"type": "Metaspace"})).contains("Metaspace"));
    assert!(message("/pre_tokenizer/pretokenizers/0/pattern", json!({"Regex": "("})).contains("pattern"));
    assert!(message("/added_tokens/0/id", json!(4_000_000_000u32)).contains("highest id"));
    assert!(message("/added_tokens/0/lstrip", json!(true)).contains("<|endoftext|>"));
    assert!(message("/added_tokens/0/id", json!(whole["added_tokens"][1]["id"])).contains("is taken"));
    assert!(message("/model/merges/0", json!("a b c")).contains("needs a token"));
    assert!(message("/model/merges/0", json!(["a".repeat(1_000), "b"])).contains("needs a token"));
    assert!(message("/model/vocab/!", json!(1)).contains("the id 1 of"));
    assert!(message("/model/continuing_subword_prefix", json!("##")).contains("prefix"));
    assert!(message("/model/merges/0", json!(["a"])).contains("two tokens"));
    assert!(Tokenizer::from_json(b"{").is_err());
    let older = whole.pointer("/model/merges").unwrap().as_array().unwrap().iter();
    let older = older.map(|pair| match pair.as_array() {
        Some(pair) => json!(format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())),
        None => pair.clone(),
    });
    let older = with("/model/merges", older.collect()).unwrap();
    assert_eq!(older.encode(NASTY[22]), from_json("dense-tied").encode(NASTY[22]));
}

#[test]
fn a_file_that_asks_for_nfc_gets_it_as_the_reference_does_it() {
    let mut json: serde_json::Value = serde_json::from_slice(&read("dense-wide/tokenizer.json")).unwrap();
    json["normalizer"] = serde_json::json!({"type": "NFC"});
    let json = json.to_string();
    let (ours, oracle) =
        (Tokenizer::from_json(json.as_bytes()).unwrap(), tokenizers::Tokenizer::from_str(&json).unwrap());
    for text in NASTY {
        assert_eq!(ours.encode(text), ids_of_oracle(&oracle, text), "{text:?}");
    }
    assert_eq!(ours.encode("e\u{301}"), ours.encode("é"));
}

/// The pattern's matcher gives up after a million steps: the rest of the text is then one word.
#[test]
fn a_very_long_run_of_spaces_is_encoded_in_time() {
    let text = format!("{}x y", " ".repeat(1_100_000));
    let ids = JSON.encode(&text);
    assert_eq!(JSON.decode(&ids), text);
    assert!(ids.len() < text.len(), "{}", ids.len());
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(NASTY).prop_map(str::to_string),
        "[ a-z']{0,8}",
        "\\PC{0,4}",
        any::<String>(),
        prop::sample::select(&["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|", "|>"][..])
            .prop_map(str::to_string),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn decoding_gives_back_any_text(text in any_text()) {
        prop_assert_eq!(JSON.decode(&JSON.encode(&text)), text.clone());
        prop_assert_eq!(JSON.decode(&JSON.encode_plain(&text)), text);
    }

    // Every file is read or refused: never a panic, never an absurd allocation.
    #[test]
    fn a_damaged_file_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        length in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| read("dense-tied/tokenizer.json"));
        let mut file = WHOLE.clone();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if cut {
            file.truncate(length.index(file.len()));
        }
        if let Ok(tokenizer) = Tokenizer::from_json(&file) {
            let ids = tokenizer.encode(NASTY[22]);
            prop_assert!(ids.iter().all(|id| (*id as usize) < tokenizer.len()));
        }
    }

    // The same for the values of a GGUF file, in which strings and numbers are already told apart.
    #[test]
    fn a_damaged_vocabulary_never_panics(
        tokens in prop::collection::vec((any::<prop::sample::Index>(), "\\PC{0,6}", 0u32..8), 0..4),
        merges in prop::collection::vec((any::<prop::sample::Index>(), "\\PC{0,3} \\PC{0,90}"), 0..2),
    ) {
        let GgufVocab { tokens: mut all_tokens, mut types, merges: mut all_merges, pre } = VOCAB.clone();
        for (at, token, kind) in tokens {
            let at = at.index(types.len());
            (all_tokens[at], types[at]) = (token, kind);
        }
        for (at, merge) in merges {
            let at = at.index(all_merges.len());
            all_merges[at] = merge;
        }
        if let Ok(tokenizer) = Tokenizer::from_gguf(all_tokens, &types, all_merges, &pre) {
            let ids = tokenizer.encode(NASTY[22]);
            prop_assert!(ids.iter().all(|id| (*id as usize) < tokenizer.len()));
        }
    }

    #[test]
    fn any_text_has_the_ids_of_the_reference(text in any_text()) {
        prop_assert_eq!(JSON.encode(&text), ids_of_oracle(&ORACLE, &text));
    }

    #[test]
    fn tokens_pushed_one_by_one_give_the_text(text in any_text()) {
        let mut decoder = text::Decoder::new();
        let mut pieces: Vec<String> =
            JSON.encode(&text).into_iter().map(|token| decoder.push_token(&JSON, token)).collect();
        pieces.push(decoder.finish());
        let halves = pieces.iter().filter(|piece| piece.contains(char::REPLACEMENT_CHARACTER)).count();
        prop_assert!(halves == 0 || text.contains(char::REPLACEMENT_CHARACTER));
        prop_assert_eq!(pieces.concat(), text);
    }
}
