#include "codec/cuda/gpu_signer.hpp"

#include "codec/cuda/runtime.hpp"
#include "codec/cuda/vector_bytes.hpp"

#include <algorithm>
#include <cstring>

namespace gradsieve::codec::cuda {
namespace {

constexpr auto kSignatures = "signatures";
/// Of a pass: 32 MiB of sums.
constexpr std::uint32_t kMostGroups = 4096;

std::uint32_t groups_in(ElementCount elements) {
    return static_cast<std::uint32_t>((elements + kSignatureGroupElements - 1) / kSignatureGroupElements);
}

struct Region {
    DeviceMemory* memory;
    ByteCount bytes;
};

}  // namespace

void GpuSigner::clear() {
    arrays_.clear();
    staged_.clear();
    chunks_.clear();
    chunk_rows_.clear();
    groups_.clear();
    passes_.clear();
}

void GpuSigner::add(TensorId tensor, const DeviceRange& range, std::span<const StagedSamples::Source> samples) {
    arrays_.push_back({tensor, range, static_cast<std::uint32_t>(samples.size()), 0, 0});
    staged_.add_tensor();
    for (const StagedSamples::Source& sample : samples) staged_.add_sample(sample);
}

/// A chunk of its own for each of the arrays', in passes whose copies fit, so that one pass reads what was copied
/// before the next one's copies overwrite it.
void GpuSigner::plan_chunks(ByteCount staging_bytes) {
    ByteCount staged = 0;
    const auto begin_pass = [&] {
        staged = 0;
        passes_.push_back({.first_copy = staged_.copies().size(),
                           .first_chunk = static_cast<std::uint32_t>(chunks_.size()),
                           .first_group = static_cast<std::uint32_t>(groups_.size())});
    };
    begin_pass();
    for (std::size_t number = 0; number < arrays_.size(); ++number) {
        Array& array = arrays_[number];
        array.first_chunk = chunks_.size();
        array.chunk_count = (array.range.elements + kChunkElements - 1) / kChunkElements;
        for (ElementCount first = 0; first < array.range.elements; first += kChunkElements) {
            const ElementCount elements = std::min<ElementCount>(kChunkElements, array.range.elements - first);
            const ByteCount bytes = staged_.chunk_bytes(number, elements);
            const bool is_full = (bytes > 0 && staged + bytes > staging_bytes) ||
                                 passes_.back().group_count + groups_in(elements) > kMostGroups;
            if (is_full && passes_.back().chunk_count > 0) begin_pass();
            Pass& pass = passes_.back();
            const auto chunk_index = static_cast<std::uint32_t>(first / kChunkElements);
            chunk_rows_.push_back(staged_.stage_chunk(number, chunk_index, elements, staged));
            const auto chunk = static_cast<std::uint32_t>(chunks_.size());
            chunks_.push_back({nullptr, (array.range.first + first) / kSignatureBuckets, signature_key(array.tensor),
                               array.sample_count, static_cast<std::uint32_t>(first),
                               static_cast<std::uint32_t>(elements), pass.group_count});
            for (std::uint32_t group = 0; group < groups_in(elements); ++group) groups_.push_back({chunk, group});
            ++pass.chunk_count;
            pass.group_count += groups_in(elements);
            pass.copy_count = staged_.copies().size() - pass.first_copy;
        }
    }
}

Status GpuSigner::prepare(const Stream& stream, ByteCount staging_bytes) {
    if (arrays_.empty()) return {};
    plan_chunks(staging_bytes);
    if (chunks_.empty()) return {};
    groups_at_ = aligned(chunks_.size() * sizeof(SignChunk));
    samples_at_ = aligned(groups_at_ + groups_.size() * sizeof(SignGroup));
    plan_bytes_ = samples_at_ + staged_.sample_rows() * sizeof(SampleView);
    std::uint32_t most_groups = 0;
    for (const Pass& pass : passes_) most_groups = std::max(most_groups, pass.group_count);
    const ByteCount sum_bytes = chunks_.size() * kSignatureBytes;
    const Region regions[] = {{&plan_, plan_bytes_},
                              {&group_sums_, most_groups * kSignatureBytes},
                              {&chunk_sums_, sum_bytes},
                              {&staging_, staged_.bytes()}};
    const bool fits =
        std::ranges::all_of(regions, [](const Region& region) { return region.bytes <= region.memory->size(); }) &&
        plan_bytes_ <= upload_.size() && sum_bytes <= download_.size();
    if (fits) return {};
    GRADSIEVE_TRY(stream.synchronize());
    for (const Region& region : regions) {
        if (region.bytes <= region.memory->size()) continue;
        *region.memory = {};
        GRADSIEVE_ASSIGN(
            *region.memory,
            DeviceMemory::make(stream.device(), rounded_up(region.bytes, kWorkspaceUnitBytes), kSignatures));
    }
    const auto fit_pinned = [](PinnedMemory& memory, ByteCount bytes) -> Status {
        if (bytes <= memory.size()) return {};
        memory = {};
        GRADSIEVE_ASSIGN(memory, PinnedMemory::make(rounded_up(bytes, kWorkspaceUnitBytes), kSignatures));
        return {};
    };
    GRADSIEVE_TRY(fit_pinned(upload_, plan_bytes_));
    return fit_pinned(download_, sum_bytes);
}

void GpuSigner::write_plan(std::byte* host) const {
    std::memcpy(host, chunks_.data(), chunks_.size() * sizeof(SignChunk));
    std::memcpy(host + groups_at_, groups_.data(), groups_.size() * sizeof(SignGroup));
    staged_.write_rows(staging_.data(), reinterpret_cast<SampleView*>(host + samples_at_), nullptr);
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk)
        reinterpret_cast<SignChunk*>(host)[chunk].samples =
            plan_.as<SampleView>(samples_at_) + staged_.chunk_rows(chunk_rows_[chunk]).first_sample;
}

