// Attention over pages of keys and values. Pages lie as on a CPU: for each layer the keys of all heads, then the values of
// all heads, each head's rows one after the other, in the formats of the sequence.
//
// Three steps: heads are made ready and written into the pages; blocks go through parts of the past (`attend_few` and
// `attend_many`); the parts are put together and gated (`combine`).

const u32 PAGE = 256; // positions of a page

// What all steps know of the layer's heads.
struct Heads {
    const Lane* lanes;
    const u32* lane_of_row;
    float* q;            // [rows, q heads, query then gate, dim]
    u32 q_heads, kv_heads, dim;
    u32 layer;           // among the attention layers
    u64 seed;            // of the signs of rotations
};

const u32 TURNED_KEYS = 1, TURNED_VALUES = 2;

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

const u32 PREPARE_THREADS = 128, LARGEST_HEAD = 256;

// Norms and turns queries in their place and keys on their way into the pages. A warp does a head of a row.
KERNEL_AHEAD(prepare_heads, PREPARE_THREADS, Prepare) {
    const u32 FOURS = LARGEST_HEAD / 128, PAIRS = LARGEST_HEAD / 2 / 32; // of a lane
    SHARED(float, rows);
    const Heads& h = a.heads;
    u32 index = blockIdx.x, head = blockIdx.y * (PREPARE_THREADS / 32) + threadIdx.x / 32, lane_id = threadIdx.x % 32;
    if (head >= h.q_heads + 2 * h.kv_heads) return follow();
    // No kernel writes lanes, nor the numbers of the rows' lanes.
    const Lane lane = lane_of(h.lanes, read_far(h.lane_of_row + index));
    float* row = rows + threadIdx.x / 32 * h.dim;
    u32 position = lane.position + index - lane.first;
    bool is_q = head < h.q_heads, is_k = !is_q && head < h.q_heads + h.kv_heads;
    u32 kv_head = is_q ? 0 : (head - h.q_heads) % h.kv_heads;
    float* q = h.q + (static_cast<u64>(index) * h.q_heads + head) * 2 * h.dim;
    const float* kv = (is_k ? a.k : a.v) + (static_cast<u64>(index) * h.kv_heads + kv_head) * h.dim;
    const float* from = is_q ? q : kv;
    float4 norm[FOURS], x[FOURS];
#pragma unroll
    for (u32 j = 0; j < FOURS; j++) {
        u32 i = 4 * lane_id + 128 * j;
        norm[j] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (i < h.dim && (is_q || is_k)) norm[j] = read_weights(reinterpret_cast<const float4*>((is_q ? a.q_norm : a.k_norm) + i));
    }
    follow();
    float cosines[PAIRS], sines[PAIRS], squares = 0.0f;
#pragma unroll
    for (u32 j = 0; j < FOURS; j++) x[j] = four_of<true>(from, 4 * lane_id + 128 * j, h.dim);
    const float* turns = a.turns + static_cast<u64>(index) * 2 * a.pairs;
#pragma unroll
    for (u32 j = 0; j < PAIRS; j++) {
        u32 pair = lane_id + 32 * j;
        bool turns_it = pair < a.pairs && (is_q || is_k);
        cosines[j] = turns_it ? turns[pair] : 1.0f;
        sines[j] = turns_it ? turns[a.pairs + pair] : 0.0f;
    }
    u8* to = is_q ? nullptr : row_in_page(h, lane, position, kv_head, !is_k);
#pragma unroll
    for (u32 j = 0; j < FOURS; j++) squares += squares_of(x[j]);
    if (is_q || is_k) {
        float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(h.dim) + a.eps);
#pragma unroll
        for (u32 j = 0; j < FOURS; j++)
            x[j] = {x[j].x * scale * norm[j].x, x[j].y * scale * norm[j].y, x[j].z * scale * norm[j].z, x[j].w * scale * norm[j].w};
    }
