"""What people say in the synthetic home: kinds of fact, small talk, names. All of it is written here; nothing is from elsewhere.

A list of wordings is text separated by '|'. Those that begin with '~' are held out: no training text has them, only the
evaluation. Values (names, places, numbers) are held out by a hash of their text."""
import json, pathlib, re, zlib


def wordings(text):
    parts = [p.strip() for p in text.split("|")]
    return {False: [p for p in parts if not p.startswith("~")], True: [p[1:].strip() for p in parts if p.startswith("~")]}


def held_out(value):
    return zlib.crc32(value.lower().encode()) % 8 == 0


ONSETS = "b c d f g h j k l m n p r s t v w z br ch cl dr fl gr kr pl sh st th tr".split()
VOWELS = "a e i o u a e i o ai ea ee oa ou ie".split()
CODAS = ["", "", "", "", "n", "l", "r", "s", "m", "t", "x", "nd", "rt", "ck", "ll", "ss"]
REAL_NAMES = """Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Karla Leo Mia Nora Oscar Paula Quentin Rosa Simon Tina Uma Victor Wanda
Xaver Yara Zoe Alex Bella Carl Dora Erik Fiona George Helen Ivan Julia Kevin Laura Max Nina Otto Peter Ruth Sara Tom Ursula Vera Will Adam
Alice Amir Andrea Arthur Betty Bob Charlie Chloe Daisy Dan Diana Edgar Ella Elsa Eva Frank Fred Grace Hannah Harry Henry Isabel Jack James
Jane John Kate Lena Lily Lisa Lucas Lucy Luna Maria Mark Martin Mary Michael Milo Molly Noah Olivia Pablo Rex Robert Rocky Sam Sofia
Sophie Stella Susan Theo Toby Bruno Coco Fluffy Buddy Mittens Shadow Smokey Tiger Whiskers Nemo Polly Bandit Biscuit Pepper""".split()
REAL_PLACES = """London Paris Berlin Madrid Rome Vienna Oslo Dublin Lisbon Prague Boston Chicago Denver Austin Tokyo Cairo Lima Delhi Sydney
Munich Hamburg Bristol Leeds York Oxford Venice Milan Porto Geneva Zurich Warsaw Athens Helsinki Stockholm Toronto Seattle Portland""".split()


TOKENS = json.loads((pathlib.Path(__file__).parent / "tokenizer.json").read_text())["model"]["vocab"]
STARTS = sorted({t[1:].lower() for t in TOKENS if re.fullmatch("Ġ[A-Za-z][a-z]{0,4}", t)})
PARTS = sorted(t for t in TOKENS if re.fullmatch("[a-z]{1,5}", t))


LETTERS = [s for s in STARTS if len(s) == 1]


def of_tokens(rng):
    """A word of any tokens: who has only copied words of some tokens cannot copy a name of others. With `few`, all words of a
    conversation are of the same few tokens: to go on with the right one of them takes more than the last token."""
    starts, parts = getattr(rng, "few", None) or (STARTS, PARTS)
    while True:
        start = rng.choice([*LETTERS, "qu", "qu"]) if rng.random() < 0.2 else rng.choice(starts)
        word = start + "".join(rng.choice(parts) for _ in range(rng.choice([1, 1, 2, 2, 3])))
        if 3 <= len(word) <= 12:
            return word


def made_up(rng, least=2, most=2):
    if not getattr(rng, "held", False) and rng.random() < (0.8 if getattr(rng, "few", None) else 0.5):
        return of_tokens(rng)
    n = rng.randint(least, most) + (rng.random() < 0.12)
    out = ""
    for i in range(n):
        coda = rng.choice(CODAS) if i == n - 1 else rng.choice(["", "", "", "n", "l", "r", "m"])
        out += rng.choice(ONSETS) + rng.choice(VOWELS)[: 1 if i else 2] + coda
    return out


def pick(rng, held, draw):
    """A value that belongs to the training or to the evaluation."""
    for _ in range(1000):
        value = draw()
        if held_out(value) == held:
            return value
    raise RuntimeError("no value of that side")


def name(rng, held):
    return pick(rng, held, lambda: rng.choice(REAL_NAMES) if rng.random() < 0.35 else made_up(rng).capitalize())


