//! The sampler against a naive one: f64, the platform's `exp`, every vocabulary sorted whole.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn reference(sampling: &SamplingOptions, logits: &[f32], allowed: Option<&[u32]>) -> Vec<(u32, f64)> {
    let mut kept: Vec<(u32, f64)> = (0..logits.len())
        .filter(|id| allowed.is_none_or(|mask| mask.get(id / 32).is_some_and(|word| word >> (id % 32) & 1 == 1)))
        .filter(|id| logits[*id].is_finite())
        .map(|id| (id as u32, f64::from(logits[id])))
        .collect();
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if kept.is_empty() {
        return kept;
    }
    if sampling.temperature <= 0.0 {
        return vec![(kept[0].0, 1.0)];
    }
    let highest = kept[0].1;
    for entry in &mut kept {
        entry.1 = ((entry.1 - highest) / f64::from(sampling.temperature)).exp();
    }
    if sampling.top_k > 0 {
        kept.truncate(sampling.top_k);
    }
    if sampling.top_p < 1.0 {
        let total: f64 = kept.iter().map(|entry| entry.1).sum();
        let mut sum = 0.0;
        let before: Vec<f64> = kept.iter().map(|entry| (sum, sum += entry.1).0).collect();
        let mut before = before.iter();
        let mut first = true;
        kept.retain(|_| {
            let keep = *before.next().unwrap() < f64::from(sampling.top_p) * total || first;
            first = false;
            keep
        });
    }
    kept.retain(|entry| entry.1 >= f64::from(sampling.min_p.min(1.0)));
    let total: f64 = kept.iter().map(|entry| entry.1).sum();
    kept.iter().map(|entry| (entry.0, entry.1 / total)).collect()
}

fn is_near_a_border(sampling: &SamplingOptions, logits: &[f32], allowed: Option<&[u32]>) -> bool {
    let sizes: BTreeSet<usize> = [-2e-6f32, 0.0, 2e-6]
        .into_iter()
        .map(|shift| {
            let top_p = if sampling.top_p < 1.0 { (sampling.top_p + shift).min(0.999_999_9) } else { 1.0 };
            let min_p = sampling.min_p * (1.0 + 4.0 * shift);
            let top_p_set =
                reference(&SamplingOptions { top_p, min_p: 0.0, ..sampling.clone() }, logits, allowed).len();
            let min_p_set = reference(&SamplingOptions { min_p, ..sampling.clone() }, logits, allowed).len();
            top_p_set * 1_000_000 + min_p_set
        })
        .collect();
    sizes.len() > 1
}

/// Draws with 0.0, 1/n, 2/n … just below 1: with n large against the vocabulary, every token that can be drawn.
fn drawable(sampling: &SamplingOptions, logits: &[f32], allowed: Option<&[u32]>) -> BTreeSet<u32> {
    let mut selector = select::TokenSelector::default();
    (0..4096).filter_map(|step| selector.draw(sampling, logits, allowed, f64::from(step) / 4096.0)).collect()
}

fn mask_of(tokens: impl IntoIterator<Item = u32>, vocabulary: usize) -> Vec<u32> {
    let mut mask = vec![0u32; vocabulary.div_ceil(32)];
    for token in tokens {
        mask[token as usize / 32] |= 1 << (token % 32);
    }
    mask
}

fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        20 => (-60i32..60).prop_map(|steps| steps as f32 * 0.137),
        4 => -9.0f32..9.0,
        1 => Just(f32::NAN),
        1 => Just(f32::NEG_INFINITY),
        1 => Just(f32::INFINITY),
    ]
}

