// The gated delta rule. `delta.rs` has the algebra: with T the inverse of I + (the chunk's mutual corrections),
//
//   U = v - e^G K S,   D = T' U (T' = T with β on its columns),   o = e^G Q S + P D,   S' = e^Gn S + Σ e^(Gn-G) k Dᵀ
//
// so that all that is wanted of keys and queries alone (T', P, G) is made for all chunks at once, and only the rest goes
// through the chunks one after the other. Columns of the state know nothing of each other: 32 of them are a block's.

const u32 CHUNK = 64, WORTH_CHUNKS = 32; // most tokens of a lane that go one by one

struct Delta {
    const float* qkv;   // [rows, channels], behind the convolution
    const float* decay; // [rows, value heads]: g
    const float* beta;  // [rows, value heads]
    float* out;         // [rows, value heads · value dim]
    const Lane* lanes;
    float* chunks; // [lanes, most chunks, value heads]: T' [64, 64], P [64, 64], G [64]
    u64 state;     // where the layer begins in a lane's
    u32 key_heads, value_heads, key_dim, value_dim, tiled, most_chunks;
};

const u32 OF_CHUNK = 2 * CHUNK * CHUNK + CHUNK;

DEVICE u32 key_head_of(const Delta& a, u32 head) {
    return a.tiled ? head % a.key_heads : head / (a.value_heads / a.key_heads);
}

DEVICE u32 channels_of(const Delta& a) { return 2 * a.key_heads * a.key_dim + a.value_heads * a.value_dim; }

// Token by token, the state in registers: lane c of warp w has rows w·KEYS.. of column c. For few tokens: all that is read of
// them is asked for at once, and lies in shared memory.
template <u32 KEYS>
DEVICE void delta_steps(const Delta& a) {
    const u32 KEY_DIM = 4 * KEYS, WIDTH = 2 * KEY_DIM + 32;
    __shared__ float reads[2][4][32], outs[2][4][32], decays[WORTH_CHUNKS], betas[WORTH_CHUNKS];
    SHARED(float, rows); // [tokens, WIDTH]: query, key, the block's values
    const Lane lane = lane_of(a.lanes, blockIdx.z);
    u32 head = blockIdx.y, warp = threadIdx.x / 32, c = threadIdx.x % 32, column = blockIdx.x * 32 + c;
    bool there = column < a.value_dim;
    u32 channels = channels_of(a), keys = a.key_heads * KEY_DIM;
    float* state = lane.recurrent + a.state + (static_cast<u64>(head) * KEY_DIM + warp * KEYS) * a.value_dim + column;
    // No kernel writes lanes.
    if (c < KEYS) bring_near(state - c + c * a.value_dim);
    follow();
    const float* first = a.qkv + static_cast<u64>(lane.first) * channels;
    for (u32 i = threadIdx.x; i < lane.count * (WIDTH / 4); i += 128) {
        u32 token = i / (WIDTH / 4), part = i % (WIDTH / 4) * 4;
        const float* row = first + static_cast<u64>(token) * channels;
        const float* from = row + key_head_of(a, head) * KEY_DIM + part;
        if (part >= KEY_DIM) from += keys - KEY_DIM;
        // Columns come in fours.
        u32 of_block = blockIdx.x * 32 + part - 2 * KEY_DIM;
        if (part >= 2 * KEY_DIM) from = row + 2 * keys + head * a.value_dim + (of_block < a.value_dim ? of_block : 0);
        copy_ahead(rows + token * WIDTH + part, from, part < 2 * KEY_DIM || of_block < a.value_dim);
    }
    end_of_copies();
    if (threadIdx.x < lane.count) {
        u64 at = static_cast<u64>(lane.first + threadIdx.x) * a.value_heads + head;
        decays[threadIdx.x] = expf(a.decay[at]);
        betas[threadIdx.x] = a.beta[at];
    }
    float s[KEYS];
#pragma unroll
    for (u32 i = 0; i < KEYS; i++) s[i] = there ? state[i * a.value_dim] : 0.0f;
    await_copies<0>();
    __syncthreads();
    // One barrier a token: what it reads of the state shows behind it, and with it the answers of the token before.
    for (u32 token = 0; token <= lane.count; token++) {
        const float* row = rows + token * WIDTH + warp * KEYS;
        const float4 *q = reinterpret_cast<const float4*>(row), *k = reinterpret_cast<const float4*>(row + KEY_DIM);
        u32 now = token % 2, before = 1 - now;
        bool is_token = token < lane.count;
        if (is_token) {
            float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (u32 i = 0; i < KEYS; i += 4) {
                float4 four = k[i / 4];
                sum = {sum.x + s[i] * four.x, sum.y + s[i + 1] * four.y, sum.z + s[i + 2] * four.z, sum.w + s[i + 3] * four.w};
            }
            reads[now][warp][c] = sum.x + sum.y + (sum.z + sum.w);
        }
        __syncthreads();
        if (token > 0 && warp == 0 && there)
            a.out[(static_cast<u64>(lane.first + token - 1) * a.value_heads + head) * a.value_dim + column] =
                outs[before][0][c] + outs[before][1][c] + outs[before][2][c] + outs[before][3][c];
        if (!is_token) break;
        float decay = decays[token], value = rows[token * WIDTH + 2 * KEY_DIM + c];
        float read = reads[now][0][c] + reads[now][1][c] + reads[now][2][c] + reads[now][3][c];
        float correction = betas[token] * (value - decay * read);
        float4 out = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (u32 i = 0; i < KEYS; i += 4) {
            float4 of_k = k[i / 4], of_q = q[i / 4];
            s[i] = s[i] * decay + of_k.x * correction;
            s[i + 1] = s[i + 1] * decay + of_k.y * correction;
            s[i + 2] = s[i + 2] * decay + of_k.z * correction;
            s[i + 3] = s[i + 3] * decay + of_k.w * correction;
            out = {out.x + s[i] * of_q.x, out.y + s[i + 1] * of_q.y, out.z + s[i + 2] * of_q.z, out.w + s[i + 3] * of_q.w};
        }
        outs[now][warp][c] = out.x + out.y + (out.z + out.w);
    }
    if (there) {
#pragma unroll
        for (u32 i = 0; i < KEYS; i++) state[i * a.value_dim] = s[i];
    }
}

