// Encode passes beside a non-temporal copy of the same bytes, in one run and in turn, so that the machine's mood hits
// both. One thread. Prints medians and quartiles; see README.md for how to read them.
#include "codec/encoder_options.hpp"
#include "memory_copy.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <random>
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
    std::size_t bytes_per_element = 0;  ///< samples and state read, state written; payload bytes not counted
};

const std::vector<Case>& cases() {
    static const std::vector<Case> all = {{"variance(none) | f32, M=1", 1, 20},
                                          {"variance(none) | f32, M=4", 4, 32},
                                          {"topk(none) | f32", 1, 12},
                                          {"variance(1.5) | pow2, M=1", 1, 20},
                                          {"variance(1.5) | f32, M=1", 1, 20},
                                          {"variance(1.5) | pow2, M=4", 4, 32},
                                          {"topk(0.01) | pow2", 1, 12},
                                          {"topk(0.01, gate=1) | pow2, M=4", 4, 32},
                                          {"all | sign", 1, 12},
                                          {"all | bf16", 1, 12},
                                          {"all | f32", 1, 8}};
    return all;
}

Pipeline pipeline_of(const std::string& name) {
    Pipeline pipeline;
    using namespace codec;
    if (name.find("variance") == 0) pipeline.selector.kind = SelectorKind::kVariance;
    if (name.find("topk") == 0) pipeline.selector.kind = SelectorKind::kTopK, pipeline.selector.ratio = 0.01;
    if (name.find("none") != std::string::npos) pipeline.selector.alpha = 1e9, pipeline.selector.ratio = 1e-6;
    if (name.find("gate") != std::string::npos) pipeline.selector.gate = 1;
    if (name.find("pow2") != std::string::npos) pipeline.quantizer.kind = QuantizerKind::kPow2;
    if (name.find("sign") != std::string::npos) pipeline.quantizer.kind = QuantizerKind::kSign;
    if (name.find("bf16") != std::string::npos) pipeline.quantizer.kind = QuantizerKind::kBf16;
    return pipeline;
}

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
        for (AlignedFloats& array : state_) std::fill_n(array.data(), elements, 0.0F);
    }
    /// Encodes one step; returns the elements kept.
    ElementCount step() {
        for (std::size_t sample = 0; sample < samples_.size(); ++sample) {
            samples_[sample] = noise_ + (random_() % kShiftElements) * 16;
        }
        request_.samples = samples_;
        const std::size_t read = request_.step++ % 2;
        request_.in = {state_[read].data(), state_[2 + read].data()};
        request_.out = {state_[1 - read].data(), state_[3 - read].data()};
        const auto result = codec::encode_tensor_with(request_, {form_, true, true}, workspace_);
        if (!result.is_ok()) std::printf("%s\n", result.status().to_string().c_str()), std::exit(1);
        return result->kept_elements;
    }

private:
    Pipeline pipeline_;
    CpuForm form_;
    float* noise_;
    std::mt19937_64 random_;
    std::vector<const float*> samples_;
    std::vector<float> weights_;
    std::vector<AlignedFloats>& state_;
    std::uint32_t hint_ = 0;
    EncodeRequest request_;
    EncodeWorkspace workspace_;
};

void run_case(const Case& which, std::size_t elements, int rounds, CpuForm form, float* noise,
              std::vector<AlignedFloats>& state, AlignedFloats& copy_target) {
    EncodeLoop loop(which, elements, form, noise, state);
    for (int step = 0; step < kWarmSteps; ++step) loop.step();
    std::vector<double> encode_times;
    std::vector<double> copy_times;
    std::vector<double> fractions;
    ElementCount kept = 0;
    const std::size_t copy_bytes = elements * which.bytes_per_element / 2 / kLineBytes * kLineBytes;
    for (int round = 0; round < rounds; ++round) {
        copy_times.push_back(milliseconds([&] {
            // The copied range may be longer than the noise: it is then read in several stretches.
            const std::size_t stretch = elements * sizeof(float);
            for (std::size_t done = 0; done < copy_bytes; done += stretch) {
                copy_around_caches(reinterpret_cast<char*>(copy_target.data()) + done, noise,
                                   std::min(stretch, copy_bytes - done));
            }
        }));
        encode_times.push_back(milliseconds([&] { kept += loop.step(); }));
        fractions.push_back(copy_times.back() / encode_times.back());
    }
    const double per_element = 1e6 / static_cast<double>(elements);
    std::printf(
        "%-32s %4zu B  copy %6.2f ms [%6.2f %6.2f]  encode %6.2f ms [%6.2f %6.2f] %5.2f ns/element"
        "  %.2f of the copy  kept %.3f %%\n",
        which.name.c_str(), which.bytes_per_element, quantile(copy_times, 0.5), quantile(copy_times, 0.25),
        quantile(copy_times, 0.75), quantile(encode_times, 0.5), quantile(encode_times, 0.25),
        quantile(encode_times, 0.75), quantile(encode_times, 0.5) * per_element, quantile(fractions, 0.5),
        100.0 * static_cast<double>(kept) / rounds / static_cast<double>(elements));
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
    AlignedFloats noise(elements + kShiftElements * 16);
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < elements + kShiftElements * 16; ++i) noise.data()[i] = normal(random);
    std::vector<AlignedFloats> state;
    for (int array = 0; array < 4; ++array) state.emplace_back(elements);
    AlignedFloats copy_target(elements * 4 + kLineBytes);
    for (const Case& which : cases()) {
        if (which.name.find(only) == std::string::npos) continue;
        run_case(which, elements, rounds, *form, noise.data(), state, copy_target);
    }
    return 0;
}

}  // namespace
}  // namespace gradsieve::bench

int main(int argc, char** argv) { return gradsieve::bench::main_of(argc, argv); }
