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
    const Lane lane = lane_of(h.lanes, h.lane_of_row[index]);
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
        float weight = seen ? exp2f(part.x - largest) : 0.0f;
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
