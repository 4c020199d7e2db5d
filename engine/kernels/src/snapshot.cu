// States at places to come back to, kept smaller than they are computed.

struct Pack {
    const float* from; // [groups, 32]
    u8* to;            // blocks of `kind`
    u64 groups;
    u32 kind, unused;
};

// Groups that a warp does, one after another.
const u32 GROUPS_OF_WARP = 8;

KERNEL(pack_state, 256, Pack) {
    u64 first = (static_cast<u64>(blockIdx.x) * 8 + threadIdx.x / 32) * GROUPS_OF_WARP;
    for (u64 group = first; group < first + GROUPS_OF_WARP && group < a.groups; group++)
        write_values(a.to + group * bytes_of_values(a.kind, 32), a.kind, a.from + group * 32, 32);
}

struct Unpack {
    const u8* from;
    float* to;
    u64 groups;
    u32 kind, unused;
};

KERNEL(unpack_state, 256, Unpack) {
    u64 first = (static_cast<u64>(blockIdx.x) * 8 + threadIdx.x / 32) * GROUPS_OF_WARP;
    u32 lane = threadIdx.x % 32;
    for (u64 group = first; group < first + GROUPS_OF_WARP && group < a.groups; group++) {
        const u8* block = a.from + group * bytes_of_values(a.kind, 32);
        float value = 0.0f;
        if (a.kind == F32) value = reinterpret_cast<const float*>(block)[lane];
        if (a.kind == BF16) value = bf16_to_float(reinterpret_cast<const u16*>(block)[lane]);
        if (a.kind == Q8_0)
            value = half_to_float(*reinterpret_cast<const u16*>(block)) * static_cast<float>(static_cast<i8>(block[2 + lane]));
        a.to[group * 32 + lane] = value;
    }
}
