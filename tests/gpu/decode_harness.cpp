#include "decode_harness.hpp"

#include "decode_base.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

namespace gradsieve::gpu_check {
namespace {

using codec::cuda::ElementType;

constexpr std::size_t kGuardBytes = 256;
constexpr std::byte kPoison{0xA5};

/// To nearest, ties to even, by arithmetic in double: independent of any conversion instruction.
std::uint16_t half_bits(float value) {
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000U : 0U);
    const double magnitude = std::fabs(static_cast<double>(value));
    if (magnitude == 0) return sign;
    const int exponent = std::max(std::ilogb(magnitude), -14);
    const double in_units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));  // of the last place
    if (std::ldexp(in_units, exponent - 10) > 65504 || std::isinf(magnitude)) return sign | 0x7C00U;
    // A carry into the next binade adds one to the exponent by itself.
    const auto units = static_cast<std::uint32_t>(in_units);
    return static_cast<std::uint16_t>(sign + static_cast<std::uint32_t>((exponent + 14) << 10) + units);
}
std::uint16_t bfloat_bits(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

bool equals(const std::byte* seen, ElementType type, const std::vector<float>& expected) {
    if (type == ElementType::kF32)
        return expected.empty() || std::memcmp(seen, expected.data(), expected.size() * sizeof(float)) == 0;
    for (std::size_t element = 0; element < expected.size(); ++element) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, seen + 2 * element, sizeof(bits));
        if (bits != (type == ElementType::kF16 ? half_bits(expected[element]) : bfloat_bits(expected[element])))
            return false;
    }
    return true;
}

bool is_poison(const std::byte* bytes, std::size_t count) {
    return std::all_of(bytes, bytes + count, [](std::byte byte) { return byte == kPoison; });
}

}  // namespace

void require_cuda(int error, const char* doing) {
    if (error == cudaSuccess) return;
    fmt::print("FAILED {}: {}\n", doing, cudaGetErrorString(static_cast<cudaError_t>(error)));
    std::exit(1);
}

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
    std::atomic<std::size_t> next{0};
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < std::max(1U, std::thread::hardware_concurrency()); ++thread)
        threads.emplace_back([&] {
            for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) work(i);
        });
}

std::vector<float> make_gradient_pool(std::size_t count, std::uint64_t seed) {
    constexpr std::size_t kBlock = std::size_t{1} << 20U;
    std::vector<float> pool(count);
    in_parallel((count + kBlock - 1) / kBlock, [&](std::size_t block) {
        for (std::size_t i = block * kBlock; i < std::min(count, (block + 1) * kBlock); ++i) {
            const std::uint64_t word = mix64(seed + i * 0x9E3779B97F4A7C15ULL);
            std::int64_t sum = -2 * 65535;
            for (unsigned part = 0; part < 4; ++part) sum += static_cast<std::int64_t>((word >> (16 * part)) & 0xFFFFU);
            pool[i] = static_cast<float>(sum) * 0x1p-16F;
        }
    });
    return pool;
}

std::vector<CodedChunk> encode_on_cpu(const codec::Pipeline& pipeline, ElementCount elements,
                                      std::span<const float* const> samples, std::uint64_t random_seed) {
    const std::vector<float> weights(samples.size(), 1.0F / static_cast<float>(samples.size()));
    const std::size_t residual = codec::has_residual(pipeline) ? elements : 0;
    const std::size_t variance = codec::has_variance(pipeline) ? elements : 0;
    const std::size_t momentum = codec::has_momentum(pipeline) ? elements : 0;
    const std::vector<float> residual_in(residual);
    const std::vector<float> variance_in(variance);
    const std::vector<float> momentum_in(momentum);
    std::vector<float> residual_out(residual);
    std::vector<float> variance_out(variance);
    std::vector<float> momentum_out(momentum);
    codec::EncodeRequest request;
    request.pipeline = &pipeline;
    request.elements = elements;
    request.samples = samples;
    request.weights = weights;
    request.random_seed = random_seed;
    // Read only; the type serves both generations.
    request.in = {const_cast<float*>(residual_in.data()), const_cast<float*>(variance_in.data()),
                  const_cast<float*>(momentum_in.data())};
    request.out = {residual_out.data(), variance_out.data(), momentum_out.data()};
    codec::EncodeWorkspace workspace;
    auto result = codec::encode_tensor(request, workspace);
    if (!result.is_ok()) {
        fmt::print("FAILED encoding on the CPU: {}\n", result.status().to_string());
        std::exit(1);
    }
    std::vector<CodedChunk> chunks;
    for (const auto& chunk : result->chunks) {
        const auto bytes = chunk.bytes.view();
        chunks.push_back({chunk.chunk_index, Bytes(bytes.begin(), bytes.end())});
    }
    return chunks;
}

