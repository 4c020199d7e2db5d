// Experts: which tokens visit which, in what order they are worked on, and how their answers are put together.

struct Route {
    const float* scores; // [rows, experts]
    u32* experts;        // [rows, used]
    float* shares;       // [rows, used]
    u32* source;         // as `Arrange` has them where nothing is sorted: pairs as they come; null: not wanted
    u32* place;
    u32 count, used, renormalise, unused;
};

// The `used` largest of softmax(scores), largest first; of equals the first. A warp does a row.
KERNEL(route, 32, Route) {
    SHARED(float, row);
    const float* scores = a.scores + static_cast<u64>(blockIdx.x) * a.count;
    float largest = LOWEST;
    for (u32 i = threadIdx.x; i < a.count; i += 32) {
        row[i] = scores[i];
        largest = fmaxf(largest, scores[i]);
    }
    largest = warp_max(largest);
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < a.count; i += 32) {
        row[i] = expf(row[i] - largest);
        sum += row[i];
    }
    sum = warp_sum(sum);
    float kept = 0.0f;
    for (u32 rank = 0; rank < a.used; rank++) {
        float best = -1.0f;
        int at = 0;
        for (u32 i = threadIdx.x; i < a.count; i += 32)
            if (row[i] > best) {
                best = row[i];
                at = static_cast<int>(i);
            }
        for (u32 mask = 16; mask > 0; mask >>= 1) {
            float other = shuffle_xor(best, mask);
            int other_at = shuffle_xor(at, mask);
            if (other > best || (other == best && other_at < at)) {
                best = other;
                at = other_at;
            }
        }
        kept += best / sum;
        if (threadIdx.x == 0) {
            u32 pair = blockIdx.x * a.used + rank;
            a.experts[pair] = static_cast<u32>(at);
            a.shares[pair] = best / sum;
            if (a.source) {
                a.source[pair] = blockIdx.x;
                a.place[pair] = pair;
            }
            row[at] = -1.0f;
        }
        warp_barrier();
    }
    if (!a.renormalise) return;
    for (u32 rank = threadIdx.x; rank < a.used; rank += 32) a.shares[blockIdx.x * a.used + rank] /= kept;
}

struct Arrange {
    const u32* experts; // [pairs]: a pair is a token and one of its experts
    u32* source;        // [pairs], sorted by expert: the token
    u32* of_row;        // [pairs], sorted: the expert
    u32* place;         // [pairs]: where a pair stands in that order
    u32* tiles;         // as in `product.cuh`
    u32 pairs, used, count, tile_rows;
};

const u32 ARRANGE_THREADS = 256;
const u32 ARRANGE_WARPS = ARRANGE_THREADS / 32;

// Sorts pairs by expert; the order among equals stays. A block does an expert: it counts all of them for itself, because to wait
// for others costs more, and gives the places that are its own.
KERNEL(arrange, ARRANGE_THREADS, Arrange) {
    SHARED(u32, counts); // [count], then what each warp has found
    u32* starts = counts + a.count;
    u32* tiles = starts + ARRANGE_WARPS;
    u32* own = tiles + ARRANGE_WARPS;
    u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32, expert = blockIdx.x;
    for (u32 i = thread; i < a.count; i += ARRANGE_THREADS) counts[i] = 0;
    __syncthreads();
#pragma unroll 8
    for (u32 pair = thread; pair < a.pairs; pair += ARRANGE_THREADS) add_to_shared(counts + a.experts[pair], 1);
    __syncthreads();
    u32 pairs_before = 0, tiles_before = 0;
    for (u32 i = thread; i < expert; i += ARRANGE_THREADS) {
        pairs_before += counts[i];
        tiles_before += (counts[i] + a.tile_rows - 1) / a.tile_rows;
    }
    pairs_before = warp_sum(pairs_before);
    tiles_before = warp_sum(tiles_before);
    // Each warp has a piece of the pairs.
    u32 piece = (a.pairs + ARRANGE_THREADS - 1) / ARRANGE_THREADS * 32, begin = min(a.pairs, warp * piece);
    u32 end = min(a.pairs, begin + piece), found = 0;
#pragma unroll 8
    for (u32 pair = begin + lane; pair < end; pair += 32) found += a.experts[pair] == expert;
    found = warp_sum(found);
    if (lane == 0) {
        starts[warp] = pairs_before;
        tiles[warp] = tiles_before;
        own[warp] = found;
    }
    __syncthreads();
    u32 start = 0, tile = 0, place = 0;
    for (u32 i = 0; i < ARRANGE_WARPS; i++) {
        start += starts[i];
        tile += tiles[i];
        place += i < warp ? own[i] : 0;
    }
    u32 count = counts[expert], of_expert = (count + a.tile_rows - 1) / a.tile_rows;
    for (u32 i = thread; i < of_expert; i += ARRANGE_THREADS) {
        a.tiles[1 + 3 * (tile + i)] = start + i * a.tile_rows;
        a.tiles[2 + 3 * (tile + i)] = min(a.tile_rows, count - i * a.tile_rows);
        a.tiles[3 + 3 * (tile + i)] = expert;
    }
    if (thread == 0 && expert + 1 == a.count) a.tiles[0] = tile + of_expert;
    place += start;
    // Asked for before the first is written: for the compiler what is written might be what is read next.
    const u32 AT_ONCE = 8;
    for (u32 first = begin; first < end; first += 32 * AT_ONCE) {
        u32 experts[AT_ONCE];
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            u32 pair = first + 32 * i + lane;
            experts[i] = pair < end ? a.experts[pair] : a.count;
        }
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            u32 pair = first + 32 * i + lane, same = votes(experts[i] == expert);
            u32 at = place + static_cast<u32>(count_bits(same & ((1u << lane) - 1)));
            place += static_cast<u32>(count_bits(same));
            if (experts[i] != expert) continue;
            a.source[at] = pair / a.used;
            a.of_row[at] = expert;
            a.place[pair] = at;
        }
    }
}

struct Gather {
    const float* answers; // [pairs, cols], sorted by expert
    const u32* place;
    const float* shares;
    const float* shared_answers; // [rows, cols]; null: none
    const float* shared_score;   // [rows]: its sigmoid weighs what all tokens visit
    float* out;                  // [rows, cols], added to
    u32 rows, cols, used, unused;
};

KERNEL(gather, 256, Gather) {
    u32 column = blockIdx.y * 256 + threadIdx.x, row = blockIdx.x;
    if (column >= a.cols) return;
    float sum = 0.0f;
    if (a.shared_answers)
        sum = a.shared_answers[static_cast<u64>(row) * a.cols + column] * sigmoid(a.shared_score[row]);
    for (u32 slot = 0; slot < a.used; slot++) {
        u32 pair = row * a.used + slot;
        sum += a.shares[pair] * a.answers[static_cast<u64>(a.place[pair]) * a.cols + column];
    }
    a.out[static_cast<u64>(row) * a.cols + column] += sum;
}
