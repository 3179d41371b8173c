#include "fidelity_library.h"

#include "bench/fidelity/loopback_cluster.hpp"
#include "daemon/codec_choice.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace {

using gradsieve::ElementCount;
using gradsieve::Result;
using gradsieve::Status;
using gradsieve::StatusCode;
using gradsieve::bench::ClusterPlan;
using gradsieve::bench::Gradients;
using gradsieve::bench::LoopbackCluster;

constexpr std::uint32_t kMost = 64;
constexpr ElementCount kMostElements = ElementCount{1} << 32U;

Status check_count(const char* what, std::uint64_t value, std::uint64_t least) {
    if (value >= least && value <= kMost) return {};
    return {StatusCode::kInvalidArgument, std::string(what) + " is " + std::to_string(value) + "; allowed is " +
                                              std::to_string(least) + " to " + std::to_string(kMost)};
}

Status check(const fidelity_options& options, std::span<const fidelity_tensor> tensors) {
    GRADSIEVE_TRY(check_count("nodes", options.nodes, 2));
    GRADSIEVE_TRY(check_count("ranks", options.ranks, 1));
    GRADSIEVE_TRY(check_count("samples", options.samples, 1));
    ElementCount all = 0;
    for (const auto& tensor : tensors) {
        ElementCount elements = 1;
        for (std::uint32_t dimension = 0; dimension < tensor.dimensions; ++dimension)
            elements = std::min(kMostElements, elements) * std::min(kMostElements, tensor.shape[dimension]);
        all = std::min(kMostElements, all) + std::min(kMostElements, elements);
    }
    if (!tensors.empty() && all > 0 && all < kMostElements) return {};
    return {StatusCode::kInvalidArgument, "tensors have " + std::to_string(all) +
                                              " elements together; allowed is 1 to 2^32 - 1, in one tensor at least"};
}

void write_text(const std::string& text, char* ret_text, std::size_t text_bytes) {
    if (ret_text == nullptr || text_bytes == 0) return;
    const auto copied = std::min(text.size(), text_bytes - 1);
    std::memcpy(ret_text, text.data(), copied);
    ret_text[copied] = '\0';
}

}  // namespace

struct fidelity_job {
    std::unique_ptr<LoopbackCluster> cluster;
    std::vector<std::size_t> sorted;    ///< the job's tensor i is the caller's sorted[i]
    std::vector<std::size_t> place_of;  ///< and back
    std::vector<ElementCount> offsets;  ///< of the caller's tensors, and all elements behind the last
    std::vector<std::string> codecs;    ///< of the caller's tensors
    std::vector<Gradients> gradients;   ///< by node, then the job's tensors
    std::string error;                  ///< of the last step
};

