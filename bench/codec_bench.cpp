// Encode and decode passes beside a non-temporal copy of the same bytes, in one run and in turn, so that the machine's
// mood hits both. One thread. Prints medians and quartiles; see README.md for how to read them.
#include "codec/decoder.hpp"
#include "codec/encoder_options.hpp"
#include "memory_copy.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace gradsieve::bench {
namespace {

using codec::CpuForm;
using codec::EncodeRequest;
using codec::EncodeWorkspace;
using codec::Pipeline;

constexpr std::size_t kLineBytes = 64;
/// Samples are read at a different offset each step, so that they do not repeat.
constexpr std::size_t kShiftElements = std::size_t{1} << 16U;
constexpr int kWarmSteps = 100;

class AlignedFloats {
public:
    explicit AlignedFloats(std::size_t count)
        : data_(static_cast<float*>(::operator new[](count * sizeof(float), std::align_val_t{kLineBytes}))) {
        std::fill_n(data_.get(), count, 0.0F);
    }
    [[nodiscard]] float* data() { return data_.get(); }

private:
    struct Free {
        void operator()(float* data) const { ::operator delete[](data, std::align_val_t{kLineBytes}); }
    };
    std::unique_ptr<float[], Free> data_;
};

/// Time this thread spent on a core: other programs' turns on a shared machine do not count, their use of memory does.
double thread_milliseconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double milliseconds(const std::function<void()>& work) {
    const double begin = thread_milliseconds();
    work();
    return thread_milliseconds() - begin;
}

double quantile(std::vector<double> times, double fraction) {
    std::sort(times.begin(), times.end());
    return times[static_cast<std::size_t>(fraction * static_cast<double>(times.size() - 1))];
}

struct Case {
    std::string name;
    std::size_t samples = 1;
    std::size_t read = 0;           ///< arrays of the tensor's size that a step reads: samples and state
    std::size_t written = 0;        ///< and writes: state, or the payload if it is all of that size
    std::size_t payload_bytes = 0;  ///< and bytes of payload for each element, where that is a whole number
    [[nodiscard]] std::size_t bytes_per_element() const { return (read + written) * sizeof(float) + payload_bytes; }
};

const std::vector<Case>& cases() {
    static const std::vector<Case> all = {{"variance(none) | f32, M=1", 1, 3, 2},
                                          {"variance(none) | f32, M=4", 4, 6, 2},
                                          {"topk(none) | f32", 1, 2, 1},
                                          {"variance(2) | f32, M=1", 1, 3, 2},
                                          {"variance(2) | pow2, M=1", 1, 3, 2},
                                          {"variance(2) | pow2, M=4", 4, 6, 2},
                                          {"topk(0.001) | pow2", 1, 2, 1},
                                          {"topk(0.01) | pow2", 1, 2, 1},
                                          {"block_topk(0.01) | pow2", 1, 2, 1},
                                          {"randk(0.01) | f32", 1, 2, 1},
                                          {"randk(0.01, none) | f32", 1, 1, 0},
                                          {"bernoulli(0.01) | f32", 1, 2, 1},
                                          {"adaptive_random(0.01) | pow2", 1, 2, 1},
                                          {"topk(0.01, gate=1) | pow2, M=4", 4, 6, 2},
                                          {"threshold(2.5) | sign(scale=tau)", 1, 2, 1},
                                          {"variance_hybrid(1) | sign(scale=tau)", 1, 3, 2},
                                          {"gaussian_k(0.01) | pow2", 1, 2, 1},
                                          {"sidco(0.01) | pow2", 1, 2, 1},
                                          {"biased_random(0.005, 0.015) | f32", 1, 2, 1},
                                          {"momentum | topk(0.01) | pow2", 1, 3, 2},
                                          {"compensate(0.9, 0.5) | topk(0.01) | pow2", 1, 2, 1},
                                          {"accumulate(2) | topk(0.01) | pow2", 1, 2, 1},
                                          {"warmup(1000, 0.04) | topk(0.01) | pow2", 1, 2, 1},
                                          {"topk(0.01) | pow2 | auto", 1, 2, 1},
                                          {"topk(0.01) | pow2 | rice", 1, 2, 1},
                                          {"topk(0.01) | pow2 | elias_fano", 1, 2, 1},
                                          {"topk(0.01) | pow2 | raw32", 1, 2, 1},
                                          {"topk(0.01) | pow2 | bitmap", 1, 2, 1},
                                          {"all | sign", 1, 2, 1},
                                          {"all | sign(scale=two_mean)", 1, 2, 1},
                                          {"all | sign(scale=none)", 1, 1, 0},
                                          {"all | dither", 1, 2, 1},
                                          {"all | dither(feedback=none)", 1, 1, 0},
                                          {"all | ternary", 1, 2, 1},
                                          {"all | exponential_dither", 1, 2, 1},
                                          {"all | minmax", 1, 2, 1},
                                          {"all | minmax(feedback=none)", 1, 1, 0},
                                          {"all | integer(10)", 1, 2, 1},
                                          {"all | integer(1e4)", 1, 2, 1, 2},
                                          {"all | rounding", 1, 2, 1, 1},
                                          {"all | natural", 1, 2, 1, 1},
                                          {"all | natural | entropy", 1, 2, 1, 1},
                                          {"topk(0.01) | pow2 | entropy", 1, 2, 1},
                                          {"all | natural(feedback=none)", 1, 1, 0, 1},
                                          {"delta | topk(0.01) | pow2", 1, 2, 1},
                                          {"delta | all | sign", 1, 2, 1},
                                          {"rotate | all | sign", 1, 2, 1},
                                          {"rotate | all | sign(scale=drive)", 1, 1, 0},
                                          {"rotate | all | dither", 1, 2, 1},
                                          {"all | f16", 1, 2, 1, 2},
                                          {"all | bf16", 1, 2, 1, 2},
                                          {"all | f32", 1, 1, 1},
                                          {"lowrank(1)", 1, 4, 2},
                                          {"lowrank(4)", 1, 4, 2},
                                          {"sketch(0.01)", 1, 2, 1},
                                          {"sketch(0.001)", 1, 2, 1}};
    return all;
}

/// `none` in place of a knob: one of which nothing is sent. Behind a comma and M=: how many samples.
Pipeline pipeline_of(std::string name) {
    name.resize(std::min(name.find(", M="), name.size()));
    if (name.starts_with("variance(none)")) name.replace(0, 14, "variance(1000000000)");
    if (name.starts_with("topk(none)")) name.replace(0, 10, "topk(0.000001)");
    const auto pipeline = codec::parse_pipeline(name);
    if (!pipeline.is_ok()) throw std::invalid_argument(pipeline.status().to_string());
    return *pipeline;
}

/// Copies around the caches: the same number of bytes in equal parts read and written, and the pass's own traffic, as
/// many arrays read and written as it has.
class CopyLoop {
public:
    CopyLoop(const Case& which, std::size_t elements, const float* noise, std::vector<AlignedFloats>& state,
             float* target)
        : half_bytes_(elements * which.bytes_per_element() / 2 / kLineBytes * kLineBytes),
          array_bytes_(elements * sizeof(float) / kLineBytes * kLineBytes),
          noise_(noise),
          target_(target) {
        for (std::size_t array = 0; array < which.read; ++array) {
            // Arrays that are all different: a line read twice would come from the cache.
            const bool is_state = array >= kNoiseCopies;
            sources_.push_back(is_state ? state[array - kNoiseCopies].data() : noise + array * elements);
        }
        for (std::size_t array = 0; array < which.written; ++array) targets_.push_back(target + array * elements);
    }
    void copy_half() {
        const std::array<const float*, 1> source = {noise_};
        const std::array<float*, 1> target = {target_};
        copy_around_caches(target, source, half_bytes_);
    }
    void copy_same_traffic() { copy_around_caches(targets_, sources_, array_bytes_); }

