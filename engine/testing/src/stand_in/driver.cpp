// A driver and a compiler that are none: what talks with NVIDIA's is tested with these where there is no GPU. Kernels are the
// emulator's. They do what they are asked as late as they may, refuse what NVIDIA's refuse, and are stricter where the manual
// leaves it open. What they know is what the manual says: that a real driver agrees only a real driver shows.

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_CONTEXT = 201,
    INVALID_IMAGE = 200,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_WRONG_THREAD = 908,
};

typedef void Kernel(const void*);
typedef const char* Emulate(Kernel*, const void*, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, int);
typedef std::chrono::steady_clock Clock;

// What a kernel declares of shared memory itself, at most: how much each does is not known here.
const size_t OF_KERNELS = 1152;
const size_t WITHOUT_ASKING = 48 << 10;
const size_t GUARD = 256;
const size_t TOTAL_BYTES = size_t(2) << 30;

struct Module {
    void* library;
};

struct Function {
    Emulate* emulate;
    Kernel* kernel;
    size_t argument_bytes;
    size_t dynamic_bytes = WITHOUT_ASKING - OF_KERNELS;
    std::string name;
};

// Arguments are aligned as a GPU has them.
struct Node {
    Function* function;
    uint32_t grid[3], threads, shared;
    std::vector<long double> arguments;
};

struct Event;
struct Op {
    std::function<void()> work;
};

struct Stream {
    std::deque<Op> ops;
    uint64_t asked = 0, done = 0;
    bool capturing = false, spoilt = false;
    std::thread::id capturer;
    std::vector<Node> captured;
};

struct Event {
    Stream* stream = nullptr;
    uint64_t behind = 0; // so many of the stream's
    bool timed;
    Clock::time_point reached;
};

struct Graph {
    std::vector<Node> nodes;
};

struct Memory {
    std::vector<uint8_t> bytes;
    size_t size;
};

std::recursive_mutex mutex;
bool initialized = false;
int retained = 0;
Result sticky = SUCCESS;
int64_t left = -1; // kernels until it breaks; -1: it does not
bool dead = false;
int launches = 0;
char context_place, pool_place;
thread_local void* current = nullptr;
std::set<Stream*> streams;
std::set<Event*> events;
std::set<Module*> modules;
std::map<std::pair<Module*, std::string>, std::unique_ptr<Function>> functions;
std::set<Function*> known_functions;
std::set<Graph*> graphs, executables;
std::map<uint64_t, Memory> memory;
std::map<uint8_t*, size_t> pinned;
size_t used = 0, reserved = 0;
uint64_t threshold = 0;

int target() {
    const char* text = getenv("STAND_IN_TARGET");
    return text ? atoi(text) : 90;
}

void complain(const char* what) { fprintf(stderr, "the stand-in driver: %s\n", what); }

Result broken(Result result, const char* what) {
    complain(what);
    if (sticky == SUCCESS) sticky = result;
    return result;
}

bool is_sound(const std::pair<const uint64_t, Memory>& piece) {
    const uint8_t *first = piece.second.bytes.data(), *begin = reinterpret_cast<const uint8_t*>(piece.first);
    for (const uint8_t* at = first; at < begin; at++)
        if (*at != 0xA5) return false;
    for (const uint8_t* at = begin + piece.second.size; at < first + piece.second.bytes.size(); at++)
        if (*at != 0xA5) return false;
    return true;
}

// Whether all of it lies in one allocation.
bool is_there(uint64_t address, size_t bytes) {
    auto next = memory.upper_bound(address);
    if (next == memory.begin()) return false;
    auto piece = std::prev(next);
    return address + bytes <= piece->first + piece->second.size;
}

bool is_pinned(const void* address, size_t bytes) {
    uint8_t* at = static_cast<uint8_t*>(const_cast<void*>(address));
    auto next = pinned.upper_bound(at);
    if (next == pinned.begin()) return false;
    auto piece = std::prev(next);
    return at + bytes <= piece->first + piece->second;
}

void run_until(Stream* stream, uint64_t target) {
    while (stream->done < target) {
        Op op = std::move(stream->ops.front());
        stream->ops.pop_front();
        stream->done++;
        // What comes after a failure never happens.
        if (sticky == SUCCESS) op.work();
    }
}

