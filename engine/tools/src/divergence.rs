//! Distances between two models' predictions of the next token, of their logits.

/// Computes the Kullback-Leibler divergence of the second distribution from the first, in nats, both as logits.
pub fn divergence(exact: &[f32], theirs: &[f32]) -> f64 {
    let (of_exact, of_theirs) = (whole(exact), whole(theirs));
    let terms = exact.iter().zip(theirs).map(|(exact, theirs)| {
        let exact = f64::from(*exact) - of_exact;
        exact.exp() * (exact - (f64::from(*theirs) - of_theirs))
    });
    let sum = terms.sum::<f64>();
    // A rounding error may lie below zero; what is no number stays none.
    if sum < 0.0 { 0.0 } else { sum }
}

pub fn surprise(logits: &[f32], token: u32) -> f64 {
    logits.get(token as usize).map_or(f64::NAN, |logit| whole(logits) - f64::from(*logit))
}

pub fn top(logits: &[f32]) -> Option<usize> {
    logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(at, _)| at)
}

/// Computes the logarithm of the sum of all exponentials.
fn whole(logits: &[f32]) -> f64 {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + logits.iter().map(|logit| (f64::from(*logit) - most).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_that_differ_diverge() {
        let logits = [1.0, 2.0, -3.0];
        let shifted = logits.map(|logit| logit + 5.0);
        assert!(divergence(&logits, &shifted) < 1e-12, "a shift is no difference");
        // Two outcomes, 3:1 against 1:1.
        let expected = 0.75 * (0.75f64 / 0.5).ln() + 0.25 * (0.25f64 / 0.5).ln();
        assert!((divergence(&[3f32.ln(), 0.0], &[0.0, 0.0]) - expected).abs() < 1e-6);
        assert!((surprise(&[3f32.ln(), 0.0], 1) - 4f64.ln()).abs() < 1e-6);
        assert_eq!(top(&logits), Some(1));
        assert!(divergence(&[f32::NAN, 0.0], &logits[..2]).is_nan());
    }
}
