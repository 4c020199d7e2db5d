use super::{Fact, Language, Values};

/// What the built-in model was made for, in other words than it was trained with: it can be asked what it was told here.
pub const ENGLISH: Language = Language {
    code: "en",
    talk: &[
        "Good morning.",
        "How are you today?",
        "I am rather tired after all that work in the {room}.",
        "I feel great today.",
        "Thank you very much.",
        "The children are playing in the {room}.",
        "It is raining again.",
        "I am cooking {food} for dinner.",
        "The shop was closed and I could not buy {food}.",
        "I lost my {thing} somewhere.",
        "What is the weather like in the afternoon?",
        "Tell me a joke.",
        "How do I cook {food}?",
        "What is a {thing}?",
        "How much does a {thing} cost?",
        "I am reading a book in the {room}.",
        "We are having {food} and {food} right now.",
        "Never mind.",
        "I had a long day, and the bus was late by {number} minutes.",
        "Are you still there?",
    ],
    rooms: &["kitchen", "bathroom", "hall", "cellar", "bedroom", "study", "living room", "garden"],
    foods: &["rice", "soup", "curry", "stew", "salad", "pancakes", "noodles", "cheese", "fish", "apples"],
    things: &["lamp", "bicycle", "carpet", "guitar", "mirror", "ladder", "clock", "basket", "kettle", "radio"],
    facts: &[
        Fact {
            kind: "name",
            told: &[
                "My {about} is called {value}.",
                "I have a {about} named {value}.",
                "The name of my {about} is {value}.",
            ],
            asked: &["What is my {about} called?", "What is the name of my {about}?", "Do you know my {about}'s name?"],
            about: &[
                "dog",
                "cat",
                "parrot",
                "rabbit",
                "horse",
                "hamster",
                "goldfish",
                "wife",
                "son",
                "daughter",
                "brother",
                "sister",
                "mother",
                "father",
                "grandmother",
                "uncle",
                "aunt",
                "cousin",
                "boss",
                "neighbour",
                "doctor",
                "dentist",
                "teacher",
                "plumber",
                "best friend",
            ],
            values: Values::Words(&[
                "Emma", "Felix", "Greta", "Hugo", "Ida", "Karla", "Leo", "Mia", "Nora", "Oscar", "Paula", "Rosa",
                "Simon", "Tina", "Victor", "Bella", "Otto", "Ruth", "Bruno", "Nemo", "Lotte", "Marlo", "Tarek",
                "Vinda", "Kelmo",
            ]),
        },
        Fact {
            kind: "meal",
            told: &["On {about} we eat {value}.", "Let us have {value} on {about}.", "For {about} we want {value}."],
            asked: &["What do we eat on {about}?", "What is for dinner on {about}?", "What do I eat on {about}?"],
            about: &DAYS,
            values: Values::Words(&[
                "pizza",
                "pasta",
                "lasagne",
                "dumplings",
                "sushi",
                "stew",
                "bread",
                "omelettes",
                "curry",
                "potatoes",
            ]),
        },
        Fact {
            kind: "call",
            told: &["On {about} I have to call {value}.", "I must call {value} on {about}."],
            asked: &["Who do I have to call on {about}?", "Who must I call on {about}?"],
            about: &DAYS,
            values: Values::Words(&["Anna", "Ben", "Clara", "David", "Fiona", "Ivan", "Julia", "Max", "Sara", "Tom"]),
        },
        favourite(&"colour", &["red", "green", "purple", "orange", "turquoise"]),
        favourite(&"food", &["pizza", "rice", "soup", "sushi", "lasagne"]),
        favourite(&"drink", &["coffee", "juice", "cocoa", "lemonade", "cider"]),
        favourite(&"flower", &["tulip", "lily", "orchid", "lavender", "iris"]),
        favourite(&"sport", &["tennis", "golf", "rowing", "chess", "hockey"]),
        favourite(&"singer", &["Marlene", "Tobias", "Oriel", "Sanna", "Kasimir"]),
        favourite(&"book", &["Northwind", "Amberlight", "Quillon", "Stonefield", "Marrowby"]),
        favourite(&"film", &["Moonrise", "Silverlake", "Ostara", "Redwater", "Halcyon"]),
        favourite(&"song", &["Skylark", "Evergreen", "Waterline", "Farewell", "Lullaby"]),
        one(
            "home",
            &["I live in {value}.", "We moved to {value}."],
            &["Where do I live?", "In which town do I live?"],
            TOWNS,
        ),
        one(
            "origin",
            &["I come from {value}.", "I grew up in {value}."],
            &["Where do I come from?", "Where did I grow up?"],
            TOWNS,
        ),
        one(
            "holiday",
            &["My next holiday is in {value}.", "My next trip goes to {value}."],
            &["Where is my next holiday?", "Where does my next trip go?"],
            TOWNS,
        ),
        one(
            "job",
            &["I work as a {value}.", "By trade I am a {value}."],
            &["What is my job?", "What do I work as?"],
            Values::Words(&["baker", "nurse", "gardener", "tailor", "pilot"]),
        ),
        one(
            "keys",
            &["I put my keys in the {value}.", "My keys are in the {value}."],
            &["Where are my keys?", "Where did I put my keys?"],
            Values::Words(&["drawer", "basket", "jacket", "cupboard", "fridge"]),
        ),
        one(
            "allergy",
            &["I am allergic to {value}.", "I have an allergy to {value}."],
            &["What am I allergic to?", "What is my allergy?"],
            Values::Words(&["celery", "mustard", "peanuts", "pollen", "honey"]),
        ),
        one(
            "instrument",
            &["I play the {value}.", "I am learning to play the {value}."],
            &["Which instrument do I play?", "What is my instrument?"],
            Values::Words(&["piano", "violin", "flute", "trumpet", "harp"]),
        ),
        one(
            "collection",
            &["I collect {value}.", "I have a collection of {value}."],
            &["What do I collect?", "What is in my collection?"],
            Values::Words(&["stamps", "coins", "shells", "masks", "spoons"]),
        ),
        one(
            "code",
            &["My door code is {value}.", "The door opens with {value}."],
            &["What is my door code?", "Which code opens the door?"],
            Values::Number,
        ),
    ],
};

const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const TOWNS: Values = Values::Words(&["Lisbon", "Oslo", "Vienna", "Toronto", "Dublin", "Hamburg", "Venice", "Geneva"]);

/// Each has values of its own.
const fn favourite(about: &'static &'static str, values: &'static [&'static str]) -> Fact {
    Fact {
        kind: "favourite",
        told: &["My favourite {about} is {value}.", "The {about} I like best is {value}."],
        asked: &["What is my favourite {about}?", "Which {about} do I like best?"],
        about: std::slice::from_ref(about),
        values: Values::Words(values),
    }
}

/// What there is one of.
const fn one(
    kind: &'static str,
    told: &'static [&'static str],
    asked: &'static [&'static str],
    values: Values,
) -> Fact {
    Fact { kind, told, asked, about: &["the user"], values }
}
