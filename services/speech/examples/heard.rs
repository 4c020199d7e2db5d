//! Words heard beside words stored: `cargo run -p speech --example heard FOLDER` cuts speech at random times. The folder
//! has N.wav and N.txt as `tests/clients/espeak_words.py` writes them: the text, then a line for each word with the
//! time at which it begins.

use speech::{Resampler, SpokenText, WordTime, wav};
use std::path::Path;

const RATE: u32 = 24_000;
const CUTS: u64 = 1000;

struct Sentence {
    text: String,
    samples: Vec<i16>,
    // Begin of each word in milliseconds, the word, and its end in characters.
    words: Vec<(u64, String, usize)>,
}

fn main() {
    let folder = std::env::args().nth(1).expect("a folder");
    let sentences: Vec<Sentence> = (0..).map_while(|at| read(Path::new(&folder), at)).collect();
    for tells_words in [true, false] {
        cut(&sentences, tells_words);
    }
}

fn cut(sentences: &[Sentence], tells_words: bool) {
    let (mut right, mut within_one, mut seed) = (0, 0, 7_u64);
    for cut in 0..CUTS {
        let sentence = &sentences[cut as usize % sentences.len()];
        let mut spoken = SpokenText::new(RATE, 17.0);
        spoken.begin(0, &sentence.text);
        for (start_ms, word, _) in sentence.words.iter().filter(|_| tells_words) {
            spoken.mark(&WordTime { word: word.clone(), start_ms: *start_ms, end_ms: None });
        }
        spoken.push(&sentence.samples);
        spoken.end();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let ms = (seed >> 33) % spoken.ms().max(1);
        let stored = spoken.heard_chars(ms);
        // A word that has begun may stay or go.
        let begun = sentence.words.iter().filter(|(begins, ..)| *begins <= ms).count();
        let kept = sentence.words.iter().filter(|(.., end)| *end <= stored).count();
        right += u64::from(kept == begun || kept + 1 == begun);
        within_one += u64::from(kept <= begun + 1 && kept + 2 >= begun);
    }
    let how = if tells_words { "the voice tells its words" } else { "it does not" };
    println!("{CUTS} cuts in {} sentences, {how}: {right} exact, {within_one} within one word", sentences.len());
}

fn read(folder: &Path, at: usize) -> Option<Sentence> {
    let audio = wav::read(&std::fs::read(folder.join(format!("{at}.wav"))).ok()?)?;
    let mut resampler = Resampler::new(audio.rate, RATE)?;
    let mut samples = resampler.push(&audio.samples);
    samples.extend(resampler.finish());
    let lines = std::fs::read_to_string(folder.join(format!("{at}.txt"))).ok()?;
    let mut lines = lines.lines();
    let text = lines.next()?.to_owned();
    let mut from = 0;
    let mut words = Vec::new();
    for line in lines {
        let (begins, word) = line.split_once(' ')?;
        from += text[from..].find(word)? + word.len();
        // A mark belongs to the word before it.
        let marks = text[from..].chars().take_while(|letter| !letter.is_whitespace()).count();
        words.push((begins.parse().ok()?, word.to_owned(), text[..from].chars().count() + marks));
    }
    Some(Sentence { text, samples, words })
}
