// The gated delta rule. `delta.rs` has the algebra: with T the inverse of I + (the chunk's mutual corrections),
//
//   U = v - e^G K S,   D = T' U (T' = T with β on its columns),   o = e^G Q S + P D,   S' = e^Gn S + Σ e^(Gn-G) k Dᵀ
//
// so that all that is wanted of keys and queries alone (T', P, G) is made for all chunks at once, and only the rest goes
// through the chunks one after the other. Columns of the state know nothing of each other: 32 of them are a block's.

const u32 CHUNK = 64;

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

// Token by token, the state in registers: lane c of warp w has rows w·KEYS.. of column c. For few tokens.
template <u32 KEYS>
DEVICE void delta_steps(const Delta& a) {
    __shared__ float reads[4][32], outs[4][32];
    const Lane& lane = a.lanes[blockIdx.z];
    u32 head = blockIdx.y, warp = threadIdx.x / 32, column = blockIdx.x * 32 + threadIdx.x % 32;
    bool there = column < a.value_dim;
    u32 channels = channels_of(a), keys = a.key_heads * a.key_dim;
    float* state = lane.recurrent + a.state + (static_cast<u64>(head) * a.key_dim + warp * KEYS) * a.value_dim + column;
    float s[KEYS];
#pragma unroll
    for (u32 i = 0; i < KEYS; i++) s[i] = there ? state[i * a.value_dim] : 0.0f;
    for (u32 row = lane.first; row < lane.first + lane.count; row++) {
        const float* q = a.qkv + static_cast<u64>(row) * channels + key_head_of(a, head) * a.key_dim + warp * KEYS;
        const float* k = q + keys;
        float value = there ? a.qkv[static_cast<u64>(row) * channels + 2 * keys + head * a.value_dim + column] : 0.0f;
        float decay = expf(a.decay[row * a.value_heads + head]), beta = a.beta[row * a.value_heads + head];
        float read = 0.0f;
#pragma unroll
        for (u32 i = 0; i < KEYS; i++) read += s[i] * k[i];
        reads[warp][threadIdx.x % 32] = read;
        __syncthreads();
        u32 c = threadIdx.x % 32;
        float correction = beta * (value - decay * (reads[0][c] + reads[1][c] + reads[2][c] + reads[3][c]));
        float out = 0.0f;
#pragma unroll
        for (u32 i = 0; i < KEYS; i++) {
            s[i] = s[i] * decay + k[i] * correction;
            out += s[i] * q[i];
        }
        outs[warp][c] = out;
        __syncthreads();
        if (warp == 0 && there)
            a.out[static_cast<u64>(row) * a.value_heads * a.value_dim + head * a.value_dim + column] =
                outs[0][c] + outs[1][c] + outs[2][c] + outs[3][c];
    }
    if (there) {
#pragma unroll
        for (u32 i = 0; i < KEYS; i++) state[i * a.value_dim] = s[i];
    }
}

KERNEL(delta_steps_32, 128, Delta) { delta_steps<8>(a); }
KERNEL(delta_steps_64, 128, Delta) { delta_steps<16>(a); }
KERNEL(delta_steps_128, 128, Delta) { delta_steps<32>(a); }