KERNEL_AHEAD(delta_steps_32, 128, Delta) { delta_steps<8>(a); }
KERNEL_AHEAD(delta_steps_64, 128, Delta) { delta_steps<16>(a); }
KERNEL_AHEAD(delta_steps_128, 128, Delta) { delta_steps<32>(a); }

// Keys and queries of a chunk, from row to row in shared memory: rows four apart lie in other banks.
template <u32 KEY_DIM>
DEVICE constexpr u32 key_pitch() {
    return KEY_DIM + 4;
}

// Asks for a chunk's rows of queries or keys, without waiting for them; zeros behind its end.
template <u32 KEY_DIM>
DEVICE void ask_rows(const float* from, u32 channels, u32 n, float* to) {
    const u32 PARTS = KEY_DIM / 4;
    for (u32 i = threadIdx.x; i < CHUNK * PARTS; i += 256) {
        u32 t = i / PARTS, part = i % PARTS * 4;
        copy_ahead(to + t * key_pitch<KEY_DIM>() + part, from + static_cast<u64>(t < n ? t : 0) * channels + part, t < n);
    }
}

// Where a block's chunk begins among queries and keys.
DEVICE const float* queries_of(const Delta& a, const Lane& lane, u32 head, u32 first) {
    return a.qkv + static_cast<u64>(lane.first + first) * channels_of(a) + key_head_of(a, head) * a.key_dim;
}

// Numbers in two floats of 11 bits each, for tensor cores: three products of such parts are nearly that of floats.
template <u32 N>
struct Parts {
    u32 high[N], low[N];
};

template <u32 N>
DEVICE Parts<N> parts_of(const float (&numbers)[N]) {
    Parts<N> out;
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        out.high[i] = short_float(numbers[i]);
        out.low[i] = short_float(numbers[i] - float_of(out.high[i]));
    }
    return out;
}

DEVICE void add_product(float (&c)[4], const Parts<4>& a, const Parts<2>& b) { mma_parts(c, a.high, a.low, b.high, b.low); }

// A lane's numbers of a, from the first one on; how far apart rows and columns of it lie.
DEVICE Parts<4> left_of(const float* from, u32 row, u32 column) {
    float four[4] = {from[0], from[8 * row], from[4 * column], from[8 * row + 4 * column]};
    return parts_of(four);
}

