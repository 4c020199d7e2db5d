//! Audio without sockets and clocks: samples and milliseconds in, events out.
//!
//! [`Hearing`] keeps what a microphone sends, and says when a user begins and ends to speak. [`SpokenText`] knows which
//! words of a reply lie at which sample, and [`Playback`] how far a client has played them. [`Resampler`], [`g711`] and
//! [`wav`] change the form of audio.
//!
//! ```
//! use speech::{Detection, Hearing, HEARD_RATE, TurnEvent};
//!
//! let mut hearing = Hearing::new(Detection::silence(0.5, 300, 500), 60 * u64::from(HEARD_RATE));
//! let events = hearing.hear(&[0; 16_000]);
//! assert_eq!(events, []);
//! assert_eq!(hearing.heard_ms(), 1000);
//! ```
//!
//! The crate knows no protocol: positions are samples, counted from the first one.

pub mod g711;
mod hearing;
mod meaning;
pub mod pcm;
mod playback;
mod resample;
mod spoken;
mod turns;
mod vowel;
pub mod wav;

pub use hearing::{HeardAudio, Hearing};
pub use meaning::{TurnEnding, ending_of};
pub use playback::Playback;
pub use resample::{RATES, Resampler};
pub use spoken::{SpokenText, WordTime};
pub use turns::{Detection, TurnDetector, TurnEvent, TurnWaits};
pub use vowel::vowel;

/// Samples a second of all audio that is heard: ears and the detector of voice take it.
pub const HEARD_RATE: u32 = 16_000;

pub fn ms_of(samples: u64, rate: u32) -> u64 {
    samples * 1000 / u64::from(rate.max(1))
}

pub fn samples_of(ms: u64, rate: u32) -> u64 {
    ms.saturating_mul(u64::from(rate)) / 1000
}
