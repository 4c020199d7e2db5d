use crate::bootstrap::Statistic;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    FirstTokenMs,
    FirstTokenP95Ms,
    FirstSentenceMs,
    TotalMs,
    DecodeTokensPerSecond,
    TokensIn,
    TokensOut,
    FillShare,
    ReusedTokens,
    ComputedTokens,
    Compactions,
    Drops,
    BargeIns,
    Regenerations,
    ThumbsUp,
    Failures,
    Recall,
    SessionBytes,
    GpuBytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    Lower,
    Higher,
    Neither,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricUnit {
    Ms,
    TokensPerSecond,
    Tokens,
    Times, // how often a turn has one
    Share, // of all turns, or of a window
    Bytes,
}

use Better::{Higher, Lower, Neither};
use MetricUnit::{Bytes, Ms, Share, Times, Tokens, TokensPerSecond};
use Statistic::{Mean, Median, P95};

/// Words for people, the unit, the statistic of a comparison, and the better direction.
const FACTS: [(Metric, &str, MetricUnit, Statistic, Better); 19] = [
    (Metric::FirstTokenMs, "time to first token", Ms, Median, Lower),
    (Metric::FirstTokenP95Ms, "time to first token, p95", Ms, P95, Lower),
    (Metric::FirstSentenceMs, "time to first sentence", Ms, Median, Lower),
    (Metric::TotalMs, "time to the end", Ms, Median, Lower),
    (Metric::DecodeTokensPerSecond, "decode speed", TokensPerSecond, Median, Higher),
    (Metric::TokensIn, "tokens in", Tokens, Median, Neither),
    (Metric::TokensOut, "tokens out", Tokens, Median, Neither),
    (Metric::FillShare, "fill", Share, Median, Neither),
    (Metric::ReusedTokens, "tokens reused", Tokens, Median, Neither),
    (Metric::ComputedTokens, "tokens computed", Tokens, Median, Lower),
    (Metric::Compactions, "compactions a turn", Times, Mean, Lower),
    (Metric::Drops, "drops a turn", Times, Mean, Lower),
    (Metric::BargeIns, "turns barged into", Share, Mean, Lower),
    (Metric::Regenerations, "turns asked again", Share, Mean, Lower),
    (Metric::ThumbsUp, "thumbs up", Share, Mean, Higher),
    (Metric::Failures, "turns that failed", Share, Mean, Lower),
    (Metric::Recall, "facts recalled", Share, Mean, Higher),
    (Metric::SessionBytes, "memory of the session", Bytes, Median, Lower),
    (Metric::GpuBytes, "GPU memory", Bytes, Median, Lower),
];

impl Metric {
    pub fn all() -> impl Iterator<Item = Metric> {
        FACTS.into_iter().map(|(metric, ..)| metric)
    }

    pub fn words(self) -> &'static str {
        FACTS[self as usize].1
    }

    pub fn unit(self) -> MetricUnit {
        FACTS[self as usize].2
    }

    pub fn statistic(self) -> Statistic {
        FACTS[self as usize].3
    }

    pub fn better(self) -> Better {
        FACTS[self as usize].4
    }

    /// Returns true for times, which the first turn after a start distorts.
    pub fn is_time(self) -> bool {
        matches!(self.unit(), Ms | TokensPerSecond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_stand_in_the_order_of_the_metrics() {
        assert!(Metric::all().enumerate().all(|(at, metric)| metric as usize == at));
    }
}
