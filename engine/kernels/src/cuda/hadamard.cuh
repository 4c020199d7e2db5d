// The rotation in front of keys and values in few bits: random signs, then a Walsh-Hadamard matrix, as `hadamard.rs` has it.
// Rows lie in shared memory. BLOCK: all threads of a block share them, else a warp does.

// The signs of 64 values: a bit that is set changes its value's sign.
DEVICE u64 signs_of(u64 seed, u32 word) {
    u64 bits = seed + (word + 1) * 0x9E3779B97F4A7C15ull;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ull;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBull;
    return bits ^ bits >> 31;
}

template <bool BLOCK>
DEVICE void wait_for_rows() {
    if (BLOCK) __syncthreads();
    else warp_barrier();
}

// Rows of `dim` values, `count` values together.
template <bool BLOCK>
DEVICE void change_signs(float* rows, u32 count, u32 dim, u64 seed) {
    u32 own = BLOCK ? threadIdx.x : threadIdx.x % 32, sharing = BLOCK ? blockDim.x : 32;
    float scale = 1.0f / sqrtf(static_cast<float>(dim));
    for (u32 i = own; i < count; i += sharing) {
        u32 column = i % dim;
        rows[i] *= signs_of(seed, column / 64) >> (column % 64) & 1 ? -scale : scale;
    }
    wait_for_rows<BLOCK>();
}

template <bool BLOCK>
DEVICE void multiply_hadamard(float* rows, u32 count, u32 dim) {
    u32 own = BLOCK ? threadIdx.x : threadIdx.x % 32, sharing = BLOCK ? blockDim.x : 32;
    for (u32 distance = 1; distance < dim; distance *= 2) {
        for (u32 i = own; i < count / 2; i += sharing) {
            u32 low = i / distance * 2 * distance + i % distance;
            float a = rows[low], b = rows[low + distance];
            rows[low] = a + b;
            rows[low + distance] = a - b;
        }
        wait_for_rows<BLOCK>();
    }
}

template <bool BLOCK>
DEVICE void turn_rows(float* rows, u32 count, u32 dim, u64 seed) {
    change_signs<BLOCK>(rows, count, dim, seed);
    multiply_hadamard<BLOCK>(rows, count, dim);
}

template <bool BLOCK>
DEVICE void turn_rows_back(float* rows, u32 count, u32 dim, u64 seed) {
    multiply_hadamard<BLOCK>(rows, count, dim);
    change_signs<BLOCK>(rows, count, dim, seed);
}
