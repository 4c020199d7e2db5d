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

DEVICE float dot(const float4& a, const float4& b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

const u32 SQUARE = CHUNK + 1; // floats from row to row: columns lie in different banks

// T', P and G of one chunk of one head. A thread has four rows and four columns of the chunk's mutual products.
template <u32 KEY_DIM>
DEVICE void delta_prepare(const Delta& a) {
    const u32 PITCH = key_pitch<KEY_DIM>();
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
    if (threadIdx.x == 0)
        for (u32 t = 1; t < CHUNK; t++) sums[t] += sums[t - 1];
    await_copies<0>();
    __syncthreads();
    u32 row = threadIdx.x / 16 * 4, column = threadIdx.x % 16;
    float kk[4][4] = {}, qk[4][4] = {};
    for (u32 d = 0; d < KEY_DIM; d += 4) {
        float4 others[4];
#pragma unroll
        for (u32 j = 0; j < 4; j++) others[j] = *reinterpret_cast<const float4*>(k + (column + 16 * j) * PITCH + d);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            float4 own_k = *reinterpret_cast<const float4*>(k + (row + i) * PITCH + d);
            float4 own_q = *reinterpret_cast<const float4*>(q + (row + i) * PITCH + d);
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                kk[i][j] += dot(own_k, others[j]);
                qk[i][j] += dot(own_q, others[j]);
            }
        }
    }
    // All have read the queries: what comes of them takes their place.
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < 4; i++)
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 t = row + i, other = column + 16 * j;
            float decay = other <= t ? expf(sums[t] - sums[other]) : 0.0f;
            mixed[t * SQUARE + other] = other < t ? betas[t] * decay * kk[i][j] : 0.0f;
            to[CHUNK * CHUNK + t * CHUNK + other] = decay * qk[i][j];
        }
    __syncthreads();
    // Columns of the inverse from the diagonal downwards. Four threads share one: they take turns at the sum.
    u32 j = threadIdx.x / 4, share = threadIdx.x % 4;
    for (u32 t = 0; t < CHUNK; t++) {
        float sum = 0.0f;
        for (u32 i = j + share; i < t; i += 4) sum += mixed[t * SQUARE + i] * inverse[i * SQUARE + j];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        if (share == 0) inverse[t * SQUARE + j] = t < j ? 0.0f : (t == j ? 1.0f : 0.0f) - sum;
        warp_barrier();
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < CHUNK * CHUNK; i += 256)
        to[i] = inverse[i / CHUNK * SQUARE + i % CHUNK] * betas[i % CHUNK];
    if (threadIdx.x < CHUNK) to[2 * CHUNK * CHUNK + threadIdx.x] = sums[threadIdx.x];
}

KERNEL(delta_prepare_32, 256, Delta) { delta_prepare<32>(a); }
KERNEL(delta_prepare_64, 256, Delta) { delta_prepare<64>(a); }
KERNEL(delta_prepare_128, 256, Delta) { delta_prepare<128>(a); }

// Two columns of four rows, which lie 32 apart.
DEVICE void four_rows(float2 (&rows)[4], const float* first) {
#pragma unroll
    for (u32 e = 0; e < 4; e++) rows[e] = *reinterpret_cast<const float2*>(first + e * 32);
}

// out [2 columns] += four numbers times four rows.
DEVICE void add_rows(float (&out)[2], const float* numbers, const float2 (&rows)[4]) {
    float4 four = *reinterpret_cast<const float4*>(numbers);
    out[0] += dot(four, float4{rows[0].x, rows[1].x, rows[2].x, rows[3].x});
    out[1] += dot(four, float4{rows[0].y, rows[1].y, rows[2].y, rows[3].y});
}

// out [4 tokens, 2 columns] += of [those tokens, CHUNK] · with [CHUNK, 32], where `of` has nothing behind its diagonal.
DEVICE void add_lower(float (&out)[4][2], const float* of, const float* with, u32 token, u32 end, u32 c) {
#pragma unroll 4
    for (u32 t = 0; t < end; t += 4) {
        float2 rows[4];
        four_rows(rows, with + t * 32 + c);
#pragma unroll
        for (u32 i = 0; i < 4; i++) add_rows(out[i], of + (token + i) * CHUNK + t, rows);
    }
}