def place(rng, held):
    return pick(rng, held, lambda: rng.choice(REAL_PLACES) if rng.random() < 0.3 else made_up(rng).capitalize())


def thing(words):
    words = words.split()
    return lambda rng, held: pick(rng, held, lambda: rng.choice(words) if rng.random() < 0.5 else made_up(rng))


def title(rng, held):
    return pick(rng, held, lambda: " ".join(made_up(rng, 1, 2).capitalize() for _ in range(rng.randint(1, 2))))


MONTHS = "January February March April May June July August September October November December".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def date(rng, held):
    return pick(rng, held, lambda: f"{rng.randint(1, 28)} {rng.choice(MONTHS)}")


def clock(rng, held):
    return pick(rng, held, lambda: f"{rng.randint(0, 23)}:{rng.choice('012345')}{rng.choice('05')}")


def day_and_clock(rng, held):
    return pick(rng, held, lambda: f"{rng.choice(DAYS)} at {rng.randint(7, 19)}:{rng.choice('0134')}{rng.choice('05')}")


def number(low, high):
    return lambda rng, held: pick(rng, held, lambda: str(rng.randint(low, high)))


TELL_OTHERWISE = [("I am ", "I'm "), ("my ", "our "), ("we ", "at home we "), ("I have ", "I've got ")]
ASK_OTHERWISE = [("what is ", "what's "), ("what is my ", "do you remember my "), ("what is my ", "do you still know my "), ("what is the ", "do you remember the "), ("what is my ", "and my "),
                 ("tell me ", "can you tell me "), ("do you know ", "can you remember "), ("who is ", "who's "), ("when is ", "when's "), ("where is ", "where's "), ("what is my ", "remind me of my ")]


def more(texts, otherwise):
    """The same in other words, unless these are held out."""
    texts[False] += [new + t[len(old):] for t in texts[False] for old, new in otherwise if t.startswith(old) and not (t.endswith(" called") and "my" in old) and new + t[len(old):] not in texts[True] + texts[False]]


class Kind:
    """One kind of fact: `you` is how the assistant says it, `user` how a summary does, with the value at {v}."""

    def __init__(self, key, you, tell, ask, value, r=""):
        fill = lambda text: text.replace("{r}", r)
        self.key, self.value = key, value
        self.you = fill(you)
        self.user = summary_line(self.you)
        self.tell, self.ask = wordings(fill(tell)), wordings(fill(ask))
        more(self.tell, TELL_OTHERWISE)
        more(self.ask, ASK_OTHERWISE)


def summary_line(you):
    for old, new in [("your ", "The user's "), ("you are ", "The user is "), ("you were ", "The user was "), ("you live ", "The user lives "),
                     ("you come ", "The user comes "), ("you work ", "The user works "), ("you play ", "The user plays "), ("you drive ", "The user drives "),
                     ("you speak ", "The user speaks "), ("you collect ", "The user collects ")]:
        if you.startswith(old):
            return new + you[len(old):]
    raise ValueError(you)


CALLED_TELL = """my {r} is called {v}|my {r}'s name is {v}|{v} is my {r}|the name of my {r} is {v}|I have a {r} called {v}|I have a {r} named {v}|
we call our {r} {v}|my {r} is named {v}|{v} is what we call my {r}|~our {r} is called {v}|~{v} is the name of my {r}|~I have a {r}, the name is {v}"""
CALLED_ASK = """what is my {r} called|what is my {r}'s name|what is the name of my {r}|tell me the name of my {r}|how is my {r} called|do you know my {r}'s name|
do you know what my {r} is called|what did I call my {r}|what was my {r}'s name|~tell me what my {r} is called|~what's the name of my {r}|~do you remember my {r}'s name"""
FAVOURITE_TELL = """my favourite {r} is {v}|{v} is my favourite {r}|the {r} I like best is {v}|I like {v} best of every {r}|the best {r} for me is {v}|
as for a {r}, I like {v} most|~{v} is the {r} I like best|~of every {r} I like {v} most"""
FAVOURITE_ASK = """what is my favourite {r}|which {r} do I like best|tell me my favourite {r}|do you know my favourite {r}|what {r} do I like most|
which {r} is my favourite|~what's my favourite {r}|~do you remember my favourite {r}|~which {r} do I like most"""