#pragma unroll
    for (u32 j = 0; j < FOURS; j++)
        if (4 * lane_id + 128 * j < h.dim) *reinterpret_cast<float4*>(row + 4 * lane_id + 128 * j) = x[j];
    warp_barrier();
    if (is_q || is_k) {
#pragma unroll
        for (u32 j = 0; j < PAIRS; j++) {
            u32 pair = lane_id + 32 * j;
            if (pair >= a.pairs) continue;
            float first = row[pair], second = row[a.pairs + pair];
            row[pair] = first * cosines[j] - second * sines[j];
            row[a.pairs + pair] = second * cosines[j] + first * sines[j];
        }
        warp_barrier();
    }
    // A query goes with the keys.
    if (lane.turned & (is_q || is_k ? TURNED_KEYS : TURNED_VALUES)) turn_rows<false>(row, h.dim, h.dim, h.seed);
    if (is_q)
        for (u32 i = 4 * lane_id; i < h.dim; i += 128) *reinterpret_cast<float4*>(q + i) = *reinterpret_cast<const float4*>(row + i);
    else
        write_values(to, is_k ? lane.key_kind : lane.value_kind, row, h.dim);
}

const u32 MOST_SPLITS = 128, COMBINE_THREADS = 256;

struct Combine {
    Heads heads;
    const float* partial;
    const float2* stats;
    Rows to; // cols: q heads · dim
    u32 rows, splits;
    u32 columns; // of a block: all of a row, or some where no halves are wanted
    u32 turns;   // whether values of some lanes are rotated: then a block has whole heads
};

// What each part of the past weighs for a head. A warp does it.
DEVICE void shares_of(const Combine& a, u64 head, float* shares) {
    const u32 MOST = MOST_SPLITS / 32;
    u64 next = static_cast<u64>(a.rows) * a.heads.q_heads;
    u32 lane = threadIdx.x % 32;
    float2 parts[MOST];
    float largest = LOWEST, total = 0.0f;
#pragma unroll
    for (u32 j = 0; j < MOST; j++) {
        parts[j] = {LOWEST, 0.0f};
        if (lane + 32 * j < a.splits) parts[j] = a.stats[(lane + 32 * j) * next + head];
    }
#pragma unroll
    for (u32 j = 0; j < MOST; j++)
        if (parts[j].y > 0.0f) largest = fmaxf(largest, parts[j].x);
    largest = warp_max(largest);
#pragma unroll
    for (u32 j = 0; j < MOST; j++) {
        parts[j].x = parts[j].y > 0.0f ? exp2f(parts[j].x - largest) : 0.0f;
        total += parts[j].y * parts[j].x;
    }
    total = warp_sum(total);
#pragma unroll
    for (u32 j = 0; j < MOST; j++)
        if (lane + 32 * j < a.splits) shares[lane + 32 * j] = parts[j].x / total;
}

