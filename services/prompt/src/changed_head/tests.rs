use super::*;
use proptest::prelude::*;
use std::time::{Duration, Instant};

fn wording() -> HeadWording {
    HeadWording {
        changed: "Changed:".into(),
        at: "at ".into(),
        from: "no longer ".into(),
        to: "now ".into(),
        back: "as before".into(),
    }
}

fn note(old: &str, new: &str) -> Option<String> {
    note_behind(old, new, "")
}

fn note_behind(old: &str, new: &str, before: &str) -> Option<String> {
    note_of_changes(old, &head_changes(old, new, 100).unwrap(), &wording(), before)
}

#[test]
fn what_is_told_again_comes_first() {
    let old = "It is 8:00.\nBe brief.\nThe lamp is on.\nAnn is home.";
    let first = note(old, "It is 8:01.\nBe brief.\nThe lamp is off.\nAnn is home.").unwrap();
    let second = note_behind(old, "It is 8:02.\nBe brief.\nThe lamp is off.\nAnn is out.", &first).unwrap();
    let told = ["The lamp is on.", "The lamp is off.", "It is 8:00.", "It is 8:02.", "Ann is home.", "Ann is out."];
    let told = told.chunks(2).map(|lines| format!("\nno longer {}\nnow {}", lines[0], lines[1]));
    assert_eq!(second, format!("Changed:{}", told.collect::<String>()));
}

#[test]
fn what_changed_is_told_line_by_line() {
    for (old, new, told) in [
        (
            "Be brief.\nIt is 8:00.\nThanks.",
            "Be brief.\nIt is 8:01.\nThanks.",
            "no longer It is 8:00.\nnow It is 8:01.",
        ),
        // At the begin and at the end.
        ("It is 8:00.\nBe brief.", "It is 8:01.\nBe brief.", "no longer It is 8:00.\nnow It is 8:01."),
        ("Be brief.\nAnn is home.", "Be brief.", "no longer Ann is home."),
        ("Be brief.", "Be brief.\nAnn is home.", "at Be brief.\nnow Ann is home."),
        ("Be brief.", "Ann is home.\nBe brief.", "now Ann is home."),
        // Two places.
        ("a\nb\nc\nd", "a\nB\nc\nD", "no longer b\nnow B\nno longer d\nnow D"),
        // A line that occurs several times, and one under another.
        ("lamp\non\nfan\non\nend", "lamp\non\nfan\noff\nend", "at fan\nno longer on\nnow off"),
        ("- lamp\n  hall\n  on\n- fan\n  on", "- lamp\n  hall\n  off\n- fan\n  on", "at - lamp\nno longer on\nnow off"),
        (
            "- lamp\n  hall\n  on\n  60\n- fan",
            "- lamp\n  attic\n  on\n  70\n- fan",
            "at - lamp\nno longer hall\nnow attic\nno longer 60\nnow 70",
        ),
        // A change of white space leaves no trace in the note.
        ("a\n\n\nb", "a\n\nb\n c", "at b\nnow c"),
    ] {
        assert_eq!(note(old, new).unwrap(), format!("Changed:\n{told}"), "{old:?} to {new:?}");
    }
}

#[test]
fn nothing_is_told_where_nothing_changed() {
    assert_eq!(note("a\nb", "a\nb"), None);
    assert_eq!(note("", ""), None);
    assert_eq!(note("a\n\nb", "a\nb\n"), None);
}

#[test]
fn too_many_lines_are_too_many() {
    let [old, new] = ["a", "b"].map(|line| [line; 5].join("\n"));
    assert_eq!(head_changes(&old, &new, 9), None);
    let changes = head_changes(&old, &new, 10).unwrap();
    assert_eq!((changes.len(), changes[0].removed.len(), changed_bytes(&changes)), (1, 5, 10));
    assert!(head_changes(&old, &old, 0).unwrap().is_empty());
}

#[test]
fn hostile_lines_take_no_time() {
    let lines: Vec<String> = (0..18_000_u64).map(|line| format!("{}", line % 977)).collect();
    let old = lines.join("\n");
    let reversed = lines.iter().rev().cloned().collect::<Vec<_>>().join("\n");
    let turned = [&lines[9_000..], &lines[..9_000]].concat().join("\n");
    let swapped = lines.chunks(2).flat_map(|pair| pair.iter().rev().cloned()).collect::<Vec<_>>().join("\n");
    let alike = "x\n".repeat(18_000);
    let begin = Instant::now();
    for new in [&reversed, &turned, &swapped, &alike] {
        assert_eq!(head_changes(&old, new, 256), None);
        assert_eq!(head_changes(new, &old, 256), None);
    }
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
}

proptest! {
    #[test]
    fn the_changes_make_the_old_text_the_new_one(old in "[ab\n ]{0,24}", new in "[ab\n ]{0,24}") {
        let changes = head_changes(&old, &new, 64).unwrap();
        prop_assert_eq!(&apply(&old, &changes), &new);
        prop_assert_eq!(changes.is_empty(), old == new);
        prop_assert_eq!(head_changes(&old, &new, 64).unwrap(), changes);
    }

    /// The note names the changed lines, and no line that stays as new or gone.
    #[test]
    fn a_note_names_what_goes_and_what_comes(lines in proptest::collection::vec("[a-e]", 1..12), at in 0..12_usize, with in "[f-h]{0,1}") {
        let at = at % lines.len();
        let mut changed = lines.clone();
        if with.is_empty() { changed.remove(at); } else { changed[at].clone_from(&with); }
        let (old, new) = (lines.join("\n"), changed.join("\n"));
        let told = note(&old, &new).unwrap_or_default();
        let named = |before: &str| told.lines().filter_map(|line| line.strip_prefix(before)).collect::<Vec<_>>();
        prop_assert_eq!(named("no longer "), [lines[at].as_str()]);
        prop_assert_eq!(named("now ").concat(), with);
    }

    #[test]
    fn no_line_is_told_that_need_not_be(old in proptest::collection::vec(0..4_usize, 0..9), new in proptest::collection::vec(0..4_usize, 0..9)) {
        let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
        for (i, one) in old.iter().enumerate() {
            for (j, other) in new.iter().enumerate() {
                let longest = common[i][j + 1].max(common[i + 1][j]);
                common[i + 1][j + 1] = if one == other { common[i][j] + 1 } else { longest };
            }
        }
        let least = old.len() + new.len() - 2 * common[old.len()][new.len()];
        let steps = |most| lines::hunks(&old, &new, most).map(|hunks| hunks.iter().map(|hunk| hunk.old.len() + hunk.new.len()).sum::<usize>());
        prop_assert_eq!(steps(least), Some(least));
        prop_assert!(least == 0 || steps(least - 1).is_none());
    }
}
