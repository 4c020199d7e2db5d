//! `reprise bench home`: a home that talks in the evening, and again the next morning after a restart.

pub(super) mod household;
mod side;

use super::BenchOutput;
use super::chat::ChatPlayer;
use super::service::BenchTarget;
use super::steps::{Filler, Opening, TurnCost};
use crate::charts::{Chart, Series};
use anyhow::{Context, Result, anyhow, bail};
use experiment::median;
use household::{ROOMS, shuffled, system, tools};
use indicatif::ProgressBar;
use model::{Model, resolve};
use serde::Serialize;
use serde_json::{Value, json};
use session::{JsonText, Message, MessageRole, Prompt, Tool};
use settings::Settings;
use side::Side;
use std::ffi::OsString;
use std::time::Duration;
use terminal::output::progress_bar;

/// Plays a home: an evening, a restart, a morning, several rooms, and measures each first turn
///
/// A client such as Home Assistant forgets a conversation after five minutes and begins a new one with the same long
/// prompt and the same tools. Each row is the first turn of such a conversation; the ratio is to an ordinary turn of
/// the same service. All turns go over chat completions. Without --url the service is killed and started again, as by a
/// power cut, on the same store, and puts tools into the order of their names.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: BenchTarget,
    /// Tokens, about, of the system prompt; the tools come on top
    #[arg(long, default_value_t = 6_000)]
    prompt: usize,
    #[arg(long, default_value_t = 30)]
    tools: usize,
    /// Turns of the evening's conversation
    #[arg(long, default_value_t = 6)]
    turns: usize,
    /// Times each first turn is played: the table has medians
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Number of conversations with prompts of their own that come between, a third as long
    #[arg(long, default_value_t = 3)]
    others: usize,
    /// Tokens of a reply
    #[arg(long, default_value_t = 24)]
    reply: usize,
    /// Seconds of silence before a turn
    #[arg(long, default_value_t = 1.0)]
    pause: f64,
    /// Seconds of silence before the service is killed
    #[arg(long, default_value_t = 4.0)]
    pause_before_restart: f64,
    /// Seconds after which a silent service is given up
    #[arg(long, default_value_t = 600)]
    patience: u64,
    /// Another OpenAI-compatible server with the same model, to compare with
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// Command that starts that server, so that it can be restarted as well. Without it the peer has no rows after a
    /// restart
    #[arg(long, value_name = "COMMAND", requires = "peer")]
    peer_command: Option<String>,
    #[command(flatten)]
    output: BenchOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum HomeCase {
    FirstEver,
    OrdinaryTurn,
    NewConversation,
    AfterOthers,
    NewRoom,
    KnownRoom,
    AfterRestart,
    OrdinaryAfterRestart,
    OtherRoomAfterRestart,
    ToolsReordered,
}

impl HomeCase {
    const ALL: [HomeCase; 10] = [
        HomeCase::FirstEver,
        HomeCase::OrdinaryTurn,
        HomeCase::NewConversation,
        HomeCase::AfterOthers,
        HomeCase::NewRoom,
        HomeCase::KnownRoom,
        HomeCase::AfterRestart,
        HomeCase::OrdinaryAfterRestart,
        HomeCase::OtherRoomAfterRestart,
        HomeCase::ToolsReordered,
    ];

    fn words(self) -> &'static str {
        match self {
            HomeCase::FirstEver => "evening: the first turn ever",
            HomeCase::OrdinaryTurn => "evening: an ordinary turn",
            HomeCase::NewConversation => "a new conversation",
            HomeCase::AfterOthers => "a new conversation after others with other prompts",
            HomeCase::NewRoom => "a room that was never heard before",
            HomeCase::KnownRoom => "a room that was heard before",
            HomeCase::AfterRestart => "morning: the first turn after a restart",
            HomeCase::OrdinaryAfterRestart => "morning: an ordinary turn",
            HomeCase::OtherRoomAfterRestart => "morning: the first turn in another room",
            HomeCase::ToolsReordered => "tools in another order",
        }
    }

    /// Most ordinary turns that a turn may take; `None` for no limit.
    fn limit(self) -> Option<f64> {
        match self {
            HomeCase::FirstEver | HomeCase::OrdinaryTurn | HomeCase::NewRoom => None,
            _ => Some(MOST_ORDINARY_TURNS),
        }
    }
}

const MOST_ORDINARY_TURNS: f64 = 1.3; // most ordinary turns that a first turn may take
const OTHER_PROMPTS_PART: usize = 3; // divisor of the home's entities in other prompts
const MORNING_TURNS: usize = 3; // ordinary turns after each restart

#[derive(Clone, Debug, Serialize)]
struct HomeTurn {
    case: HomeCase,
    #[serde(flatten)]
    turn: TurnCost,
}

