// A training process for the GPU checks: the same made-up gradients in device memory that is bound to the daemon, in
// device memory that cannot be shared and is staged, or in the daemon's shared memory, so that all ways can be compared
// bit for bit. Prints one line of JSON. Not a test by itself.
#include "tests/client/real_cuda.hpp"
#include "tests/gpu/rank/gpu_program.hpp"
#include "tests/gpu/rank/noise.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace {

using gradsieve::gpu_check::fail;
using gradsieve::gpu_check::must;
using gradsieve::test::RankOptions;
using Clock = std::chrono::steady_clock;
constexpr auto kTimeout = gradsieve::Timeout(60'000);

/// Bell-shaped and heavy-tailed; the same on every host for the same arguments.
void fill(std::vector<float>& values, std::uint64_t seed) {
    std::uint64_t state = seed * 0x9E3779B97F4A7C15ULL + 1;
    for (auto& value : values) {
        state ^= state << 13U;
        state ^= state >> 7U;
        state ^= state << 17U;
        const auto sum = static_cast<std::int64_t>(state & 0xFFFFU) +
                         static_cast<std::int64_t>((state >> 16U) & 0xFFFFU) +
                         static_cast<std::int64_t>((state >> 32U) & 0xFFFFU) - 98304;
        const float bell = static_cast<float>(sum) / 65536.0F;
        value = (state >> 58U) == 0 ? bell * 16.0F : bell;
    }
}

/// bfloat16's nearest value, ties to even; finite values only.
std::uint16_t bf16_of(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}
float value_of(std::uint16_t bf16) { return std::bit_cast<float>(std::uint32_t{bf16} << 16U); }

struct RankTensor {
    gradsieve::Tensor tensor;
    std::uint64_t elements = 0;
    std::vector<std::vector<float>> host{};     ///< per gradient set: samples slices one after the other
    std::vector<std::vector<float>> moments{};  ///< per gradient set, if it has a second moment
    std::byte* gradient = nullptr;              ///< device: samples slices
    std::byte* moment = nullptr;                ///< device
    std::vector<std::byte*> sets{};             ///< device: per gradient set
    std::vector<std::byte*> moment_sets{};      ///< device
};

struct Rank {
    explicit Rank(RankOptions given) : options(std::move(given)) {}

    RankOptions options;
    bool on_device = false;
    bool is_staged = false;  ///< on a device, in memory that cannot be shared
    bool is_bf16 = false;    ///< values as bfloat16 holds them; on the device in that type
    bool has_noise = false;  ///< fresh noise every step, made on the card, instead of the sets that both ways share
    std::uint32_t samples = 1;
    bool has_moment = false;  ///< hands in a second moment: of a batch of kBatch, made up likewise
    std::size_t sets = 2;     ///< of gradients, handed in in turn; more would only cost memory
    cudaStream_t stream = nullptr;
    std::byte* arena = nullptr;  ///< one allocation behind all gradients, as a caching allocator makes it
    std::vector<RankTensor> tensors;
    std::vector<double> milliseconds;
    std::uint64_t hash = 0x12345;
    std::uint64_t rank_number = 0;
    std::uint64_t bad_step = 0;   ///< in which this rank's gradients are not finite
    std::uint64_t last_hash = 0;  ///< of the last step's averages alone

    [[nodiscard]] std::size_t element_bytes() const { return is_bf16 ? sizeof(std::uint16_t) : sizeof(float); }
    /// As device memory holds them.
    [[nodiscard]] std::vector<std::byte> packed(const std::vector<float>& values) const {
        std::vector<std::byte> bytes(values.size() * element_bytes());
        for (std::size_t element = 0; element < values.size() && is_bf16; ++element) {
            const auto half = bf16_of(values[element]);
            std::memcpy(bytes.data() + element * sizeof(half), &half, sizeof(half));
        }
        if (!is_bf16) std::memcpy(bytes.data(), values.data(), bytes.size());
        return bytes;
    }
    void round_to_type(std::vector<float>& values) const {
        if (!is_bf16) return;
        for (auto& value : values) value = value_of(bf16_of(value));
    }
    /// Slice 0 of the tensor, from the device.
    [[nodiscard]] std::vector<float> fetch(const RankTensor& entry) const {
        std::vector<std::byte> bytes(entry.elements * element_bytes());
        must(cudaMemcpyAsync(bytes.data(), entry.gradient, bytes.size(), cudaMemcpyDeviceToHost, stream), "copy back");
        must(cudaStreamSynchronize(stream), "synchronize");
        std::vector<float> values(entry.elements);
        for (std::size_t element = 0; element < values.size() && is_bf16; ++element) {
            std::uint16_t half = 0;
            std::memcpy(&half, bytes.data() + element * sizeof(half), sizeof(half));
            values[element] = value_of(half);
        }
        if (!is_bf16) std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    }

    void add_tensors(gradsieve::Job& job, std::uint64_t rank) {
        std::istringstream list(options.text("elements", "1000000"));
        std::uint64_t total = 0;
        for (std::string item; std::getline(list, item, ',');) {
            RankTensor entry{.tensor = must_tensor(job, item), .elements = std::stoull(item)};
            for (std::size_t set = 0; set < sets && !has_noise; ++set) {
                entry.host.emplace_back(entry.elements * samples);
                const auto seed = (rank * 1000 + tensors.size()) * 100 + set;
                fill(entry.host.back(), seed);
                round_to_type(entry.host.back());
                if (!has_moment) continue;
                entry.moments.emplace_back(entry.elements);
                fill(entry.moments.back(), seed + 50);
                for (auto& value : entry.moments.back()) value *= value * kBatch;
            }
            total += room_of(entry);
            tensors.push_back(std::move(entry));
        }
        if (on_device) allocate(total + kAlignBytes);
    }

    static constexpr std::size_t kAlignBytes = 256;
    static constexpr std::uint32_t kBatch = 32;
    static constexpr std::size_t aligned(std::size_t bytes) {
        return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
    }
    [[nodiscard]] std::size_t gradient_room_of(const RankTensor& entry) const {
        return aligned(entry.elements * samples * element_bytes());
    }
    [[nodiscard]] std::size_t room_of(const RankTensor& entry) const {
        return gradient_room_of(entry) + (has_moment ? aligned(entry.elements * sizeof(float)) : 0);
    }
    static std::byte* on_card(const void* bytes, std::size_t count) {
        std::byte* copy = nullptr;
        must(cudaMalloc(reinterpret_cast<void**>(&copy), count + 4), "cudaMalloc");
        must(cudaMemcpy(copy, bytes, count, cudaMemcpyHostToDevice), "copy");
        return copy;
    }
    void allocate(std::size_t bytes) {
        constexpr std::size_t kPhysicalBytes = std::size_t{2} << 20U;
        const auto physical_bytes = (bytes + kPhysicalBytes - 1) / kPhysicalBytes * kPhysicalBytes;
        if (is_staged)
            arena = reinterpret_cast<std::byte*>(
                gradsieve::client::test::RealCuda::map(1, physical_bytes, /*is_exportable=*/false));
        else
            must(cudaMalloc(reinterpret_cast<void**>(&arena), bytes), "cudaMalloc");
        auto* next = arena + kAlignBytes;  // a pointer inside a larger block
        for (auto& entry : tensors) {
            entry.gradient = next;
            if (has_moment) entry.moment = next + gradient_room_of(entry);
            next += room_of(entry);
            for (const auto& values : entry.host) {
                const auto from = packed(values);
                entry.sets.push_back(on_card(from.data(), from.size()));
            }
            for (const auto& values : entry.moments)
                entry.moment_sets.push_back(on_card(values.data(), values.size() * sizeof(float)));
        }
    }

    gradsieve::Tensor must_tensor(gradsieve::Job& job, const std::string& elements) {
        gradsieve::TensorOptions tensor_options;
        tensor_options.samples_max = samples;
        tensor_options.has_second_moment = has_moment;
        tensor_options.on_device = on_device;
        const std::uint64_t shape[] = {std::stoull(elements)};
        auto tensor = job.add_tensor("tensor" + std::to_string(tensors.size()), shape, tensor_options);
        if (!tensor.is_ok()) fail("add_tensor", tensor.status().to_string());
        return std::move(*tensor);
    }

    /// Before start.
    void bind() {
        using gradsieve::ElementType;
        for (auto& entry : tensors) {
            must(entry.tensor.bind_device({.pointer = entry.gradient,
                                           .elements = entry.elements,
                                           .type = is_bf16 ? ElementType::kBf16 : ElementType::kF32,
                                           .stream = stream,
                                           .second_moment = reinterpret_cast<float*>(entry.moment)},
                                          kTimeout),
                 "bind_device");
            if (entry.tensor.is_staged() != is_staged) fail("is_staged", is_staged ? "it is not" : "it is");
        }
    }

    /// Every tensor gets the values of the last rank; before the first step, in the gradient's own memory.
    void broadcast(gradsieve::Job& job, std::uint32_t world) {
        for (auto& entry : tensors) {
            std::vector<float> expected(entry.elements);
            for (std::size_t element = 0; element < expected.size(); ++element)
                expected[element] = static_cast<float>(element % 1000) + 0.25F * static_cast<float>(world);
            round_to_type(expected);
            auto values = expected;
            if (rank_number != world - 1) std::fill(values.begin(), values.end(), -1.0F);
            const auto bytes = packed(values);
            if (on_device) {
                must(cudaMemcpyAsync(entry.gradient, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream),
                     "copy");
            } else {
                std::copy(values.begin(), values.end(), entry.tensor.gradient().begin());
            }
            const auto answer = job.broadcast(entry.tensor, world - 1, kTimeout);
            if (!answer.is_ok()) fail("broadcast", answer.status().to_string());
            if (on_device)
                values = fetch(entry);
            else
                values.assign(answer->begin(), answer->end());
            if (values != expected) fail("broadcast", "other values than the root's");
        }
    }

    void hand_in(std::uint64_t step) {
        for (auto& entry : tensors) {
            if (has_noise) {
                must(gradsieve::gpu_check::fill_with_noise(reinterpret_cast<float*>(entry.gradient),
                                                           entry.elements * samples, step * 64 + rank_number, stream),
                     "noise");
                continue;
            }
            const auto set = step % sets;
            const auto bytes = entry.host[set].size() * element_bytes();
            if (on_device) {
                must(cudaMemcpyAsync(entry.gradient, entry.sets[set], bytes, cudaMemcpyDeviceToDevice, stream), "copy");
                if (has_moment)
                    must(cudaMemcpyAsync(entry.moment, entry.moment_sets[set], entry.elements * sizeof(float),
                                         cudaMemcpyDeviceToDevice, stream),
                         "copy");
                continue;
            }
            if (has_moment)
                std::copy(entry.moments[set].begin(), entry.moments[set].end(), entry.tensor.second_moment().begin());
            for (std::uint32_t sample = 0; sample < samples; ++sample)
                std::memcpy(entry.tensor.gradient(sample).data(), entry.host[set].data() + sample * entry.elements,
                            entry.elements * sizeof(float));
        }
        if (step == bad_step) spoil();
        if (on_device) must(cudaStreamSynchronize(stream), "synchronize");
    }

    /// The first element of every gradient is not a number.
    void spoil() {
        for (auto& entry : tensors) {
            if (on_device)
                must(cudaMemsetAsync(entry.gradient, 0xFF, element_bytes(), stream), "spoil");
            else
                entry.tensor.gradient()[0] = std::numeric_limits<float>::quiet_NaN();
        }
    }

    void take_back(bool wants_hash) {
        std::vector<float> values;
        last_hash = 0;
        for (auto& entry : tensors) {
            const auto average = entry.tensor.wait(kTimeout);
            if (!average.is_ok()) fail("wait", average.status().to_string());
            if (!wants_hash) continue;
            if (on_device)
                values = fetch(entry);
            else
                values.assign(average->begin(), average->end());
            round_to_type(values);
            const auto digest = gradsieve::digest_of(std::as_bytes(std::span(values)));
            hash = (hash ^ digest) * 0x9E3779B97F4A7C15ULL;
            last_hash = (last_hash ^ digest) * 0x9E3779B97F4A7C15ULL;
        }
        if (on_device) must(cudaStreamSynchronize(stream), "synchronize");
    }

    /// Of what every node keeps of the last step.
    static std::uint64_t state_digest(gradsieve::Job& job) {
        const auto kept = job.request_snapshot(0, kTimeout);
        if (!kept.is_ok()) fail("request_snapshot", kept.status().to_string());
        std::uint64_t digest = 0;
        for (const auto& part : kept->parts) digest = (digest ^ part.digest) * 0x9E3779B97F4A7C15ULL;
        return digest;
    }

    /// The job stands until whoever started this rank says a line.
    static void wait_for_line() {
        for (int letter = std::getchar(); letter != '\n' && letter != EOF;) letter = std::getchar();
    }

    int run() {
        is_staged = options.text("memory") == "staged";
        on_device = is_staged || options.text("memory", "device") == "device";
        is_bf16 = options.text("type", "f32") == "bf16";
        samples = static_cast<std::uint32_t>(options.number("samples", 1));
        has_moment = options.number("moment", 0) != 0;
        const std::vector<std::uint32_t> batch(has_moment ? samples : 0, kBatch / samples);
        sets = std::max<std::size_t>(1, options.number("sets", 2));
        const auto rank = options.number("rank", 0);
        rank_number = rank;
        bad_step = options.number("bad", 0);
        has_noise = on_device && !is_bf16 && options.number("hash", 1) == 0;
        if (on_device) {
            must(cudaSetDevice(static_cast<int>(options.number("device", 0))), "cudaSetDevice");
            must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
        }
        const bool counts_as_zero = options.number("zero", 0) != 0;
        auto job = gradsieve::Job::make({
            .name = options.text("job", "gpu-check"),
            .run_id = options.text("run", "1"),
            .rank = static_cast<std::int64_t>(rank),
            .world_size = static_cast<std::int64_t>(options.number("world", 1)),
            .codec = options.text("codec"),
            .non_finite = counts_as_zero ? gradsieve::NonFinite::kZero : gradsieve::NonFinite::kFail,
            .socket_path = options.text("socket"),
            .require = options.text("require"),
        });
        if (!job.is_ok()) fail("make", job.status().to_string());
        add_tensors(*job, rank);
        if (on_device) bind();
        must(job->start(kTimeout), "start");
        const bool wants_hash = options.number("hash", 1) != 0;
        if (wants_hash) broadcast(*job, static_cast<std::uint32_t>(options.number("world", 1)));
        const auto steps = options.number("steps", 4);
        const auto first = job->first_step();
        const auto end = options.number("until", 0) > 0 ? options.number("until", 0) + 1 : first + steps;
        for (std::uint64_t step = first; step < end; ++step) {
            if (step == options.number("hold", 0)) wait_for_line();
            hand_in(step);
            const auto begin = Clock::now();
            for (auto& entry : tensors)
                must(entry.tensor.submit(step, {.sample_count = samples, .samples = batch}), "submit");
            take_back(wants_hash);
            milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
        }
        const auto state = options.number("state", 0) != 0 ? state_digest(*job) : 0;
        must(job->check_equal(hash ^ state, kTimeout), "check_equal");  // and no rank leaves before all have asked
        must(job->detach(kTimeout), "detach");
        std::sort(milliseconds.begin(), milliseconds.end());
        const auto at = [&](double share) {
            return milliseconds[static_cast<std::size_t>(share * static_cast<double>(milliseconds.size() - 1))];
        };
        std::printf(
            "{\"event\":\"result\",\"rank\":%llu,\"hash\":\"%016llx\",\"last_hash\":\"%016llx\",\"state\":\"%016llx\","
            "\"first\":%llu,\"p10_ms\":%.3f,\"median_ms\":%.3f,\"p90_ms\":%.3f}\n",
            static_cast<unsigned long long>(rank), static_cast<unsigned long long>(hash),
            static_cast<unsigned long long>(last_hash), static_cast<unsigned long long>(state),
            static_cast<unsigned long long>(first), at(0.1), at(0.5), at(0.9));
        return 0;
    }
};

}  // namespace

/// gradsieve-gpu-rank --socket S --rank R --world W [--memory device|staged|host] [--type f32|bf16] [--require
/// cuda-ipc]
/// [--device D] [--elements N,N,...] [--samples M] [--moment 0|1] [--sets K] [--codec TEXT] [--steps N | --until STEP]
/// [--hold STEP]
/// [--bad STEP] [--zero 0|1] [--hash 0|1] [--state 0|1] [--job NAME] [--run ID]
int main(int argc, char** argv) {
    Rank rank(RankOptions(argc, argv));
    return rank.run();
}
