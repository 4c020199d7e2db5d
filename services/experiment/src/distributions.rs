//! Tails and quantiles of the distributions that the tests here need. To about twelve digits, which a golden of SciPy holds.

/// How likely a chi-square value is at least this large, where nothing is behind it.
pub fn chi_square_tail(value: f64, degrees: f64) -> f64 {
    gamma_tail(degrees / 2.0, value / 2.0)
}

pub fn normal_cdf(z: f64) -> f64 {
    let tail = gamma_tail(0.5, z * z / 2.0) / 2.0;
    if z < 0.0 { tail } else { 1.0 - tail }
}

/// The value that Student's t stays below with this probability.
pub fn student_quantile(probability: f64, degrees: f64) -> f64 {
    let (mut low, mut high) = (-1.0, 1.0);
    while student_cdf(low, degrees) > probability {
        low *= 2.0;
    }
    while student_cdf(high, degrees) < probability {
        high *= 2.0;
    }
    // By halves: each step a bit, until no number lies between.
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if student_cdf(middle, degrees) < probability { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

fn student_cdf(t: f64, degrees: f64) -> f64 {
    let square = t * t;
    // Near the middle and in the tails by what is small there, or its digits would be lost.
    if square < degrees {
        return 0.5 + t.signum() / 2.0 * beta_share(square / (degrees + square), 0.5, degrees / 2.0);
    }
    let tail = beta_share(degrees / (degrees + square), degrees / 2.0, 0.5) / 2.0;
    if t < 0.0 { tail } else { 1.0 - tail }
}

/// The upper incomplete gamma function, as a share of the whole.
fn gamma_tail(shape: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let factor = (shape * x.ln() - x - ln_gamma(shape)).exp();
    if x < shape + 1.0 {
        let (mut term, mut sum, mut next) = (1.0 / shape, 1.0 / shape, shape);
        while term > sum * EPSILON {
            next += 1.0;
            term *= x / next;
            sum += term;
        }
        return 1.0 - sum * factor;
    }
    // A continued fraction from its head, as Lentz wrote it down.
    let mut b = x + 1.0 - shape;
    let (mut c, mut d) = (1.0 / TINY, 1.0 / b);
    let mut fraction = d;
    for i in 1..STEPS {
        let a = -f64::from(i) * (f64::from(i) - shape);
        b += 2.0;
        d = 1.0 / nonzero(a * d + b);
        c = nonzero(b + a / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < EPSILON {
            break;
        }
    }
    factor * fraction
}

/// The incomplete beta function up to `x`, as a share of the whole.
fn beta_share(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction below converges where x is small.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_share(1.0 - x, b, a);
    }
    let factor = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    let (mut c, mut d) = (1.0, 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for i in 1..STEPS {
        let m = f64::from(i);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / nonzero(1.0 + even * d);
        c = nonzero(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / nonzero(1.0 + odd * d);
        c = nonzero(1.0 + odd / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < EPSILON {
            break;
        }
    }
    factor * fraction
}

/// By Stirling's series, where it is exact; smaller numbers are brought there.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 15.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let y = 1.0 / (x * x);
    let series = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y * (1.0 / 1680.0 - y / 1188.0)))) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

fn nonzero(value: f64) -> f64 {
    if value.abs() < TINY { TINY } else { value }
}

const EPSILON: f64 = 1e-16;
const TINY: f64 = 1e-300;
const STEPS: i32 = 10_000;