#[derive(Serialize)]
struct HomeRow {
    case: &'static str,
    first_token_ms: Option<f64>,
    ratio: Option<f64>,         // to an ordinary turn
    reused_tokens: Option<u64>, // of the round that reused least and computed most
    computed_tokens: Option<u64>,
    holds: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<PeerCost>,
}

#[derive(Default, Serialize)]
struct PeerCost {
    first_token_ms: Option<f64>,
    ratio: Option<f64>,
    computed_tokens: Option<u64>,
}

pub async fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    args.check()?;
    let HomeSize { entities, prompt_tokens } = HomeSize::of(&args.target, args.prompt, args.tools, settings).await?;
    let turns = args.turns.max(1 + MORNING_TURNS);
    let window = prompt_tokens + turns * (2 * args.reply + TURN_TOKENS) + SPARE;
    let needs = [("model.ctx_size", window.to_string()), ("conversation.tool_order", "name".to_owned())];
    let mut ours = Side::of_target(&args.target, given, settings, &needs).await?;
    let (machine, name) = (ours.service.hardware(settings), ours.service.name.clone());
    let played = play(args, entities, "", &mut ours).await;
    ours.stop().await;
    let ours = played?;
    let mut theirs = Vec::new();
    if let Some(url) = &args.peer {
        let mut peer = Side::of_peer(url, args.peer_command.as_deref(), settings, args.patience()).await?;
        let played = play(args, entities, "the peer: ", &mut peer).await.context("the peer");
        peer.stop().await;
        theirs = played?;
    }
    let note = args.peer.as_ref().filter(|_| args.peer_command.is_none());
    let measured = json!({
        "bench": "home",
        "machine": machine,
        "service": name,
        "peer": args.peer,
        "note": note.map(|_| "the peer is not restarted, because no --peer-command starts it"),
        "entities": entities,
        "tools": args.tools,
        "rounds": args.rounds,
        "pause_s": args.pause,
        "prompt_tokens": median(ours.iter().filter_map(|played| Some(played.turn.prompt_tokens? as f64))),
        "rows": rows(&ours, &theirs),
        "turns": ours,
        "peer_turns": theirs,
    });
    args.output.tell(&measured, &[&measured["rows"]], &[chart(&ours)])
}

pub(super) struct HomeSize {
    pub entities: usize,
    pub prompt_tokens: usize, // of a first turn
}

impl HomeSize {
    /// Chooses the number of entities that fills the system prompt. A model that runs elsewhere cannot count here.
    pub async fn of(target: &BenchTarget, prompt: usize, tool_count: usize, settings: &Settings) -> Result<HomeSize> {
        if target.url.is_some() {
            return Ok(HomeSize { entities: (prompt / ENTITY_TOKENS).max(1), prompt_tokens: prompt });
        }
        let model = target.model.as_deref().unwrap_or(&settings.model.preset);
        let (_, preset) = resolve(settings, model)?;
        let counting = Model::counting(settings, model).await?;
        let count = async |entities: usize, tools: &[Value]| {
            let instructions = Message::new(MessageRole::System, system(entities, ROOMS[0]));
            let messages = vec![instructions, Message::new(MessageRole::User, "Hello.")];
            let prompt = Prompt { messages, tools: tools.iter().map(tool).collect(), ..Prompt::default() };
            let measured = counting.measure(&prompt, &preset).await.map_err(|failure| anyhow!("{failure}"))?;
            anyhow::Ok(measured.total.tokens as usize)
        };
        let [few, many] = [count(COUNTED[0], &[]).await?, count(COUNTED[1], &[]).await?];
        let of_one = many.saturating_sub(few).div_ceil(COUNTED[1] - COUNTED[0]).max(1);
        let entities = COUNTED[0] + prompt.saturating_sub(few) / of_one;
        Ok(HomeSize { entities, prompt_tokens: count(entities, &tools(tool_count)).await? })
    }
}

fn tool(verbatim: &Value) -> Tool {
    let name = verbatim["function"]["name"].as_str().unwrap_or_default().to_owned();
    Tool { name, verbatim: Some(JsonText(verbatim.to_string().into())), ..Tool::default() }
}

const ENTITY_TOKENS: usize = 22; // tokens, about, of an entity in the vocabularies of the family
const COUNTED: [usize; 2] = [10, 110]; // entities of two lists whose tokens are compared

const TURN_TOKENS: usize = 100; // tokens, about, of a turn beside its reply, with the template's own
const SPARE: usize = 1_000;

