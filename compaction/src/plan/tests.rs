use super::*;
use crate::types::{Passage, PassageKind};

/// Marks at 700, 850 and 450 tokens of the prompt; the tail has 200, a summary 100.
const LIMITS: CompactionLimits = CompactionLimits {
    ctx_size: 1000,
    soft_fill: 0.75,
    hard_fill: 0.9,
    target_fill: 0.5,
    tail_tokens: 200,
    summary_tokens: 100,
    reply_reserve_tokens: 50,
};

const SIZES: PromptSizes = PromptSizes {
    fixed_tokens: 50,
    context_tokens: 0,
    pins_tokens: 20,
    summary_tokens: 0,
    instruction_tokens: 100,
    marker_tokens: 15,
};

/// Builds a view: `u100` is a user's message of 100 tokens; `a`: assistant, `c`: call, `o`: its result, `s`: note. Ids
/// count from 1.
fn view(passages: &str) -> PromptView {
    let passage = |(index, word): (usize, &str)| {
        let call_id = "call".to_owned();
        let kind = match &word[..1] {
            "u" => PassageKind::User,
            "a" => PassageKind::Assistant,
            "c" => PassageKind::Call { call_id },
            "o" => PassageKind::Output { call_id },
            _ => PassageKind::System,
        };
        Passage { id: (index + 1).to_string(), kind, text: String::new(), tokens: word[1..].parse().unwrap() }
    };
    PromptView { passages: passages.split_whitespace().enumerate().map(passage).collect(), ..PromptView::default() }
}

fn silent(view: &PromptView) -> CompactionPlan {
    plan(view, &SIZES, &LIMITS, PlanMoment::Silence)
}

fn reply(view: &PromptView) -> CompactionPlan {
    plan(view, &SIZES, &LIMITS, PlanMoment::Reply)
}

fn summarise(through: &str, request_tokens: u32, expected_tokens: u32) -> CompactionPlan {
    CompactionPlan::Summarise(SummaryPlan {
        through: through.into(),
        left_out: Vec::new(),
        request_tokens,
        expected_tokens,
    })
}

fn drop(through: &str, trim_through: Option<&str>, expected_tokens: u32) -> CompactionPlan {
    CompactionPlan::Drop(DropPlan {
        through: through.into(),
        trim_through: trim_through.map(str::to_owned),
        expected_tokens,
    })
}

#[test]
fn below_the_soft_mark_nothing_happens() {
    assert_eq!(silent(&view("")), CompactionPlan::Nothing);
    assert_eq!(silent(&view("u300 a300 u40 a9")), CompactionPlan::Nothing);
    assert_eq!(reply(&view("u300 a300 u200")), CompactionPlan::Nothing);
}

#[test]
fn a_summary_ends_where_the_tail_starts() {
    // 50 + 600 = 650 of a request of 825 with instruction and reply, then 50 + 20 + 100 + 150.
    assert_eq!(silent(&view("u200 a200 u100 a100 u50 a100")), summarise("4", 50 + 600 + 100 + 75, 320));
    // The longest tail that is allowed.
    assert_eq!(silent(&view("u300 a250 u50 a50 u50 a50")), summarise("2", 775, 370));
    // The last turn stays in any case.
    assert_eq!(silent(&view("u200 a200 u100 a300")), summarise("2", 625, 570));
}

#[test]
fn a_call_stays_with_its_result() {
    // The user spoke while the tool was at work.
    let working = view("u300 a200 u50 c10 u50 o10 a30 u50");
    assert_eq!(silent(&working), summarise("2", 725, 370));
    // Its result is still to come.
    let waiting = view("u300 a200 u50 c10 u150 a30");
    assert_eq!(silent(&waiting), summarise("2", 725, 410));
    // Two turns later the tool counts as failed.
    let forgotten = view("u300 a200 u50 c10 u50 a30 u50 a20");
    assert_eq!(silent(&forgotten), summarise("4", 785, 320));
}

#[test]
fn call_ids_may_repeat() {
    let repeated = view("u100 c10 o150 a60 u100 c10 o150 a60 u50 c10 o50 a10");
    // Each result has its own call: the cut before the last turn is allowed.
    assert_eq!(
        silent(&repeated),
        CompactionPlan::Trim(TrimPlan { through: "8".into(), expected_tokens: 50 + 760 - 2 * 135 })
    );
    let trimmed = PromptView { trimmed_through: Some("8".into()), ..repeated };
    assert_eq!(silent(&trimmed), CompactionPlan::Nothing);
}

#[test]
fn cheap_things_go_first() {
    let results = view("u100 c10 o215 a75 u100 a100 u50 a50");
    let trim = CompactionPlan::Trim(TrimPlan { through: "6".into(), expected_tokens: 550 });
    assert_eq!(silent(&results), trim);
    assert_eq!(reply(&view("u100 c10 o365 a75 u100 a100 u50 a50")), trim);
    // A small saving is not worth computing all passages behind it again.
    assert_eq!(silent(&view("u300 c10 o45 a175 u50 a50 u50 a50")), summarise("4", 755, 370));
}