// T', P and G of one chunk of one head.
KERNEL(delta_prepare, 256, Delta) {
    __shared__ float sums[CHUNK], betas[CHUNK];
    SHARED(float, shared);
    const Lane& lane = a.lanes[blockIdx.z];
    u32 chunk = blockIdx.x, head = blockIdx.y, first = chunk * CHUNK;
    if (first >= lane.count) return;
    u32 n = min(CHUNK, lane.count - first), pitch = a.key_dim + 1;
    u32 channels = channels_of(a), keys = a.key_heads * a.key_dim;
    float* k = shared;              // [CHUNK, pitch]
    float* mixed = k + CHUNK * pitch; // [CHUNK, CHUNK + 1]: the mutual corrections
    float* inverse = mixed + CHUNK * (CHUNK + 1);
    float* to = a.chunks + (static_cast<u64>(blockIdx.z * a.most_chunks + chunk) * a.value_heads + head) * OF_CHUNK;
    const float* q = a.qkv + static_cast<u64>(lane.first + first) * channels + key_head_of(a, head) * a.key_dim;
    for (u32 i = threadIdx.x; i < CHUNK * a.key_dim; i += 256) {
        u32 t = i / a.key_dim, d = i % a.key_dim;
        k[t * pitch + d] = t < n ? q[static_cast<u64>(t) * channels + keys + d] : 0.0f;
    }
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (u32 t = 0; t < CHUNK; t++) {
            u64 at = static_cast<u64>(lane.first + first + (t < n ? t : n - 1)) * a.value_heads + head;
            if (t < n) sum += a.decay[at];
            sums[t] = sum;
            betas[t] = t < n ? a.beta[at] : 0.0f;
        }
    }
    __syncthreads();
    // A warp takes a row of q or k at a time: its values are the same for all lanes, each lane has two columns.
    for (u32 t = threadIdx.x / 32; t < CHUNK; t += 8) {
        float kk[2] = {}, qk[2] = {};
        const float* own_q = q + static_cast<u64>(t < n ? t : 0) * channels;
        for (u32 d = 0; d < a.key_dim; d++) {
            float q_d = t < n ? own_q[d] : 0.0f, k_d = k[t * pitch + d];
            for (u32 half = 0; half < 2; half++) {
                float other = k[(threadIdx.x % 32 + 32 * half) * pitch + d];
                kk[half] += k_d * other;
                qk[half] += q_d * other;
            }
        }
        for (u32 half = 0; half < 2; half++) {
            u32 i = threadIdx.x % 32 + 32 * half;
            float decay = i <= t ? expf(sums[t] - sums[i]) : 0.0f;
            mixed[t * (CHUNK + 1) + i] = i < t ? betas[t] * decay * kk[half] : 0.0f;
            to[CHUNK * CHUNK + t * CHUNK + i] = decay * qk[half];
        }
    }
    __syncthreads();
    // Column j of the inverse, from its diagonal downwards; a thread a column.
    if (threadIdx.x < CHUNK) {
        u32 j = threadIdx.x;
        for (u32 t = 0; t < CHUNK; t++) {
            float sum = t == j ? 1.0f : 0.0f;
            for (u32 i = j; i < t; i++) sum -= mixed[t * (CHUNK + 1) + i] * inverse[i * (CHUNK + 1) + j];
            inverse[t * (CHUNK + 1) + j] = t < j ? 0.0f : sum;
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < CHUNK * CHUNK; i += 256)
        to[i] = inverse[i / CHUNK * (CHUNK + 1) + i % CHUNK] * betas[i % CHUNK];
    if (threadIdx.x < CHUNK) to[2 * CHUNK * CHUNK + threadIdx.x] = sums[threadIdx.x];
}

