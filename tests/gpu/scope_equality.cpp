// Tensors of a scope on the card, whole or shared by two, against the CPU's phases step after step: payloads, state,
// trouble and where it lies have the same bits. The phases take turns on two encoders, and samples are gone after the
// first.
#include "codec/cuda/device_values.hpp"
#include "codec/narrow_scope.hpp"
#include "codec/select_topk.hpp"
#include "codec/stages/warmup.hpp"
#include "gpu_check.hpp"
#include "job_runs.hpp"
#include "scope_cases.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace gradsieve::gpu_check {
namespace {

using codec::EncodeRequest;
using codec::EncodeResult;
using codec::NextPhase;
using codec::ScopeMember;
using codec::ScopePhase;
using codec::cuda::DeviceMemory;
using codec::cuda::ElementType;
using codec::cuda::GpuEncodePart;
using codec::cuda::GpuEncoder;
using codec::cuda::GpuEncodeRequest;
using codec::reference::State;
using Values = std::vector<float>;

constexpr int kPoison = 0xC5;

/// An array that may lie on several devices in parts, off a vector's boundary.
struct Spread {
    std::vector<DeviceMemory> parts;
    std::size_t offset = 0;
    float* at(std::size_t place) const { return parts.empty() ? nullptr : parts[place].as<float>() + offset; }
};

struct Tensor {
    // the CPU's
    std::array<State, 2> states;
    ScopeMember host_member;
    std::vector<Values> samples, moments;
    std::vector<const float*> host_samples, host_moments;
    // the devices'
    std::array<std::array<Spread, 3>, 2> arrays;  ///< by generation: r, v, u
    ScopeMember device_member;
    std::vector<Spread> device_samples, device_moments;
    std::vector<const float*> sample_addresses, moment_addresses;
    std::vector<int> sample_devices, moment_devices;
    std::vector<codec::cuda::DeviceRange> ranges;
    std::vector<GpuEncodePart> parts;
    std::size_t live = 0;
};

codec::StateView view_of(State& state) {
    const auto data = [](Values& values) { return values.empty() ? nullptr : values.data(); };
    return {data(state.residual), data(state.variance), data(state.momentum)};
}

class ScopeRun {
public:
    ScopeRun(const Options& options, Report& report, std::vector<int> devices)
        : options_(options), report_(report), devices_(std::move(devices)) {}

    bool open() {
        for (auto& encoder : encoders_) {
            auto made = GpuEncoder::make(devices_, {});
            if (!report_.expect_ok(made.status(), "an encoder")) return false;
            encoder = std::move(*made);
        }
        return true;
    }

    void run(const ScopeCase& one, std::size_t steps) {
        name_ = fmt::format("{}, {} tensors", one.text, one.tensors.size());
        case_ = &one;
        auto pipeline = codec::parse_pipeline(one.text);
        if (!report_.expect_ok(pipeline.status(), name_)) return;
        pipeline_ = *pipeline;
        tensors_.clear();
        tensors_.resize(one.tensors.size());
        ElementCount all = 0;
        for (std::size_t number = 0; number < tensors_.size(); ++number) {
            all += one.tensors[number].elements;
            if (!prepare(number)) return;
        }
        terms_ = {};
        for (step_ = 1; step_ <= steps; ++step_) {
            terms_.k = codec::top_k_count(codec::ratio_at(pipeline_, step_), all);
            rescale_ = step_ == 2 ? 0.5F : 1.0F;
            if (!run_step()) return;
        }
    }

private:
    void expect(bool holds, const std::string& what) {
        report_.expect(holds, fmt::format("{}, step {}: {}", name_, step_, what));
    }
    const codec::cuda::Stream& stream(std::size_t place) const { return encoders_[0]->stream(place); }
    bool fill(const DeviceMemory& memory, std::size_t place, int value) const {
        return report_.expect_ok(codec::cuda::fill_bytes(stream(place), memory.data(), memory.size(), value),
                                 "filling") &&
               report_.expect_ok(stream(place).synchronize(), "filling");
    }

    bool make(std::size_t place, ElementCount elements, Spread& inout_array) {
        inout_array.offset = case_->offset_elements;
        const ByteCount bytes = (elements + case_->offset_elements + 4) * sizeof(float);
        auto made = DeviceMemory::make(devices_[place], bytes, "arrays of the test");
        if (!report_.expect_ok(made.status(), "device memory")) return false;
        inout_array.parts.push_back(std::move(*made));
        return fill(inout_array.parts.back(), place, 0);
    }

