//! Facts, corrections and wishes to forget that are told by meaning, when a conversation has fallen silent.

use super::change::{MOST_NEAR, Remembered, SaidAt, said_by};
use super::fact_search::{Correction, FactSearch};
use super::news::LearnedFacts;
use crate::clock::wall_ms;
use crate::encode::encode_tokens;
use crate::fact_block::owners;
use crate::facts::{index_facts, index_vectors, put_vectors};
use crate::shared::Shared;
use encoder::{EncodedText, Encoder, rounded};
use remember::{
    FactChange, Heads, Meant, Statement, TextSide, as_one, clauses, forgets, is_only_told, meant, sentences,
};
use settings::Learn;
use std::sync::Arc;
use store::{Error, FoundBy, HeardThrough, SaidMessage, UnheardSession};

const MESSAGES_AT_ONCE: u32 = 16;
/// Sentences of a message that are looked at: one that has more was pasted.
const MOST_SENTENCES: usize = 16;
/// Facts that are read while a user may wait.
const READ_AT_ONCE: usize = 4;
// Facts that are compared token by token while a user may wait.
const NEAR_AT_ONCE: usize = 8;

struct MeantSentence {
    message: usize,
    sentence: String,
    encoded: EncodedText,
    meant: Meant,
    // Sentence of which it is a clause. The words may have kept that whole.
    part_of: Option<String>,
}

impl Shared {
    /// Looks through what was said in a conversation by what kind of saying it is. Without an encoder, the heads on words tell that,
    /// and no fact is found by its meaning.
    pub async fn hear_by_meaning(&self, silent: &UnheardSession, learned: &mut LearnedFacts) -> Result<(), Error> {
        let encoder = self.encoding.open().await;
        let encoder = encoder.as_ref();
        let (session, mut seq) = (&silent.session, silent.meant_seq);
        index_vectors(&self.store, encoder).await?;
        loop {
            let mut said = self.store.said_since(session, seq, MESSAGES_AT_ONCE).await?;
            let person = said.first().map_or(silent.person.as_str(), |first| said_by(silent, first)).to_owned();
            said.truncate(said.iter().take_while(|message| said_by(silent, message) == person).count());
            let Some(last) = said.last().map(|last| last.seq) else { return Ok(()) };
            let before = self.store.said_before(session, seq).await?;
            let before = before.filter(|before| said_by(silent, before) == person);
            let told = tell(encoder, &said).await;
            let remembered = self.change_by_meaning(encoder, silent, &person, &said, before.as_ref(), told).await?;
            learned.add(&remembered);
            self.store.remember(session, remembered.changes, HeardThrough::Meaning(last), wall_ms()).await?;
            index_facts(&self.store).await?;
            index_vectors(&self.store, encoder).await?;
            seq = last;
        }
    }

