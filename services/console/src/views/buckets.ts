import type { ServerState } from "../client.ts";

/** Counts between the bounds of a histogram of `/metrics`, whose buckets count all below their bound. */
export function buckets(samples: ServerState["samples"], name: string, label: string): { upto: number; count: number }[] {
  const bounds = Object.entries(samples).flatMap(([key, value]) => {
    const bound = key.startsWith(`${name}_bucket`) && key.includes(label) ? /le="([^"]+)"/.exec(key)?.[1] : undefined;
    return bound ? [{ upto: bound === "+Inf" ? Infinity : Number(bound), below: value }] : [];
  });
  bounds.sort((a, b) => a.upto - b.upto);
  return bounds.map(({ upto, below }, at) => ({ upto, count: below - (bounds[at - 1]?.below ?? 0) }));
}