    bool prepare(std::size_t number) {
        Tensor& tensor = tensors_[number];
        const auto elements = case_->tensors[number].elements;
        const bool has_clip = codec::has_local_clip(pipeline_);
        constexpr std::array<std::size_t, 1> kFirst{0};
        tensor.ranges =
            codec::cuda::split_over_devices({&elements, 1}, devices_.size(), std::span(kFirst).first(has_clip ? 1 : 0))
                .front();
        for (std::size_t generation = 0; generation < 2; ++generation) {
            auto& state = tensor.states[generation];
            state.residual.resize(elements);
            if (codec::has_variance(pipeline_)) state.variance.resize(elements);
            if (codec::has_momentum(pipeline_)) state.momentum.resize(elements);
            for (std::size_t array = 0; array < 3; ++array)
                for (std::size_t place = 0; place < devices_.size(); ++place)
                    if (!make(place, tensor.ranges[place].elements, tensor.arrays[generation][array])) return false;
        }
        for (std::size_t sample = 0; sample < case_->samples.size(); ++sample) {
            const std::size_t place = sample % devices_.size();
            tensor.device_samples.emplace_back();
            if (!make(place, elements, tensor.device_samples.back())) return false;
            tensor.sample_devices.push_back(devices_[place]);
            if (!case_->has_moments) continue;
            tensor.device_moments.emplace_back();
            if (!make(place, elements, tensor.device_moments.back())) return false;
            tensor.moment_devices.push_back(devices_[place]);
        }
        return true;
    }

    /// Fresh samples, as the card has them and as the host reads those.
    bool draw(std::size_t number) {
        Tensor& tensor = tensors_[number];
        std::mt19937_64 random(options_.seed + 1000 * step_ + number);
        tensor.samples.clear();
        tensor.moments.clear();
        const auto [elements, kind] = case_->tensors[number];
        for (std::size_t sample = 0; sample < case_->samples.size(); ++sample) {
            auto values = codec::make_gradient(kind, elements, random);
            if (step_ == 3)
                for (float& value : values) value *= 0x1p-9F;
            if (step_ == case_->bad_step && number == 1 && sample == 0)
                values[values.size() / 2] = std::numeric_limits<float>::quiet_NaN();
            const auto place = sample % devices_.size();
            const auto type = case_->samples[sample];
            auto* address = element_address(tensor.device_samples[sample], type);
            if (!report_.expect_ok(write_values(stream(place), values, address, type), "samples") ||
                !report_.expect_ok(read_values(stream(place), address, type, values), "samples"))
                return false;
            tensor.samples.push_back(std::move(values));
            if (!case_->has_moments) continue;
            auto moments = codec::make_gradient(codec::DataKind::kGaussian, elements, random);
            for (float& moment : moments) moment *= moment;
            if (!report_.expect_ok(
                    write_values(stream(place), moments, tensor.device_moments[sample].at(0), ElementType::kF32),
                    "moments"))
                return false;
            tensor.moments.push_back(std::move(moments));
        }
        return true;
    }
    /// The offset is one of elements of that type.
    static void* element_address(const Spread& array, ElementType type) {
        return array.parts.front().data() + array.offset * codec::cuda::element_bytes(type);
    }

