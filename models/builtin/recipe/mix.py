"""The curriculum: what share of which kind of conversation at which progress (0 to 1)."""
import talk, words


def conversation(rng, progress, long=0):
    roll = rng.random()
    rng.few = (rng.sample(words.STARTS, 5), rng.sample(words.PARTS, 8)) if rng.random() < 0.3 else None
    if progress < 0.16:
        return talk.recall(rng, rng.randint(2, 7), rng.randint(5, 10), talk=0.1, told_at_once=0.1, system=rng.random() < 0.1)
    if progress < 0.28:
        if roll < 0.7:
            return talk.recall(rng, rng.randint(3, 9), rng.randint(5, 10), talk=0.3)
        if roll < 0.85:
            return talk.summarise(rng, rng.randint(1, 6))
        return talk.after_summary(rng, rng.randint(2, 9), rng.randint(4, 9))
    top = 8 + int(14 * min(1.0, (progress - 0.28) / 0.4))       # facts of a memory
    if rng.random() < 0.24:
        if rng.random() < 0.6:
            return talk.drill(rng, rng.randint(1000, 3000), memory=rng.randint(1, 16))
        return talk.drill(rng, rng.randint(1500, 8500 if long else 4000))
    if roll < 0.22:
        far = long if rng.random() < 0.5 else 0
        return talk.recall(rng, rng.randint(2, 14), rng.randint(10, 22), talk=0.3, styles=0.15, distance=far)
    if roll < 0.25:
        return talk.recall(rng, rng.randint(1, 4), rng.randint(4, 7), talk=1.0, styles=0.85)
    if roll < 0.34:
        return talk.with_tools(rng, rng.randint(7, 12))
    if roll < 0.36:
        return talk.without_tools(rng)
    if roll < 0.42:
        return talk.after_summary(rng, rng.randint(1, 6), rng.randint(8, 12), styles=1.0)
    if roll < 0.57:
        return talk.after_summary(rng, rng.randint(1, top), rng.randint(10, 20))
    if roll < 0.85:
        return talk.summarise(rng, rng.randint(12, top) if rng.random() < 0.5 else rng.randint(0, top))
    return talk.summarise(rng, rng.randint(0, 8), known=rng.randint(1, top))
