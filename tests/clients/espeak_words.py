"""Speech of espeak-ng with the times of its words: N.wav and N.txt ("start_ms word" a line) in a folder, for
`cargo run -p speech --example heard FOLDER`. Needs Debian's libespeak-ng1."""

import ctypes
import struct
import sys
import wave
from pathlib import Path

SENTENCES = """The kitchen light is on, and it is very warm there today.
Good morning, Anna. You have two appointments before lunch.
I turned off the lamp in the bedroom and closed the blinds.
It will rain this afternoon, so take an umbrella with you.
Your timer for the pasta has eleven minutes left.
The washing machine is finished; shall I remind you again in half an hour?
There is milk, butter, bread and a little cheese on the shopping list.
Nobody has opened the front door since a quarter past seven.
I could not find that song, but here is another one by the same band.
The living room is twenty one degrees, which is two more than yesterday.
Ben said that he would be home late, because his train was cancelled.
Would you like me to read the recipe from the beginning, or only the next step?
Yes.
The vacuum cleaner is stuck under the sofa and needs your help.
Tomorrow the sun rises at six fifty three and sets at eight twelve.""".splitlines()


class Event(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("unique_identifier", ctypes.c_uint), ("text_position", ctypes.c_int),
                ("length", ctypes.c_int), ("audio_position", ctypes.c_int), ("sample", ctypes.c_int),
                ("user_data", ctypes.c_void_p), ("id", ctypes.c_char * 8)]


def open_library():
    library = ctypes.CDLL("libespeak-ng.so.1")
    return library, library.espeak_Initialize(2, 200, None, 0)


def speak(library, text):
    samples, words = [], []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(Event))
    def heard(wav, count, events):
        samples.extend(wav[:count] if wav else [])
        at = 0
        while events[at].type != 0:
            if events[at].type == 1:
                begin = events[at].text_position - 1
                words.append((events[at].audio_position, text[begin : begin + events[at].length]))
            at += 1
        return 0

    library.espeak_SetSynthCallback(heard)
    data = text.encode()
    library.espeak_Synth(data, len(data) + 1, 0, 1, 0, 1, None, None)
    library.espeak_Synchronize()
    return samples, words


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    library, rate = open_library()
    for number, text in enumerate(SENTENCES):
        samples, words = speak(library, text)
        with wave.open(str(folder / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, rate, 0, "NONE", ""))
            file.writeframes(struct.pack(f"<{len(samples)}h", *samples))
        lines = [text] + [f"{ms} {word}" for ms, word in words]
        (folder / f"{number}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