namespace {

/// In the order of names, with the pipelines that the daemon chooses.
Result<ClusterPlan> plan_of(const fidelity_options& options, std::span<const fidelity_tensor> tensors,
                            std::span<const std::size_t> sorted) {
    gradsieve::daemon::Config config;
    config.nodes.resize(options.nodes);
    std::vector<gradsieve::shm::TensorEntry> entries;
    for (const auto index : sorted) {
        const auto& tensor = tensors[index];
        entries.push_back({.name = tensor.name,
                           .shape = {tensor.shape, tensor.shape + tensor.dimensions},
                           .samples_max = options.samples * options.ranks});
    }
    GRADSIEVE_ASSIGN(auto choice, gradsieve::daemon::choose_codecs(config, options.codec, entries));
    ClusterPlan plan{.nodes = options.nodes,
                     .ranks = options.ranks,
                     .samples = options.samples,
                     .batch_samples = options.batch_samples,
                     .codec = choice.text,
                     .job = options.job};
    for (std::size_t place = 0; place < entries.size(); ++place)
        plan.tensors.push_back({entries[place].name, entries[place].shape, choice.pipelines[place]});
    return plan;
}

Result<std::unique_ptr<fidelity_job>> make_job(const fidelity_options& options,
                                               std::span<const fidelity_tensor> tensors) {
    GRADSIEVE_TRY(check(options, tensors));
    auto job = std::make_unique<fidelity_job>();
    job->sorted.resize(tensors.size());
    std::iota(job->sorted.begin(), job->sorted.end(), std::size_t{0});
    std::ranges::sort(job->sorted, {}, [&](std::size_t index) { return std::string_view(tensors[index].name); });
    GRADSIEVE_ASSIGN(auto plan, plan_of(options, tensors, job->sorted));
    job->place_of.resize(tensors.size());
    for (std::size_t place = 0; place < tensors.size(); ++place) job->place_of[job->sorted[place]] = place;
    job->offsets.push_back(0);
    for (const auto place : job->place_of) {
        job->offsets.push_back(job->offsets.back() + elements_of(plan.tensors[place]));
        job->codecs.push_back(
            gradsieve::codec::canonical_text(plan.tensors[place].pipeline, gradsieve::codec::Knobs::kKeep));
    }
    job->gradients.resize(options.nodes * tensors.size());
    job->cluster = std::make_unique<LoopbackCluster>(std::move(plan));
    GRADSIEVE_TRY(job->cluster->form());
    return job;
}

/// Points every node's gradients into the caller's arrays.
void point_at(fidelity_job& job, const float* samples, const float* second_moments) {
    const auto& plan = job.cluster->plan();
    const auto all = job.offsets.back();
    const std::size_t sample_count = std::size_t{plan.ranks} * plan.samples;
    for (std::size_t node = 0; node < plan.nodes; ++node)
        for (std::size_t place = 0; place < job.sorted.size(); ++place) {
            auto& of_tensor = job.gradients[node * job.sorted.size() + place];
            const auto offset = job.offsets[job.sorted[place]];
            of_tensor.samples.clear();
            of_tensor.second_moments.clear();
            for (std::size_t sample = 0; sample < sample_count; ++sample)
                of_tensor.samples.push_back(samples + (node * sample_count + sample) * all + offset);
            for (std::size_t rank = 0; second_moments != nullptr && rank < plan.ranks; ++rank)
                of_tensor.second_moments.push_back(second_moments + (node * plan.ranks + rank) * all + offset);
        }
}

}  // namespace

extern "C" {

fidelity_job* fidelity_make(const fidelity_options* options, const fidelity_tensor* tensors, uint32_t tensor_count,
                            char* ret_error, size_t error_bytes) {
    auto job = make_job(*options, {tensors, tensor_count});
    if (job.is_ok()) return job->release();
    write_text(job.error().to_string(), ret_error, error_bytes);
    return nullptr;
}

int fidelity_step(fidelity_job* job, const float* samples, const float* second_moments, float rescale,
                  float* ret_average) {
    point_at(*job, samples, second_moments);
    const Status status = job->cluster->step(job->gradients, rescale);
    job->error = status.is_ok() ? "" : status.to_string();
    if (!status.is_ok()) return 1;
    for (std::size_t tensor = 0; tensor < job->place_of.size(); ++tensor) {
        const auto average = job->cluster->average(job->place_of[tensor]);
        std::copy(average.begin(), average.end(), ret_average + job->offsets[tensor]);
    }
    return 0;
}

const char* fidelity_error(const fidelity_job* job) { return job->error.c_str(); }

void fidelity_read_counters(const fidelity_job* job, fidelity_counters* ret_counters) {
    const auto sums = job->cluster->counters();
    *ret_counters = {sums.wire_bytes, sums.payload_bytes, sums.kept_elements};
}

const char* fidelity_codec(const fidelity_job* job, uint32_t tensor) {
    return tensor < job->codecs.size() ? job->codecs[tensor].c_str() : nullptr;
}

const char* fidelity_variance_source(const fidelity_job* job, uint32_t tensor) {
    if (tensor >= job->place_of.size()) return nullptr;
    return gradsieve::codec::variance_source_name(job->cluster->variance_source(job->place_of[tensor])).data();
}

void fidelity_free(fidelity_job* job) { const std::unique_ptr<fidelity_job> ended(job); }

}  // extern "C"