    static constexpr std::size_t kNoiseCopies = 4;

private:
    std::size_t half_bytes_;
    std::size_t array_bytes_;
    const float* noise_;
    float* target_;
    std::vector<const float*> sources_;
    std::vector<float*> targets_;
};

/// One tensor that is encoded step after step.
class EncodeLoop {
public:
    EncodeLoop(const Case& which, std::size_t elements, CpuForm form, float* noise, std::vector<AlignedFloats>& state)
        : pipeline_(pipeline_of(which.name)),
          form_(form),
          noise_(noise),
          random_(7),
          samples_(which.samples),
          weights_(which.samples, 1.0F / static_cast<float>(which.samples)),
          state_(state) {
        request_.pipeline = &pipeline_;
        request_.elements = elements;
        request_.weights = weights_;
        request_.selection_hint = &hint_;
        if (codec::has_phases(pipeline_)) phases_.emplace(pipeline_, elements);
        for (AlignedFloats& array : state_) std::fill_n(array.data(), elements, 0.0F);
    }
    /// Encodes one step; returns the elements kept.
    ElementCount step() { return encode().kept_elements; }
    codec::EncodeResult encode() {
        for (std::size_t sample = 0; sample < samples_.size(); ++sample) {
            samples_[sample] =
                noise_ + sample % CopyLoop::kNoiseCopies * request_.elements + (random_() % kShiftElements) * 16;
        }
        request_.samples = samples_;
        const std::size_t read = request_.step++ % 2;
        request_.in = {state_[read].data(), state_[2 + read].data()};
        request_.out = {state_[1 - read].data(), state_[3 - read].data()};
        if (codec::has_momentum(pipeline_)) {  // the second array, of pipelines without variance
            request_.in.momentum = request_.in.variance;
            request_.out.momentum = request_.out.variance;
        }
        if (phases_) return encode_phases();
        auto result = codec::encode_tensor_with(request_, {form_, true, true}, workspace_);
        if (!result.is_ok()) std::printf("%s\n", result.status().to_string().c_str()), std::exit(1);
        return std::move(*result);
    }

private:
    /// What a lone node does up to the second payload: both codings, and what all do between them.
    codec::EncodeResult encode_phases() {
        request_.in.factor = request_.in.variance;
        request_.out.factor = request_.out.variance;
        auto first = codec::encode_phase_with(0, request_, {form_, true, true}, *phases_, workspace_);
        if (!first.is_ok()) std::exit(1);
        std::vector<codec::ChunkView> views;
        for (const auto& chunk : first->chunks) views.push_back({chunk.chunk_index, chunk.bytes});
        const codec::Contribution contributions[] = {{1.0F, views}};
        if (!codec::decode_first_phase({request_.step, request_.tensor, request_.selection_seed}, contributions,
                                       *phases_)
                 .is_ok())
            std::exit(1);
        auto second = codec::encode_phase_with(1, request_, {form_, true, true}, *phases_, workspace_);
        if (!second.is_ok()) std::exit(1);
        second->kept_elements += first->kept_elements;
        return std::move(*second);
    }

