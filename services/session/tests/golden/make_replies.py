"""Writes replies.tsv: replies of many languages, and what Home Assistant's rule says of each before and after its end was
brought into form.

    python3 make_replies.py > replies.tsv

Columns: the reply as a model writes it; 1 where it asks the user something; the same reply marked; the same reply without a
question; and of these three texts 1 where Home Assistant opens the microphone again.
"""


def opens_microphone(text):
    """As ChatLog.continue_conversation of Home Assistant 2026.11 has it."""
    return text.strip().endswith(("?", ";", "\uff1f"))


# Two statements, two questions without their mark, the mark, the mark that Home Assistant knows, what stands between two.
LANGUAGES = {
    "en": ("The light is on.", "It is late.", "Shall I dim it", "Which room do you mean", "?", "?", " "),
    "de": ("Das Licht ist an.", "Es ist spät.", "Soll ich es dimmen", "Welches Zimmer meinst du", "?", "?", " "),
    "fr": ("La lumière est allumée.", "Il est tard.", "Voulez-vous la baisser ", "Quelle pièce ", "?", "?", " "),
    "es": ("La luz está encendida.", "Es tarde.", "¿La bajo", "¿Qué habitación", "?", "?", " "),
    "it": ("La luce è accesa.", "È tardi.", "La abbasso", "Quale stanza", "?", "?", " "),
    "nl": ("Het licht is aan.", "Het is laat.", "Zal ik het dimmen", "Welke kamer", "?", "?", " "),
    "pl": ("Światło jest włączone.", "Jest późno.", "Czy je przyciemnić", "Który pokój", "?", "?", " "),
    "ru": ("Свет включён.", "Уже поздно.", "Приглушить его", "Какая комната", "?", "?", " "),
    "tr": ("Işık açık.", "Geç oldu.", "Kısayım mı", "Hangi oda", "?", "?", " "),
    "he": ("האור דולק.", "מאוחר.", "לעמעם אותו", "איזה חדר", "?", "?", " "),
    "hi": ("बत्ती जल रही है।", "देर हो गई है।", "क्या मैं इसे कम करूँ", "कौन सा कमरा", "?", "?", " "),
    "ko": ("불이 켜져 있습니다.", "늦었습니다.", "어둡게 할까요", "어느 방인가요", "?", "?", " "),
    "ja": ("電気はついています。", "もう遅いです。", "暗くしましょうか", "どの部屋ですか", "？", "？", ""),
    "zh": ("灯开着。", "已经很晚了。", "要调暗吗", "哪个房间", "？", "？", ""),
    "ar": ("الضوء مضاء.", "الوقت متأخر.", "هل أخفته", "أي غرفة تقصد", "؟", "?", " "),
    "fa": ("چراغ روشن است.", "دیر است.", "کم‌نورش کنم", "کدام اتاق", "؟", "?", " "),
    "el": ("Το φως είναι αναμμένο.", "Είναι αργά.", "Να το χαμηλώσω", "Ποιο δωμάτιο", ";", ";", " "),
    "el with its own mark": ("Το φως είναι αναμμένο.", "Είναι αργά.", "Να το χαμηλώσω", "Ποιο δωμάτιο", "\u037e", ";", " "),
    "am": ("መብራቱ በርቷል።", "መሽቷል።", "ላደብዝዘው", "የትኛው ክፍል", "፧", "?", " "),
}

# What a model writes, whether it asks, and both forms. Here no rule of the generator holds.
SINGLE = [
    ('She asked: "Why?"', False, 'She asked: "Why?"', 'She asked: "Why?"'),
    ('"Which room do you mean?"', True, '"Which room do you mean?', '"Which room do you mean?'),
    ("Sie fragte: „Warum?“", False, "Sie fragte: „Warum?“", "Sie fragte: „Warum?“"),
    ("Milk; bread; eggs;", False, "Milk; bread; eggs.", "Milk; bread; eggs."),
    ("Really?!", True, "Really?", "Really?"),
    ("Hm? It is on. Shall I dim it?", True, "Hm? It is on. Shall I dim it?", "Hm? It is on. "),
    ("It is 3.5 km. Is that too far?", True, "It is 3.5 km. Is that too far?", "It is 3.5 km. "),
    ("Dr. Smith is here. Shall I let her in?", True, "Dr. Smith is here. Shall I let her in?", "Dr. Smith is here. "),
    ("Done! Anything else? 😊🎉", True, "Done! Anything else?", "Done! "),
    ("😊", False, "😊", "😊"),
    ("", False, "", ""),
]


def rows():
    for first, second, asks, asks_too, mark, known, between in LANGUAGES.values():
        question, marked, other = asks + mark, asks + known, asks_too + mark
        yield first, False, first, first
        yield first + between + second, False, first + between + second, first + between + second
        # A reply that only asks is said.
        yield question, True, marked, marked
        yield question + " \n", True, marked, marked
        yield question + " 😊", True, marked, marked
        yield question + between + other, True, question + between + asks_too + known, question + between + asks_too + known
        # One that has said something does not go on to ask.
        yield first + between + question, True, first + between + marked, first + between
        yield first + between + question + " 😊", True, first + between + marked, first + between
        yield first + between + question + "\u200f", True, first + between + marked, first + between
        yield first + between + "(" + question + ")", True, first + between + "(" + marked, first + between
        yield first + between + question + between + other, True, first + between + question + between + asks_too + known, first + between
        # What is answered in the same reply asks nothing.
        yield question + between + first, False, question + between + first, question + between + first
        whole = first + between + question + between + second
        yield whole, False, whole, whole
    yield from SINGLE


for written, asks, marked, without in rows():
    texts = [written, marked, without]
    cells = [written.replace("\n", "\\n"), str(int(asks)), marked, without, *(str(int(opens_microphone(text))) for text in texts)]
    print("\t".join(cells))