void ask(Stream* stream, std::function<void()> work) {
    stream->ops.push_back({std::move(work)});
    stream->asked++;
}

// Whether a test has put the file there for which it breaks: then it does not work in this process ever again.
bool is_wanted_broken() {
    static const char* file = getenv("STAND_IN_BREAKS_FOR");
    if (!file || unlink(file) != 0) return false;
    dead = true;
    return true;
}

void start(const Node& node) {
    if (left == 0 || is_wanted_broken()) {
        broken(ILLEGAL_ADDRESS, "it breaks, as a test wanted");
        return;
    }
    if (left > 0) left--;
    const char* why = node.function->emulate(node.function->kernel, node.arguments.data(), node.grid[0], node.grid[1],
                                             node.grid[2], node.threads, node.shared, launches++ % 2);
    if (why) broken(LAUNCH_FAILED, (node.function->name + ": " + why).c_str());
}

// The capture that this thread has under way.
Stream* captured_by_us() {
    for (Stream* stream : streams)
        if (stream->capturing && stream->capturer == std::this_thread::get_id()) return stream;
    return nullptr;
}

// What may come at any time. Everything else spoils a capture of the same thread.
Result enter_always() {
    if (!initialized) return NOT_INITIALIZED;
    if (!current || retained == 0) return INVALID_CONTEXT;
    return sticky;
}

Result enter() {
    Result result = enter_always();
    if (result != SUCCESS) return result;
    if (Stream* stream = captured_by_us()) {
        stream->spoilt = true;
        complain("a call that a capture does not allow");
        return CAPTURE_UNSUPPORTED;
    }
    return SUCCESS;
}

#define ENTER(how)                                       \
    std::lock_guard<std::recursive_mutex> guard(mutex); \
    if (Result result = how()) return result

template <class T>
bool lives(const std::set<T*>& all, void* handle) {
    return all.count(static_cast<T*>(handle)) > 0;
}

std::string own_folder() {
    Dl_info about;
    dladdr(reinterpret_cast<void*>(&own_folder), &about);
    std::string file = about.dli_fname;
    return file.substr(0, file.rfind('/'));
}

}  // namespace

EXPORT int cuInit(unsigned flags) {
    initialized = flags == 0;
    return flags == 0 ? SUCCESS : INVALID_VALUE;
}

EXPORT int cuDriverGetVersion(int* version) {
    *version = 13000;
    return SUCCESS;
}

EXPORT int cuDeviceGet(int* device, int ordinal) {
    if (!initialized) return NOT_INITIALIZED;
    *device = 0;
    return ordinal == 0 ? SUCCESS : 101;
}

EXPORT int cuDeviceGetAttribute(int* value, int what, int device) {
    if (!initialized || device != 0) return INVALID_VALUE;
    switch (what) {
    case 75: *value = target() / 10; return SUCCESS;
    case 76: *value = target() % 10; return SUCCESS;
    case 16: *value = 4; return SUCCESS;
    case 97: *value = target() == 90 ? 227 << 10 : 99 << 10; return SUCCESS;
    case 18: case 88: *value = 0; return SUCCESS;
    }
    complain("an attribute that it does not know");
    return INVALID_VALUE;
}

EXPORT int cuDeviceGetName(char* name, int length, int device) {
    snprintf(name, static_cast<size_t>(length), "a stand-in for a GPU");
    return device == 0 ? SUCCESS : INVALID_VALUE;
}

EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (!initialized || device != 0) return INVALID_VALUE;
    if (dead) return ILLEGAL_ADDRESS;
    retained++;
    *context = &context_place;
    return SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (retained == 0) return INVALID_CONTEXT;
    if (--retained == 0) {
        // A context that is new knows nothing of what broke the one before.
        sticky = SUCCESS;
        left = -1;
    }
    return SUCCESS;
}

EXPORT int cuCtxSetCurrent(void* context) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (context && (context != &context_place || retained == 0)) return INVALID_CONTEXT;
    current = context;
    return SUCCESS;
}

