use crate::bootstrap::Interval;

/// Computes Wilson's interval at 95 in 100, which stays within 0 and 1 and is right also for a share of 0 or 1.
pub fn wilson(hits: usize, of: usize) -> Option<Interval> {
    if of == 0 {
        return None;
    }
    let z = NORMAL_97_5;
    let (n, share) = (of as f64, hits as f64 / of as f64);
    let scale = 1.0 + z * z / n;
    let middle = (share + z * z / (2.0 * n)) / scale;
    let half = z / scale * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    Some(Interval { estimate: share, low: (middle - half).max(0.0), high: (middle + half).min(1.0) })
}

const NORMAL_97_5: f64 = 1.959_963_984_540_054; // a normal value stays below it in 97.5 of 100 cases