std::vector<ResultLayout> result_layouts(std::size_t variant) {
    switch (variant % 5) {
        case 0: return {{ElementType::kF32, 0, true}};
        case 1: return {{ElementType::kF32, 0, true}, {ElementType::kF16, 0, false}, {ElementType::kBf16, 0, false}};
        case 2: return {{ElementType::kF32, 1, true}, {ElementType::kBf16, 0, true}};
        case 3: return {{ElementType::kF16, 3, true}, {ElementType::kF32, 0, false}, {ElementType::kF32, 2, true}};
        default: return {{ElementType::kBf16, 1, false}, {ElementType::kF32, 3, false}};
    }
}

struct DecodeComparison::PlacedResult {
    ResultLayout layout;
    std::size_t place = 0;  ///< of its memory
    std::size_t begin = 0;  ///< there, guard zones included
    std::size_t data = 0;
    std::size_t end = 0;
};

struct DecodeComparison::Side {
    std::vector<float> memory;
    codec::ResultTensor cpu;
    std::vector<PlacedResult> results;
    codec::cuda::TouchedTiles touched;
    bool remembers = true;
    std::optional<DecodeBase> base;
    bool is_lost = false;  ///< the last step was refused: whatever the results hold must be written

    Side(TensorId id, ElementCount elements) : memory(elements, 0.0F), cpu(id, memory.data(), elements) {}
};

DecodeComparison::DecodeComparison(codec::cuda::GpuDecoder& decoder, std::vector<DecodeCase> cases, std::size_t variant,
                                   std::vector<int> devices)
    : decoder_(decoder), cases_(std::move(cases)), ranges_(cases_.size()) {
    if (devices.empty()) devices.push_back(decoder_.stream().device());
    for (const int device : devices) memories_.push_back({device, {}, {}});
    // Each by itself, so that every tensor of more than a chunk is shared.
    for (std::size_t place = 0; place < cases_.size() && devices.size() > 1; ++place)
        ranges_[place] = codec::cuda::split_over_devices({&cases_[place].elements, 1}, devices.size()).front();
    place_results(variant);
}
DecodeComparison::~DecodeComparison() = default;

void DecodeComparison::place_results(std::size_t variant) {
    std::vector<std::size_t> ends(memories_.size(), 0);
    std::size_t placed = 0;
    sides_.reserve(cases_.size());
    for (std::size_t place = 0; place < cases_.size(); ++place) {
        const bool has_base = (variant + place) % 4 == 3;
        if (has_base) cases_[place].name += ", added to a base";
        Side& side = sides_.emplace_back(tensor_id(cases_[place].name), cases_[place].elements);
        side.remembers = (variant + place) % 7 != 0;
        if (has_base) add_base(place, variant + place);
        for (const ResultLayout& layout : result_layouts(variant + place)) {
            PlacedResult result;
            result.layout = layout;
            result.place = placed++ % memories_.size();
            std::size_t& end = ends[result.place];
            result.begin = end;
            result.data = end + kGuardBytes + layout.offset_elements * element_bytes(layout.type);
            end = result.data + cases_[place].elements * element_bytes(layout.type) + kGuardBytes;
            end = (end + 255) / 256 * 256;
            result.end = end;
            side.results.push_back(result);
        }
    }
    for (std::size_t place = 0; place < memories_.size(); ++place) {
        Memory& memory = memories_[place];
        auto made = codec::cuda::DeviceMemory::make(memory.device, ends[place], "results of the check");
        if (!made.is_ok()) {
            fmt::print("FAILED {}\n", made.status().to_string());
            std::exit(1);
        }
        memory.data = std::move(*made);
        memory.seen.resize(ends[place]);
        if (ends[place] > 0)
            require_cuda(cudaMemset(memory.data.data(), static_cast<int>(kPoison), ends[place]), "poisoning results");
    }
}

void DecodeComparison::add_base(std::size_t place, std::size_t variant) {
    std::vector<int> devices;
    for (const Memory& memory : memories_) devices.push_back(memory.device);
    sides_[place].base.emplace(cases_[place].elements, ranges_[place], devices, variant / 4);
}

