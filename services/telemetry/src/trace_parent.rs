//! Place of a request in a trace, as the header `traceparent` of W3C Trace Context writes it.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    is_sampled: bool,
}

impl TraceParent {
    /// Reads the header's text. `None`: it is not of this form, and the standard says to ignore it.
    pub fn read(text: &str) -> Option<TraceParent> {
        let mut fields = text.trim().split('-');
        let version = number(fields.next()?, 2)?;
        let (trace, span) = (number(fields.next()?, 32)?, number(fields.next()?, 16)?);
        let flags = number(fields.next()?, 2)?;
        // Later versions may add fields.
        let is_known = version != 0xff && (version != 0 || fields.next().is_none());
        let span = u64::try_from(span).ok()?;
        (is_known && trace != 0 && span != 0).then_some(TraceParent { trace, span, is_sampled: flags & 1 == 1 })
    }

    pub(crate) fn of(span: &SpanContext) -> TraceParent {
        TraceParent {
            trace: u128::from_be_bytes(span.trace_id().to_bytes()),
            span: u64::from_be_bytes(span.span_id().to_bytes()),
            is_sampled: span.is_sampled(),
        }
    }

    pub(crate) fn context(self) -> Context {
        let flags = if self.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let (trace, span) =
            (TraceId::from_bytes(self.trace.to_be_bytes()), SpanId::from_bytes(self.span.to_be_bytes()));
        Context::new().with_remote_span_context(SpanContext::new(trace, span, flags, true, TraceState::default()))
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

fn number(text: &str, digits: usize) -> Option<u128> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_number = text.len() == digits && text.bytes().all(is_hex);
    is_number.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OF_STANDARD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_standards_example_is_read_and_others_are_ignored() {
        let parent = TraceParent::read(OF_STANDARD).unwrap();
        assert_eq!(parent.to_string(), OF_STANDARD);
        assert!(TraceParent::read(&OF_STANDARD.replace("-01", "-00")).is_some_and(|parent| !parent.is_sampled));
        assert!(TraceParent::read(&OF_STANDARD.replacen("00", "cc", 1)).is_some());
        assert!(TraceParent::read(&format!("{}-more", OF_STANDARD.replacen("00", "01", 1))).is_some());
        for wrong in [
            "",
            "00",
            &OF_STANDARD.to_uppercase(),
            &OF_STANDARD.replacen("00", "ff", 1),
            &format!("{OF_STANDARD}-more"),
            &OF_STANDARD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &OF_STANDARD.replace("b7ad6b7169203331", &"0".repeat(16)),
            &OF_STANDARD.replace("b7ad", "+7ad"),
        ] {
            assert_eq!(TraceParent::read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(trace in 1u128.., span in 1u64.., is_sampled: bool) {
            let parent = TraceParent { trace, span, is_sampled };
            prop_assert_eq!(TraceParent::read(&parent.to_string()), Some(parent));
            let context = parent.context();
            prop_assert_eq!(TraceParent::of(context.span().span_context()), parent);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text: String) {
            let _ = TraceParent::read(&text);
        }
    }
}