// Goes through the chunks of a lane with 32 columns of a head's state in shared memory. Lane c of warp w has column c of
// tokens 8w..8w + 8, and of state rows w, w + 8, ...
template <u32 KEY_DIM>
DEVICE void delta_scan(const Delta& a) {
    SHARED(float, shared);
    float* state = shared;                    // [KEY_DIM, 32]
    float* left = shared + KEY_DIM * 32;      // U, [CHUNK, 32]
    float* corrections = left + CHUNK * 32;   // D, [CHUNK, 32]
    const Lane& lane = a.lanes[blockIdx.z];
    u32 head = blockIdx.y, warp = threadIdx.x / 32, c = threadIdx.x % 32, column = blockIdx.x * 32 + c;
    bool there = column < a.value_dim;
    u32 channels = channels_of(a), keys = a.key_heads * a.key_dim, values = a.value_heads * a.value_dim;
    float* saved = lane.recurrent + a.state + static_cast<u64>(head) * KEY_DIM * a.value_dim + column;
    for (u32 d = warp; d < KEY_DIM; d += 8) state[d * 32 + c] = there ? saved[d * a.value_dim] : 0.0f;
    for (u32 first = 0; first < lane.count; first += CHUNK) {
        u32 n = min(CHUNK, lane.count - first);
        const float* of_chunk =
            a.chunks + (static_cast<u64>(blockIdx.z * a.most_chunks + first / CHUNK) * a.value_heads + head) * OF_CHUNK;
        const float* sums = of_chunk + 2 * CHUNK * CHUNK;
        const float* q = a.qkv + static_cast<u64>(lane.first + first) * channels + key_head_of(a, head) * KEY_DIM;
        const float* v = a.qkv + static_cast<u64>(lane.first + first) * channels + 2 * keys + head * a.value_dim + column;
        __syncthreads();
        float from_q[8] = {}, from_k[8] = {};
        for (u32 d = 0; d < KEY_DIM; d += 4) {
            float s[4];
#pragma unroll
            for (u32 e = 0; e < 4; e++) s[e] = state[(d + e) * 32 + c];
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                u32 t = min(warp * 8 + i, n - 1);
                const float* at = q + static_cast<u64>(t) * channels + d;
                float4 q4 = *reinterpret_cast<const float4*>(at), k4 = *reinterpret_cast<const float4*>(at + keys);
                from_q[i] += q4.x * s[0] + q4.y * s[1] + q4.z * s[2] + q4.w * s[3];
                from_k[i] += k4.x * s[0] + k4.y * s[1] + k4.z * s[2] + k4.w * s[3];
            }
        }
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u32 t = warp * 8 + i;
            float value = there && t < n ? v[static_cast<u64>(t) * channels] - expf(sums[t]) * from_k[i] : 0.0f;
            left[t * 32 + c] = value;
        }
        __syncthreads();
        float own[8] = {};
        for (u32 t = 0; t < CHUNK; t += 4) {
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                float4 w = *reinterpret_cast<const float4*>(of_chunk + (warp * 8 + i) * CHUNK + t);
                own[i] += w.x * left[t * 32 + c] + w.y * left[(t + 1) * 32 + c] + w.z * left[(t + 2) * 32 + c] +
                          w.w * left[(t + 3) * 32 + c];
            }
        }
#pragma unroll
        for (u32 i = 0; i < 8; i++) corrections[(warp * 8 + i) * 32 + c] = own[i];
        __syncthreads();
        float out[8];
#pragma unroll
        for (u32 i = 0; i < 8; i++) out[i] = expf(sums[warp * 8 + i]) * from_q[i];
        for (u32 t = 0; t < CHUNK; t += 4) {
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                float4 w = *reinterpret_cast<const float4*>(of_chunk + CHUNK * CHUNK + (warp * 8 + i) * CHUNK + t);
                out[i] += w.x * corrections[t * 32 + c] + w.y * corrections[(t + 1) * 32 + c] +
                          w.z * corrections[(t + 2) * 32 + c] + w.w * corrections[(t + 3) * 32 + c];
            }
        }
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            u32 t = warp * 8 + i;
            if (there && t < n)
                a.out[static_cast<u64>(lane.first + first + t) * values + head * a.value_dim + column] = out[i];
        }
        // The state behind the chunk: rows w, w + 8, ... of a warp.
        float decay = expf(sums[n - 1]), next[KEY_DIM / 8];
#pragma unroll
        for (u32 i = 0; i < KEY_DIM / 8; i++) next[i] = state[(warp + 8 * i) * 32 + c] * decay;
        for (u32 t = 0; t < n; t++) {
            float correction = corrections[t * 32 + c] * expf(sums[n - 1] - sums[t]);
            const float* k = q + keys + static_cast<u64>(t) * channels + warp;
#pragma unroll
            for (u32 i = 0; i < KEY_DIM / 8; i++) next[i] += k[8 * i] * correction;
        }
#pragma unroll
        for (u32 i = 0; i < KEY_DIM / 8; i++) state[(warp + 8 * i) * 32 + c] = next[i];
    }
    __syncthreads();
    for (u32 d = warp; d < KEY_DIM && there; d += 8) saved[d * a.value_dim] = state[d * 32 + c];
}

KERNEL(delta_scan_32, 256, Delta) { delta_scan<32>(a); }
KERNEL(delta_scan_64, 256, Delta) { delta_scan<64>(a); }
KERNEL(delta_scan_128, 256, Delta) { delta_scan<128>(a); }
