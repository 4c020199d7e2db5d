"""openai-python: legacy completions, asked as lm-evaluation-harness asks with its model `local-completions`."""

from openai import AsyncOpenAI, BadRequestError

from common import HTTP_URL, KEY, MODEL, SHORT_TOKENS, check, run, step


def client():
    return AsyncOpenAI(base_url=HTTP_URL, api_key=KEY, max_retries=0)


def loglikelihoods(answer, context_lengths):
    """As the harness reads an answer: the last token is one that it did not ask about."""
    scores = []
    for choice, context in zip(sorted(answer.choices, key=lambda choice: choice.index), context_lengths):
        own = choice.logprobs.token_logprobs[context:-1]
        top = choice.logprobs.top_logprobs[context:-1]
        scores.append((sum(own), all(one == max(most.values()) for one, most in zip(own, top))))
    return scores


async def measure(openai, prompts, context_lengths):
    answer = await openai.completions.create(model=MODEL, prompt=prompts, temperature=0, max_tokens=1, logprobs=1,
                                             seed=1234, echo=True)
    for choice, prompt in zip(sorted(answer.choices, key=lambda choice: choice.index), prompts):
        lists = choice.logprobs
        check(lists.token_logprobs[0] is None and lists.top_logprobs[0] is None, lists)
        check(len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs) == len(prompt) + 1, lists)
        check(lists.text_offset == sorted(lists.text_offset), lists.text_offset)
    check(answer.usage.prompt_tokens == sum(map(len, prompts)), answer.usage)
    return loglikelihoods(answer, context_lengths)


async def loglikelihoods_of_a_batch():
    async with client() as openai:
        context = list(range(20, 60))
        prompts = [context + end for end in ([5], [5, 6, 7], [300, 301], [9] * 12)]
        lengths = [len(context)] * len(prompts)
        batch = await measure(openai, prompts, lengths)
        for prompt, length, (score, is_best) in zip(prompts, lengths, batch):
            alone, = await measure(openai, [prompt], [length])
            check(abs(alone[0] - score) < 1e-3 and alone[1] == is_best and score < 0, (alone, score))
        # A part of what was asked for is as likely as it was.
        part, = await measure(openai, [prompts[1][:-2]], [len(context)])
        check(abs(part[0] - batch[0][0]) < 1e-3, (part, batch[0]))
        step(f"  {[round(score, 3) for score, _ in batch]}")


async def the_most_likely_token_is_the_one_that_is_written():
    async with client() as openai:
        said = dict(model=MODEL, prompt="The light is", temperature=0, max_tokens=1, logprobs=5)
        answer = await openai.completions.create(**said)
        lists = answer.choices[0].logprobs
        best = max(lists.top_logprobs[0], key=lists.top_logprobs[0].get)
        check(lists.tokens == [best], lists)
        echoed = await openai.completions.create(**said, echo=True)
        check(echoed.choices[0].text == "The light is" + answer.choices[0].text, echoed)
        check(echoed.choices[0].logprobs.tokens[-1] == best, echoed)


async def texts_are_continued():
    async with client() as openai:
        said = dict(model=MODEL, prompt=["Once", "Twice"], temperature=0, max_tokens=SHORT_TOKENS)
        whole = await openai.completions.create(**said)
        check([choice.index for choice in whole.choices] == [0, 1], whole)
        texts = {0: "", 1: ""}
        stream = await openai.completions.create(**said, stream=True, stream_options={"include_usage": True})
        async for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] += choice.text
            usage = chunk.usage
        check([texts[0], texts[1]] == [choice.text for choice in whole.choices], (texts, whole))
        check(usage.total_tokens == whole.usage.total_tokens, (usage, whole.usage))


async def what_is_refused():
    async with client() as openai:
        for more, param in [({"suffix": "end"}, "suffix"), ({"best_of": 2}, "best_of"), ({"max_tokens": 0}, "max_tokens")]:
            try:
                await openai.completions.create(model=MODEL, prompt="Hi.", **more)
            except BadRequestError as error:
                check(error.param == param, error)
            else:
                raise AssertionError(f"{more} was answered")


run(loglikelihoods_of_a_batch, the_most_likely_token_is_the_one_that_is_written, texts_are_continued, what_is_refused)
