/// Actions, and how often each may happen in one run. Actions that multiply the states have small numbers.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub name: &'static str,
    pub sockets: u64,
    pub items: u8,
    pub responses: u8,
    pub cancels: u8,
    pub cuts: u8,
    pub deletions: u8,
    pub resumes: u8,
    pub turns: u8,
    pub store_failures: u8,
    pub journal_failures: u8,
    pub model_failures: u8,
    pub compactions: u8,
    pub detachments: u8,
    pub crashes: u8,
    pub drains: u8,
    /// Partial transcripts, final ones, and moments at which the machine wants to be woken: where there are any, replies begin
    /// early.
    pub partials: u8,
    pub finals: u8,
    pub ticks: u8,
}

impl Scene {
    pub const NOTHING: Scene = Scene {
        name: "",
        sockets: 1,
        items: 0,
        responses: 0,
        cancels: 0,
        cuts: 0,
        deletions: 0,
        resumes: 0,
        turns: 0,
        store_failures: 0,
        journal_failures: 0,
        model_failures: 0,
        compactions: 0,
        detachments: 0,
        crashes: 0,
        drains: 0,
        partials: 0,
        finals: 0,
        ticks: 0,
    };
    pub const ALL: [Scene; 6] = [
        Scene { name: "barge-in", items: 1, responses: 2, cancels: 1, cuts: 1, turns: 1, crashes: 1, ..Scene::NOTHING },
        Scene {
            name: "resume",
            items: 1,
            responses: 1,
            cancels: 1,
            cuts: 1,
            deletions: 1,
            resumes: 2,
            crashes: 1,
            ..Scene::NOTHING
        },
        Scene {
            name: "two-sockets",
            sockets: 2,
            items: 2,
            responses: 2,
            cancels: 1,
            detachments: 2,
            crashes: 1,
            drains: 1,
            ..Scene::NOTHING
        },
        Scene {
            name: "compaction",
            items: 2,
            responses: 2,
            cancels: 1,
            cuts: 1,
            deletions: 1,
            compactions: 2,
            crashes: 1,
            ..Scene::NOTHING
        },
        Scene {
            name: "failures",
            items: 2,
            responses: 2,
            cuts: 1,
            deletions: 1,
            store_failures: 2,
            journal_failures: 1,
            model_failures: 1,
            crashes: 1,
            ..Scene::NOTHING
        },
        Scene {
            name: "early",
            responses: 1,
            cancels: 1,
            detachments: 1,
            crashes: 1,
            partials: 2,
            finals: 2,
            ticks: 3,
            ..Scene::NOTHING
        },
    ];
}

/// Fault that a test plants, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// Words are not written before they are sent.
    Journal,
    /// An event is told twice.
    Telling,
    /// A client's question is lost on its way.
    Inbox,
    /// A summary takes the place of items, and the prompt has them still.
    Swap,
    /// A reply that was begun early is said although other words were final.
    Early,
}