    Pipeline pipeline_;
    CpuForm form_;
    std::optional<codec::PhaseMemory> phases_;
    float* noise_;
    std::mt19937_64 random_;
    std::vector<const float*> samples_;
    std::vector<float> weights_;
    std::vector<AlignedFloats>& state_;
    std::uint32_t hint_ = 0;
    EncodeRequest request_;
    EncodeWorkspace workspace_;
};

/// Times some pieces of work in turn, round after round; returns each one's times.
std::vector<std::vector<double>> time_in_turn(int rounds, const std::vector<std::function<void()>>& pieces) {
    std::vector<std::vector<double>> times(pieces.size());
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t piece = 0; piece < pieces.size(); ++piece) times[piece].push_back(milliseconds(pieces[piece]));
    }
    return times;
}

/// The last of the pieces beside each of the others: the median over rounds of their time over its own.
void print_times(const std::string& name, std::size_t bytes_per_element, std::size_t elements,
                 const std::vector<std::vector<double>>& times, double kept) {
    std::printf("%-31s %3zu B |", name.c_str(), bytes_per_element);
    for (const auto& series : times) {
        std::printf(" %6.2f [%6.2f %6.2f] |", quantile(series, 0.5), quantile(series, 0.25), quantile(series, 0.75));
    }
    std::printf(" %5.2f ns |", quantile(times.back(), 0.5) * 1e6 / static_cast<double>(elements));
    for (std::size_t piece = 0; piece + 1 < times.size(); ++piece) {
        std::vector<double> fractions;
        for (std::size_t round = 0; round < times[piece].size(); ++round) {
            fractions.push_back(times[piece][round] / times.back()[round]);
        }
        std::printf(" %.2f |", quantile(fractions, 0.5));
    }
    std::printf(" %7.3f %%\n", 100.0 * kept / static_cast<double>(elements));
}