const u32 SQUARE = CHUNK + 1; // floats from row to row: columns lie in different banks

// Sums up to each of 64 numbers, by a warp.
DEVICE void add_up(float* numbers) {
    u32 lane = threadIdx.x % 32;
    float first = numbers[2 * lane], second = numbers[2 * lane + 1], total = first + second;
#pragma unroll
    for (u32 apart = 1; apart < 32; apart *= 2) {
        float before = shuffle(total, lane - apart);
        if (lane >= apart) total += before;
    }
    float before = shuffle(total, lane - 1);
    first += lane > 0 ? before : 0.0f;
    numbers[2 * lane] = first;
    numbers[2 * lane + 1] = first + second;
}

// The inverse of I + mixed, which has nothing on its diagonal and behind: first of squares of 16 on the diagonal, a column a
// thread, then of the others by how far they are from it. What lies behind the diagonal's squares is not written. `rest` has
// room for three squares.
DEVICE void invert(const float* mixed, float* inverse, float* rest) {
    const u32 PART = 16, PARTS = CHUNK / PART;
    u32 row = threadIdx.x / PART, column = threadIdx.x % PART;
    if (threadIdx.x < CHUNK) {
        u32 begin = row * PART;
        float x[PART];
#pragma unroll
        for (u32 t = 0; t < PART; t++) {
            x[t] = t == column ? 1.0f : 0.0f;
#pragma unroll
            for (u32 i = 0; i < t; i++) x[t] -= mixed[(begin + t) * SQUARE + begin + i] * x[i];
            inverse[(begin + t) * SQUARE + begin + column] = x[t];
        }
    }
    __syncthreads();
    for (u32 apart = 1; apart < PARTS; apart++) {
        for (u32 across = 0; across + apart < PARTS; across++) {
            u32 t = (across + apart) * PART + row;
            float sum = 0.0f;
#pragma unroll 16
            for (u32 i = across * PART; i < (across + apart) * PART; i++)
                sum += mixed[t * SQUARE + i] * inverse[i * SQUARE + across * PART + column];
            rest[(across * PART + row) * PART + column] = sum;
        }
        __syncthreads();
        for (u32 across = 0; across + apart < PARTS; across++) {
            u32 begin = (across + apart) * PART;
            float sum = 0.0f;
#pragma unroll
            for (u32 i = 0; i < PART; i++)
                sum += inverse[(begin + row) * SQUARE + begin + i] * rest[(across * PART + i) * PART + column];
            inverse[(begin + row) * SQUARE + across * PART + column] = -sum;
        }
        __syncthreads();
    }
}

