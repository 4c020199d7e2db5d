// Causal depthwise convolution with SiLU, the norms of queries and keys behind it, and the gates of the delta rule.

struct Convolve {
    const float* x;    // [rows, channels], what the projections gave
    float* out;        // [rows, channels]
    const float* taps; // [past + 1, channels], oldest first
    const Lane* lanes;
    const u64* log_rows; // [rows]: where what the recurrences consume of a row is kept, [channels + 2 · heads]; 0: nowhere
    u64 memory;          // where the layer's memory begins in a lane's
    u64 layer;           // where the layer begins behind a row's address in the recurrence log
    u32 channels, past;
    u32 keys;          // channels of q, and of k: each head of them is brought to length one
    u32 key_dim;
    u32 rows_of_block; // more than any lane has: the same block replaces the memory
    u32 unused;
};

DEVICE float conv_input(const Convolve& a, const Lane& lane, u32 channel, int row) {
    if (row >= 0) return a.x[static_cast<u64>(lane.first + row) * a.channels + channel];
    return lane.conv[a.memory + static_cast<u64>(a.past + row) * a.channels + channel];
}

// What is remembered of the inputs, oldest first: those before the next row.
DEVICE void keep_inputs(const Convolve& a, const Lane& lane, u32 channel) {
    // From the oldest on: what is read lies behind what was written.
    for (u32 i = 0; i < a.past; i++) {
        float input = conv_input(a, lane, channel, static_cast<int>(lane.count + i) - static_cast<int>(a.past));
        lane.conv[a.memory + static_cast<u64>(i) * a.channels + channel] = input;
    }
}

// A block does 256 channels of some rows of a lane.
KERNEL_AHEAD(convolve, 256, Convolve) {
    __shared__ float squares[8];
    // No kernel writes lanes.
    const Lane lane = lane_of(a.lanes, blockIdx.y);
    u32 channel = blockIdx.x * 256 + threadIdx.x, warp = threadIdx.x / 32;
    bool there = channel < a.channels;
    for (u32 i = threadIdx.x % 32; i < a.past + 1 && there; i += 32) {
        u64 row = static_cast<u64>(i) * a.channels + channel / 32 * 32;
        bring_near(a.taps + row);
        if (i < a.past) bring_near(lane.conv + a.memory + row);
    }
    follow();
    u32 first = blockIdx.z * a.rows_of_block, last = min(first + a.rows_of_block, lane.count);
    bool is_key = channel < 2 * a.keys;
    u32 warps = a.key_dim / 32, head = warp / warps * warps;
    for (u32 row = first; row < last; row++) {
        float sum = 0.0f;
        for (u32 i = 0; i <= a.past && there; i++)
            sum += a.taps[i * a.channels + channel] *
                   conv_input(a, lane, channel, static_cast<int>(row + i) - static_cast<int>(a.past));
        float value = there ? silu(sum) : 0.0f;
        if (blockIdx.x * 256 < 2 * a.keys) {
            float own = warp_sum(value * value);
            if (threadIdx.x % 32 == 0) squares[warp] = own;
            __syncthreads();
            float total = 0.0f;
            for (u32 i = head; i < head + warps; i++) total += squares[i];
            __syncthreads();
            if (is_key) value /= sqrtf(total + 1e-6f);
            if (channel < a.keys) value /= sqrtf(static_cast<float>(a.key_dim));
        }
        if (!there) continue;
        a.out[static_cast<u64>(lane.first + row) * a.channels + channel] = value;
        float* kept = a.log_rows ? reinterpret_cast<float*>(a.log_rows[lane.first + row]) : nullptr;
        if (kept) kept[a.layer + channel] = a.x[static_cast<u64>(lane.first + row) * a.channels + channel];
    }
    if (there && a.rows_of_block >= lane.count && last > first) keep_inputs(a, lane, channel);
}

// Where several blocks did a lane's rows: when all have read the memory.
KERNEL(replace_inputs, 256, Convolve) {
    const Lane lane = lane_of(a.lanes, blockIdx.y);
    u32 channel = blockIdx.x * 256 + threadIdx.x;
    if (channel < a.channels && a.rows_of_block < lane.count) keep_inputs(a, lane, channel);
}

struct Gates {
    float* decay; // [rows, heads]: what the projection gave, then g
    float* beta;  // [rows, heads]
    const float* a_log_neg;
    const float* dt_bias;
    const u64* log_rows; // as above
    u64 layer;
    u32 rows, heads, channels, unused;
};

KERNEL(gates, 256, Gates) {
    u32 i = blockIdx.x * 256 + threadIdx.x;
    if (i >= a.rows * a.heads) return;
    u32 head = i % a.heads, row = i / a.heads;
    float decay = a.a_log_neg[head] * softplus(a.decay[i] + a.dt_bias[head]);
    float beta = sigmoid(a.beta[i]);
    a.decay[i] = decay;
    a.beta[i] = beta;
    float* kept = a.log_rows ? reinterpret_cast<float*>(a.log_rows[row]) : nullptr;
    if (!kept) return;
    kept[a.layer + a.channels + head] = decay;
    kept[a.layer + a.channels + a.heads + head] = beta;
}

struct ReadLog {
    const u64* log_rows; // as above, none of them 0
    float* x;         // [rows, channels]
    float* decay;     // [rows, heads]
    float* beta;      // [rows, heads]
    u64 layer;
    u32 channels, heads;
};

// Rows of a layer, as `convolve` and `gates` put them aside. A block does a row.
KERNEL(read_log, 256, ReadLog) {
    u32 row = blockIdx.x, width = a.channels + 2 * a.heads;
    const float* from = reinterpret_cast<const float*>(a.log_rows[row]) + a.layer;
    for (u32 i = threadIdx.x; i < width; i += 256) {
        if (i < a.channels) a.x[static_cast<u64>(row) * a.channels + i] = from[i];
        else if (i < a.channels + a.heads) a.decay[row * a.heads + i - a.channels] = from[i];
        else a.beta[row * a.heads + i - a.channels - a.heads] = from[i];
    }
}