EXPORT int cuStreamCreate(Stream** stream, unsigned flags) {
    ENTER(enter);
    if (flags > 1) return INVALID_VALUE;
    *stream = new Stream;
    streams.insert(*stream);
    return SUCCESS;
}

EXPORT int cuStreamDestroy_v2(Stream* stream) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (!lives(streams, stream)) return INVALID_HANDLE;
    run_until(stream, stream->asked);
    streams.erase(stream);
    delete stream;
    return SUCCESS;
}

EXPORT int cuStreamSynchronize(Stream* stream) {
    ENTER(enter);
    if (!lives(streams, stream)) return INVALID_HANDLE;
    run_until(stream, stream->asked);
    for (auto& piece : memory)
        if (!is_sound(piece)) return broken(ILLEGAL_ADDRESS, "something wrote beside its memory");
    if (threshold == 0) reserved = used;
    return sticky;
}

EXPORT int cuStreamWaitEvent(Stream* stream, Event* event, unsigned flags) {
    ENTER(enter);
    if (!lives(streams, stream) || !lives(events, event) || flags != 0) return INVALID_HANDLE;
    Stream* other = event->stream;
    uint64_t behind = event->behind;
    if (other) ask(stream, [other, behind] { run_until(other, behind); });
    return SUCCESS;
}

EXPORT int cuEventCreate(Event** event, unsigned flags) {
    ENTER(enter);
    *event = new Event;
    (*event)->timed = (flags & 2) == 0;
    events.insert(*event);
    return SUCCESS;
}

EXPORT int cuEventRecord(Event* event, Stream* stream) {
    ENTER(enter);
    if (!lives(events, event) || !lives(streams, stream)) return INVALID_HANDLE;
    ask(stream, [event] {
        if (lives(events, event)) event->reached = Clock::now();
    });
    event->stream = stream;
    event->behind = stream->asked;
    return SUCCESS;
}

EXPORT int cuEventElapsedTime(float* milliseconds, Event* begin, Event* end) {
    ENTER(enter);
    for (Event* event : {begin, end}) {
        if (!lives(events, event) || !event->timed || !event->stream) return INVALID_HANDLE;
        if (event->stream->done < event->behind) return NOT_READY;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->reached - begin->reached).count();
    return SUCCESS;
}

EXPORT int cuEventDestroy_v2(Event* event) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (!lives(events, event)) return INVALID_HANDLE;
    events.erase(event);
    delete event;
    return SUCCESS;
}

EXPORT int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    ENTER(enter);
    *free_bytes = TOTAL_BYTES - reserved;
    *total_bytes = TOTAL_BYTES;
    return SUCCESS;
}

EXPORT int cuDeviceGetDefaultMemPool(void** pool, int device) {
    *pool = &pool_place;
    return device == 0 ? SUCCESS : INVALID_VALUE;
}

EXPORT int cuMemPoolSetAttribute(void* pool, int what, void* value) {
    if (pool != &pool_place || what != 4) return INVALID_VALUE;
    threshold = *static_cast<uint64_t*>(value);
    return SUCCESS;
}

EXPORT int cuMemPoolGetAttribute(void* pool, int what, void* value) {
    if (pool != &pool_place || (what != 5 && what != 7)) return INVALID_VALUE;
    *static_cast<uint64_t*>(value) = what == 5 ? reserved : used;
    return SUCCESS;
}

EXPORT int cuMemPoolTrimTo(void* pool, size_t bytes) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (pool != &pool_place) return INVALID_VALUE;
    reserved = std::max(used, std::min(reserved, bytes));
    return sticky;
}

// New memory holds NaN, so that a kernel that counts on zeros is found.
EXPORT int cuMemAllocAsync(uint64_t* address, size_t bytes, Stream* stream) {
    ENTER(enter);
    if (bytes == 0 || !lives(streams, stream)) return INVALID_VALUE;
    // What the stream gives back before this may be taken by it.
    if (used + bytes > TOTAL_BYTES) run_until(stream, stream->asked);
    if (used + bytes > TOTAL_BYTES) return OUT_OF_MEMORY;
    Memory piece = {std::vector<uint8_t>(bytes + 3 * GUARD, 0xA5), bytes};
    uint64_t begin = (reinterpret_cast<uint64_t>(piece.bytes.data()) + GUARD - 1) / GUARD * GUARD + GUARD;
    memset(reinterpret_cast<void*>(begin), 0xFF, bytes);
    memory.emplace(begin, std::move(piece));
    used += bytes;
    reserved = std::max(reserved, used);
    *address = begin;
    return SUCCESS;
}

