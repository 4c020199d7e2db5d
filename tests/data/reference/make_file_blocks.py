"""Blocks that the ecosystem's quantiser writes for given values, without and with an importance of columns:
make_file_blocks.py LLAMA_CPP OUT.safetensors [seed]   (a source tree of llama.cpp, gcc; pip install numpy safetensors)
`rows` float32 [6, 512], `importance` float32 [512]; for each FORMAT: FORMAT.plain and FORMAT.weighted uint8 [6, bytes of a row].
Compiled without fused multiply-add, as released builds for plain x86-64 are."""
import ctypes, os, subprocess, sys, tempfile, numpy as np
from safetensors.numpy import save_file
rng = np.random.default_rng(int(sys.argv[3]) if len(sys.argv) > 3 else 11)
rows = (rng.standard_normal((6, 512)) * np.array([[0.02], [0.5], [3], [0.02], [1], [0.1]])).astype(np.float32)
rows[3, 64:128], rows[3, 160:192], rows[4, 200], rows[5] = 0, -0.25, 40, np.abs(rows[5])
importance = (rng.standard_normal(512) ** 2).astype(np.float32)
importance[::37] *= 50
ggml, folder = os.path.join(sys.argv[1], "ggml"), tempfile.mkdtemp()
open(os.path.join(folder, "ggml-version.h"), "w").write('#define GGML_VERSION "x"\n#define GGML_COMMIT "x"\n')
library = os.path.join(folder, "quants.so")
subprocess.check_call(["gcc", "-shared", "-fPIC", "-O2", "-w", "-ffp-contract=off", "-D_GNU_SOURCE", f"-I{folder}", f"-I{ggml}/include",
    f"-I{ggml}/src", f"{ggml}/src/ggml-quants.c", f"{ggml}/src/ggml.c", "-lm", "-o", library])
quants, out = ctypes.CDLL(library, mode=os.RTLD_LAZY), {"rows": rows, "importance": importance}
pointer = lambda a: None if a is None else a.ctypes.data_as(ctypes.c_void_p)
for name, block, size in [("q4_0", 32, 18), ("q4_1", 32, 20), ("q5_0", 32, 22), ("q5_1", 32, 24), ("q8_0", 32, 34), ("q4_K", 256, 144),
                          ("q5_K", 256, 176), ("q6_K", 256, 210), ("iq4_nl", 32, 18), ("iq4_xs", 256, 136)]:
    for kind, weights in [("plain", None), ("weighted", importance)]:
        blocks = np.zeros((6, 512 // block * size), np.uint8)
        quantize = getattr(quants, f"quantize_{name}")
        quantize.restype = ctypes.c_size_t
        assert quantize(pointer(rows), pointer(blocks), ctypes.c_int64(6), ctypes.c_int64(512), pointer(weights)) == blocks.size, name
        out[f"{name.upper()}.{kind}"] = blocks
save_file(out, sys.argv[2])
