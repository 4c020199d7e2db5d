// The field to say something: typed or spoken.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon } from "../icons.tsx";
import { keep, useKept } from "../keep.ts";
import { type State, useShared } from "../state.ts";
import { Fill } from "../views/talk.tsx";

export function Composer(): JSX.Element {
  const state = useShared();
  const { speaks } = useKept();
  const { conversation, voice, speaking } = state;
  const [text, set_text] = useState(state.draft);
  const field = useRef<HTMLTextAreaElement>(null);
  const listening = useListening();
  useLayoutEffect(() => {
    // The field is as high as its words, up to a third of the screen.
    const { current } = field;
    if (!current) return;
    current.style.height = "auto";
    current.style.height = `${Math.min(current.scrollHeight, innerHeight / 3)}px`;
  }, [text]);
  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) field.current?.focus();
    // What was typed stays with its conversation.
    const show = () => set_text(state.draft);
    show();
    return state.on("draft", show);
  }, [conversation]);
  const is_busy = conversation.reply !== undefined || speaking.current !== undefined || state.spoken.is_playing;
  const send = () => {
    if (!text.trim() || !state.say(text.trim())) return;
    set_text("");
    state.keep_draft("");
  };
  const key = (event: KeyboardEvent) => {
    // Enter also ends the choice of a letter in languages that compose them. Safari tells it by the code alone.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== COMPOSES) {
      event.preventDefault();
      send();
    }
  };
  // The first letter of a new conversation opens its connection.
  const input = (value: string) => {
    set_text(value);
    state.keep_draft(value);
    if (conversation.state === "closed") conversation.connect();
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="composer-box">
        <textarea
          ref={field}
          rows={1}
          value={text}
          placeholder={listening.is_on ? "Listening…" : "Say something"}
          aria-label="What you say"
          enterkeyhint="send"
          onInput={(event) => input(event.currentTarget.value)}
          onKeyDown={key}
        />
        <div class="composer-row">
          {(voice.hears || MAY_HEAR) && (
            <button
              type="button"
              class={`round ${listening.is_on ? "is-on" : ""}`}
              aria-pressed={listening.is_on}
              aria-label={listening.is_on ? "Stop listening" : "Speak"}
              title={listening.is_on ? "Stop listening" : HOW_IT_HEARS}
              onClick={listening.toggle}
            >
              <Icon name="mic" />
            </button>
          )}
          {voice.speaks && (
            <button
              type="button"
              class="round"
              aria-pressed={speaks}
              aria-label="Read replies aloud"
              title={speaks ? "Replies are read aloud" : "Replies are not read aloud"}
              onClick={() => (keep({ speaks: !speaks }), speaks && speaking.stop())}
            >
              <Icon name={speaks ? "speak" : "quiet"} />
            </button>
          )}
          <Fill />
          <span class="grow" />
          {is_busy && (
            <button type="button" class="round" aria-label="Stop the reply" title="Stop (Esc)" onClick={() => state.stop()}>
              <Icon name="stop" size={18} />
            </button>
          )}
          <button class="round send" aria-label="Send" title="Send (Enter)" disabled={!text.trim()}>
            <Icon name="send" />
          </button>
        </div>
      </div>
    </form>
  );
}

const COMPOSES = 229;

/** A browser gives its microphone only to some pages. */
const MAY_HEAR = navigator.mediaDevices !== undefined;
const HOW_IT_HEARS = "Speak. Where the service has no ears of its own, your browser may send what it hears to its maker.";
const NO_EARS = "Neither the service nor this browser recognises speech: the service's setting is speech.stt.";

/** Listening through the service's own ears where it has some, else through the browser's. partial transcripts go to the service as they come, and the first word interrupts a reply. */
function useListening(): { is_on: boolean; toggle: () => void } {
  const state = useShared();
  const end = useRef<(() => void) | undefined>(undefined);
  const is_gone = useRef(false);
  const [is_on, set_on] = useState(false);
  const interrupt = () => {
    if (state.speaking.current || state.conversation.reply) state.stop();
  };
  const begin = async () => {
    if (state.conversation.state === "closed") state.conversation.connect();
    const { spoken } = state;
    const can_hear = await hears(state);
    // Meanwhile the user may have gone to another conversation, or from this view.
    if (is_gone.current || state.spoken !== spoken) return;
    if (can_hear) {
      const problem = await spoken.listen();
      if (problem) state.notice(problem, "problem");
      return;
    }
    if (!state.voice.hears) return state.notice(NO_EARS, "problem");
    set_on(true);
    end.current = state.voice.listen({
      partial(text) {
        interrupt();
        state.conversation.hear(text);
      },
      final(text) {
        if (text) state.say(text);
      },
      ended(problem) {
        end.current = undefined;
        set_on(false);
        state.conversation.hear("");
        if (problem) state.notice(problem, "problem");
      },
    });
  };
  useEffect(() => {
    is_gone.current = false;
    return () => {
      is_gone.current = true;
      end.current?.();
      // No view but this one shows that the page listens.
      state.spoken.end();
    };
  }, []);
  const toggle = () => (state.spoken.is_on ? state.spoken.end() : end.current ? end.current() : void begin());
  return { is_on: is_on || state.spoken.is_on, toggle };
}

/** Waits until the connection has told whether the service has ears. */
async function hears({ spoken }: State): Promise<boolean> {
  for (let tries = 0; spoken.hears === undefined && tries < 300; tries++) await new Promise((done) => setTimeout(done, 100));
  return spoken.hears === true;
}
