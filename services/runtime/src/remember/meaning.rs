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
    vector: Vec<i8>,
    // Of its tokens, as the encoder tells them.
    states: Vec<f32>,
    meant: Meant,
    // Its clauses, where each says something lasting by itself: each is a fact, and the sentence is none.
    clauses: Vec<MeantSentence>,
}

// Place of a sentence that is looked at.
struct Heard<'a> {
    encoder: Option<&'a Arc<Encoder>>,
    user: &'a str,
    source: &'a SaidMessage,
    place: SaidAt<'a>,
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
        let said_in = |told: &MeantSentence| {
            [&told.meant]
                .into_iter()
                .chain(told.clauses.iter().map(|part| &part.meant))
                .filter_map(statement)
                .collect::<Vec<_>>()
        };
        let kept: Vec<FactChange> = told.iter().flat_map(said_in).map(FactChange::Keep).collect();
        let mut remembered = self.known(session.user(), person, kept.iter()).await?;
        if let Some(encoder) = encoder {
            self.add_vectors(&mut remembered, encoder, session.user(), person).await?;
        }
        let items: Vec<&str> = said.iter().map(|message| message.item_id.as_str()).collect();
        let by_the_way = self.store.facts_by_the_way(session, &items).await?;
        let mut left = self.settings.remember.facts_per_message.saturating_mul(said.len());
        for told in told {
            let source = &said[told.message];
            let said_before = told.message.checked_sub(1).map(|at| &said[at]).or(before);
            let heard = Heard { encoder, user: session.user(), source, place: SaidAt::of(silent, source) };
            let is_it = |fact: &&store::RememberedFact| {
                fact.item_id.as_ref() == Some(&source.item_id) && fact.text.trim() == told.sentence.trim()
            };
            let kept_by_words: Vec<String> = by_the_way.iter().filter(is_it).map(|fact| fact.id.clone()).collect();
            if left == 0 {
                break;
            }
            left -= 1;
            match &told.meant {
                Meant::Keep(statement) => remembered.keep(statement.clone(), FoundBy::Words, &heard.place)?,
                Meant::Lasting(statement, _) if learns && told.clauses.is_empty() => {
                    self.keep_lasting(&heard, &told, statement.clone(), &mut remembered).await?;
                }
                Meant::Lasting(..) if learns => {
                    remembered.drop_all(kept_by_words);
                    left = (left + 1).saturating_sub(told.clauses.len());
                    self.keep_clauses(&heard, &told, &mut remembered).await?;
                }
                // A message whose wish words have carried out is hidden. Without an encoder no other wish finds its fact.
                Meant::Forget(what) if let Some(encoder) = encoder => {
                    match said_before.filter(|_| what.is_empty()) {
                        Some(before) => remembered.forget_said_in(&before.item_id),
                        None => {
                            let search = told.search(encoder, None);
                            read_near(encoder, &search, &mut remembered, source, MOST_NEAR).await;
                            remembered.forget_meant(&search, source);
                        }
                    }
                    // Words may have taken the wish for a fact.
                    remembered.changes.dropped.extend(kept_by_words);
                    remembered.unsay(session.id(), &source.item_id);
                }
                Meant::Nothing | Meant::Secret => {
                    remembered.changes.dropped.extend(kept_by_words);
                    left += 1;
                }
                _ => left += 1,
            }
        }
        Ok(remembered)
    }

    // Keeps `statement`, in the place of the fact that the sentence corrects. Returns true if it corrects one.
    async fn keep_lasting(
        &self,
        heard: &Heard<'_>,
        told: &MeantSentence,
        statement: Statement,
        remembered: &mut Remembered,
    ) -> Result<bool, Error> {
        let Meant::Lasting(own, share) = &told.meant else { return Ok(false) };
        // Words may have found what it corrects: it takes the place of nothing else.
        if let Some(known) = remembered.known_as(&statement.text)
            && self.store.has_replaced(heard.user, known).await?
        {
            return Ok(true);
        }
        let replaced = remembered.changes.replaced.len();
        match heard.encoder {
            Some(encoder) => {
                let search = told.search(encoder, Some(Correction::new(own, *share)));
                read_near(encoder, &search, remembered, heard.source, MOST_NEAR).await;
                if remembered.correct(statement, &search, &heard.place)? {
                    crate::metrics::unsure_correction();
                }
            }
            None => remembered.keep(statement, FoundBy::Words, &heard.place)?,
        }
        Ok(remembered.changes.replaced.len() > replaced)
    }

    // Keeps each clause. 'The neighbours have moved out, and a family called Roth has the flat': the sentence as a whole corrects a fact,
    // and its last clause says what is so now. Where it corrects none, a clause may.
    async fn keep_clauses(
        &self,
        heard: &Heard<'_>,
        told: &MeantSentence,
        remembered: &mut Remembered,
    ) -> Result<(), Error> {
        let statements = told.clauses.iter().filter_map(|clause| Some((clause, statement(&clause.meant)?)));
        let Some((_, last)) = statements.clone().next_back() else { return Ok(()) };
        let corrects = self.keep_lasting(heard, told, last, remembered).await?;
        for (clause, statement) in statements {
            match corrects {
                true => remembered.keep(statement, FoundBy::Words, &heard.place)?,
                false => drop(self.keep_lasting(heard, clause, statement, remembered).await?),
            }
        }
        Ok(())
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

impl MeantSentence {
    fn search(&self, encoder: &Encoder, correction: Option<Correction>) -> FactSearch<'_> {
        FactSearch::new(encoder, &self.sentence, correction, &self.vector, &self.states)
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
        let is_lasting = |told: &MeantSentence| matches!(told.meant, Meant::Lasting(..));
        let parts = clauses(&whole.sentence);
        if is_lasting(&whole) && parts.len() > 1 {
            let parts = parts.into_iter().map(|part| (whole.message, part)).collect();
            whole.clauses = tell_each(encoder, parts).await;
            whole.clauses.truncate(if whole.clauses.iter().all(is_lasting) { usize::MAX } else { 0 });
        }
        told.push(whole);
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
        let vector = rounded(&encoded.vector);
        MeantSentence { message, sentence, vector, states: encoded.tokens, meant, clauses: Vec::new() }
    });
    told.collect()
}
