use super::*;
use crate::sentences::Cutter;
use crate::vocabulary::{Delta, Finish};
use proptest::prelude::*;

const LIMITS: SentenceLimits = SentenceLimits { first_clause_chars: 24, max_sentence_chars: 320 };

fn told(rule: EndRule, pieces: &[&str], finish: Finish) -> (Vec<String>, Vec<Sentence>) {
    let mut cutter = Cutter::with_rule(LIMITS, Some(rule));
    let mut deltas = Vec::new();
    for piece in pieces {
        cutter.cut(Delta::text(*piece, 1), &mut deltas);
    }
    cutter.cut(Delta::Done { finish, usage: None, report: None }, &mut deltas);
    let (mut texts, mut all) = (Vec::new(), Vec::new());
    for delta in deltas {
        if let Delta::Text { text, sentences, .. } = delta {
            texts.push(text);
            all.extend(sentences);
        }
    }
    (texts, all)
}

fn whole(rule: EndRule, pieces: &[&str]) -> String {
    let (texts, sentences) = told(rule, pieces, Finish::Stop);
    let text = texts.concat();
    let mut end = 0;
    for sentence in sentences {
        assert_eq!(sentence.text_start, end, "{text}");
        let said: String = text.chars().skip(end).take(sentence.text_end - end).collect();
        assert_eq!(sentence.text, said);
        end = sentence.text_end;
    }
    assert!(text.chars().skip(end).all(char::is_whitespace), "{text}");
    text
}

fn pieces(text: &str) -> [Vec<&str>; 3] {
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let by_char = ends.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
    let mut words = Vec::new();
    let mut from = 0;
    for (at, character) in text.char_indices().skip(1) {
        if character == ' ' {
            words.push(&text[from..at]);
            from = at;
        }
    }
    words.push(&text[from..]);
    [vec![text], by_char, words]
}

/// `ChatLog.continue_conversation` of Home Assistant 2026.11. The table has Python's results.
fn opens_microphone(text: &str) -> bool {
    text.trim_matches(is_space).ends_with(['?', ';', '？'])
}

#[test]
fn replies_of_many_languages_are_replayed_by_home_assistants_rule() {
    let rows: Vec<&str> = include_str!("../../../tests/golden/replies.tsv").lines().collect();
    assert!(rows.len() >= 200, "{}", rows.len());
    let mut mended = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('\t').collect();
        let [written, asks, marked, without, opens @ ..] = &cells[..] else { panic!("{row}") };
        let (written, asks) = (written.replace("\\n", "\n"), *asks == "1");
        assert_eq!(ends_in_question(&written), asks, "{row}");
        for pieces in pieces(&written) {
            assert_eq!(whole(EndRule::Marked, &pieces), *marked, "{pieces:?}");
            assert_eq!(whole(EndRule::WithoutQuestion, &pieces), *without, "{pieces:?}");
        }
        let ours = [written.as_str(), marked, without].map(opens_microphone);
        assert_eq!(opens, &ours.map(|opens| if opens { "1" } else { "0" })[..], "{row}");
        assert_eq!(ours[1], asks, "a question ends in its mark, and nothing else does: {row}");
        assert!(!ours[2] || without == marked, "what is asked all the same is only a question: {row}");
        mended += usize::from(ours[0] != asks);
    }
    assert!(mended > 50, "as models write them the rule is wrong for many: {mended}");
}

#[test]
fn the_first_sentence_waits_for_nothing() {
    let pieces = ["It", " is", " on", ".", " Shall", " I", " dim", " it", "?"];
    let (texts, sentences) = told(EndRule::WithoutQuestion, &pieces, Finish::Stop);
    assert_eq!(texts, ["It", " is", " on", ". "]);
    assert_eq!(sentences[0].text, "It is on. ");
    // The sentence is complete with the first word of the next, as without a rule.
    let mut cutter = Cutter::with_rule(LIMITS, Some(EndRule::WithoutQuestion));
    let mut deltas = Vec::new();
    pieces[..5].iter().for_each(|piece| cutter.cut(Delta::text(*piece, 1), &mut deltas));
    let Some(Delta::Text { sentences, tokens, .. }) = deltas.last() else { panic!("{deltas:?}") };
    assert_eq!((sentences.len(), *tokens), (1, 2));
}

#[test]
fn what_is_cut_off_or_goes_on_with_a_call_stays_as_it_is() {
    let said = |pieces: &[&str], finish| told(EndRule::WithoutQuestion, pieces, finish).0.concat();
    assert_eq!(said(&["It is on. Shall I"], Finish::Length), "It is on. Shall I");
    assert_eq!(said(&["It is on. Shall I? 😊"], Finish::ToolCalls), "It is on. Shall I? 😊");
    // The user hears no more of what was cancelled.
    assert_eq!(said(&["It is on. Shall I"], Finish::Cancelled), "It is on. ");
    let mut cutter = Cutter::with_rule(LIMITS, Some(EndRule::Marked));
    let mut deltas = Vec::new();
    cutter.cut(Delta::text("Shall I? 😊", 1), &mut deltas);
    cutter.cut(Delta::CallStarted { name: "f".into(), call_id: None }, &mut deltas);
    cutter.cut(Delta::text("Done? 😊", 1), &mut deltas);
    cutter.cut(Delta::Done { finish: Finish::Stop, usage: None, report: None }, &mut deltas);
    let texts = deltas.iter().filter_map(|delta| match delta {
        Delta::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(texts.collect::<String>(), "Shall I? 😊Done?");
}

proptest! {
    /// Home Assistant and the service agree, for any text, whether the reply expects an answer.
    #[test]
    fn home_assistant_knows_a_marked_question(
        pieces in prop::collection::vec("[a-zα-ω가あ.?!;؟？…\"”“)(😊 \\n\u{200F}]{0,5}", 0..12),
    ) {
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let text = whole(EndRule::Marked, &pieces);
        prop_assert_eq!(opens_microphone(&text), ends_in_question(&text), "{}", text);
        let written = pieces.concat();
        prop_assert_eq!(ends_in_question(&written), ends_in_question(&text));
        let without = whole(EndRule::WithoutQuestion, &pieces);
        prop_assert_eq!(opens_microphone(&without), ends_in_question(&without), "{}", without);
    }
}
