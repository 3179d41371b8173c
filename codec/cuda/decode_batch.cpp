#include "codec/cuda/decode_batch.hpp"

#include "codec/cuda/decode_upload.hpp"
#include "codec/cuda/runtime.hpp"
#include "codec/cuda/vector_bytes.hpp"

namespace gradsieve::codec::cuda {
namespace {

constexpr ByteCount kGranule = ByteCount{1} << 20U;
constexpr ByteCount kEntryBytes = sizeof(std::uint32_t) + sizeof(float);

/// A quarter more than is asked for, since the sizes of sparse payloads differ from step to step.
ByteCount with_headroom(ByteCount bytes) { return rounded_up(bytes + bytes / 4, kGranule); }

/// Frees before it allocates, so that the largest use is one allocation.
Status grow(DeviceMemory& inout_memory, ByteCount bytes, const Stream& stream, std::string_view what) {
    if (inout_memory.size() >= bytes) return {};
    inout_memory = {};
    GRADSIEVE_ASSIGN(inout_memory, DeviceMemory::make(stream.device(), with_headroom(bytes), what));
    return {};
}

Status grow(PinnedMemory& inout_memory, ByteCount bytes, std::string_view what) {
    if (inout_memory.size() >= bytes) return {};
    inout_memory = {};
    GRADSIEVE_ASSIGN(inout_memory, PinnedMemory::make(with_headroom(bytes), what));
    return {};
}

Status launched(int error, const char* doing) { return status_of(static_cast<cudaError_t>(error), doing); }

}  // namespace

Status DecodeBatch::open(int device, unsigned multiprocessors) {
    GRADSIEVE_ASSIGN(stream_, Stream::make(device));
    GRADSIEVE_ASSIGN(event_, StreamEvent::make(device));
    return launched(find_average_blocks(multiprocessors, average_blocks_), "asking for the decoder's occupancy");
}

Status DecodeBatch::prepare(std::span<const GpuDecodeRequest> requests, const DevicePlace& place,
                            const GpuDecoderLimits& limits) {
    GRADSIEVE_TRY(stream_.make_current());
    GRADSIEVE_TRY(plan_.make(requests, place, limits));
    const UploadLayout& layout = plan_.layout();
    GRADSIEVE_TRY(grow(staging_, layout.sent_bytes, "GPU decoder's staged payloads"));
    GRADSIEVE_TRY(grow(fetches_, plan_.fetch_rows() * sizeof(FetchPiece), "GPU decoder's list of payloads"));
    GRADSIEVE_TRY(grow(answers_, layout.answers_bytes, "GPU decoder's answers"));
    GRADSIEVE_TRY(grow(upload_, layout.total_bytes, stream_, "GPU decoder's payloads"));
    GRADSIEVE_TRY(grow(entries_, plan_.round_entries() * kEntryBytes, stream_, "GPU decoder's lists"));
    GRADSIEVE_TRY(
        grow(list_tables_, plan_.round_table_words() * sizeof(std::uint32_t), stream_, "GPU decoder's tables"));
    GRADSIEVE_TRY(grow(masks_, plan_.mask_bytes(), stream_, "GPU decoder's bitmaps of keyed lists"));
    GRADSIEVE_TRY(grow(result_staging_, plan_.results().bytes(), stream_, "GPU decoder's averages for other GPUs"));
    point_tables();
    return {};
}

void DecodeBatch::point_tables() {
    const UploadLayout& layout = plan_.layout();
    tables_.bytes = upload_.data();
    tables_.payloads = upload_.as<DevicePayload>(layout.payloads);
    tables_.lists = upload_.as<std::uint32_t>(layout.lists);
    tables_.chunks = upload_.as<DeviceChunk>(layout.chunks);
    tables_.tensors = upload_.as<DeviceTensor>(layout.tensors);
    tables_.results = upload_.as<DeviceResult>(layout.results);
    tables_.last_touched = upload_.as<std::uint32_t>(layout.last_touched);
    tables_.reports = upload_.as<TensorReport>(layout.reports);
    tables_.touched = upload_.as<std::uint32_t>(layout.touched);
    tables_.payload_faults = upload_.as<std::uint32_t>(layout.payload_faults);
    tables_.mask_bytes = masks_.data();
    tables_.indices = entries_.as<std::uint32_t>();
    tables_.values = entries_.as<float>(plan_.round_entries() * sizeof(std::uint32_t));
    tables_.list_tables = list_tables_.as<std::uint32_t>();
}

Status DecodeBatch::upload() {
    GRADSIEVE_TRY(stream_.make_current());
    GRADSIEVE_TRY(fetch());  // on its way while the host gathers
    plan_.write_tables(staging_.data(), result_staging_.data());
    return upload_pieces(plan_.pieces(), plan_.layout(), staging_.data(), upload_.data(), stream_, threads_);
}

Status DecodeBatch::fetch() {
    const auto rows = static_cast<std::uint32_t>(plan_.fetch_rows());
    if (rows == 0) return {};
    plan_.write_fetches(fetches_.as<FetchPiece>());
    return launched(launch_fetch_pieces(fetches_.as<FetchPiece>(), rows, upload_.data(), stream_.handle()),
                    "fetching payloads to a GPU");
}

Status DecodeBatch::read_lists(const DecodeRound& round) {
    if (round.lists == 0) return {};
    if (round.has_keyed)
        GRADSIEVE_TRY(launched(launch_draw_masks(tables_, round, stream_.handle()), "drawing positions on a GPU"));
    return launched(launch_decode_lists(tables_, round, stream_.handle()), "reading payloads on a GPU");
}

Status DecodeBatch::average(const DecodeRound& round) {
    return launched(launch_average_units(tables_, round, average_blocks_, stream_.handle()), "averaging on a GPU");
}

Status DecodeBatch::copy_out(const DecodeRound& round) {
    for (const ResultCopy& copy : plan_.results().copies().subspan(round.first_copy, round.copies))
        GRADSIEVE_CUDA_TRY(
            cudaMemcpyPeerAsync(copy.target, copy.target_device, result_staging_.data() + copy.offset, stream_.device(),
                                copy.bytes, static_cast<cudaStream_t>(stream_.handle())),
            "copying averages to another GPU");
    return {};
}

Status DecodeBatch::enqueue() {
    if (plan_.requests().empty()) return {};
    GRADSIEVE_TRY(upload());
    for (const DecodeRound& round : plan_.rounds()) {
        GRADSIEVE_TRY(read_lists(round));
        GRADSIEVE_TRY(average(round));
        GRADSIEVE_TRY(copy_out(round));
    }
    return download();
}

Status DecodeBatch::download() {
    return status_of(cudaMemcpyAsync(answers_.data(), upload_.data(), plan_.layout().answers_bytes,
                                     cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(stream_.handle())),
                     "copying a GPU decoder's answers");
}

ByteCount DecodeBatch::device_bytes() const noexcept {
    return upload_.size() + entries_.size() + list_tables_.size() + masks_.size() + result_staging_.size();
}

const TensorReport& DecodeBatch::report_of(std::size_t request) const {
    return answers_.as<TensorReport>(plan_.layout().reports)[request];
}

std::span<const std::uint32_t> DecodeBatch::touched_of(std::size_t request) const {
    const TensorDecodePlan& plan = plan_.plan_of(request);
    return {answers_.as<std::uint32_t>(plan_.layout().touched) + plan.first_word, plan.words};
}

std::span<const std::uint32_t> DecodeBatch::faults_of(std::size_t request) const {
    const TensorDecodePlan& plan = plan_.plan_of(request);
    return {answers_.as<std::uint32_t>(plan_.layout().payload_faults) + plan.first_payload, plan.payloads};
}

}  // namespace gradsieve::codec::cuda