// T', P and G of one chunk of one head. A warp has 16 rows and 32 columns of the chunk's mutual products, as far as they are
// not behind the diagonal.
template <u32 KEY_DIM>
DEVICE void delta_prepare(const Delta& a) {
    const u32 PITCH = key_pitch<KEY_DIM>(), ACROSS = 4;
    __shared__ float sums[CHUNK], betas[CHUNK];
    SHARED(float, k);                  // [CHUNK, PITCH]
    float* q = k + CHUNK * PITCH;      // the same; then the mutual corrections, and the inverse of I and them
    float* mixed = q;
    float* inverse = q + CHUNK * SQUARE;
    const Lane lane = lane_of(a.lanes, blockIdx.z);
    u32 chunk = blockIdx.x, head = blockIdx.y, first = chunk * CHUNK;
    if (first >= lane.count) return;
    u32 n = min(CHUNK, lane.count - first), keys = a.key_heads * a.key_dim;
    float* to = a.chunks + (static_cast<u64>(blockIdx.z * a.most_chunks + chunk) * a.value_heads + head) * OF_CHUNK;
    const float* from = queries_of(a, lane, head, first);
    ask_rows<KEY_DIM>(from + keys, channels_of(a), n, k);
    ask_rows<KEY_DIM>(from, channels_of(a), n, q);
    end_of_copies();
    if (threadIdx.x < CHUNK) {
        u32 t = threadIdx.x;
        u64 at = static_cast<u64>(lane.first + first + min(t, n - 1)) * a.value_heads + head;
        sums[t] = t < n ? a.decay[at] : 0.0f;
        betas[t] = t < n ? a.beta[at] : 0.0f;
    }
    __syncthreads();
    if (threadIdx.x < 32) add_up(sums);
    await_copies<0>();
    __syncthreads();
    // Warps four apart share a part of the processor: together they have about as much as the others.
    u32 warp = threadIdx.x / 32, lane_id = threadIdx.x % 32, tile = warp < 4 ? warp : 7 - warp;
    u32 token = tile * 16 + lane_id / 4, column = warp / 4 * 32, part = lane_id % 4;
    float kk[ACROSS][4] = {}, qk[ACROSS][4] = {};
    if (column < (tile + 1) * 16)
#pragma unroll 2
        for (u32 d = 0; d < KEY_DIM; d += 8) {
            Parts<4> of_k = left_of(k + token * PITCH + d + part, PITCH, 1), of_q = left_of(q + token * PITCH + d + part, PITCH, 1);
#pragma unroll
            for (u32 j = 0; j < ACROSS; j++) {
                if (column + 8 * j >= (tile + 1) * 16) continue;
                const float* other = k + (column + 8 * j + lane_id / 4) * PITCH + d + part;
                float two[2] = {other[0], other[4]};
                Parts<2> others = parts_of(two);
                add_product(kk[j], of_k, others);
                add_product(qk[j], of_q, others);
            }
        }
    // All have read the queries: what comes of them takes their place.
    __syncthreads();
#pragma unroll
    for (u32 j = 0; j < ACROSS; j++)
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            u32 t = token + 8 * r, other = column + 8 * j + part * 2;
            if (column + 8 * j >= (tile + 1) * 16) continue;
            float decays[2];
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                decays[i] = other + i <= t ? expf(sums[t] - sums[other + i]) : 0.0f;
                mixed[t * SQUARE + other + i] = other + i < t ? betas[t] * decays[i] * kk[j][2 * r + i] : 0.0f;
            }
            *reinterpret_cast<float2*>(to + CHUNK * CHUNK + t * CHUNK + other) =
                float2{decays[0] * qk[j][2 * r], decays[1] * qk[j][2 * r + 1]};
        }
    __syncthreads();
    invert(mixed, inverse, k);
    for (u32 i = threadIdx.x; i < CHUNK * CHUNK; i += 256) {
        u32 t = i / CHUNK, other = i % CHUNK;
        if (other <= t) to[i] = inverse[t * SQUARE + other] * betas[other];
        else to[i] = 0.0f;
    }
    if (threadIdx.x < CHUNK) to[2 * CHUNK * CHUNK + threadIdx.x] = sums[threadIdx.x];
}

KERNEL(delta_prepare_32, 256, Delta) { delta_prepare<32>(a); }
KERNEL(delta_prepare_64, 256, Delta) { delta_prepare<64>(a); }
KERNEL(delta_prepare_128, 256, Delta) { delta_prepare<128>(a); }

// Where a number lies in shared memory, of rows of 32: what a warp reads at once is in different banks.
DEVICE u32 place_of(u32 row, u32 column) { return row * 32 + (column ^ row % 4 * 8); }

// A lane's numbers of b: rows and columns from these on.
DEVICE Parts<2> right_of(const float* rows, u32 row, u32 column) {
    u32 lane = threadIdx.x % 32;
    float two[2] = {rows[place_of(row + lane % 4, column + lane / 4)], rows[place_of(row + lane % 4 + 4, column + lane / 4)]};
    return parts_of(two);
}

// 16 rows of a chunk's square that has nothing behind its diagonal, as a lane needs them.
struct Lower {
    float numbers[CHUNK / 8][4];
};

DEVICE Lower lower_of(const float* of, u32 tile) {
    Lower out;
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 step = 0; step < CHUNK / 8; step++)
        if (step / 2 <= tile) {
            const float* from = of + (tile * 16 + lane / 4) * CHUNK + step * 8 + lane % 4;
            out.numbers[step][0] = from[0];
            out.numbers[step][1] = from[8 * CHUNK];
            out.numbers[step][2] = from[4];
            out.numbers[step][3] = from[8 * CHUNK + 4];
        }
    return out;
}