// The parts of the past together, times the sigmoid of the gate. A block does a row, or some columns of it: then groups of
// threads share the parts of the past.
KERNEL(combine, COMBINE_THREADS, Combine) {
    const u32 AT_ONCE = 8; // parts that a thread asks for at once
    __shared__ float scratch[32];
    __shared__ float4 sums[COMBINE_THREADS];
    SHARED(float, row); // the block's columns, where halves are wanted or values are rotated; then shares of its heads
    const Heads& h = a.heads;
    u32 first = blockIdx.y * a.columns, end = min(first + a.columns, a.to.padded), behind = min(end, a.to.cols);
    u32 quads = (end - first) / 4, groups = max(COMBINE_THREADS / quads, 1u), lane = threadIdx.x % 32;
    u32 first_head = first / h.dim, last_head = (behind - 1) / h.dim;
    float* shares = row + (a.to.high || a.turns ? a.columns : 0);
    bool turned = a.turns && (lane_of(h.lanes, read_far(h.lane_of_row + blockIdx.x)).turned & TURNED_VALUES);
    u64 heads_before = static_cast<u64>(blockIdx.x) * h.q_heads, next = static_cast<u64>(a.rows) * h.q_heads * h.dim;
    for (u32 head = first_head + threadIdx.x / 32; head <= last_head; head += COMBINE_THREADS / 32)
        shares_of(a, heads_before + head, shares + (head - first_head) * a.splits);
    __syncthreads();
    float largest = 0.0f;
    // Once, where groups share.
    for (u32 own = threadIdx.x; own - lane < quads || (groups > 1 && own < COMBINE_THREADS); own += COMBINE_THREADS) {
        u32 group = own / quads, i = first + own % quads * 4;
        if (groups == 1) group = own < quads ? 0 : groups, i = first + 4 * own;
        u32 head = i / h.dim, d = i % h.dim;
        bool there = group < groups && i < behind;
        float4 sum = {0.0f, 0.0f, 0.0f, 0.0f}, gate = sum;
        if (there && group == 0) gate = *reinterpret_cast<const float4*>(h.q + ((heads_before + head) * 2 + 1) * h.dim + d);
        const float* from = a.partial + (heads_before + head) * h.dim + d;
        for (u32 split = group; split < a.splits && there; split += AT_ONCE * groups) {
            float4 parts[AT_ONCE];
            float weights[AT_ONCE];
#pragma unroll
            for (u32 j = 0; j < AT_ONCE; j++) {
                u32 of = split + j * groups;
                weights[j] = of < a.splits ? shares[(head - first_head) * a.splits + of] : 0.0f;
                // What saw nothing has written nothing.
                parts[j] = {0.0f, 0.0f, 0.0f, 0.0f};
                if (weights[j] > 0.0f) parts[j] = *reinterpret_cast<const float4*>(from + of * next);
            }
#pragma unroll
            for (u32 j = 0; j < AT_ONCE; j++)
                sum = {sum.x + parts[j].x * weights[j], sum.y + parts[j].y * weights[j], sum.z + parts[j].z * weights[j],
                       sum.w + parts[j].w * weights[j]};
        }
        if (groups > 1) {
            sums[threadIdx.x] = sum;
            __syncthreads();
            for (u32 other = own + quads; other < groups * quads && group == 0; other += quads)
                sum = {sum.x + sums[other].x, sum.y + sums[other].y, sum.z + sums[other].z, sum.w + sums[other].w};
        }
        if (turned && there && group == 0) *reinterpret_cast<float4*>(row + i - first) = sum;
        if (own - lane >= quads || turned) continue;
        // Behind the end gates are zeros, and so are sums.
        float4 v = {sum.x * sigmoid(gate.x), sum.y * sigmoid(gate.y), sum.z * sigmoid(gate.z), sum.w * sigmoid(gate.w)};
        bool is_own = own < quads;
        if (is_own) largest = fmaxf(largest, largest_of(v));
        write_four(v, static_cast<u64>(blockIdx.x) * a.to.padded + i, is_own, a.to);
        if (a.to.high && is_own) *reinterpret_cast<float4*>(row + i) = v;
    }
    if (turned) {
        __syncthreads();
        turn_rows_back<true>(row, behind - first, h.dim, h.seed);
        for (u32 own = threadIdx.x; own - lane < quads; own += COMBINE_THREADS) {
            u32 i = first + 4 * own, head = i / h.dim;
            float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
            bool is_own = own < quads;
            if (is_own && i < behind) {
                float4 sum = *reinterpret_cast<const float4*>(row + i - first);
                float4 gate = *reinterpret_cast<const float4*>(h.q + ((heads_before + head) * 2 + 1) * h.dim + i % h.dim);
                v = {sum.x * sigmoid(gate.x), sum.y * sigmoid(gate.y), sum.z * sigmoid(gate.z), sum.w * sigmoid(gate.w)};
            }
            if (is_own) largest = fmaxf(largest, largest_of(v));
            write_four(v, static_cast<u64>(blockIdx.x) * a.to.padded + i, is_own, a.to);
            if (a.to.high && is_own) *reinterpret_cast<float4*>(row + i - first) = v;
        }
    }
    if (a.to.high) write_halves(row, largest, blockIdx.x, a.to, scratch);
}
