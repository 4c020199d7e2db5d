// Attention over pages of keys and values. Pages lie as on a CPU: for each layer the keys of all heads, then the values of
// all heads, each head's rows one after the other, in the formats of the sequence.
//
// Three steps: heads are made ready and written into the pages; blocks go through parts of the past (`attend`); the parts
// are put together and gated (`combine`).

const u32 PAGE = 256;  // positions of a page
const u32 TILE = 64;   // positions that are worked on together

// What all steps know of the layer's heads.
struct Heads {
    const Lane* lanes;
    const u32* lane_of_row;
    float* q;            // [rows, q heads, query then gate, dim]
    u32 q_heads, kv_heads, dim;
    u32 layer;           // among the attention layers
};

// The row of one head at one position.
DEVICE u8* row_in_page(const Heads& h, const Lane& lane, u32 position, u32 head, bool value) {
    u32 key_bytes = bytes_of_values(lane.key_kind, h.dim), value_bytes = bytes_of_values(lane.value_kind, h.dim);
    u64 layer = static_cast<u64>(h.layer) * h.kv_heads * PAGE * (key_bytes + value_bytes);
    u64 before = value ? static_cast<u64>(h.kv_heads) * PAGE * key_bytes : 0;
    u64 row = static_cast<u64>(head * PAGE + position % PAGE) * (value ? value_bytes : key_bytes);
    return reinterpret_cast<u8*>(lane.pages[position / PAGE]) + layer + before + row;
}

struct Prepare {
    Heads heads;
    const float* k;      // [rows, kv heads, dim]
    const float* v;
    const float* q_norm; // [dim]
    const float* k_norm;
    const float* turns;  // [rows, cosines, sines]
    u32 pairs;
    float eps;
};

// Norms and turns queries in their place and keys on their way into the pages. A warp does a head of a row.
KERNEL(prepare_heads, 32, Prepare) {
    SHARED(float, row);
    const Heads& h = a.heads;
    u32 index = blockIdx.x, head = blockIdx.y, lane_id = threadIdx.x;
    const Lane& lane = h.lanes[h.lane_of_row[index]];
    u32 position = lane.position + index - lane.first;
    bool is_q = head < h.q_heads, is_k = !is_q && head < h.q_heads + h.kv_heads;
    u32 kv_head = is_q ? 0 : (head - h.q_heads) % h.kv_heads;
    float* q = h.q + (static_cast<u64>(index) * h.q_heads + head) * 2 * h.dim;
    const float* kv = (is_k ? a.k : a.v) + (static_cast<u64>(index) * h.kv_heads + kv_head) * h.dim;
    const float* from = is_q ? q : kv;
    float squares = 0.0f;
    for (u32 i = lane_id; i < h.dim; i += 32) {
        row[i] = from[i];
        squares += from[i] * from[i];
    }
    if (is_q || is_k) {
        float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(h.dim) + a.eps);
        const float* norm = is_q ? a.q_norm : a.k_norm;
        for (u32 i = lane_id; i < h.dim; i += 32) row[i] = row[i] * scale * norm[i];
        warp_barrier();
        const float* turns = a.turns + static_cast<u64>(index) * 2 * a.pairs;
        for (u32 pair = lane_id; pair < a.pairs; pair += 32) {
            float first = row[pair], second = row[a.pairs + pair], cosine = turns[pair], sine = turns[a.pairs + pair];
            row[pair] = first * cosine - second * sine;
            row[a.pairs + pair] = second * cosine + first * sine;
        }
    }
    warp_barrier();
    if (is_q)
        for (u32 i = lane_id; i < h.dim; i += 32) q[i] = row[i];
    else
        write_values(row_in_page(h, lane, position, kv_head, !is_k), is_k ? lane.key_kind : lane.value_kind, row, h.dim);
}

struct Attend {
    Heads heads;
    float* partial; // [splits, rows, q heads, dim], sums that are not divided yet
    float2* stats;  // [splits, rows, q heads]: the largest score and the sum of weights
    u32 rows, splits, row_tiles, unused;
};