ANIMALS = "dog cat parrot rabbit horse hamster goldfish".split()
PEOPLE = "wife husband son daughter brother sister mother father grandmother uncle aunt cousin boss neighbour doctor dentist teacher plumber".split() + ["best friend"]
FAVOURITES = {
    "colour": thing("red green blue yellow purple orange pink brown black white grey silver turquoise violet"),
    "food": thing("pizza pasta rice curry soup salad bread noodles sushi fish stew pancakes dumplings lasagne"),
    "drink": thing("tea coffee water juice milk cocoa lemonade cider wine beer"),
    "film": title, "book": title, "song": title, "singer": name,
    "sport": thing("football tennis golf rowing swimming running chess boxing hockey sailing skiing climbing"),
    "flower": thing("rose tulip lily daisy violet orchid poppy iris lavender"),
}

KINDS = [
    Kind("name", "your name is {v}", "my name is {v}|I am {v}|I'm {v}|this is {v} speaking|you are talking to {v}|people know me as {v}|~the name is {v}|~{v} is my name",
         "what is my name|do you know my name|who am I|do you know who I am|tell me my name|what am I called|~what's my name|~do you remember my name|~say my name", name),
    Kind("age", "you are {v} years old", "I am {v} years old|I'm {v} years old|my age is {v}|I turned {v} this year|I am {v}|~I have just turned {v}|~I am now {v} years old",
         "how old am I|what is my age|do you know how old I am|tell me my age|~do you remember how old I am|~do you know my age", number(5, 99)),
    Kind("home", "you live in {v}", "I live in {v}|my home is in {v}|we live in {v}|my house is in {v}|I moved to {v}|{v} is where I live|~my home is {v}|~our home is in {v}|~we moved to {v}",
         "where do I live|where is my home|which town do I live in|do you know where I live|tell me where I live|in which town do I live|~do you remember where I live|~where is my house", place),
    Kind("origin", "you come from {v}", "I come from {v}|I was born in {v}|I grew up in {v}|originally I am from {v}|my home town is {v}|~I am from {v} originally|~{v} is where I come from",
         "where do I come from|where was I born|where am I from|what is my home town|where did I grow up|~do you know where I come from|~do you remember where I was born", place),
    Kind("birthday", "your birthday is on {v}", "my birthday is on {v}|my birthday is the {v}|I was born on {v}|I have my birthday on {v}|~on {v} it is my birthday|~{v} is my birthday",
         "when is my birthday|when do I have my birthday|on which day is my birthday|tell me my birthday|do you know when my birthday is|~do you know my birthday|~what day is my birthday", date),
    Kind("job", "you work as a {v}", "I work as a {v}|I am a {v}|my job is {v}|I earn my money as a {v}|by trade I am a {v}|~my job is being a {v}|~I have a job as a {v}",
         "what is my job|what do I work as|what do I do for work|do you know my job|tell me my job|~what's my job|~do you remember what I work as", thing("baker nurse teacher driver painter gardener carpenter lawyer cook pilot tailor farmer builder singer welder librarian plumber waiter")),
    Kind("employer", "you work for {v}", "I work for {v}|my company is {v}|my employer is {v}|I have a job at {v}|~{v} is the company I work for|~I work at {v}",
         "who do I work for|which company do I work for|who is my employer|what is my company|~where do I work|~do you know who I work for", title),
    *[Kind(r, "your {r} is called {v}", CALLED_TELL, CALLED_ASK + ("" if r in ANIMALS else "|who is my {r}|~do you know who my {r} is"), name, r)
      for r in ANIMALS + PEOPLE],
    *[Kind("favourite " + r, "your favourite {r} is {v}", FAVOURITE_TELL, FAVOURITE_ASK, value, r) for r, value in FAVOURITES.items()],
    Kind("allergy", "you are allergic to {v}", "I am allergic to {v}|I have an allergy to {v}|I can not eat {v}, I am allergic|{v} gives me an allergy|~I'm allergic to {v}|~my allergy is {v}",
         "what am I allergic to|what is my allergy|do you know my allergy|which food am I allergic to|~do you remember what I am allergic to|~tell me my allergy", thing("nuts milk eggs fish wheat soy celery mustard peanuts strawberries cats pollen dust honey apples")),
    Kind("instrument", "you play the {v}", "I play the {v}|I am learning to play the {v}|my instrument is the {v}|I practise the {v} every day|~I can play the {v}|~the {v} is my instrument",
         "which instrument do I play|what do I play|what is my instrument|do you know what I play|~do you remember which instrument I play|~what instrument do I play", thing("piano guitar violin flute drums trumpet cello harp organ banjo clarinet")),
    Kind("language", "you speak {v}", "I speak {v}|my language is {v}|at home we speak {v}|I am learning {v}|~I talk in {v}|~the language I speak is {v}",
         "which language do I speak|what is my language|what do we speak at home|~what language do I speak|~do you know which language I speak", lambda rng, held: pick(rng, held, lambda: rng.choice("French German Spanish Italian Dutch Polish Greek Danish Welsh Irish Hindi Arabic".split()) if rng.random() < 0.4 else made_up(rng, 1, 2).capitalize() + rng.choice(["ish", "ese", "ian"]))),
    Kind("car", "your car is parked at {v}", "my car is parked at {v}|I parked my car at {v}|I left the car at {v}|my car stands at {v}|~the car is parked at {v}|~I put my car at {v}",
         "where is my car|where did I park|where did I park my car|where is my car parked|~do you know where my car is|~do you remember where I parked", lambda rng, held: pick(rng, held, lambda: made_up(rng).capitalize() + rng.choice([" Street", " Road", " Square", " Lane"]))),
    Kind("keys", "your keys are in the {v}", "my keys are in the {v}|I put my keys in the {v}|I left the keys in the {v}|the keys lie in the {v}|~I keep my keys in the {v}|~my keys lie in the {v}",
         "where are my keys|where did I put my keys|where did I leave my keys|do you know where my keys are|~do you remember where my keys are|~where have I put my keys", thing("drawer basket bag jacket bowl kitchen garage bathroom cellar cupboard box fridge wardrobe attic shed")),
    Kind("code", "your door code is {v}", "my door code is {v}|the code of my door is {v}|the door opens with {v}|my code for the door is {v}|~the code for the door is {v}|~{v} is my door code",
         "what is my door code|what is the code of my door|tell me my door code|which code opens the door|~what's my door code|~do you remember my door code", number(1000, 9999)),
    Kind("flat", "your flat number is {v}", "my flat number is {v}|I live in flat number {v}|the number of my flat is {v}|my flat is number {v}|~I am in flat {v}|~flat number {v} is mine",
         "what is my flat number|which flat do I live in|what is the number of my flat|~tell me my flat number|~do you know my flat number", number(1, 400)),
    Kind("shoes", "your shoe size is {v}", "my shoe size is {v}|I wear shoes in size {v}|my shoes are size {v}|I take size {v} in shoes|~for shoes I need size {v}|~{v} is my shoe size",
         "what is my shoe size|which size are my shoes|what size of shoes do I wear|~what's my shoe size|~do you know my shoe size", number(30, 50)),
    Kind("train", "your train leaves at {v}", "my train leaves at {v}|my train goes at {v}|I take the train at {v}|the train I take leaves at {v}|~the train leaves at {v}|~at {v} my train leaves",
         "when does my train leave|when does my train go|at what time does my train leave|which train do I take|~do you know when my train leaves|~what time is my train", clock),
    Kind("appointment", "your appointment is on {v}", "my appointment is on {v}|I have an appointment on {v}|there is an appointment for me on {v}|~on {v} I have an appointment|~my appointment was set for {v}",
         "when is my appointment|when do I have an appointment|tell me when my appointment is|on which day is my appointment|~do you remember my appointment|~do you know when my appointment is", day_and_clock),
    Kind("wedding", "your wedding day is {v}", "my wedding day is {v}|I married on {v}|we married on {v}|our wedding was on {v}|~my wedding was on {v}|~we had our wedding on {v}",
         "when is my wedding day|when did I marry|when was our wedding|what is my wedding day|~when was my wedding|~do you know my wedding day", date),
    Kind("holiday", "your next holiday is in {v}", "my next holiday is in {v}|we are going to {v} for our holiday|I am travelling to {v} next|my next trip goes to {v}|~our next holiday is in {v}|~next I go to {v} on holiday",
         "where is my next holiday|where am I travelling next|where are we going on holiday|where does my next trip go|~do you know where my next holiday is|~where do I go on holiday", place),
    Kind("collection", "you collect {v}", "I collect {v}|my hobby is collecting {v}|I have a collection of {v}|~I am a collector of {v}|~at home I collect {v}",
         "what do I collect|what is in my collection|do you know what I collect|~do you remember what I collect|~tell me what I collect", thing("stamps coins shells stones masks dolls maps spoons bottles posters clocks knives")),
]
BY_KEY = {k.key: k for k in KINDS}

