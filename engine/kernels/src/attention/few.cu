// Attention of up to 16 rows: those of one token, for most of its time a wait for the past. Four warps share the positions
// where scores are made and the dimensions where values are weighed.

const u32 FEW_THREADS = 128;

template <u32 DIM>
DEVICE void attend_few(const Attend& a) {
    const u32 ROWS = 16, TILE = 64, PITCH = pitch_of<DIM>(), SCORES = TILE + 4, WEIGHTS = TILE + 8;
    const u32 ACROSS = DIM / 32; // tiles of eight dimensions of a warp
    SHARED(u16, queries);
    u16* places = queries + ROWS * PITCH;
    u16* weights = places + (tile_bytes<DIM, TILE>() + second_bytes<DIM, TILE>()) / 2;
    float* scores = reinterpret_cast<float*>(weights + ROWS * WEIGHTS);
    float* largest = scores + ROWS * SCORES;
    float* totals = largest + ROWS;
    float* corrections = totals + ROWS;
    const Heads& h = a.heads;
    const Lane lane = lane_of(h.lanes, blockIdx.z); // which no kernel writes, nor the pages' addresses
    OfBlock block = block_of<ROWS, TILE>(a, lane);
    if (block.used == 0) {
        follow();
        return;
    }
    u32 thread = threadIdx.x, lane_id = thread % 32, warp = thread / 32;
    Past keys = past_of<DIM, TILE>(h, lane, block, false, places);
    Past values = past_of<DIM, TILE>(h, lane, block, true, places);
    u32 split = blockIdx.y, loading = keys.loading;
    if (block.begin < block.behind) {
        bring_tile_near<DIM, TILE>(keys, block.begin * TILE);
        bring_tile_near<DIM, TILE>(values, block.begin * TILE);
    }
    follow();
    if (block.begin < block.behind) ask<DIM, TILE>(keys, block.begin * TILE);
    load_queries<DIM, ROWS>(h, lane, block, queries);
    if (thread < ROWS) {
        largest[thread] = LOWEST;
        totals[thread] = 0.0f;
    }
    float sums[ACROSS][4] = {};
    for (u32 at = block.begin; at < block.behind; at++) {
        u32 first = at * TILE;
        await_copies<0>();
        __syncthreads();
        make_halves<DIM, TILE>(keys, first);
        ask<DIM, TILE>(values, first);
        if (loading != DIRECT) __syncthreads();
        float found[2][4] = {};
#pragma unroll
        for (u32 k = 0; k < DIM; k += 16) {
            u32 four[4], q[4];
            load_matrices(four, keys.tile + (warp * 16 + lane_id % 8 + lane_id / 16 * 8) * PITCH + k + lane_id / 8 % 2 * 8);
            load_matrices(q, queries + lane_id % 16 * PITCH + k + lane_id / 16 * 8);
            u32 pairs[2][2] = {{four[0], four[1]}, {four[2], four[3]}};
            mma(found[0], q, pairs[0]);
            mma(found[1], q, pairs[1]);
        }
#pragma unroll
        for (u32 j = 0; j < 2; j++)
#pragma unroll
            for (u32 part = 0; part < 4; part++)
                scores[(lane_id / 4 + part / 2 * 8) * SCORES + warp * 16 + j * 8 + lane_id % 4 * 2 + part % 2] = found[j][part];
        await_copies<0>();
        __syncthreads();
        // The keys are read: values take their place, and the next keys are asked for.
        if (at + 1 < block.behind) ask<DIM, TILE>(keys, first + TILE);
        make_halves<DIM, TILE>(values, first);
        const u32 OF_ROW = FEW_THREADS / ROWS; // threads of a row
        u32 row = thread / OF_ROW, own = thread % OF_ROW, seen = seen_by(lane, block, row);
        float most = LOWEST;
        for (u32 i = own; i < TILE; i += OF_ROW)
            if (first + i < seen) most = fmaxf(most, scores[row * SCORES + i]);
        for (u32 mask = OF_ROW / 2; mask > 0; mask >>= 1) most = fmaxf(most, shuffle_xor(most, mask));
        float before = largest[row], now = fmaxf(before, most), sum = 0.0f;
        for (u32 i = own; i < TILE; i += OF_ROW) {
            float weight = first + i < seen ? exp2f(scores[row * SCORES + i] - now) : 0.0f;
            weights[row * WEIGHTS + i] = float_to_half(weight);
            sum += weight;
        }
        for (u32 mask = OF_ROW / 2; mask > 0; mask >>= 1) sum += shuffle_xor(sum, mask);
        float correction = exp2f(before - now);
        warp_barrier();
        if (own == 0) {
            largest[row] = now;
            totals[row] = totals[row] * correction + sum;
            corrections[row] = correction;
        }
        __syncthreads();
#pragma unroll
        for (u32 j = 0; j < ACROSS; j++)
#pragma unroll
            for (u32 part = 0; part < 4; part++) sums[j][part] *= corrections[lane_id / 4 + part / 2 * 8];
#pragma unroll
        for (u32 k = 0; k < TILE; k += 16) {
            u32 w[4];
            load_matrices(w, weights + lane_id % 16 * WEIGHTS + k + lane_id / 16 * 8);
#pragma unroll
            for (u32 j = 0; j < ACROSS; j += 2) {
                u32 four[4];
                load_transposed(four, values.tile + (k + lane_id % 16) * PITCH + (warp * ACROSS + j) * 8 + lane_id / 16 * 8);
                u32 pairs[2][2] = {{four[0], four[1]}, {four[2], four[3]}};
                mma(sums[j], w, pairs[0]);
                if (j + 1 < ACROSS) mma(sums[j + 1 < ACROSS ? j + 1 : j], w, pairs[1]);
            }
        }
    }
    __syncthreads();
    for (u32 row = thread; row < block.used; row += FEW_THREADS)
        a.stats[static_cast<u64>(split) * a.rows * h.q_heads + head_of(h, lane, block, row)] = {largest[row], totals[row]};
#pragma unroll
    for (u32 j = 0; j < ACROSS; j++)
#pragma unroll
        for (u32 part = 0; part < 4; part++) {
            u32 row = lane_id / 4 + part / 2 * 8, d = (warp * ACROSS + j) * 8 + lane_id % 4 * 2 + part % 2;
            if (row >= block.used || totals[row] == 0.0f) continue;
            u64 head = static_cast<u64>(split) * a.rows * h.q_heads + head_of(h, lane, block, row);
            a.partial[head * DIM + d] = sums[j][part];
        }
}

#define FEW_KERNEL(dim) \
    KERNEL_AHEAD(attend_few_##dim, FEW_THREADS, Attend) { attend_few<dim>(a); }
FEW_KERNEL(32)
FEW_KERNEL(64)
FEW_KERNEL(128)
FEW_KERNEL(256)