// Goes through the chunks of a lane with 32 columns of a head's state in shared memory. A thread has two of the columns: of
// four tokens, and of KEY_DIM / 16 rows of the state. The next chunk's keys and queries come while they are not needed.
template <u32 KEY_DIM>
DEVICE void delta_scan(const Delta& a) {
    const u32 PITCH = key_pitch<KEY_DIM>(), OWN = KEY_DIM / 16;
    SHARED(float, state);                   // [KEY_DIM, 32]
    float* left = state + KEY_DIM * 32;     // [CHUNK, 32]: U; then D as the state takes it
    float* corrections = left + CHUNK * 32; // [CHUNK, 32]: D
    float* k = corrections + CHUNK * 32;    // [CHUNK, PITCH]
    float* q = k + CHUNK * PITCH;
    const Lane lane = lane_of(a.lanes, blockIdx.z);
    u32 head = blockIdx.y, group = threadIdx.x / 16, c = threadIdx.x % 16 * 2, column = blockIdx.x * 32 + c;
    // Columns come in fours.
    bool there = column < a.value_dim;
    u32 channels = channels_of(a), keys = a.key_heads * KEY_DIM, values = a.value_heads * a.value_dim;
    u32 token = group * 4, end_of_warp = (threadIdx.x / 32 + 1) * 8;
    float* saved = lane.recurrent + a.state + static_cast<u64>(head) * KEY_DIM * a.value_dim + column;
    for (u32 d = group; d < KEY_DIM; d += 16) {
        float2 two = {0.0f, 0.0f};
        if (there) two = *reinterpret_cast<const float2*>(saved + d * a.value_dim);
        *reinterpret_cast<float2*>(state + d * 32 + c) = two;
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
        float2 v[4] = {};
        float decays[4], rests[4];
        float last = sums[n - 1];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            const float* row = a.qkv + static_cast<u64>(lane.first + first + token + i) * channels + 2 * keys;
            if (there && token + i < n) v[i] = *reinterpret_cast<const float2*>(row + head * a.value_dim + column);
            decays[i] = expf(sums[token + i]);
            rests[i] = token + i < n ? expf(last - sums[token + i]) : 0.0f;
        }
        await_copies<0>();
        __syncthreads();
        float from_q[4][2] = {}, from_k[4][2] = {};
#pragma unroll 4
        for (u32 d = 0; d < KEY_DIM; d += 4) {
            float2 rows[4];
            four_rows(rows, state + d * 32 + c);
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                add_rows(from_q[i], q + (token + i) * PITCH + d, rows);
                add_rows(from_k[i], k + (token + i) * PITCH + d, rows);
            }
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            float2 u = {v[i].x - decays[i] * from_k[i][0], v[i].y - decays[i] * from_k[i][1]};
            if (token + i >= n) u = {0.0f, 0.0f};
            *reinterpret_cast<float2*>(left + (token + i) * 32 + c) = u;
        }
        __syncthreads();
        ask(first + CHUNK, false);
        float own[4][2] = {};
        add_lower(own, of_chunk, left, token, end_of_warp, c);
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            *reinterpret_cast<float2*>(corrections + (token + i) * 32 + c) = float2{own[i][0], own[i][1]};
        __syncthreads();
        float out[4][2];
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            out[i][0] = decays[i] * from_q[i][0];
            out[i][1] = decays[i] * from_q[i][1];
            *reinterpret_cast<float2*>(left + (token + i) * 32 + c) = float2{own[i][0] * rests[i], own[i][1] * rests[i]};
        }
        add_lower(out, of_chunk + CHUNK * CHUNK, corrections, token, end_of_warp, c);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u64 row = lane.first + first + token + i;
            if (there && token + i < n)
                *reinterpret_cast<float2*>(a.out + row * values + head * a.value_dim + column) = float2{out[i][0], out[i][1]};
        }
        __syncthreads();
        // The state behind the chunk.
        float decay = expf(last), next[OWN][2];
#pragma unroll
        for (u32 i = 0; i < OWN; i++) {
            float2 before = *reinterpret_cast<const float2*>(state + (group * OWN + i) * 32 + c);
            next[i][0] = before.x * decay;
            next[i][1] = before.y * decay;
        }
#pragma unroll 4
        for (u32 t = 0; t < n; t++) {
            float2 correction = *reinterpret_cast<const float2*>(left + t * 32 + c);
#pragma unroll
            for (u32 i = 0; i < OWN; i++) {
                float key = k[t * PITCH + group * OWN + i];
                next[i][0] += key * correction.x;
                next[i][1] += key * correction.y;
            }
        }
#pragma unroll
        for (u32 i = 0; i < OWN; i++)
            *reinterpret_cast<float2*>(state + (group * OWN + i) * 32 + c) = float2{next[i][0], next[i][1]};
        __syncthreads();
        ask(first + CHUNK, true);
    }
    for (u32 d = group; d < KEY_DIM && there; d += 16)
        *reinterpret_cast<float2*>(saved + d * a.value_dim) = *reinterpret_cast<const float2*>(state + d * 32 + c);
}

KERNEL(delta_scan_32, 256, Delta) { delta_scan<32>(a); }
KERNEL(delta_scan_64, 256, Delta) { delta_scan<64>(a); }
KERNEL(delta_scan_128, 256, Delta) { delta_scan<128>(a); }