EXPORT int cuMemFreeAsync(uint64_t address, Stream* stream) {
    ENTER(enter);
    if (!memory.count(address) || !lives(streams, stream)) return INVALID_VALUE;
    ask(stream, [address] {
        auto piece = memory.find(address);
        if (piece == memory.end()) {
            broken(ILLEGAL_ADDRESS, "memory was freed twice");
            return;
        }
        if (!is_sound(*piece)) broken(ILLEGAL_ADDRESS, "something wrote beside its memory");
        used -= piece->second.size;
        memory.erase(piece);
    });
    return SUCCESS;
}

EXPORT int cuMemAllocHost_v2(void** address, size_t bytes) {
    ENTER(enter);
    if (bytes == 0) return INVALID_VALUE;
    *address = malloc(bytes);
    memset(*address, 0xFF, bytes);
    pinned[static_cast<uint8_t*>(*address)] = bytes;
    return SUCCESS;
}

EXPORT int cuMemFreeHost(void* address) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (!pinned.erase(static_cast<uint8_t*>(address))) return INVALID_VALUE;
    free(address);
    return SUCCESS;
}

// Memory that is not pinned is read at once, other is read when it is its turn.
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, Stream* stream) {
    ENTER(enter);
    if (!lives(streams, stream)) return INVALID_HANDLE;
    if (bytes == 0) return SUCCESS;
    if (!is_there(to, bytes)) return INVALID_VALUE;
    auto copy = std::make_shared<std::vector<uint8_t>>();
    if (!is_pinned(from, bytes)) copy->assign(static_cast<const uint8_t*>(from), static_cast<const uint8_t*>(from) + bytes);
    ask(stream, [=] {
        if (is_there(to, bytes)) memcpy(reinterpret_cast<void*>(to), copy->empty() ? from : copy->data(), bytes);
        else broken(ILLEGAL_ADDRESS, "a copy into memory that is gone");
    });
    return SUCCESS;
}

// The manual allows that it comes back before it is done, whatever memory it is.
EXPORT int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, Stream* stream) {
    ENTER(enter);
    if (!lives(streams, stream)) return INVALID_HANDLE;
    if (bytes == 0) return SUCCESS;
    if (!is_there(from, bytes)) return INVALID_VALUE;
    ask(stream, [=] {
        if (is_there(from, bytes)) memcpy(to, reinterpret_cast<const void*>(from), bytes);
        else broken(ILLEGAL_ADDRESS, "a copy from memory that is gone");
    });
    return SUCCESS;
}

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream* stream) {
    ENTER(enter);
    if (!lives(streams, stream)) return INVALID_HANDLE;
    if (bytes == 0) return SUCCESS;
    if (!is_there(to, bytes) || !is_there(from, bytes)) return INVALID_VALUE;
    ask(stream, [=] {
        if (!is_there(to, bytes) || !is_there(from, bytes)) broken(ILLEGAL_ADDRESS, "a copy of memory that is gone");
        else memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    });
    return SUCCESS;
}

EXPORT int cuMemsetD8Async(uint64_t at, uint8_t byte, size_t bytes, Stream* stream) {
    ENTER(enter);
    if (!lives(streams, stream)) return INVALID_HANDLE;
    if (bytes == 0 || !is_there(at, bytes)) return INVALID_VALUE;
    ask(stream, [=] {
        if (is_there(at, bytes)) memset(reinterpret_cast<void*>(at), byte, bytes);
        else broken(ILLEGAL_ADDRESS, "memory that is gone is filled");
    });
    return SUCCESS;
}

// The machine code is the path of the emulator's library.
EXPORT int cuModuleLoadData(Module** module, const void* image) {
    ENTER(enter);
    void* library = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
    if (!library) return INVALID_IMAGE;
    *module = new Module{library};
    modules.insert(*module);
    return SUCCESS;
}