// out [16, 16] += of [16, CHUNK] · with [CHUNK, 32], of whose columns 16 from `column` on.
DEVICE void add_lower(float (&out)[2][4], const Lower& of, const float* with, u32 tile, u32 column) {
#pragma unroll
    for (u32 step = 0; step < CHUNK / 8; step++)
        if (step / 2 <= tile) {
            Parts<4> left = parts_of(of.numbers[step]);
#pragma unroll
            for (u32 j = 0; j < 2; j++) add_product(out[j], left, right_of(with, step * 8, column + 8 * j));
        }
}

// Goes through the chunks of a lane with 32 columns of a head's state in shared memory. A warp has 16 tokens and 16 of the
// columns, and of the state 16 rows or a part of their columns. The next chunk's keys and queries come while they are not
// needed.
template <u32 KEY_DIM>
DEVICE void delta_scan(const Delta& a) {
    const u32 PITCH = key_pitch<KEY_DIM>(), TILES = KEY_DIM / 16, OWN = KEY_DIM / 32;
    SHARED(float, state);                   // [KEY_DIM, 32]
    float* left = state + KEY_DIM * 32;     // [CHUNK, 32]: U; then D as the state takes it
    float* corrections = left + CHUNK * 32; // [CHUNK, 32]: D
    float* k = corrections + CHUNK * 32;    // [CHUNK, PITCH]
    float* q = k + CHUNK * PITCH;
    const Lane lane = lane_of(a.lanes, blockIdx.z);
    u32 head = blockIdx.y, warp = threadIdx.x / 32, lane_id = threadIdx.x % 32, first_column = blockIdx.x * 32;
    // Warps four apart share a part of the processor: they have as much before the diagonal as the others.
    u32 tile = warp < 4 ? warp : 7 - warp, own_column = warp / 4 * 16, token = tile * 16 + lane_id / 4;
    u32 channels = channels_of(a), keys = a.key_heads * KEY_DIM, values = a.value_heads * a.value_dim;
    float* saved = lane.recurrent + a.state + static_cast<u64>(head) * KEY_DIM * a.value_dim + first_column;
    for (u32 i = threadIdx.x; i < KEY_DIM * 8; i += 256) {
        float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
        // Columns come in fours.
        if (first_column + i % 8 * 4 < a.value_dim) four = *reinterpret_cast<const float4*>(saved + i / 8 * a.value_dim + i % 8 * 4);
        *reinterpret_cast<float4*>(state + place_of(i / 8, i % 8 * 4)) = four;
    }
    auto ask = [&](u32 first, bool of_keys) {
        if (first < lane.count)
            ask_rows<KEY_DIM>(queries_of(a, lane, head, first) + (of_keys ? keys : 0), channels,
                              min(CHUNK, lane.count - first), of_keys ? k : q);
        end_of_copies();
    };
    ask(0, true);
    ask(0, false);
    for (u32 first = 0; first < lane.count; first += CHUNK) {
        u32 n = min(CHUNK, lane.count - first);
        const float* of_chunk =
            a.chunks + (static_cast<u64>(blockIdx.z * a.most_chunks + first / CHUNK) * a.value_heads + head) * OF_CHUNK;
        const float* sums = of_chunk + 2 * CHUNK * CHUNK;
        Lower mixed = lower_of(of_chunk, tile);
        // A lane has pairs of columns of two tokens, 8 apart.
        float2 v[2][2] = {};
        float decays[2], rests[2], last = sums[n - 1];
        u32 pair = own_column + lane_id % 4 * 2;
#pragma unroll
        for (u32 r = 0; r < 2; r++) {
            u32 of = token + 8 * r;
            const float* row = a.qkv + static_cast<u64>(lane.first + first + of) * channels + 2 * keys + head * a.value_dim;
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                u32 column = first_column + pair + 8 * j;
                if (column < a.value_dim && of < n) v[j][r] = *reinterpret_cast<const float2*>(row + column);
            }
            decays[r] = expf(sums[of]);
            rests[r] = of < n ? expf(last - sums[of]) : 0.0f;
        }
        await_copies<0>();
        __syncthreads();
        float from_q[2][4] = {}, from_k[2][4] = {};
#pragma unroll 2
        for (u32 d = 0; d < KEY_DIM; d += 8) {
            Parts<4> of_q = left_of(q + token * PITCH + d + lane_id % 4, PITCH, 1);
            Parts<4> of_k = left_of(k + token * PITCH + d + lane_id % 4, PITCH, 1);
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                Parts<2> of_state = right_of(state, d, own_column + 8 * j);
                add_product(from_q[j], of_q, of_state);
                add_product(from_k[j], of_k, of_state);
            }
        }
        Lower answers = lower_of(of_chunk + CHUNK * CHUNK, tile);
