// What four warps do together on Hopper's tensor cores (sm_90a): they multiply tiles that lie in shared memory, and go on while
// it is done.
//
// A tile has rows of 64 halves, 128 bytes. Sixteen bytes at place p of row r lie at place p ^ (r % 8), so that eight rows at one
// place lie in different banks, and eight rows make a square that repeats: a tile begins at a multiple of its 1024 bytes.

const u32 SQUARE_BYTES = 1024; // not a window: eight rows

#ifndef EMULATED

// A tile as the tensor cores are told of it: where it begins, how far it is from eight rows to the next eight, and how sixteens
// of bytes change places.
DEVICE u64 tile_at(const void* tile) {
    u64 address = static_cast<u64>(__cvta_generic_to_shared(tile));
    const u64 PLACES_CHANGE = 1ull << 62, NO_LEADING_OFFSET = 1ull << 16; // not a window: fields of the description
    return (address & 0x3ffffu) >> 4 | NO_LEADING_OFFSET | static_cast<u64>(SQUARE_BYTES >> 4) << 32 | PLACES_CHANGE;
}

// The same from a multiple of 16 columns on.
DEVICE u64 from_column(u64 tile, u32 column) { return tile + (column * 2 >> 4); }

// What this thread wrote into shared memory can be read by the tensor cores of others, after the next barrier.
DEVICE void show_to_groups() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

DEVICE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

DEVICE void end_of_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until at most so many of the groups of products that were begun last are being made. What they read may then be written
// again; none of the sums may be looked at.
template <int LEFT>
DEVICE void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// Until all products are made; only then their sums may be looked at.
template <u32 PARTS>
DEVICE void await_sums(float (&sums)[PARTS][64]) {
    await_products<0>();
#pragma unroll
    for (u32 i = 0; i < 64 * PARTS; i++) asm volatile("" : "+f"(sums[i / 64][i % 64])::"memory");
}

// Waits at one of the block's barriers, 1 to 15, until so many threads have come there or called `arrive_at`.
DEVICE void wait_at(u32 barrier, u32 threads) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }

// The same without waiting.
DEVICE void arrive_at(u32 barrier, u32 threads) { asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory"); }

// Takes registers that other groups of four warps have given away, or waits for them.
template <int REGISTERS>
DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
DEVICE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Adds to memory without waiting for what is there.
DEVICE void add_far(float* to, float value) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}

// c [64, 128] += a [64, 16] · b [128, 16], its rows and columns spread over the four warps as `mma` spreads them over one.
DEVICE void multiply_tiles(float (&c)[64], u64 a, u64 b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
          "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
          "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
          "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]),
          "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]),
          "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]),
          "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),
          "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
        : "l"(a), "l"(b));
}

#endif