// A result that holds the last average keeps it: what the decoder skips must still be right.
void DecodeComparison::poison(bool is_all) {
    for (std::size_t place = 0; place < cases_.size(); ++place)
        for (const PlacedResult& result : sides_[place].results) {
            if (!is_all && result.layout.holds_last && sides_[place].remembers && !sides_[place].is_lost) continue;
            require_cuda(cudaMemset(memories_[result.place].data.data() + result.data, static_cast<int>(kPoison),
                                    cases_[place].elements * element_bytes(result.layout.type)),
                         "poisoning results");
        }
    // A fill returns before it is done, and the decoder's streams do not wait for it.
    require_cuda(cudaDeviceSynchronize(), "poisoning results");
}

void DecodeComparison::run_step(std::size_t step, Report& report) {
    poison(step == 0);
    std::vector<std::vector<codec::ChunkView>> views;
    std::vector<std::vector<codec::Contribution>> contributions(cases_.size());
    std::vector<std::vector<codec::cuda::GpuResult>> results(cases_.size());
    std::vector<codec::cuda::GpuDecodeRequest> requests(cases_.size());
    for (const DecodeCase& one : cases_)
        for (const NodeStep& node : one.steps[step]) {
            views.emplace_back();
            for (const auto& chunk : node.chunks) views.back().push_back({chunk.chunk_index, chunk.bytes});
        }
    std::size_t view = 0;
    for (std::size_t place = 0; place < cases_.size(); ++place) {
        Side& side = sides_[place];
        for (const NodeStep& node : cases_[place].steps[step])
            contributions[place].push_back({node.factor, views[view++]});
        for (const PlacedResult& result : side.results)
            results[place].push_back({memories_[result.place].data.data() + result.data, result.layout.type,
                                      result.layout.holds_last, memories_[result.place].device});
        requests[place] = {tensor_id(cases_[place].name),
                           step + 1,
                           cases_[place].elements,
                           contributions[place],
                           results[place],
                           side.remembers ? &side.touched : nullptr,
                           ranges_[place]};
        if (side.base) requests[place].bases = side.base->upload();
    }
    std::vector<Result<codec::DecodeResult>> gpu(cases_.size());
    const std::string batch = fmt::format("{} tensors, the first {}, step {}", cases_.size(), cases_[0].name, step + 1);
    if (!report.expect_ok(decoder_.begin(requests), batch) || !report.expect_ok(decoder_.finish(gpu), batch)) return;
    for (Memory& memory : memories_)
        require_cuda(cudaMemcpy(memory.seen.data(), memory.data.data(), memory.seen.size(), cudaMemcpyDeviceToHost),
                     "reading results");
    std::vector<Result<codec::DecodeResult>> cpu(cases_.size());
    in_parallel(cases_.size(), [&](std::size_t place) {
        Side& side = sides_[place];
        cpu[place] = side.base ? side.base->decode_on_cpu(step + 1, contributions[place], side.cpu)
                               : side.cpu.decode_average(step + 1, contributions[place]);
    });
    for (std::size_t place = 0; place < cases_.size(); ++place) compare(place, gpu[place], cpu[place], step, report);
}

void DecodeComparison::compare(std::size_t place, const Result<codec::DecodeResult>& gpu,
                               const Result<codec::DecodeResult>& cpu, std::size_t step, Report& report) {
    Side& side = sides_[place];
    const std::string where = fmt::format("{}, step {}", cases_[place].name, step + 1);
    for (const PlacedResult& result : side.results) {
        const std::size_t data_end = result.data + cases_[place].elements * element_bytes(result.layout.type);
        const std::byte* seen = memories_[result.place].seen.data();
        report.expect(is_poison(seen + result.begin, result.data - result.begin) &&
                          is_poison(seen + data_end, result.end - data_end),
                      where + ": wrote outside a result");
    }
    side.is_lost = !cpu.is_ok() || !gpu.is_ok();
    if (side.base) side.base->compare(where, !side.is_lost, report);
    if (side.is_lost) {
        ++refused_;
        report.expect(
            cpu.status().to_string() == gpu.status().to_string(),
            fmt::format("{}: GPU says {}, CPU says {}", where, gpu.status().to_string(), cpu.status().to_string()));
        return;
    }
    report.expect(gpu->digest == cpu->digest && gpu->touched_elements == cpu->touched_elements,
                  fmt::format("{}: digest {:016x} of {} touched, CPU {:016x} of {}", where, gpu->digest,
                              gpu->touched_elements, cpu->digest, cpu->touched_elements));
    for (const PlacedResult& result : side.results)
        report.expect(equals(memories_[result.place].seen.data() + result.data, result.layout.type, side.memory),
                      fmt::format("{}: a result of type {} differs", where, static_cast<int>(result.layout.type)));
}

}  // namespace gradsieve::gpu_check