void run_encode(const Case& which, std::size_t elements, int rounds, CpuForm form, float* noise,
                std::vector<AlignedFloats>& state, AlignedFloats& copy_target) {
    EncodeLoop loop(which, elements, form, noise, state);
    for (int step = 0; step < kWarmSteps; ++step) loop.step();
    CopyLoop copy(which, elements, noise, state, copy_target.data());
    ElementCount kept = 0;
    const auto times = time_in_turn(
        rounds, {[&] { copy.copy_half(); }, [&] { copy.copy_same_traffic(); }, [&] { kept += loop.step(); }});
    print_times(which.name, which.bytes_per_element(), elements, times, static_cast<double>(kept) / rounds);
}

/// Two nodes' payloads averaged into one result. Dense: two payloads read, the result written. Sparse: held against
/// writing the result once.
void run_decode(const Case& which, std::size_t elements, int rounds, CpuForm form, float* noise,
                std::vector<AlignedFloats>& state, AlignedFloats& copy_target) {
    EncodeLoop loop(which, elements, form, noise, state);
    std::vector<codec::EncodeResult> nodes;
    for (int node = 0; node < 2; ++node) nodes.push_back(loop.encode());
    std::vector<std::vector<codec::ChunkView>> views(2);
    std::vector<codec::Contribution> contributions;
    for (std::size_t node = 0; node < 2; ++node) {
        for (const auto& chunk : nodes[node].chunks) views[node].push_back({chunk.chunk_index, chunk.bytes});
        contributions.push_back({0.5F, views[node]});
    }
    AlignedFloats average(elements);
    codec::ResultTensor result(1, average.data(), elements);
    const bool is_dense = nodes[0].kept_elements == elements;
    const std::size_t bytes = is_dense ? 12 : 4;
    const Case traffic{which.name, 1, is_dense ? 2U : 0U, 1};
    CopyLoop copy(traffic, elements, noise, state, copy_target.data());
    Step step = 0;
    const auto times = time_in_turn(rounds, {[&] { copy.copy_half(); },
                                             [&] {
                                                 if (!result.decode_average(++step, contributions).is_ok())
                                                     std::exit(1);
                                             }});
    print_times("decode x 2, " + which.name, bytes, elements, times, static_cast<double>(nodes[0].kept_elements));
}

int main_of(int argc, char** argv) {
    const std::size_t elements = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::size_t{1} << 23U;
    const int rounds = argc > 2 ? std::atoi(argv[2]) : 21;
    const std::string only = argc > 3 ? argv[3] : "";
    const auto form = codec::chosen_cpu_form();
    if (!form.is_ok() || elements == 0 || rounds <= 0) {
        std::printf("usage: codec_bench [elements] [rounds] [part of a case's name]; %s\n",
                    form.status().to_string().c_str());
        return 2;
    }
    std::printf("form %s, %zu elements, %d rounds, medians [quartiles], one thread\n",
                std::string(codec::cpu_form_name(*form)).c_str(), elements, rounds);
    std::printf(
        "%-31s  traffic | copy, half and half ms | copy, same reads, writes | encode ms | per element |"
        " of the copy | of the same reads and writes | kept\n",
        "codec");
    const std::size_t noise_elements = CopyLoop::kNoiseCopies * elements + kShiftElements * 16;
    AlignedFloats noise(noise_elements);
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < noise_elements; ++i) {
        noise.data()[i] = i < 2 * kShiftElements * 16 ? normal(random) : noise.data()[i - kShiftElements * 16];
    }
    std::vector<AlignedFloats> state;
    for (int array = 0; array < 4; ++array) state.emplace_back(elements);
    AlignedFloats copy_target(elements * 4 + kLineBytes);
    for (const Case& which : cases()) {
        if (which.name.find(only) == std::string::npos) continue;
        run_encode(which, elements, rounds, *form, noise.data(), state, copy_target);
    }
    for (const Case& which :
         {Case{"topk(0.01) | pow2", 1, 2, 1}, Case{"all | dither", 1, 2, 1}, Case{"all | f32", 1, 1, 1}}) {
        if (("decode x 2, " + which.name).find(only) == std::string::npos) continue;
        run_decode(which, elements, rounds, *form, noise.data(), state, copy_target);
    }
    return 0;
}

}  // namespace
}  // namespace gradsieve::bench

int main(int argc, char** argv) { return gradsieve::bench::main_of(argc, argv); }