    async fn change_by_meaning(
        &self,
        encoder: Option<&Arc<Encoder>>,
        silent: &UnheardSession,
        person: &str,
        said: &[SaidMessage],
        before: Option<&SaidMessage>,
        told: Vec<MeantSentence>,
    ) -> Result<Remembered, Error> {
        let session = &silent.session;
        // Without an encoder, a model that reads what was said puts it better than it was said.
        let learns = match self.preset_of(silent).remember.learn {
            Learn::Off => false,
            Learn::Model => encoder.is_some(),
            Learn::Words => true,
        };
        let kept: Vec<FactChange> =
            told.iter().filter_map(|told| statement(&told.meant)).map(FactChange::Keep).collect();
        let mut remembered = self.known(session.user(), person, kept.iter()).await?;
        if let Some(encoder) = encoder {
            self.add_vectors(&mut remembered, encoder, session.user(), person).await?;
        }
        let items: Vec<&str> = said.iter().map(|message| message.item_id.as_str()).collect();
        let by_the_way = self.store.facts_by_the_way(session, &items).await?;
        let mut left = self.settings.remember.facts_per_message.saturating_mul(said.len());
        for MeantSentence { message, sentence, encoded, meant, part_of } in told {
            let (source, said_before) = (&said[message], message.checked_sub(1).map(|at| &said[at]).or(before));
            let place = SaidAt::of(silent, source);
            let is_it = |fact: &&store::RememberedFact| {
                fact.item_id.as_ref() == Some(&source.item_id) && fact.text.trim() == sentence.trim()
            };
            let wrongly_kept = by_the_way.iter().filter(is_it).map(|fact| fact.id.clone());
            if left == 0 {
                break;
            }
            if let Some(whole) = part_of.filter(|_| learns) {
                let is_whole = |fact: &&store::RememberedFact| {
                    fact.item_id.as_ref() == Some(&source.item_id) && fact.text.trim() == whole
                };
                remembered.drop_all(by_the_way.iter().filter(is_whole).map(|fact| fact.id.clone()).collect());
            }
            let vector = rounded(&encoded.vector);
            let seek = async |correction: Option<Correction>, remembered: &mut Remembered| {
                let encoder = encoder?;
                let search = FactSearch::new(encoder, &sentence, correction, &vector, &encoded.tokens);
                read_near(encoder, &search, remembered, source, MOST_NEAR).await;
                Some(search)
            };
            match meant {
                Meant::Keep(statement) => {
                    remembered.keep(statement, FoundBy::Words, &place)?;
                    left -= 1;
                }
                Meant::Lasting(statement, share) if learns => {
                    left -= 1;
                    // Words may have found what it corrects: it takes the place of nothing else.
                    if let Some(known) = remembered.known_as(&statement.text)
                        && self.store.has_replaced(session.user(), known).await?
                    {
                        continue;
                    }
                    match seek(Some(Correction::new(&statement, share)), &mut remembered).await {
                        Some(search) => {
                            if remembered.correct(statement, &search, &place)? {
                                crate::metrics::unsure_correction();
                            }
                        }
                        None => remembered.keep(statement, FoundBy::Words, &place)?,
                    }
                }
                // A message whose wish words have carried out is hidden. Without an encoder no other wish finds its fact.
                Meant::Forget(what) if encoder.is_some() => {
                    match said_before.filter(|_| what.is_empty()) {
                        Some(before) => remembered.forget_said_in(&before.item_id),
                        None => {
                            if let Some(search) = seek(None, &mut remembered).await {
                                remembered.forget_meant(&search, source);
                            }
                        }
                    }
                    // Words may have taken the wish for a fact.
                    remembered.changes.dropped.extend(wrongly_kept);
                    remembered.unsay(session.id(), &source.item_id);
                    left -= 1;
                }
                Meant::Nothing | Meant::Secret => remembered.changes.dropped.extend(wrongly_kept),
                _ => {}
            }
        }
        Ok(remembered)
    }

    /// Forgets the fact that a wish means by its meaning, where its words found none. Returns false if the wish waits for the
    /// silence: a user may wait for this, and the encoder is closed or has more facts to read.
    pub(super) async fn forget_by_meaning(
        &self,
        remembered: &mut Remembered,
        user: &str,
        person: &str,
        what: &str,
        source: &SaidMessage,
    ) -> Result<bool, Error> {
        let Some(encoder) = self.encoding.ready() else { return Ok(false) };
        if !remembered.has_vectors() {
            let unread = self.store.facts_without_vector(encoder.name()).await?;
            if unread.len() > READ_AT_ONCE {
                return Ok(false);
            }
            put_vectors(&self.store, &encoder, unread).await?;
            self.add_vectors(remembered, &encoder, user, person).await?;
        }
        if let Some(encoded) = encode_tokens(&encoder, vec![what.to_owned()]).await.first() {
            let vector = rounded(&encoded.vector);
            let search = FactSearch::new(&encoder, what, None, &vector, &encoded.tokens);
            read_near(&encoder, &search, remembered, source, NEAR_AT_ONCE).await;
            remembered.forget_meant(&search, source);
        }
        Ok(true)
    }

    async fn add_vectors(
        &self,
        remembered: &mut Remembered,
        encoder: &Encoder,
        user: &str,
        person: &str,
    ) -> Result<(), Error> {
        for owner in owners(person) {
            let most = self.settings.remember.facts;
            remembered.add_vectors(self.store.fact_vectors(user, owner, encoder.name(), most).await?);
        }
        Ok(())
    }
}

