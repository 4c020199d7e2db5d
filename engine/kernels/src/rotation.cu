// Rotary positions: cosines and sines for the rows of a step.

struct Turns {
    const double* frequencies; // [pairs], angle per position
    const Lane* lanes;
    const u32* lane_of_row;
    float* out; // [rows, cosines of all pairs, then sines]
    u32 pairs;
    float magnitude;
};

KERNEL(turns, 128, Turns) {
    const Lane lane = lane_of(a.lanes, a.lane_of_row[blockIdx.x]);
    double position = static_cast<double>(lane.position + blockIdx.x - lane.first);
    float* out = a.out + static_cast<u64>(blockIdx.x) * 2 * a.pairs;
    for (u32 pair = threadIdx.x; pair < a.pairs; pair += 128) {
        // In double: at a million positions a float's angle is off by a tenth of a turn.
        double angle = position * a.frequencies[pair];
        out[pair] = static_cast<float>(cos(angle)) * a.magnitude;
        out[a.pairs + pair] = static_cast<float>(sin(angle)) * a.magnitude;
    }
}