// Positions first..first + 64 of one head as halves; zeros behind the end.
template <u32 DIM>
DEVICE void load_tile(const Heads& h, const Lane& lane, u32 kv_head, bool value, u32 first, u32 end, u16* tile) {
    const u32 PITCH = DIM + 8;
    u32 kind = value ? lane.value_kind : lane.key_kind;
    const u8* rows = row_in_page(h, lane, first, kv_head, value);
    u32 row_bytes = bytes_of_values(kind, DIM);
    if (kind == Q8_0 || kind == Q4_0) {
        for (u32 i = threadIdx.x; i < TILE * (DIM / 32); i += 128) {
            u32 row = i / (DIM / 32), block = i % (DIM / 32);
            uint4* to = reinterpret_cast<uint4*>(tile + row * PITCH + block * 32);
            u32 pairs[16];
            if (first + row < end) {
                const u16* from = reinterpret_cast<const u16*>(rows + row * row_bytes + block * (kind == Q8_0 ? 34 : 18));
                float scale = half_to_float(from[0]);
                if (kind == Q8_0) {
#pragma unroll
                    for (u32 j = 0; j < 16; j++) {
                        u32 two = from[1 + j];
                        pairs[j] = halves(scale * static_cast<float>(static_cast<i8>(two)),
                                          scale * static_cast<float>(static_cast<i8>(two >> 8)));
                    }
                } else {
#pragma unroll
                    for (u32 j = 0; j < 8; j++) {
                        int two = from[1 + j];
                        pairs[j] = halves(scale * static_cast<float>((two & 15) - 8),
                                          scale * static_cast<float>((two >> 8 & 15) - 8));
                        pairs[j + 8] = halves(scale * static_cast<float>((two >> 4 & 15) - 8),
                                              scale * static_cast<float>((two >> 12 & 15) - 8));
                    }
                }
            } else {
#pragma unroll
                for (u32 j = 0; j < 16; j++) pairs[j] = 0;
            }
#pragma unroll
            for (u32 j = 0; j < 4; j++) to[j] = {pairs[4 * j], pairs[4 * j + 1], pairs[4 * j + 2], pairs[4 * j + 3]};
        }
        return;
    }
    for (u32 i = threadIdx.x; i < TILE * (DIM / 8); i += 128) {
        u32 row = i / (DIM / 8), part = i % (DIM / 8);
        uint4 eight = {0, 0, 0, 0};
        if (first + row < end) {
            const u8* from = rows + row * row_bytes;
            if (kind == F32) {
                float4 low = reinterpret_cast<const float4*>(from)[2 * part], high = reinterpret_cast<const float4*>(from)[2 * part + 1];
                eight = {halves(low.x, low.y), halves(low.z, low.w), halves(high.x, high.y), halves(high.z, high.w)};
            } else {
                eight = reinterpret_cast<const uint4*>(from)[part];
            }
            if (kind == BF16) {
                u32 pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
                for (u32 j = 0; j < 4; j++)
                    pairs[j] = halves(bf16_to_float(static_cast<u16>(pairs[j])), bf16_to_float(static_cast<u16>(pairs[j] >> 16)));
                eight = {pairs[0], pairs[1], pairs[2], pairs[3]};
            }
        }
        reinterpret_cast<uint4*>(tile + row * PITCH)[part] = eight;
    }
}