/// Reads the tokens of the `most` nearest facts that a sentence may mean.
async fn read_near(
    encoder: &Arc<Encoder>,
    search: &FactSearch<'_>,
    remembered: &mut Remembered,
    source: &SaidMessage,
    most: usize,
) {
    let Some((matcher, _)) = search.matched else { return };
    let (ids, texts): (Vec<String>, Vec<String>) = remembered.unread(search, source, most).into_iter().unzip();
    if texts.is_empty() {
        return;
    }
    let read = encode_tokens(encoder, texts).await;
    let tokens = read.iter().map(|text| matcher.tokens(TextSide::Fact, &text.tokens));
    remembered.add_tokens(ids.into_iter().zip(tokens).collect());
}

fn statement(meant: &Meant) -> Option<Statement> {
    match meant {
        Meant::Keep(statement) | Meant::Lasting(statement, _) => Some(statement.clone()),
        Meant::Forget(_) | Meant::Nothing | Meant::Secret | Meant::Unclear => None,
    }
}

/// Tells what each sentence means: each of its clauses, where each says something lasting. Where no sentence of a short message says
/// anything, the heads judge the whole message.
async fn tell(encoder: Option<&Arc<Encoder>>, said: &[SaidMessage]) -> Vec<MeantSentence> {
    let of_message = |(at, message): (usize, &SaidMessage)| {
        let parts = sentences(&message.text).into_iter().take(MOST_SENTENCES);
        parts.map(|sentence| (at, sentence.to_owned())).collect::<Vec<_>>()
    };
    let sentences: Vec<(usize, String)> = said.iter().enumerate().flat_map(of_message).collect();
    let only_told: Vec<bool> = said.iter().map(|message| is_only_told(&message.text)).collect();
    let mut told = Vec::new();
    for mut whole in tell_each(encoder, sentences).await {
        if only_told[whole.message] && matches!(whole.meant, Meant::Lasting(..)) {
            whole.meant = Meant::Nothing;
        }
        let parts = clauses(&whole.sentence);
        let is_lasting = |told: &MeantSentence| matches!(told.meant, Meant::Lasting(..));
        if !is_lasting(&whole) || parts.len() == 1 {
            told.push(whole);
            continue;
        }
        let parts = tell_each(encoder, parts.into_iter().map(|part| (whole.message, part)).collect()).await;
        match parts.iter().all(is_lasting) {
            true => told
                .extend(parts.into_iter().map(|part| MeantSentence { part_of: Some(whole.sentence.clone()), ..part })),
            false => told.push(whole),
        }
    }
    // A secret stays one.
    let says_something = |told: &MeantSentence| !matches!(told.meant, Meant::Nothing | Meant::Unclear);
    let saying: Vec<usize> = told.iter().filter(|told| says_something(told)).map(|told| told.message).collect();
    let silent = said.iter().enumerate().filter(|(at, _)| !saying.contains(at));
    let wholes = silent.filter_map(|(at, message)| Some((at, as_one(&message.text)?.to_owned())));
    let wholes = tell_each(encoder, wholes.collect()).await;
    let is_lasting = |told: &MeantSentence| matches!(told.meant, Meant::Lasting(..)) && !only_told[told.message];
    told.extend(wholes.into_iter().filter(is_lasting));
    told.sort_by_key(|told| told.message);
    told
}

async fn tell_each(encoder: Option<&Arc<Encoder>>, said: Vec<(usize, String)>) -> Vec<MeantSentence> {
    let mut encoded = match encoder {
        Some(encoder) => encode_tokens(encoder, said.iter().map(|(_, sentence)| sentence.clone()).collect()).await,
        None => Vec::new(),
    };
    encoded.resize_with(said.len(), EncodedText::default);
    let heads = encoder.and_then(|encoder| Heads::of(encoder.name()));
    let told = said.into_iter().zip(encoded).map(|((message, sentence), encoded)| {
        let meant = match forgets(&sentence) {
            Some("") => Meant::Unclear,
            Some(_) => Meant::Forget(sentence.clone()),
            None => meant(&sentence, heads.map(|heads| (heads, &*encoded.vector))),
        };
        MeantSentence { message, sentence, encoded, meant, part_of: None }
    });
    told.collect()
}
