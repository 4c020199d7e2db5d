// Causal depthwise convolution with SiLU, the norms of queries and keys behind it, and the gates of the delta rule.

const u32 CONVOLVE_THREADS = 64;

struct Convolve {
    const float* x;    // [rows, channels], what the projections gave
    float* out;        // [rows, channels]
    const float* taps; // [past + 1, channels], oldest first
    const Lane* lanes;
    const u64* log_rows; // [rows]: where what the recurrences consume of a row is kept, [channels + 2 · heads]; 0: nowhere
    u64 memory;          // where the layer's memory begins in a lane's, [past, channels]
    u64 layer;           // where the layer begins behind a row's address in the recurrence log
    float* decay;        // [rows, heads]: what the projection gave, then g; null: the gates are there already
    float* beta;         // [rows, heads]
    const float* a_log_neg;
    const float* dt_bias;
    u32 channels, heads;
    u32 keys;          // channels of q, and of k: each head of them is brought to length one
    u32 key_dim;       // divides 128
    u32 rows_of_block; // as many as the past at least
    u32 unused;
};

DEVICE float* logged(const Convolve& a, u32 row) {
    u64 kept = a.log_rows ? a.log_rows[row] : 0;
    return kept ? reinterpret_cast<float*>(kept) + a.layer : nullptr;
}

// Gates of a block's rows of a lane, by some blocks.
DEVICE void make_gates(const Convolve& a, u32 first, u32 last, u32 block, u32 blocks) {
    for (u32 i = first * a.heads + block * CONVOLVE_THREADS + threadIdx.x; i < last * a.heads; i += blocks * CONVOLVE_THREADS) {
        u32 head = i % a.heads;
        float decay = a.a_log_neg[head] * softplus(a.decay[i] + a.dt_bias[head]);
        float beta = sigmoid(a.beta[i]);
        a.decay[i] = decay;
        a.beta[i] = beta;
        float* kept = logged(a, i / a.heads);
        if (!kept) continue;
        kept[a.channels + head] = decay;
        kept[a.channels + a.heads + head] = beta;
    }
}

DEVICE float4 plus_product(const float4& sum, const float4& a, const float4& b) {
    return {sum.x + a.x * b.x, sum.y + a.y * b.y, sum.z + a.z * b.z, sum.w + a.w * b.w};
}