#[test]
fn a_plan_that_was_carried_out_is_not_made_again() {
    let done = PromptView { trimmed_through: Some("4".into()), ..view("u100 c10 o415 a75 u100 a100 u50 a50") };
    assert_eq!(silent(&done), CompactionPlan::Nothing);
    let dropped = PromptView { dropped_through: Some("4".into()), ..view("u300 a300 u150 a150 u50 a50 u50") };
    assert_eq!(reply(&dropped), CompactionPlan::Nothing);
}

#[test]
fn above_the_hard_mark_whole_turns_leave_at_once() {
    let full = view("u300 a300 u100 a100 u50 a50 u50");
    assert_eq!(reply(&full), drop("4", None, 50 + 20 + 150));
    // The later summary tells just these, which are out of the prompt: it may gain nothing.
    let dropped = PromptView { dropped_through: Some("4".into()), ..full };
    let CompactionPlan::Summarise(plan) = silent(&dropped) else { panic!("nothing is made up") };
    assert_eq!((plan.through.as_str(), plan.expected_tokens), ("2", 320));
    assert_eq!(plan.request_tokens, 50 + 600 + 100 + 75, "the rest does not fit the window and comes next");
}

#[test]
fn what_no_window_holds_is_left_out_of_the_request() {
    let huge = view("u2000 u50 a50 u50");
    assert_eq!(reply(&huge), drop("1", None, 220));
    let dropped = PromptView { dropped_through: Some("1".into()), ..huge };
    let CompactionPlan::Summarise(plan) = silent(&dropped) else { panic!("nothing is made up") };
    assert_eq!((plan.through.as_str(), plan.left_out), ("1", vec!["1".to_owned()]));
    assert_eq!(plan.request_tokens, 50 + 15 + 100 + 75);
}

#[test]
fn the_result_of_a_tool_gives_way_in_the_turn_itself() {
    assert_eq!(
        reply(&view("u50 c10 o2000")),
        CompactionPlan::Trim(TrimPlan { through: "3".into(), expected_tokens: 125 })
    );
    // The newest result last.
    let two = view("u50 c10 o700 c10 o200");
    assert_eq!(reply(&two), CompactionPlan::Trim(TrimPlan { through: "4".into(), expected_tokens: 335 }));
    let with_past = view("u500 a400 u50 c10 o2000");
    assert_eq!(reply(&with_past), drop("2", Some("5"), 145));
}

#[test]
fn a_message_larger_than_the_window_says_so() {
    let CompactionPlan::TooLarge(refused) = reply(&view("u100 a100 u2000")) else { panic!("not refused") };
    assert_eq!(refused, TooLargePlan { id: "3".into(), tokens: 2000, room_tokens: 880 });
    assert!(refused.message().contains("2000 tokens") && refused.message().contains("room for 880"));
    // The next one is answered.
    assert_eq!(reply(&view("u100 a100 u2000 u20")), drop("3", None, 90));
    let sizes = PromptSizes { fixed_tokens: 5000, ..SIZES };
    let CompactionPlan::TooLarge(refused) = plan(&view("u1"), &sizes, &LIMITS, PlanMoment::Reply) else {
        panic!("not refused")
    };
    assert!(refused.room_tokens == 0 && refused.message().contains("instructions, tools"));
}

#[test]
fn a_conversation_in_which_the_user_is_silent_goes_on_too() {
    let alone = view(&"a100 ".repeat(12));
    assert_eq!(reply(&alone), drop("4", None, 50 + 20 + 800));
    let tools = view(&format!("u300 {}", "c105 o10 ".repeat(8)));
    let CompactionPlan::Drop(plan) = reply(&tools) else { panic!("{:?}", reply(&tools)) };
    assert_eq!(plan.through, "3", "a call and its result");
}

#[test]
fn a_summary_must_gain_its_own_length() {
    let sizes = PromptSizes { fixed_tokens: 600, ..SIZES };
    assert_eq!(plan(&view("u50 a50 u50 a50"), &sizes, &LIMITS, PlanMoment::Silence), CompactionPlan::Nothing);
    assert_ne!(plan(&view("u200 a100 u50 a50"), &sizes, &LIMITS, PlanMoment::Silence), CompactionPlan::Nothing);
}

#[test]
fn who_gave_up_waits_until_there_is_more_to_gain() {
    let full = view("u300 a250 u50 a50 u50 a50 u60 a30");
    let waiting = PromptView { gave_up_at: Some("6".into()), ..full.clone() };
    assert_eq!(silent(&waiting), CompactionPlan::Nothing);
    let later = PromptView { gave_up_at: Some("5".into()), ..full };
    assert_ne!(silent(&later), CompactionPlan::Nothing);
}

#[test]
fn a_tighter_summary_covers_more_or_is_none() {
    let full = view("u300 a250 u50 a50 u50 a50");
    let tight = tighter(&full, &SIZES, &LIMITS, "2", 10).unwrap();
    assert_eq!((tight.through.as_str(), tight.expected_tokens), ("4", 270));
    assert_eq!(tighter(&full, &SIZES, &LIMITS, "4", 10), None);
}
