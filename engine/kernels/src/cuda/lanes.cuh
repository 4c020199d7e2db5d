// Sequences that are computed together. Their tokens are rows that follow each other, lane after lane.

struct Lane {
    const u64* pages;  // addresses of pages of keys and values, all attention layers in each
    float* recurrent;  // [linear layers, value heads, key dim, value dim]
    float* conv;       // [linear layers, past, channels]
    u32 first, count;  // rows
    u32 position;      // of the first row
    u32 key_kind, value_kind;
    u32 turned; // bits: 1, keys are rotated; 2, values are
};

// In registers, whatever is written meanwhile. From the memory that all processors share: kernels that come before their turn
// read it too.
DEVICE Lane lane_of(const Lane* lanes, u32 number) {
    const u32 WORDS = sizeof(Lane) / 8;
    union {
        u64 words[WORDS];
        Lane lane;
    } copy;
    const u64* words = reinterpret_cast<const u64*>(lanes + number);
#pragma unroll
    for (u32 i = 0; i < WORDS; i++) copy.words[i] = read_far(words + i);
    return copy.lane;
}