impl Args {
    fn check(&self) -> Result<()> {
        let wrong = |seconds: f64| !seconds.is_finite() || seconds < 0.0;
        if wrong(self.pause) || wrong(self.pause_before_restart) {
            bail!("--pause and --pause-before-restart are seconds");
        }
        if self.turns < 2 || self.reply == 0 || self.rounds == 0 || self.rounds > ROOMS.len() - 1 {
            bail!(
                "--turns is at least 2, --reply a number from 1 upwards, and --rounds one from 1 to {}, because each has a \
                 room of its own",
                ROOMS.len() - 1
            );
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }

    fn all_turns(&self, restarts: bool) -> usize {
        let after_restart = if restarts { 2 + MORNING_TURNS } else { 0 };
        self.rounds * (self.turns + 5 + self.others + after_restart)
    }
}

struct HomeBench<'a> {
    args: &'a Args,
    entities: usize,
    side: &'a mut Side,
    filler: Filler,
    tools: Vec<Value>,
    bar: ProgressBar,
    played: Vec<HomeTurn>,
}

async fn play(args: &Args, entities: usize, whose: &'static str, side: &mut Side) -> Result<Vec<HomeTurn>> {
    let end = args.all_turns(side.can_restart()) as u64;
    let bar = progress_bar(end, "{msg} turn {pos} of {len} [{bar:40}] {eta} left").with_message(whose);
    let (filler, tools) = (Filler::with_barge_ins(1, usize::MAX), tools(args.tools));
    let mut bench = HomeBench { args, entities, side, filler, tools, bar, played: Vec::new() };
    for round in 0..args.rounds {
        bench.round(round).await?;
    }
    bench.bar.finish_and_clear();
    Ok(bench.played)
}

impl HomeBench<'_> {
    async fn round(&mut self, round: usize) -> Result<()> {
        let (kitchen, room) = (ROOMS[0], ROOMS[1 + round]);
        let mut evening = self.conversation(kitchen).await?;
        self.turn(&mut evening, if round == 0 { HomeCase::FirstEver } else { HomeCase::NewConversation }).await?;
        for _ in 1..self.args.turns {
            self.turn(&mut evening, HomeCase::OrdinaryTurn).await?;
        }
        if self.side.can_restart() {
            tokio::time::sleep(Duration::from_secs_f64(self.args.pause_before_restart)).await;
            self.side.restart().await?;
            let mut morning = self.conversation(kitchen).await?;
            self.turn(&mut morning, HomeCase::AfterRestart).await?;
            for _ in 0..MORNING_TURNS {
                self.turn(&mut morning, HomeCase::OrdinaryAfterRestart).await?;
            }
        }
        self.first_turn(room, HomeCase::NewRoom).await?;
        self.first_turn(room, HomeCase::KnownRoom).await?;
        self.first_turn(kitchen, HomeCase::NewConversation).await?;
        for other in 0..self.args.others {
            self.other(1_000 + round * self.args.others + other).await?;
        }
        self.first_turn(kitchen, HomeCase::AfterOthers).await?;
        if self.side.can_restart() {
            tokio::time::sleep(Duration::from_secs_f64(self.args.pause_before_restart)).await;
            self.side.restart().await?;
            self.first_turn(room, HomeCase::OtherRoomAfterRestart).await?;
        }
        let as_it_was = self.tools.clone();
        self.tools = shuffled(&as_it_was, round as u64 + 1);
        self.first_turn(kitchen, HomeCase::ToolsReordered).await?;
        self.tools = as_it_was;
        Ok(())
    }

    async fn other(&mut self, seed: usize) -> Result<()> {
        let mut filler = Filler::with_barge_ins(seed as u64, usize::MAX);
        let prompt = system(self.entities / OTHER_PROMPTS_PART, ROOMS[0]);
        let opening = self.opening(format!("You are assistant number {seed}.\n{prompt}"));
        let mut player = ChatPlayer::new(&self.side.service, None, opening).await?;
        player.turn(&self.side.service, 1, filler.step(1)).await?;
        self.bar.inc(1);
        Ok(())
    }

    async fn first_turn(&mut self, room: &str, case: HomeCase) -> Result<()> {
        let mut player = self.conversation(room).await?;
        self.turn(&mut player, case).await
    }

    async fn conversation(&mut self, room: &str) -> Result<ChatPlayer> {
        let opening = self.opening(system(self.entities, room));
        let mut player = ChatPlayer::new(&self.side.service, None, opening).await?;
        player.tools.clone_from(&self.tools);
        Ok(player)
    }

    async fn turn(&mut self, player: &mut ChatPlayer, case: HomeCase) -> Result<()> {
        tokio::time::sleep(Duration::from_secs_f64(self.args.pause)).await;
        let number = self.played.len() + 1;
        // All turns have one length, so that waits can be compared.
        let turn = player.turn(&self.side.service, number, self.filler.step(1)).await?;
        self.bar.inc(1);
        self.played.push(HomeTurn { case, turn });
        Ok(())
    }

    fn opening(&self, system: String) -> Opening {
        let Args { reply, .. } = *self.args;
        Opening { system, history: Vec::new(), reply_tokens: reply, patience: self.args.patience() }
    }
}