EXPORT int cuModuleUnload(Module* module) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (!lives(modules, module)) return INVALID_HANDLE;
    for (auto at = functions.begin(); at != functions.end();) {
        if (at->first.first == module) {
            known_functions.erase(at->second.get());
            at = functions.erase(at);
        } else {
            at++;
        }
    }
    modules.erase(module);
    dlclose(module->library);
    delete module;
    return SUCCESS;
}

EXPORT int cuModuleGetFunction(Function** function, Module* module, const char* name) {
    ENTER(enter_always);
    if (!lives(modules, module)) return INVALID_HANDLE;
    auto& known = functions[{module, name}];
    if (!known) {
        void* kernel = dlsym(module->library, name);
        void* bytes = dlsym(module->library, (std::string(name) + "_bytes").c_str());
        void* emulate = dlsym(module->library, "emulate");
        if (!kernel || !bytes || !emulate) {
            functions.erase({module, name});
            return NOT_FOUND;
        }
        known.reset(new Function);
        known->emulate = reinterpret_cast<Emulate*>(emulate);
        known->kernel = reinterpret_cast<Kernel*>(kernel);
        known->argument_bytes = *static_cast<const unsigned*>(bytes);
        known->name = name;
        known_functions.insert(known.get());
    }
    *function = known.get();
    return SUCCESS;
}

EXPORT int cuFuncSetAttribute(Function* function, int what, int value) {
    ENTER(enter_always);
    if (!lives(known_functions, function) || what != 8 || value < 0) return INVALID_VALUE;
    int most = 0;
    cuDeviceGetAttribute(&most, 97, 0);
    if (value > most) return INVALID_VALUE;
    function->dynamic_bytes = static_cast<size_t>(value);
    return SUCCESS;
}

struct LaunchAttribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        int overlaps;
    } value;
};

struct LaunchConfig {
    unsigned grid[3], block[3], shared;
    Stream* stream;
    LaunchAttribute* attributes;
    unsigned count;
};

EXPORT int cuLaunchKernelEx(const LaunchConfig* how, Function* function, void** parameters, void** extra) {
    ENTER(enter_always);
    if (!lives(known_functions, function) || !lives(streams, how->stream)) return INVALID_HANDLE;
    bool fits = how->shared <= function->dynamic_bytes;
    bool has_grid = how->grid[0] > 0 && how->grid[0] < 1u << 31 && how->grid[1] > 0 && how->grid[1] < 1 << 16 &&
                    how->grid[2] > 0 && how->grid[2] < 1 << 16;
    bool has_block = how->block[0] > 0 && how->block[0] <= 1024 && how->block[1] == 1 && how->block[2] == 1;
    if (extra || !parameters || !fits || !has_grid || !has_block) {
        complain((function->name + " is started with what it cannot have").c_str());
        return INVALID_VALUE;
    }
    for (unsigned i = 0; i < how->count; i++) {
        const LaunchAttribute& attribute = how->attributes[i];
        if (attribute.id != 6 || attribute.value.overlaps != 1 || target() < 90) return INVALID_VALUE;
    }
    Node node = {function, {how->grid[0], how->grid[1], how->grid[2]}, how->block[0], how->shared, {}};
    node.arguments.resize((function->argument_bytes + 15) / 16);
    memcpy(static_cast<void*>(node.arguments.data()), parameters[0], function->argument_bytes);
    if (how->stream->capturing) how->stream->captured.push_back(std::move(node));
    else if (Stream* ours = captured_by_us()) {
        ours->spoilt = true;
        complain("a kernel is started beside the capture");
        return CAPTURE_UNSUPPORTED;
    } else {
        ask(how->stream, [node = std::move(node)] { start(node); });
    }
    return SUCCESS;
}

EXPORT int cuStreamBeginCapture_v2(Stream* stream, int mode) {
    ENTER(enter);
    if (!lives(streams, stream) || stream->capturing || mode != 1) return INVALID_VALUE;
    stream->capturing = true;
    stream->spoilt = false;
    stream->capturer = std::this_thread::get_id();
    stream->captured.clear();
    return SUCCESS;
}