#pragma unroll
        for (u32 j = 0; j < 2; j++)
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                float2 u = {v[j][r].x - decays[r] * from_k[j][2 * r], v[j][r].y - decays[r] * from_k[j][2 * r + 1]};
                if (token + 8 * r >= n) u = {0.0f, 0.0f};
                *reinterpret_cast<float2*>(left + place_of(token + 8 * r, pair + 8 * j)) = u;
            }
        __syncthreads();
        ask(first + CHUNK, false);
        float own[2][4] = {};
        add_lower(own, mixed, left, tile, own_column);
#pragma unroll
        for (u32 j = 0; j < 2; j++)
#pragma unroll
            for (u32 r = 0; r < 2; r++)
                *reinterpret_cast<float2*>(corrections + place_of(token + 8 * r, pair + 8 * j)) =
                    float2{own[j][2 * r], own[j][2 * r + 1]};
        __syncthreads();
        float out[2][4];
#pragma unroll
        for (u32 j = 0; j < 2; j++)
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                out[j][2 * r] = decays[r] * from_q[j][2 * r];
                out[j][2 * r + 1] = decays[r] * from_q[j][2 * r + 1];
                *reinterpret_cast<float2*>(left + place_of(token + 8 * r, pair + 8 * j)) =
                    float2{own[j][2 * r] * rests[r], own[j][2 * r + 1] * rests[r]};
            }
        add_lower(out, answers, corrections, tile, own_column);
#pragma unroll
        for (u32 j = 0; j < 2; j++)
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                u64 row = lane.first + first + token + 8 * r;
                u32 column = first_column + pair + 8 * j;
                if (column < a.value_dim && token + 8 * r < n)
                    *reinterpret_cast<float2*>(a.out + row * values + head * a.value_dim + column) =
                        float2{out[j][2 * r], out[j][2 * r + 1]};
            }
        __syncthreads();
        // The state behind the chunk.
        float decay = expf(last), next[OWN][4];
        u32 row = warp % TILES * 16 + lane_id / 4, from_column = warp / TILES * OWN * 8;
        auto of_state = [&](u32 j, u32 r) {
            return reinterpret_cast<float2*>(state + place_of(row + 8 * r, from_column + 8 * j + lane_id % 4 * 2));
        };
#pragma unroll
        for (u32 j = 0; j < OWN; j++)
#pragma unroll
            for (u32 r = 0; r < 2; r++) {
                float2 before = *of_state(j, r);
                next[j][2 * r] = before.x * decay;
                next[j][2 * r + 1] = before.y * decay;
            }
#pragma unroll 2
        for (u32 t = 0; t < n; t += 8) {
            Parts<4> of_k = left_of(k + (t + lane_id % 4) * PITCH + row, 1, PITCH);
#pragma unroll
            for (u32 j = 0; j < OWN; j++) add_product(next[j], of_k, right_of(left, t, from_column + 8 * j));
        }
#pragma unroll
        for (u32 j = 0; j < OWN; j++)
#pragma unroll
            for (u32 r = 0; r < 2; r++) *of_state(j, r) = float2{next[j][2 * r], next[j][2 * r + 1]};
        __syncthreads();
        ask(first + CHUNK, true);
    }
    for (u32 i = threadIdx.x; i < KEY_DIM * 8; i += 256)
        if (first_column + i % 8 * 4 < a.value_dim)
            *reinterpret_cast<float4*>(saved + i / 8 * a.value_dim + i % 8 * 4) =
                *reinterpret_cast<const float4*>(state + place_of(i / 8, i % 8 * 4));
}

KERNEL(delta_scan_32, 256, Delta) { delta_scan<32>(a); }
KERNEL(delta_scan_64, 256, Delta) { delta_scan<64>(a); }
KERNEL(delta_scan_128, 256, Delta) { delta_scan<128>(a); }
