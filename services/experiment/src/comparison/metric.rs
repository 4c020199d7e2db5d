//! What is measured of a turn.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
    Neither,
}

impl Metric {
    pub const ALL: [Metric; 19] = [
        Metric::FirstTokenMs,
        Metric::FirstTokenP95Ms,
        Metric::FirstSentenceMs,
        Metric::TotalMs,
        Metric::DecodeTokensPerSecond,
        Metric::TokensIn,
        Metric::TokensOut,
        Metric::FillShare,
        Metric::ReusedTokens,
        Metric::ComputedTokens,
        Metric::Compactions,
        Metric::Drops,
        Metric::BargeIns,
        Metric::Regenerations,
        Metric::ThumbsUp,
        Metric::Failures,
        Metric::Recall,
        Metric::SessionBytes,
        Metric::GpuBytes,
    ];

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Metric::FirstTokenMs => "time to first token",
            Metric::FirstTokenP95Ms => "time to first token, p95",
            Metric::FirstSentenceMs => "time to first sentence",
            Metric::TotalMs => "time to the end",
            Metric::DecodeTokensPerSecond => "decode speed",
            Metric::TokensIn => "tokens in",
            Metric::TokensOut => "tokens out",
            Metric::FillShare => "fill",
            Metric::ReusedTokens => "tokens reused",
            Metric::ComputedTokens => "tokens computed",
            Metric::Compactions => "compactions a turn",
            Metric::Drops => "drops a turn",
            Metric::BargeIns => "turns barged into",
            Metric::Regenerations => "turns asked again",
            Metric::ThumbsUp => "thumbs up",
            Metric::Failures => "turns that failed",
            Metric::Recall => "facts recalled",
            Metric::SessionBytes => "memory of the session",
            Metric::GpuBytes => "GPU memory",
        }
    }

    /// What stands for many turns in a comparison.
    pub fn statistic(self) -> Statistic {
        match self {
            Metric::FirstTokenP95Ms => Statistic::P95,
            Metric::Compactions
            | Metric::Drops
            | Metric::BargeIns
            | Metric::Regenerations
            | Metric::ThumbsUp
            | Metric::Failures
            | Metric::Recall => Statistic::Mean,
            _ => Statistic::Median,
        }
    }

    pub fn better(self) -> Better {
        match self {
            Metric::DecodeTokensPerSecond | Metric::ThumbsUp | Metric::Recall => Better::Higher,
            Metric::TokensIn | Metric::TokensOut | Metric::FillShare | Metric::ReusedTokens => Better::Neither,
            _ => Better::Lower,
        }
    }

    /// Whether its values are times, which the first turn after a start distorts.
    pub fn is_time(self) -> bool {
        matches!(
            self,
            Metric::FirstTokenMs
                | Metric::FirstTokenP95Ms
                | Metric::FirstSentenceMs
                | Metric::TotalMs
                | Metric::DecodeTokensPerSecond
        )
    }
}