Status GpuSigner::start(const Stream& stream) {
    if (chunks_.empty()) return {};
    GRADSIEVE_TRY(stream.make_current());
    write_plan(upload_.data());
    GRADSIEVE_CUDA_TRY(
        cudaMemcpyAsync(plan_.data(), upload_.data(), plan_bytes_, cudaMemcpyHostToDevice, handle_of(stream)),
        "copying the plan of signatures to a GPU");
    const auto* chunks = plan_.as<SignChunk>();
    const auto* groups = plan_.as<SignGroup>(groups_at_);
    for (const Pass& pass : passes_) {
        for (const StageCopy& copy : staged_.copies().subspan(pass.first_copy, pass.copy_count))
            GRADSIEVE_CUDA_TRY(cudaMemcpyPeerAsync(staging_.data() + copy.offset, stream.device(), copy.source,
                                                   copy.source_device, copy.bytes, handle_of(stream)),
                               "copying gradients from another GPU");
        if (pass.chunk_count == 0) continue;
        GRADSIEVE_CUDA_TRY(launch_sign_groups(chunks, groups + pass.first_group, pass.group_count,
                                              group_sums_.as<double>(), handle_of(stream)),
                           "starting a kernel of signatures");
        GRADSIEVE_CUDA_TRY(
            launch_fold_groups(chunks + pass.first_chunk, pass.chunk_count, group_sums_.as<double>(),
                               chunk_sums_.as<double>(pass.first_chunk * kSignatureBytes), handle_of(stream)),
            "starting a kernel of signatures");
    }
    return status_of(cudaMemcpyAsync(download_.data(), chunk_sums_.data(), chunks_.size() * kSignatureBytes,
                                     cudaMemcpyDeviceToHost, handle_of(stream)),
                     "copying signatures from a GPU");
}

void GpuSigner::add_chunks(std::size_t number, Signature& inout_signature) const {
    const Array& array = arrays_[number];
    for (std::size_t chunk = array.first_chunk; chunk < array.first_chunk + array.chunk_count; ++chunk)
        inout_signature.add_chunk({download_.as<double>(chunk * kSignatureBytes), kSignatureBuckets});
}

}  // namespace gradsieve::codec::cuda