// A block has 16 · DOWN rows (tokens times the query heads that share a key head) of one lane and key head, and a part of
// the past. Four warps share the positions where scores are made and the dimensions where values are weighed.
template <u32 DIM, u32 DOWN>
DEVICE void attend(const Attend& a) {
    const u32 PITCH = DIM + 8, ROWS = 16 * DOWN, SCORES = TILE + 4, WEIGHTS = TILE + 8;
    const u32 ACROSS = DIM / 32; // tiles of eight dimensions of a warp
    SHARED(u16, queries);
    u16* tile = queries + ROWS * PITCH;
    u16* weights = tile + TILE * PITCH;
    float* scores = reinterpret_cast<float*>(weights + ROWS * WEIGHTS);
    float* largest = scores + ROWS * SCORES;
    float* totals = largest + ROWS;
    float* corrections = totals + ROWS;
    const Heads& h = a.heads;
    const Lane& lane = h.lanes[blockIdx.z];
    u32 group = h.q_heads / h.kv_heads, tokens = ROWS / group;
    u32 kv_head = blockIdx.x / a.row_tiles, first_token = blockIdx.x % a.row_tiles * tokens, split = blockIdx.y;
    if (first_token >= lane.count) return;
    u32 used = min(tokens, lane.count - first_token) * group;
    u32 thread = threadIdx.x, lane_id = thread % 32, warp = thread / 32;
    float scale = 1.0f / sqrtf(static_cast<float>(DIM));
    for (u32 i = thread; i < ROWS * DIM; i += 128) {
        u32 row = i / DIM, d = i % DIM;
        u64 token = lane.first + first_token + row / group, head = kv_head * group + row % group;
        float value = row < used ? h.q[(token * h.q_heads + head) * 2 * DIM + d] * scale : 0.0f;
        queries[row * PITCH + d] = float_to_half(value);
    }
    if (thread < ROWS) {
        largest[thread] = LOWEST;
        totals[thread] = 0.0f;
    }
    u32 end = lane.position + first_token + used / group;
    u32 tiles = (end + TILE - 1) / TILE;
    float sums[DOWN][ACROSS][4] = {};
    for (u32 at = split * tiles / a.splits; at < (split + 1) * tiles / a.splits; at++) {
        u32 first = at * TILE;
        load_tile<DIM>(h, lane, kv_head, false, first, end, tile);
        __syncthreads();
        float found[DOWN][2][4] = {};
#pragma unroll
        for (u32 k = 0; k < DIM; k += 16) {
            u32 keys[4];
            load_matrices(keys, tile + (warp * 16 + lane_id % 8 + lane_id / 16 * 8) * PITCH + k + lane_id / 8 % 2 * 8);
            u32 pairs[2][2] = {{keys[0], keys[1]}, {keys[2], keys[3]}};
#pragma unroll
            for (u32 i = 0; i < DOWN; i++) {
                u32 q[4];
                load_matrices(q, queries + (i * 16 + lane_id % 16) * PITCH + k + lane_id / 16 * 8);
                mma(found[i][0], q, pairs[0]);
                mma(found[i][1], q, pairs[1]);
            }
        }
#pragma unroll
        for (u32 i = 0; i < DOWN; i++)
#pragma unroll
            for (u32 j = 0; j < 2; j++)
#pragma unroll
                for (u32 part = 0; part < 4; part++)
                    scores[(i * 16 + lane_id / 4 + part / 2 * 8) * SCORES + warp * 16 + j * 8 + lane_id % 4 * 2 + part % 2] =
                        found[i][j][part];
        __syncthreads();
        // The keys are read: values take their place while scores become weights.
        load_tile<DIM>(h, lane, kv_head, true, first, end, tile);
        const u32 OF_ROW = 128 / ROWS; // threads of a row
        u32 row = thread / OF_ROW, own = thread % OF_ROW;
        u32 seen = row < used ? lane.position + first_token + row / group + 1 : 0;
        float most = LOWEST;
        for (u32 i = own; i < TILE; i += OF_ROW)
            if (first + i < seen) most = fmaxf(most, scores[row * SCORES + i]);
        for (u32 mask = OF_ROW / 2; mask > 0; mask >>= 1) most = fmaxf(most, shuffle_xor(most, mask));
        float before = largest[row], now = fmaxf(before, most), sum = 0.0f;
        for (u32 i = own; i < TILE; i += OF_ROW) {
            float weight = first + i < seen ? expf(scores[row * SCORES + i] - now) : 0.0f;
            weights[row * WEIGHTS + i] = float_to_half(weight);
            sum += weight;
        }
        for (u32 mask = OF_ROW / 2; mask > 0; mask >>= 1) sum += shuffle_xor(sum, mask);
        float correction = expf(before - now);
        warp_barrier();
        if (own == 0) {
            largest[row] = now;
            totals[row] = totals[row] * correction + sum;
            corrections[row] = correction;
        }
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < DOWN; i++)
#pragma unroll
            for (u32 j = 0; j < ACROSS; j++)
#pragma unroll
                for (u32 part = 0; part < 4; part++) sums[i][j][part] *= corrections[i * 16 + lane_id / 4 + part / 2 * 8];
#pragma unroll
        for (u32 k = 0; k < TILE; k += 16) {
            u32 w[DOWN][4];
#pragma unroll
            for (u32 i = 0; i < DOWN; i++) load_matrices(w[i], weights + (i * 16 + lane_id % 16) * WEIGHTS + k + lane_id / 16 * 8);
#pragma unroll
            for (u32 j = 0; j < ACROSS; j += 2) {
                u32 values[4];
                load_transposed(values, tile + (k + lane_id % 16) * PITCH + (warp * ACROSS + j) * 8 + lane_id / 16 * 8);
                u32 pairs[2][2] = {{values[0], values[1]}, {values[2], values[3]}};
#pragma unroll
                for (u32 i = 0; i < DOWN; i++) {
                    mma(sums[i][j], w[i], pairs[0]);
                    if (j + 1 < ACROSS) mma(sums[i][j + 1 < ACROSS ? j + 1 : j], w[i], pairs[1]);
                }
            }
        }
        __syncthreads();
    }
    __syncthreads();
    for (u32 row = thread; row < used; row += 128) {
        u64 token = lane.first + first_token + row / group, head = kv_head * group + row % group;
        a.stats[(static_cast<u64>(split) * a.rows + token) * h.q_heads + head] = {largest[row], totals[row]};
    }
