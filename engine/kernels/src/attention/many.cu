// Attention of many rows: a warp has 16 of them from their scores to their answers, and nothing of it leaves its registers.
// All warps of a block wait for the same tiles.

const u32 MANY_THREADS = 256;

template <u32 DIM, u32 TILE>
DEVICE void attend_many(const Attend& a) {
    const u32 ROWS = MANY_THREADS / 32 * 16, PITCH = pitch_of<DIM>(), POSITIONS = TILE / 8, ACROSS = DIM / 8;
    SHARED(u16, queries);
    u16* places = queries + ROWS * PITCH;
    const Heads& h = a.heads;
    const Lane lane = lane_of(h.lanes, blockIdx.z);
    OfBlock block = block_of<ROWS, TILE>(a, lane);
    if (block.used == 0) return;
    u32 lane_id = threadIdx.x % 32, warp = threadIdx.x / 32;
    Past keys = past_of<DIM, TILE>(h, lane, block, false, places);
    Past values = past_of<DIM, TILE>(h, lane, block, true, places);
    u32 split = blockIdx.y, loading = keys.loading;
    if (block.begin < block.behind) ask<DIM, TILE>(keys, block.begin * TILE);
    load_queries<DIM, ROWS>(h, lane, block, queries);
    // A lane has columns of two rows.
    const u32 rows[2] = {warp * 16 + lane_id / 4, warp * 16 + lane_id / 4 + 8};
    const u32 seen[2] = {seen_by(lane, block, rows[0]), seen_by(lane, block, rows[1])};
    // A warp without rows only helps to bring the tiles.
    bool has_rows = warp * 16 < block.used;
    float largest[2] = {LOWEST, LOWEST}, totals[2] = {};
    float sums[ACROSS][4] = {};
    for (u32 at = block.begin; at < block.behind; at++) {
        u32 first = at * TILE;
        await_copies<0>();
        __syncthreads();
        make_halves<DIM, TILE>(keys, first);
        ask<DIM, TILE>(values, first);
        if (loading != DIRECT) __syncthreads();
        float scores[POSITIONS][4] = {};
        if (has_rows)
#pragma unroll
            for (u32 k = 0; k < DIM; k += 16) {
                u32 q[4];
                load_matrices(q, queries + (warp * 16 + lane_id % 16) * PITCH + k + lane_id / 16 * 8);
#pragma unroll
                for (u32 j = 0; j < POSITIONS; j += 2) {
                    u32 four[4];
                    load_matrices(four, keys.tile + (j * 8 + lane_id % 8 + lane_id / 16 * 8) * PITCH + k + lane_id / 8 % 2 * 8);
                    u32 pairs[2][2] = {{four[0], four[1]}, {four[2], four[3]}};
                    mma(scores[j], q, pairs[0]);
                    mma(scores[j + 1], q, pairs[1]);
                }
            }
        float most[2] = {LOWEST, LOWEST};
#pragma unroll
        for (u32 j = 0; j < POSITIONS; j++)
#pragma unroll
            for (u32 part = 0; part < 4; part++) {
                bool sees = first + j * 8 + lane_id % 4 * 2 + part % 2 < seen[part / 2];
                scores[j][part] = sees ? scores[j][part] : LOWEST;
                most[part / 2] = fmaxf(most[part / 2], scores[j][part]);
            }
        float corrections[2];
#pragma unroll
        for (u32 row = 0; row < 2; row++) {
            // Four lanes have the columns of a row.
            for (u32 mask = 2; mask > 0; mask >>= 1) most[row] = fmaxf(most[row], shuffle_xor(most[row], mask));
            float now = fmaxf(largest[row], most[row]);
            corrections[row] = exp2f(largest[row] - now);
            largest[row] = now;
            totals[row] *= corrections[row];
        }
        // After the first tiles the largest score changes seldom.
        if (warp_max(fmaxf(corrections[0] < 1.0f, corrections[1] < 1.0f)) > 0.0f)
#pragma unroll
            for (u32 j = 0; j < ACROSS; j++)
#pragma unroll
                for (u32 part = 0; part < 4; part++) sums[j][part] *= corrections[part / 2];
#pragma unroll
        for (u32 j = 0; j < POSITIONS; j++)
#pragma unroll
            for (u32 part = 0; part < 4; part++) {
                float score = scores[j][part];
                scores[j][part] = score > LOWEST ? exp2f(score - largest[part / 2]) : 0.0f;
                totals[part / 2] += scores[j][part];
            }
        await_copies<0>();
        __syncthreads();
        // All warps have read the keys.
        if (at + 1 < block.behind) ask<DIM, TILE>(keys, first + TILE);
        make_halves<DIM, TILE>(values, first);
        if (loading != DIRECT) __syncthreads();
        if (has_rows)
#pragma unroll
            for (u32 k = 0; k < POSITIONS; k += 2) {
                // What a lane has of the scores is what it needs of the weights.
                u32 weights[4] = {halves(scores[k][0], scores[k][1]), halves(scores[k][2], scores[k][3]),
                                  halves(scores[k + 1][0], scores[k + 1][1]), halves(scores[k + 1][2], scores[k + 1][3])};
#pragma unroll
                for (u32 j = 0; j < ACROSS; j += 2) {
                    u32 four[4];
                    load_transposed(four, values.tile + (k * 8 + lane_id % 16) * PITCH + j * 8 + lane_id / 16 * 8);
                    u32 pairs[2][2] = {{four[0], four[1]}, {four[2], four[3]}};
                    mma(sums[j], weights, pairs[0]);
                    mma(sums[j + 1], weights, pairs[1]);
                }
            }
    }
#pragma unroll
    for (u32 row = 0; row < 2; row++) {
        for (u32 mask = 2; mask > 0; mask >>= 1) totals[row] += shuffle_xor(totals[row], mask);
        if (rows[row] >= block.used) continue;
        u64 head = static_cast<u64>(split) * a.rows * h.q_heads + head_of(h, lane, block, rows[row]);
        if (lane_id % 4 == 0) a.stats[head] = {largest[row], totals[row]};
        if (totals[row] == 0.0f) continue;
        float2* to = reinterpret_cast<float2*>(a.partial + head * DIM) + lane_id % 4;
#pragma unroll
        for (u32 j = 0; j < ACROSS; j++) to[4 * j] = {sums[j][2 * row], sums[j][2 * row + 1]};
    }
}

// 64 positions at a time. With heads of 256 values that wants 133 KiB of shared memory: where there are 99, it is 16.
#define MANY_KERNEL(dim, tile) \
    KERNEL(attend_many_##dim##_##tile, MANY_THREADS, Attend) { attend_many<dim, tile>(a); }
MANY_KERNEL(32, 64)
MANY_KERNEL(64, 64)
MANY_KERNEL(128, 64)
MANY_KERNEL(256, 64)
MANY_KERNEL(256, 16)
