// Sequences that are computed together. Their tokens are rows that follow each other, lane after lane.

struct Lane {
    const u64* pages;  // addresses of pages of keys and values, all attention layers in each
    float* recurrent;  // [linear layers, value heads, key dim, value dim]
    float* conv;       // [linear layers, past, channels]
    u32 first, count;  // rows
    u32 position;      // of the first row
    u32 key_kind, value_kind;
    u32 unused;
};