fn any_sampling() -> impl Strategy<Value = SamplingOptions> {
    (
        prop_oneof![Just(1.0f32), 0.3f32..2.0],
        prop_oneof![Just(0usize), 1usize..12, Just(1000)],
        prop_oneof![Just(1.0f32), Just(0.0), 0.05f32..0.999],
        prop_oneof![Just(0.0f32), Just(1.0), 0.01f32..0.9],
    )
        .prop_map(|(temperature, top_k, top_p, min_p)| SamplingOptions {
            temperature,
            top_k,
            top_p,
            min_p,
            ..SamplingOptions::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn only_what_the_naive_sampler_keeps_is_drawn(
        sampling in any_sampling(),
        logits in prop::collection::vec(logit(), 1..90),
        forbidden in prop::option::of(prop::collection::vec(any::<bool>(), 90)),
    ) {
        let mask = forbidden.map(|forbidden| {
            mask_of((0..logits.len() as u32).filter(|id| !forbidden[*id as usize]), logits.len())
        });
        prop_assume!(!is_near_a_border(&sampling, &logits, mask.as_deref()));
        let expected = reference(&sampling, &logits, mask.as_deref());
        let drawn = drawable(&sampling, &logits, mask.as_deref());
        let allowed: BTreeSet<u32> = expected.iter().map(|entry| entry.0).collect();
        prop_assert!(drawn.is_subset(&allowed), "drawn {:?} of {:?}", drawn, allowed);
        // Every share that is wider than two of the 4096 steps is met by at least one of them.
        for (token, probability) in &expected {
            prop_assert!(*probability < 2.0 / 4096.0 || drawn.contains(token), "{} with {}", token, probability);
        }
    }

    #[test]
    fn nothing_that_comes_from_outside_makes_it_panic(
        logits in prop::collection::vec(prop_oneof![logit(), any::<f32>()], 0..80),
        mask in prop::option::of(prop::collection::vec(any::<u32>(), 0..4)),
        temperature in any::<f32>(), top_k in any::<usize>(), top_p in any::<f32>(), min_p in any::<f32>(),
        penalties in any::<(f32, f32, f32)>(),
        logit_bias in prop::collection::vec((0u32..100, any::<f32>()), 0..4),
        history in prop::collection::vec(any::<u32>().prop_map(|id| id % 100), 0..20),
        penalty_last_tokens in 0usize..5, logprobs in prop::option::of(any::<usize>()), seed in any::<u64>(),
    ) {
        let sampling = SamplingOptions {
            temperature, top_k, top_p, min_p, logit_bias, penalty_last_tokens, logprobs, seed: Some(seed),
            repetition_penalty: penalties.0, presence_penalty: penalties.1, frequency_penalty: penalties.2,
        };
        let mut sampler = Sampler::new(&sampling, 0);
        sampler.accept_prompt(&history);
        history.iter().for_each(|token| sampler.accept(*token));
        let mut changed = logits.clone();
        if let Ok(choice) = sampler.sample(&mut changed, mask.as_deref()) {
            prop_assert!(changed[choice.token as usize].is_finite());
            prop_assert!(mask.is_none_or(|mask| mask[choice.token as usize / 32] >> (choice.token % 32) & 1 == 1));
            prop_assert!(choice.top.iter().all(|(_, logprob)| (-9999.0..=0.0).contains(logprob)));
        }
    }
}

/// Computes Pearson's statistic of 100,000 draws against the exact probabilities, and its degrees of freedom.
fn chi_square(sampling: &SamplingOptions, logits: &[f32]) -> (f64, usize) {
    const DRAWS: u32 = 100_000;
    let expected = reference(sampling, logits, None);
    let mut counts = vec![0u32; logits.len()];
    let mut sampler = Sampler::new(sampling, 0);
    let mut logits = logits.to_vec(); // nothing changes them where there is no penalty
    for _ in 0..DRAWS {
        counts[sampler.sample(&mut logits, None).unwrap().token as usize] += 1;
    }
    // Rare tokens are counted together, as the test needs at least five expected in every cell.
    let (mut statistic, mut cells, mut rare) = (0.0, 0, (0.0, 0.0));
    let mut add = |wanted: f64, found: f64| {
        statistic += (found - wanted).powi(2) / wanted;
        cells += 1;
    };
    for (token, probability) in &expected {
        let (wanted, found) = (probability * f64::from(DRAWS), f64::from(counts[*token as usize]));
        if wanted >= 5.0 {
            add(wanted, found);
        } else {
            rare = (rare.0 + wanted, rare.1 + found);
        }
        counts[*token as usize] = 0;
    }
    assert!(counts.iter().all(|count| *count == 0), "a token outside the set was drawn");
    if rare.0 >= 5.0 {
        add(rare.0, rare.1);
    }
    (statistic, cells - 1)
}

#[test]
fn a_hundred_thousand_draws_have_the_exact_distribution() {
    // More tokens than one block holds, so the draw over the whole vocabulary crosses a border.
    let mut random = random::SplitMix64::new(11);
    let logits: Vec<f32> = (0..1100).map(|_| (random.next_unit() * 12.0 - 8.0) as f32).collect();
    let base = SamplingOptions { temperature: 1.0, seed: Some(5), ..SamplingOptions::default() };
    for (sampling, logits) in [
        (base.clone(), &logits[..]),
        (SamplingOptions { temperature: 0.6, ..base.clone() }, &logits[..]),
        (SamplingOptions { top_k: 20, ..base.clone() }, &logits[..200]),
        (SamplingOptions { top_p: 0.8, temperature: 0.7, ..base.clone() }, &logits[..200]),
        (SamplingOptions { min_p: 0.3, ..base.clone() }, &logits[..200]),
        (SamplingOptions { temperature: 1.3, top_k: 40, top_p: 0.9, min_p: 0.05, ..base.clone() }, &logits[..200]),
    ] {
        let (statistic, freedom) = chi_square(&sampling, logits);
        // Mean and variance of chi-square are n and 2n; five deviations above happens once in a million.
        let limit = freedom as f64 + 5.0 * (2.0 * freedom as f64).sqrt() + 10.0;
        assert!(statistic < limit, "{sampling:?}: {statistic:.1} with {freedom} degrees of freedom");
        assert!(freedom > 5);
    }
}

#[test]
fn a_wrong_distribution_would_be_noticed() {
    let logits: Vec<f32> = (0..30).map(|id| id as f32 * 0.1).collect();
    let base = SamplingOptions { temperature: 1.0, seed: Some(5), ..SamplingOptions::default() };
    let expected = reference(&base, &logits, None);
    let mut sampler = Sampler::new(&SamplingOptions { temperature: 1.1, ..base }, 0);
    let mut counts = [0u32; 30];
    for _ in 0..100_000 {
        counts[sampler.sample(&mut logits.clone(), None).unwrap().token as usize] += 1;
    }
    let statistic: f64 = expected
        .iter()
        .map(|(token, probability)| {
            let wanted = probability * 100_000.0;
            (f64::from(counts[*token as usize]) - wanted).powi(2) / wanted
        })
        .sum();
    assert!(statistic > 29.0 + 5.0 * 58f64.sqrt() + 10.0, "{statistic}");
}

#[test]
fn greedy_takes_the_lowest_of_equals_and_no_broken_ones() {
    let mut sampler = Sampler::new(&SamplingOptions::default(), 9);
    let mut token = |logits: &[f32], mask: Option<&[u32]>| sampler.sample(&mut logits.to_vec(), mask).map(|c| c.token);
    assert_eq!(token(&[1.0, 3.0, 3.0, 2.0], None), Ok(1));
    assert_eq!(token(&[0.0, -0.0], None), Ok(0));
    assert_eq!(token(&[f32::NAN, f32::INFINITY, -5.0, f32::NEG_INFINITY], None), Ok(2));
    assert_eq!(token(&[1.0, 3.0, 3.0, 2.0], Some(&[0b1001])), Ok(3));
    assert_eq!(token(&[f32::MIN, f32::MIN], None), Ok(0));
}

#[test]
fn when_nothing_can_be_chosen_the_error_says_why() {
    for temperature in [0.0, 1.0] {
        let sampling = SamplingOptions { temperature, ..SamplingOptions::default() };
        let sample = |logits: &[f32], mask: Option<&[u32]>| {
            Sampler::new(&sampling, 0).sample(&mut logits.to_vec(), mask).unwrap_err()
        };
        assert_eq!(sample(&[1.0, 2.0], Some(&[0])), SamplingError::NothingAllowed);
        assert_eq!(sample(&[1.0, 2.0], Some(&[])), SamplingError::NothingAllowed);
        assert_eq!(sample(&[1.0, 2.0], Some(&[0b100])), SamplingError::NothingAllowed);
        assert_eq!(sample(&[], None), SamplingError::NothingAllowed);
        assert_eq!(sample(&[f32::NAN, 2.0], Some(&[0b01])), SamplingError::NothingFinite);
        assert_eq!(sample(&[f32::NAN, f32::INFINITY], None), SamplingError::NothingFinite);
    }
    let banned = SamplingOptions { logit_bias: vec![(0, f32::NEG_INFINITY)], ..SamplingOptions::default() };
    assert_eq!(Sampler::new(&banned, 0).sample(&mut [1.0], None), Err(SamplingError::NothingAllowed));
}

#[test]
fn a_mask_shorter_than_the_logits_forbids_the_rest() {
    let sampling = SamplingOptions { temperature: 5.0, ..SamplingOptions::default() };
    let logits = vec![0.0; 5000];
    let mask = mask_of([2, 31, 32, 1023, 1024, 2047], 2048);
    for top_k in [0, 4, 100] {
        let drawn = drawable(&SamplingOptions { top_k, ..sampling.clone() }, &logits, Some(&mask));
        let expected = [2, 31, 32, 1023, 1024, 2047].into_iter().take(if top_k == 0 { 6 } else { top_k });
        assert_eq!(drawn, expected.collect());
    }
}

#[test]
fn ends_of_the_ranges() {
    let logits = [1.0, 4.0, 3.0, 4.0];
    let base = SamplingOptions { temperature: 1.0, ..SamplingOptions::default() };
    let drawn = |sampling: &SamplingOptions| drawable(sampling, &logits, None).into_iter().collect::<Vec<_>>();
    assert_eq!(drawn(&SamplingOptions { top_p: 0.0, ..base.clone() }), [1]);
    assert_eq!(drawn(&SamplingOptions { top_p: -1.0, ..base.clone() }), [1]);
    assert_eq!(drawn(&SamplingOptions { top_p: 1.0, ..base.clone() }), [0, 1, 2, 3]);
    assert_eq!(drawn(&SamplingOptions { top_p: f32::NAN, ..base.clone() }), [0, 1, 2, 3]);
    assert_eq!(drawn(&SamplingOptions { min_p: 1.0, ..base.clone() }), [1, 3]);
    assert_eq!(drawn(&SamplingOptions { min_p: 7.0, ..base.clone() }), [1, 3]);
    assert_eq!(drawn(&SamplingOptions { min_p: -1.0, ..base.clone() }), [0, 1, 2, 3]);
    assert_eq!(drawn(&SamplingOptions { top_k: 1, ..base.clone() }), [1]);
    assert_eq!(drawn(&SamplingOptions { top_k: usize::MAX, ..base.clone() }), [0, 1, 2, 3]);
    assert_eq!(drawn(&SamplingOptions { temperature: 1e-40, ..base.clone() }), [1, 3]);
    assert_eq!(drawn(&SamplingOptions { temperature: f32::INFINITY, ..base.clone() }), [0, 1, 2, 3]);
}

/// Computed by hand, with penalties 2, 0.5 and 0.25 after the prompt 0 1 2 and the reply 2 3 3:
/// 0: 3 / 2; 1: -1 × 2; 2: 4 / 2 - 0.25 - 0.5; 3: -2 × 2 - 2 × 0.25 - 0.5; 4: untouched.
#[test]
fn penalties_by_hand() {
    let sampling = SamplingOptions {
        repetition_penalty: 2.0,
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        logprobs: Some(1),
        ..SamplingOptions::default()
    };
    let feed = |sampling: &SamplingOptions| {
        let mut sampler = Sampler::new(sampling, 0);
        sampler.accept_prompt(&[0, 1, 2]);
        [2, 3, 3].into_iter().for_each(|token| sampler.accept(token));
        let mut logits = vec![3.0, -1.0, 4.0, -2.0, 1.0];
        let choice = sampler.sample(&mut logits, None).unwrap();
        (logits, choice)
    };
    let (logits, choice) = feed(&sampling);
    assert_eq!(logits, [1.5, -2.0, 1.25, -5.0, 1.0]);
    // Token 0 wins now; the log probabilities are of the model's own distribution, where 2 did.
    assert_eq!(choice.token, 0);
    let normaliser = [3.0f64, -1.0, 4.0, -2.0, 1.0].iter().map(|x| x.exp()).sum::<f64>().ln();
    assert!((choice.logprob.unwrap() - (3.0 - normaliser) as f32).abs() < 1e-5);
    assert_eq!(choice.top[0].0, 2);
    assert!((choice.top[0].1 - (4.0 - normaliser) as f32).abs() < 1e-5);

    // The last four tokens of both: 2 2 3 3, of which the first 2 is the prompt's.
    let (logits, _) = feed(&SamplingOptions { penalty_last_tokens: 4, ..sampling.clone() });
    assert_eq!(logits, [3.0, -1.0, 1.25, -5.0, 1.0]);
    let (logits, _) = feed(&SamplingOptions { penalty_last_tokens: 2, ..sampling });
    assert_eq!(logits, [3.0, -1.0, 4.0, -5.0, 1.0]);
}

#[test]
fn presence_and_frequency_leave_the_prompt_alone() {
    let sampling = SamplingOptions { presence_penalty: 1.0, penalty_last_tokens: 3, ..SamplingOptions::default() };
    let mut sampler = Sampler::new(&sampling, 0);
    sampler.accept_prompt(&[0, 0]);
    sampler.accept(1);
    let mut logits = vec![2.0, 2.0];
    assert_eq!(sampler.sample(&mut logits, None).unwrap().token, 0);
    assert_eq!(logits, [2.0, 1.0]);
}

#[test]
fn bias_is_added_and_told_probabilities_are_without_it() {
    let sampling = SamplingOptions {
        logit_bias: vec![(1, 5.0), (70, 1.0), (0, f32::NAN)],
        logprobs: Some(0),
        ..SamplingOptions::default()
    };
    let mut logits = vec![1.0, 0.0];
    let choice = Sampler::new(&sampling, 0).sample(&mut logits, None).unwrap();
    assert_eq!((choice.token, logits), (1, vec![1.0, 5.0]));
    assert!((choice.logprob.unwrap() + 1.313_261_7).abs() < 1e-5, "{:?}", choice.logprob);
    assert!(choice.top.is_empty());
}

#[test]
fn the_least_log_probability_is_a_number() {
    let sampling = SamplingOptions { logprobs: Some(3), ..SamplingOptions::default() };
    let mut logits = vec![f32::MAX, f32::MIN, f32::NAN];
    let choice = Sampler::new(&sampling, 0).sample(&mut logits, Some(&[0b010])).unwrap();
    assert_eq!((choice.token, choice.logprob), (1, Some(-9999.0)));
    assert_eq!(choice.top, [(0, 0.0), (1, -9999.0)]);
}

/// A golden: these tokens must never change. Recipe: 4,000 logits from `SplitMix64::new(1)`, evenly from -8 to 8, and
/// the first 12 tokens of seed 42 with the sampling below; written down from an independent sampler in Python, which
/// sorts everything, in f64.
#[test]
fn a_seed_gives_the_same_tokens_for_ever() {
    let mut random = random::SplitMix64::new(1);
    let logits: Vec<f32> = (0..4000).map(|_| (random.next_unit() * 16.0 - 8.0) as f32).collect();
    let run = |sampling: &SamplingOptions, seed_if_none| {
        let mut sampler = Sampler::new(sampling, seed_if_none);
        let mut next = || {
            let token = sampler.sample(&mut logits.clone(), None).unwrap().token;
            sampler.accept(token);
            token
        };
        (0..12).map(|_| next()).collect::<Vec<u32>>()
    };
    let card = SamplingOptions {
        temperature: 1.0,
        top_k: 20,
        top_p: 0.95,
        presence_penalty: 1.5,
        seed: Some(42),
        ..SamplingOptions::default()
    };
    let plain = SamplingOptions { temperature: 1.0, seed: Some(42), ..SamplingOptions::default() };
    assert_eq!(run(&card, 7), [843, 2229, 1945, 2124, 1684, 3680, 2959, 1622, 1465, 3368, 3341, 2839]);
    assert_eq!(run(&plain, 7), [2578, 704, 738, 224, 3931, 1040, 1281, 652, 3154, 1088, 3179, 3613]);
    assert_eq!(run(&card, 7), run(&SamplingOptions { seed: None, ..card.clone() }, 42));
    assert_ne!(run(&card, 7), run(&SamplingOptions { seed: Some(43), ..card }, 42));
}

#[test]
fn numbers_that_make_no_sense_are_named() {
    assert_eq!(SamplingOptions::default().check(), Ok(()));
    let wrong = SamplingOptions { top_p: 1.5, ..SamplingOptions::default() };
    assert_eq!(wrong.check().unwrap_err().to_string(), "top_p is 1.5; use a number from 0 to 1");
    for wrong in [
        SamplingOptions { temperature: f32::NAN, ..SamplingOptions::default() },
        SamplingOptions { temperature: -1.0, ..SamplingOptions::default() },
        SamplingOptions { min_p: -0.1, ..SamplingOptions::default() },
        SamplingOptions { repetition_penalty: 0.0, ..SamplingOptions::default() },
        SamplingOptions { presence_penalty: f32::INFINITY, ..SamplingOptions::default() },
        SamplingOptions { frequency_penalty: f32::NAN, ..SamplingOptions::default() },
        SamplingOptions { logit_bias: vec![(3, f32::NAN)], ..SamplingOptions::default() },
    ] {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}

/// Run by hand: `cargo test -p engine --release -- --ignored --nocapture time_of_a_token`
#[test]
#[ignore = "prints times; run it by hand"]
fn time_of_a_token() {
    const VOCABULARY: usize = 248_320;
    let mut random = random::SplitMix64::new(2);
    let bell = |random: &mut random::SplitMix64| (0..12).map(|_| random.next_unit()).sum::<f64>() - 6.0;
    let logits: Vec<f32> = (0..VOCABULARY).map(|_| (bell(&mut random) * 3.0) as f32).collect();
    let mask = mask_of((0..VOCABULARY as u32).filter(|id| id % 3 != 0), VOCABULARY);
    let base = SamplingOptions { temperature: 0.7, ..SamplingOptions::default() };
    let cases = [
        ("greedy", SamplingOptions::default()),
        ("temperature alone", base.clone()),
        ("top-k 20, top-p 0.8", SamplingOptions { top_k: 20, top_p: 0.8, ..base.clone() }),
        ("top-p 0.95", SamplingOptions { top_p: 0.95, ..base.clone() }),
        ("min-p 0.05", SamplingOptions { min_p: 0.05, ..base.clone() }),
        ("top-k 20, logprobs 5", SamplingOptions { top_k: 20, logprobs: Some(5), ..base.clone() }),
        ("top-k 20, penalties", SamplingOptions { top_k: 20, presence_penalty: 1.5, ..base.clone() }),
    ];
    for (name, sampling) in cases {
        for allowed in [None, Some(mask.as_slice())] {
            let mut sampler = Sampler::new(&sampling, 1);
            let mut logits = logits.clone();
            let start = std::time::Instant::now();
            for _ in 0..50 {
                let token = sampler.sample(&mut logits, allowed).unwrap().token;
                sampler.accept(token);
            }
            let each = start.elapsed().as_secs_f64() * 1e6 / 50.0;
            println!("{name:24} mask {:5} {each:8.0} µs", allowed.is_some());
        }
    }
}