// A block does 256 channels of some rows of a lane, a thread four. The last blocks of a grid's row make gates.
template <u32 PAST>
DEVICE void convolve(const Convolve& a) {
    const u32 AT_ONCE = 8; // rows that a thread asks for at once
    const float4 ZEROS = {0.0f, 0.0f, 0.0f, 0.0f};
    // No kernel writes lanes.
    const Lane lane = lane_of(a.lanes, blockIdx.y);
    u32 first = blockIdx.z * a.rows_of_block, last = min(first + a.rows_of_block, lane.count);
    u32 across = (a.channels + 4 * CONVOLVE_THREADS - 1) / (4 * CONVOLVE_THREADS);
    if (blockIdx.x >= across) {
        follow();
        return make_gates(a, lane.first + first, lane.first + last, blockIdx.x - across, gridDim.x - across);
    }
    u32 channel = (blockIdx.x * CONVOLVE_THREADS + threadIdx.x) * 4, first_of_warp = channel - threadIdx.x % 32 * 4;
    bool there = channel < a.channels;
    float* memory = lane.conv + a.memory + channel;
    const float* x = a.x + static_cast<u64>(lane.first) * a.channels + channel;
    float* out = a.out + static_cast<u64>(lane.first) * a.channels + channel;
    float4 taps[PAST + 1], before[PAST];
#pragma unroll
    for (u32 i = 0; i <= PAST; i++) {
        const float* from = a.taps + static_cast<u64>(i) * a.channels + channel;
        taps[i] = there ? read_weights(reinterpret_cast<const float4*>(from)) : ZEROS;
        if (i < PAST && there && first == 0 && threadIdx.x % 8 == 0) bring_near(memory + static_cast<u64>(i) * a.channels);
    }
    follow();
    if (first >= last) return;
#pragma unroll
    for (u32 i = 0; i < PAST; i++) {
        const float* from = first == 0 ? memory + static_cast<u64>(i) * a.channels
                                       : x + static_cast<u64>(first + i - PAST) * a.channels;
        before[i] = there ? *reinterpret_cast<const float4*>(from) : ZEROS;
    }
    for (u32 begin = first; begin < last; begin += AT_ONCE) {
        float4 rows[AT_ONCE];
        // A lane asks for one row's place in the log, so that no row waits for its own.
        u32 of_lane = threadIdx.x % 32;
        bool is_kept = a.log_rows && of_lane < AT_ONCE && begin + of_lane < last && a.log_rows[lane.first + begin + of_lane];
#pragma unroll
        for (u32 r = 0; r < AT_ONCE; r++) {
            bool is_row = there && begin + r < last;
            rows[r] = is_row ? *reinterpret_cast<const float4*>(x + static_cast<u64>(begin + r) * a.channels) : ZEROS;
        }
        u32 kept_rows = votes(is_kept);
#pragma unroll
        for (u32 r = 0; r < AT_ONCE; r++) {
            u32 row = begin + r;
            if (row >= last) break;
            float4 sum = ZEROS;
#pragma unroll
            for (u32 i = 0; i < PAST; i++) sum = plus_product(sum, taps[i], before[i]);
            sum = plus_product(sum, taps[PAST], rows[r]);
            float4 v = {silu(sum.x), silu(sum.y), silu(sum.z), silu(sum.w)};
            if (first_of_warp < 2 * a.keys) {
                // A head's lanes lie side by side.
                float total = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
                for (u32 mask = a.key_dim / 8; mask > 0; mask >>= 1) total += shuffle_xor(total, mask);
                float factor = channel < 2 * a.keys ? 1.0f / sqrtf(total + 1e-6f) : 1.0f;
                if (channel < a.keys) factor /= sqrtf(static_cast<float>(a.key_dim));
                v = {v.x * factor, v.y * factor, v.z * factor, v.w * factor};
            }
#pragma unroll
            for (u32 i = 0; i + 1 < PAST; i++) before[i] = before[i + 1];
            before[PAST - 1] = rows[r];
            if (!there) continue;
            *reinterpret_cast<float4*>(out + static_cast<u64>(row) * a.channels) = v;
            if ((kept_rows >> r & 1) == 0) continue;
            float* kept = logged(a, lane.first + row) + channel;
            kept[0] = rows[r].x, kept[1] = rows[r].y, kept[2] = rows[r].z, kept[3] = rows[r].w;
        }
    }
    // What is remembered of the inputs, by the block that has read what was remembered: those before the next row.
    if (first > 0 || !there) return;
#pragma unroll
    for (u32 i = 0; i < PAST; i++) {
        float4 input = before[i];
        if (last < lane.count) input = *reinterpret_cast<const float4*>(x + static_cast<u64>(lane.count + i - PAST) * a.channels);
        *reinterpret_cast<float4*>(memory + static_cast<u64>(i) * a.channels) = input;
    }
}

KERNEL_AHEAD(convolve_1, CONVOLVE_THREADS, Convolve) { convolve<1>(a); }
KERNEL_AHEAD(convolve_2, CONVOLVE_THREADS, Convolve) { convolve<2>(a); }
KERNEL_AHEAD(convolve_3, CONVOLVE_THREADS, Convolve) { convolve<3>(a); }
KERNEL_AHEAD(convolve_4, CONVOLVE_THREADS, Convolve) { convolve<4>(a); }

struct ReadLog {
    const u64* log_rows; // as above, none of them 0
    float* x;         // [rows, channels]
    float* decay;     // [rows, heads]
    float* beta;      // [rows, heads]
    u64 layer;
    u32 channels, heads;
};

// Rows of a layer, as `convolve` put them aside. A block does a row.
KERNEL(read_log, 256, ReadLog) {
    u32 row = blockIdx.x, width = a.channels + 2 * a.heads;
    const float* from = reinterpret_cast<const float*>(a.log_rows[row]) + a.layer;
    for (u32 i = threadIdx.x; i < width; i += 256) {
        if (i < a.channels) a.x[static_cast<u64>(row) * a.channels + i] = from[i];
        else if (i < a.channels + a.heads) a.decay[row * a.heads + i - a.channels] = from[i];
        else a.beta[row * a.heads + i - a.channels - a.heads] = from[i];
    }
}
