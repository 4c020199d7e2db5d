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

// Sorts pairs by expert; the order among equals stays. One block.
KERNEL(arrange, 256, Arrange) {
    SHARED(u32, counts); // of each expert, then where it begins
    u32* starts = counts + a.count;
    for (u32 expert = threadIdx.x; expert < a.count; expert += 256) {
        u32 count = 0;
#pragma unroll 8
        for (u32 pair = 0; pair < a.pairs; pair++) count += a.experts[pair] == expert;
        counts[expert] = count;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 start = 0, tiles = 0;
        for (u32 expert = 0; expert < a.count; expert++) {
            starts[expert] = start;
            for (u32 done = 0; done < counts[expert]; done += a.tile_rows) {
                a.tiles[1 + 3 * tiles] = start + done;
                a.tiles[2 + 3 * tiles] = min(a.tile_rows, counts[expert] - done);
                a.tiles[3 + 3 * tiles] = expert;
                tiles++;
            }
            start += counts[expert];
        }
        a.tiles[0] = tiles;
    }
    __syncthreads();
    for (u32 expert = threadIdx.x; expert < a.count; expert += 256) {
        u32 place = starts[expert];
        for (u32 pair = 0; pair < a.pairs; pair++) {
            if (a.experts[pair] != expert) continue;
            a.source[place] = pair / a.used;
            a.of_row[place] = expert;
            a.place[pair] = place++;
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