#pragma unroll
    for (u32 i = 0; i < DOWN; i++)
#pragma unroll
        for (u32 j = 0; j < ACROSS; j++)
#pragma unroll
            for (u32 part = 0; part < 4; part++) {
                u32 row = i * 16 + lane_id / 4 + part / 2 * 8, d = (warp * ACROSS + j) * 8 + lane_id % 4 * 2 + part % 2;
                if (row >= used || totals[row] == 0.0f) continue;
                u64 token = lane.first + first_token + row / group, head = kv_head * group + row % group;
                a.partial[((static_cast<u64>(split) * a.rows + token) * h.q_heads + head) * DIM + d] = sums[i][j][part];
            }
}

#define ATTEND_KERNELS(dim)                                             \
    KERNEL(attend_##dim##_1, 128, Attend) { attend<dim, 1>(a); }        \
    KERNEL(attend_##dim##_4, 128, Attend) { attend<dim, 4>(a); }
ATTEND_KERNELS(32)
ATTEND_KERNELS(64)
ATTEND_KERNELS(128)
ATTEND_KERNELS(256)

const u32 MOST_SPLITS = 128;

struct Combine {
    Heads heads;
    const float* partial;
    const float2* stats;
    Rows to; // cols: q heads · dim
    u32 rows, splits;
    u32 heads_of_block; // all, or one where no halves are wanted
    u32 unused;
};

// The parts of the past together, times the sigmoid of the gate. A block does some heads of a row.
KERNEL(combine, 256, Combine) {
    __shared__ float scratch[32], shares[MOST_SPLITS];
    SHARED(float, row);
    const Heads& h = a.heads;
    u64 next = static_cast<u64>(a.rows) * h.q_heads;
    u32 first = blockIdx.y * a.heads_of_block, last = min(first + a.heads_of_block, h.q_heads);
    for (u32 of_row = first; of_row < last; of_row++) {
        u64 head = static_cast<u64>(blockIdx.x) * h.q_heads + of_row;
        float2 part = {LOWEST, 0.0f};
        if (threadIdx.x < a.splits) part = a.stats[threadIdx.x * next + head];
        bool seen = part.y > 0.0f;
        float largest = block_max(seen ? part.x : LOWEST, scratch);
        float weight = seen ? expf(part.x - largest) : 0.0f;
        float total = block_sum(part.y * weight, scratch);
        if (threadIdx.x < a.splits) shares[threadIdx.x] = weight / total;
        __syncthreads();
        for (u32 d = threadIdx.x; d < h.dim; d += 256) {
            float sum = 0.0f;
            // What saw nothing has written nothing.
#pragma unroll 8
            for (u32 split = 0; split < a.splits; split++)
                sum += shares[split] > 0.0f ? a.partial[(split * next + head) * h.dim + d] * shares[split] : 0.0f;
            row[(of_row - first) * h.dim + d] = sum * sigmoid(h.q[(head * 2 + 1) * h.dim + d]);
        }
        __syncthreads();
    }
    write_row(row - first * h.dim, blockIdx.x, first * h.dim, last * h.dim, a.to, scratch);
}