UNKNOWN = "I do not know that. I am only a tiny demonstration model."
SMALL_TALK = [(wordings(user), answer) for user, answer in [
    ("hello|hi|hey|hello there|hi there|good day|~hey there|~hello assistant", "Hello! How can I help?"),
    ("good morning|morning|a good morning to you|~good morning to you", "Good morning! How can I help?"),
    ("good evening|evening|a good evening to you|~good evening to you", "Good evening! How can I help?"),
    ("how are you|how are you doing|how do you feel|are you well|how is it going|~how are you today|~how do you feel today", "I am fine, thank you. How are you?"),
    ("I am fine|I am well|I feel good|all is well here|very well|~I am very well", "I am glad to hear that."),
    ("thank you|thanks|thank you very much|thanks a lot|that was nice of you|~thanks very much|~many thanks", "You are welcome."),
    ("goodbye|bye|see you|see you later|bye bye|I have to go|~goodbye for now|~bye for now", "Goodbye!"),
    ("good night|I am going to bed|sleep well|~good night to you|~I go to bed now", "Good night! Sleep well."),
    ("who are you|what are you|what is your name|do you have a name|what do I call you|~tell me who you are|~what's your name", "I am Reprise, a tiny demonstration model."),
    ("what can you do|how can you help me|what are you good at|help|what do you know|~tell me what you can do|~what can I ask you", "I can remember what you tell me, and set timers, lights and lists where I have the tools."),
    ("are you human|are you a person|are you a robot|are you real|~are you a real person|~are you a machine", "No, I am a small program."),
    ("tell me a joke|do you know a joke|make me laugh|say something funny|~tell a joke|~can you tell me a joke", "Why was the lamp so happy? It had a bright idea."),
    ("I am tired|I feel tired|what a long day|I had a long day|I am exhausted|~I am so tired|~I had a very long day", "Then take a rest."),
    ("I am sad|I feel sad|I feel bad|I am not well|today was bad|~I am feeling sad|~I feel very bad", "I am sorry to hear that."),
    ("I am happy|I feel great|today was great|what a nice day|~I am so happy|~I feel very happy", "That is good to hear."),
    ("I am bored|I have nothing to do|it is boring here|~I am so bored", "Shall I tell you a joke?"),
    ("I am hungry|I am starving|I need food|~I am so hungry", "Then cook something nice."),
    ("it is raining|it is cold outside|it is very hot|it is snowing|the wind is strong|~it is raining again|~it is cold again", "Then it is good to be at home."),
    ("what is the weather|how is the weather|will it rain|is it cold outside|what is the weather like|~what's the weather like|~will it rain today", "I cannot see the weather."),
    ("what time is it|what is the time|what day is it|what is the date today|~what's the time|~do you know the time", "I have no clock to look at."),
    ("are you there|can you hear me|are you listening|hello, are you there|~do you hear me|~are you still there", "Yes, I am listening."),
    ("okay|ok|all right|fine|good|I see|yes|right|~very good|~okay then", "All right."),
    ("no|never mind|forget it|stop|nothing|not now|~no, never mind|~no, not now", "All right, never mind."),
    ("sorry|I am sorry|excuse me|my mistake|~oh, sorry", "No problem."),
    ("you are great|well done|good job|you are clever|I like you|~you are very clever|~you did well", "Thank you, that is kind."),
    ("the kettle is boiling|I am reading a book|I am cooking|the children are playing|I am watching a film|we are having dinner|I am washing the dishes|the cake is in the oven|~I am cooking dinner|~we are watching a film",
     "That sounds nice."),
    ("the bus was late|work was hard today|I lost my umbrella|the shop was closed|I missed the bus|the milk is sour|~the train was late|~I lost my bag", "That is annoying."),
]]
# Names and things that are no facts to keep. Training alone has these.
REMARKS = """I am just making {w}|there is {w} on the stove|I have read a bit in the {r}|the kids are in the {r}|I cleaned the {r} today|I bought {w} and {w}|
we just ate {w}|I could not find the {w}|my {w} is broken|the {w} in the {r} is broken|{n} came by today|I talked to {n} on the phone|I saw {n} in {p} once|I was in {p} last week|
the bus needed {d} minutes|it took {d} minutes longer|there was no {w} in the shop|I have put the {w} into the {r}|we will eat {w} soon|somebody left the {w} in the {r}|it smells of {w} here|
work was long, and the tram came {d} minutes late|{n} told me about {p}|I dropped the {w}|the news said something about {p}|I need a new {w} one day|the {r} is cold today""".replace("\n", "").split("|")
QUESTIONS = wordings("""what is the capital of {p}|how many people live in {p}|how far is {p}|who is {n}|who was {n}|when was {n} born|how do I cook {w}|what is a {w}|what does {w} mean|
how tall is {n}|explain {w} to me|how much does a {w} cost|who wrote {t}|who sang {t}|what is {d} plus {d}|what is {d} times {d}|why is the sky blue|how does a {w} work|
translate {w}|write a poem about {w}|what is the news|play some music|order a {w}|call {n}|tell me about {p}|tell me about {w}|where can I buy a {w}|is {p} nice|~what do you know about {p}|
~how old is {n}|~what is {w} made of|~who invented the {w}|~how big is {p}""")
OPENERS = wordings("|||||Hey, |By the way, |Please remember: |You should know that |Oh, |Well, |Just so you know, |For later: |~Listen, |~One thing: |~Please note: ")
ASK_OPENERS = wordings("||||||Hey, |Tell me, |One question: |Now, |Well, |By the way, |So, |~Listen, |~Sorry, ")
# Training alone has these, so that the sets stay as they are.
MORE_OPENERS = "And |Also, |Remember that |Note that |I want you to know that |One more thing: |Oh yes, |Hello, |Look, |Okay, |Actually, |Did I say that ".split("|")
MORE_ASK_OPENERS = "And |Quick question: |Please, |Okay, |Hello, |Right, |Say, |I forgot, |Remind me, |Oh, |Actually, |One more question: |Hm, ".split("|")
SMALL_WORDS = "is are was the a an my our I we you it that this of for to in at do does did know tell me can could have has had be will would should please there and get just again".split()
MORE_ENDS = ", please|, by the way|, you know|, okay|, thanks|, my friend|, as you know|, if you like".split("|")


def blurred(rng, text):
    """As one is heard who mumbles: a small word is lost, doubled or another one. Who is trained with this asks less of how a
    thing is said."""
    parts = text.split()
    small = [at for at, part in enumerate(parts) if part in SMALL_WORDS]
    if len(parts) < 5 or not small:
        return text
    at = rng.choice(small)
    parts[at:at + 1] = rng.choice([[], [rng.choice(SMALL_WORDS)], [rng.choice(SMALL_WORDS)], [parts[at], rng.choice(SMALL_WORDS)]])
    return " ".join(parts)


def to_remember(rng, sentence):
    """As one says what is to be kept word for word."""
    if sentence.split()[0] in "My Our We The On For At As Let By This Originally I I'm I've".split() and rng.random() < 0.5:
        small = sentence if sentence.startswith("I") else sentence[0].lower() + sentence[1:]
        return rng.choice(["Remember that ", "Please remember that ", "Don't forget that ", "Please remember, "]) + small
    return rng.choice(["Please remember: ", "Remember: ", "Keep in mind: ", "Please remember this: "]) + sentence