    EncodeRequest request_of(std::size_t number) {
        weights_.assign(case_->samples.size(), 1.0F / static_cast<float>(case_->samples.size()));
        EncodeRequest request;
        request.pipeline = &pipeline_;
        request.tensor = tensor_id("tensor " + std::to_string(number));
        request.step = static_cast<Step>(step_);
        request.elements = case_->tensors[number].elements;
        request.weights = weights_;
        request.batch_samples = case_->has_moments ? 64 : 0;
        request.rescale = rescale_;
        request.node_count = 2;
        request.random_seed = 9;
        return request;
    }
    EncodeRequest host_request(std::size_t number) {
        Tensor& tensor = tensors_[number];
        tensor.host_samples.clear();
        tensor.host_moments.clear();
        for (const auto& values : tensor.samples) tensor.host_samples.push_back(values.data());
        for (const auto& values : tensor.moments) tensor.host_moments.push_back(values.data());
        EncodeRequest request = request_of(number);
        request.samples = tensor.host_samples;
        request.second_moments = tensor.host_moments;
        request.in = view_of(tensor.states[tensor.live]);
        request.out = view_of(tensor.states[1 - tensor.live]);
        return request;
    }
    codec::StateView device_view(const Tensor& tensor, std::size_t generation, std::size_t place) const {
        const auto& arrays = tensor.arrays[generation];
        return {.residual = arrays[0].at(place), .variance = arrays[1].at(place), .momentum = arrays[2].at(place)};
    }
    GpuEncodeRequest device_request(std::size_t number) {
        Tensor& tensor = tensors_[number];
        tensor.sample_addresses.clear();
        tensor.moment_addresses.clear();
        for (std::size_t sample = 0; sample < tensor.device_samples.size(); ++sample)
            tensor.sample_addresses.push_back(
                static_cast<const float*>(element_address(tensor.device_samples[sample], case_->samples[sample])));
        for (const auto& moments : tensor.device_moments) tensor.moment_addresses.push_back(moments.at(0));
        GpuEncodeRequest gpu_request;
        EncodeRequest& request = gpu_request.request;
        request = request_of(number);
        request.samples = tensor.sample_addresses;
        request.second_moments = tensor.moment_addresses;
        gpu_request.sample_types = case_->samples;
        if (devices_.size() == 1) {
            request.in = device_view(tensor, tensor.live, 0);
            request.out = device_view(tensor, 1 - tensor.live, 0);
            return gpu_request;
        }
        tensor.parts.clear();
        for (std::size_t place = 0; place < devices_.size(); ++place)
            tensor.parts.push_back({tensor.ranges[place], device_view(tensor, tensor.live, place),
                                    device_view(tensor, 1 - tensor.live, place)});
        gpu_request.parts = tensor.parts;
        gpu_request.sample_devices = tensor.sample_devices;
        gpu_request.moment_devices = tensor.moment_devices;
        return gpu_request;
    }

    /// Members still in it, and their results; those with trouble leave.
    struct Round {
        std::vector<std::size_t> members;
        std::vector<EncodeResult> results;
        template <typename Member>
        std::vector<Member*> of(std::vector<Tensor>& tensors, ScopeMember Tensor::*member) const {
            std::vector<Member*> pointers;
            for (const auto number : members) pointers.push_back(&(tensors[number].*member));
            return pointers;
        }
        void leave() {
            std::erase_if(members, [this](std::size_t number) { return results[number].non_finite.has_value(); });
        }
    };
    Round all_members() const {
        Round round;
        for (std::size_t number = 0; number < tensors_.size(); ++number) round.members.push_back(number);
        round.results.resize(tensors_.size());
        return round;
    }

    bool encode_on_host(Round& ret_round) {
        ret_round = all_members();
        for (NextPhase next{ScopePhase::kObserve, terms_};;
             next = codec::phase_after(next.phase, next.terms,
                                       ret_round.of<const ScopeMember>(tensors_, &Tensor::host_member))) {
            if (next.phase == ScopePhase::kCut) {
                terms_.hint = codec::cut_scope(next.terms, ret_round.of<ScopeMember>(tensors_, &Tensor::host_member));
                next.phase = ScopePhase::kSettle;
            }
            for (const auto number : ret_round.members) {
                auto encoded = codec::encode_member(next.phase, next.terms, host_request(number),
                                                    tensors_[number].host_member, workspace_);
                if (!report_.expect_ok(encoded.status(), name_)) return false;
                ret_round.results[number] = std::move(*encoded);
            }
            ret_round.leave();
            if (next.phase == ScopePhase::kSettle || ret_round.members.empty()) return true;
        }
    }

    bool encode_on_devices(Round& ret_round) {
        ret_round = all_members();
        for (NextPhase next{ScopePhase::kObserve, terms_};;
             next = codec::narrow_scope(next.terms, ret_round.of<ScopeMember>(tensors_, &Tensor::device_member))) {
            std::vector<GpuEncodeRequest> requests;
            for (const auto number : ret_round.members) {
                requests.push_back(device_request(number));
                requests.back().scope = {next.phase, next.terms, &tensors_[number].device_member};
                if (next.phase != ScopePhase::kObserve) requests.back().sample_types = {};
            }
            std::vector<EncodeResult> results(requests.size());
            if (!report_.expect_ok(encoders_[turn_++ % 2]->encode(requests, results), name_)) return false;
            for (std::size_t at = 0; at < results.size(); ++at)
                ret_round.results[ret_round.members[at]] = std::move(results[at]);
            ret_round.leave();
            if (next.phase == ScopePhase::kObserve && !forget_samples()) return false;
            if (next.phase == ScopePhase::kSettle || ret_round.members.empty()) return true;
        }
    }
    bool forget_samples() {
        for (auto& tensor : tensors_)
            for (std::size_t sample = 0; sample < tensor.device_samples.size(); ++sample)
                if (!fill(tensor.device_samples[sample].parts.front(), sample % devices_.size(), 0xFF)) return false;
        return true;
    }