fn rows(ours: &[HomeTurn], theirs: &[HomeTurn]) -> Vec<HomeRow> {
    let ordinary = [ours, theirs].map(|side| waits(side, HomeCase::OrdinaryTurn));
    let cases = HomeCase::ALL.into_iter().filter(|case| ours.iter().any(|played| played.case == *case));
    cases
        .map(|case| {
            let (first_token_ms, ratio) = (waits(ours, case), ratio(waits(ours, case), ordinary[0]));
            let [reused, computed] = counts(ours, case);
            let peer = (!theirs.is_empty()).then(|| PeerCost {
                first_token_ms: waits(theirs, case),
                ratio: self::ratio(waits(theirs, case), ordinary[1]),
                computed_tokens: counts(theirs, case)[1],
            });
            let holds = ratio.zip(case.limit()).map(|(ratio, limit)| ratio <= limit);
            HomeRow {
                case: case.words(),
                first_token_ms,
                ratio,
                reused_tokens: reused,
                computed_tokens: computed,
                holds,
                peer,
            }
        })
        .collect()
}

fn ratio(wait: Option<f64>, ordinary: Option<f64>) -> Option<f64> {
    wait.zip(ordinary).map(|(wait, ordinary)| wait / ordinary)
}

fn of(played: &[HomeTurn], case: HomeCase) -> impl Iterator<Item = &TurnCost> {
    played.iter().filter(move |played| played.case == case).map(|played| &played.turn)
}

fn waits(played: &[HomeTurn], case: HomeCase) -> Option<f64> {
    median(of(played, case).filter_map(|turn| turn.first_token_ms))
}

fn counts(played: &[HomeTurn], case: HomeCase) -> [Option<u64>; 2] {
    let reused = of(played, case).filter_map(|turn| turn.cached_tokens).min();
    [reused, of(played, case).filter_map(|turn| turn.computed_tokens).max()]
}

/// Draws the turns without the very first one, which is as long as all others together.
fn chart(played: &[HomeTurn]) -> Chart {
    let points = |is_first: bool| {
        let is_ordinary = |case| matches!(case, HomeCase::OrdinaryTurn | HomeCase::OrdinaryAfterRestart);
        let of_kind =
            played.iter().filter(|played| played.case != HomeCase::FirstEver && is_ordinary(played.case) != is_first);
        of_kind.filter_map(|played| Some((played.turn.turn as f64, played.turn.first_token_ms?))).collect()
    };
    let series =
        vec![Series::dots("ordinary turns", 'o', points(false)), Series::dots("first turns", 'f', points(true))];
    Chart { title: "Time to the first token".to_owned(), x: super::steps::TURNS, y: "ms", series }
}

#[cfg(test)]
mod tests {
    use super::super::steps::TurnKind;
    use super::*;

    #[test]
    fn a_first_turn_is_compared_with_the_ordinary_ones_of_its_side() {
        let played = |case, ms: f64, computed| HomeTurn {
            case,
            turn: TurnCost {
                first_token_ms: Some(ms),
                cached_tokens: Some(10),
                computed_tokens: Some(computed),
                ..TurnCost::new(1, TurnKind::Turn)
            },
        };
        let ours = [
            played(HomeCase::FirstEver, 900.0, 90),
            played(HomeCase::OrdinaryTurn, 10.0, 5),
            played(HomeCase::OrdinaryTurn, 30.0, 5),
            played(HomeCase::NewConversation, 25.0, 6),
            played(HomeCase::AfterRestart, 27.0, 6),
        ];
        let theirs = [played(HomeCase::OrdinaryTurn, 50.0, 7), played(HomeCase::NewConversation, 500.0, 70)];
        let rows = rows(&ours, &theirs);
        let told: Vec<(&str, Option<bool>)> = rows.iter().map(|row| (row.case, row.holds)).collect();
        assert_eq!(
            told,
            [
                (HomeCase::FirstEver.words(), None),
                (HomeCase::OrdinaryTurn.words(), None),
                (HomeCase::NewConversation.words(), Some(true)),
                (HomeCase::AfterRestart.words(), Some(false)),
            ]
        );
        let peer = rows[2].peer.as_ref().unwrap();
        assert_eq!((rows[2].ratio, peer.ratio, peer.computed_tokens), (Some(1.25), Some(10.0), Some(70)));
        assert_eq!(rows[3].peer.as_ref().unwrap().first_token_ms, None);
    }
}