EXPORT int cuStreamEndCapture(Stream* stream, Graph** graph) {
    ENTER(enter_always);
    if (!lives(streams, stream) || !stream->capturing) return INVALID_VALUE;
    *graph = nullptr;
    if (stream->capturer != std::this_thread::get_id()) return CAPTURE_WRONG_THREAD;
    stream->capturing = false;
    if (stream->spoilt) return CAPTURE_INVALIDATED;
    *graph = new Graph{std::move(stream->captured)};
    graphs.insert(*graph);
    return SUCCESS;
}

EXPORT int cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long flags) {
    ENTER(enter);
    if (!lives(graphs, graph) || flags != 0) return INVALID_VALUE;
    *executable = new Graph(*graph);
    executables.insert(*executable);
    return SUCCESS;
}

EXPORT int cuGraphLaunch(Graph* executable, Stream* stream) {
    ENTER(enter);
    if (!lives(executables, executable) || !lives(streams, stream)) return INVALID_HANDLE;
    for (const Node& node : executable->nodes) ask(stream, [node] { start(node); });
    return SUCCESS;
}

EXPORT int cuGraphDestroy(Graph* graph) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (!graphs.erase(graph)) return INVALID_HANDLE;
    delete graph;
    return SUCCESS;
}

EXPORT int cuGraphExecDestroy(Graph* executable) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    if (!executables.erase(executable)) return INVALID_HANDLE;
    delete executable;
    return SUCCESS;
}

EXPORT int cuGetErrorString(int result, const char** text) {
    switch (result) {
    case INVALID_VALUE: *text = "invalid argument"; return SUCCESS;
    case OUT_OF_MEMORY: *text = "out of memory"; return SUCCESS;
    case INVALID_IMAGE: *text = "device kernel image is invalid"; return SUCCESS;
    case ILLEGAL_ADDRESS: *text = "an illegal memory access was encountered"; return SUCCESS;
    case LAUNCH_FAILED: *text = "unspecified launch failure"; return SUCCESS;
    case CAPTURE_UNSUPPORTED: *text = "operation not permitted when stream is capturing"; return SUCCESS;
    }
    *text = nullptr;
    return INVALID_VALUE;
}

// For tests.

EXPORT void stand_in_break_after(int64_t kernels) {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    left = kernels;
}

// Everything that was made and not given back.
EXPORT size_t stand_in_left_behind() {
    std::lock_guard<std::recursive_mutex> guard(mutex);
    return streams.size() + events.size() + modules.size() + graphs.size() + executables.size() + memory.size() +
           pinned.size() + static_cast<size_t>(retained);
}

// The compiler: its machine code is the path of what the emulator's was.

struct Compiled {
    std::string name, code;
};

EXPORT int nvrtcVersion(int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return 0;
}

EXPORT int nvrtcCreateProgram(Compiled** program, const char* source, const char* name, int, const char* const*,
                              const char* const*) {
    if (!source || !name) return 4;
    *program = new Compiled{name, ""};
    return 0;
}

EXPORT int nvrtcCompileProgram(Compiled* program, int count, const char* const* options) {
    bool has_target = false;
    for (int i = 0; i < count; i++) has_target |= strncmp(options[i], "--gpu-architecture=sm_", 22) == 0;
    if (!has_target) return 5;
    program->code = own_folder() + "/" + program->name.substr(0, program->name.rfind('.')) + ".so";
    return 0;
}

EXPORT int nvrtcGetCUBINSize(Compiled* program, size_t* size) {
    *size = program->code.size() + 1;
    return 0;
}

EXPORT int nvrtcGetCUBIN(Compiled* program, char* code) {
    memcpy(code, program->code.c_str(), program->code.size() + 1);
    return 0;
}

EXPORT int nvrtcGetProgramLogSize(Compiled*, size_t* size) {
    *size = 1;
    return 0;
}

EXPORT int nvrtcGetProgramLog(Compiled*, char* log) {
    *log = 0;
    return 0;
}

EXPORT int nvrtcDestroyProgram(Compiled** program) {
    delete *program;
    *program = nullptr;
    return 0;
}

EXPORT const char* nvrtcGetErrorString(int) { return "the stand-in compiler does not say"; }