    bool run_step() {
        for (std::size_t number = 0; number < tensors_.size(); ++number)
            if (!draw(number) || !poison(number)) return false;
        Round expected;
        Round found;
        if (!encode_on_devices(found) || !encode_on_host(expected)) return false;
        expect(found.members == expected.members, "the same tensors have no trouble");
        for (std::size_t number = 0; number < tensors_.size(); ++number)
            compare(number, found.results[number], expected.results[number]);
        return true;
    }
    /// What the step is to write.
    bool poison(std::size_t number) {
        for (const auto& array : tensors_[number].arrays[1 - tensors_[number].live])
            for (std::size_t place = 0; place < devices_.size(); ++place)
                if (!fill(array.parts[place], place, kPoison)) return false;
        return true;
    }

    void compare(std::size_t number, const EncodeResult& found, const EncodeResult& expected) {
        Tensor& tensor = tensors_[number];
        const auto what = [&](const char* text) { return fmt::format("tensor {}: {}", number, text); };
        expect(found.non_finite.has_value() == expected.non_finite.has_value(), what("trouble"));
        if (expected.non_finite) {
            if (found.non_finite)
                expect(found.non_finite->element == expected.non_finite->element &&
                           found.non_finite->sample_index == expected.non_finite->sample_index,
                       what("the element that is no number"));
            expect(found.chunks.empty(), what("nothing is sent then"));
            return;
        }
        expect(found.kept_elements == expected.kept_elements && found.variance_source == expected.variance_source,
               what("counts"));
        expect(std::ranges::equal(found.chunks, expected.chunks,
                                  [](const auto& a, const auto& b) {
                                      return a.chunk_index == b.chunk_index &&
                                             std::ranges::equal(a.bytes.view(), b.bytes.view());
                                  }),
               what("payloads"));
        tensor.live = 1 - tensor.live;
        const State& state = tensor.states[tensor.live];
        const std::array arrays = {&state.residual, &state.variance, &state.momentum};
        constexpr std::array kNames = {"residual", "variance", "momentum"};
        for (std::size_t array = 0; array < arrays.size(); ++array) {
            if (arrays[array]->empty()) continue;
            Values seen(arrays[array]->size());
            for (std::size_t place = 0; place < devices_.size(); ++place) {
                const auto& range = tensor.ranges[place];
                report_.expect_ok(read_values(stream(place), tensor.arrays[tensor.live][array].at(place),
                                              ElementType::kF32, std::span(seen).subspan(range.first, range.elements)),
                                  "state");
            }
            const auto same = codec::same_bits(seen, *arrays[array]);
            expect(static_cast<bool>(same), what(kNames[array]) + ": " + same.message());
        }
    }

    const Options& options_;
    Report& report_;
    const std::vector<int> devices_;
    std::array<std::unique_ptr<GpuEncoder>, 2> encoders_;
    std::size_t turn_ = 0;
    // of the case
    std::string name_;
    const ScopeCase* case_ = nullptr;
    codec::Pipeline pipeline_;
    std::vector<Tensor> tensors_;
    codec::ScopeTerms terms_;
    std::vector<float> weights_;
    std::size_t step_ = 1;
    float rescale_ = 1;
    codec::EncodeWorkspace workspace_;
};

}  // namespace

void check_scope(const Options& options, Report& report) {
    const std::size_t steps = options.is_few ? 2 : options.is_small ? 3 : 5;
    ScopeRun alone(options, report, {options.device});
    if (!alone.open()) return;
    for (const auto& one : scope_cases(options.is_small)) alone.run(one, steps);
    if (device_count() < 2) return report.skip("a scope on two GPUs: this host has one");
    ScopeRun shared(options, report, {0, 1});
    if (!shared.open()) return;
    for (const auto& one : shared_scope_cases(options.is_small)) shared.run(one, steps);
}

}  // namespace gradsieve::gpu_check
