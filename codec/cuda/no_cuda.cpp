// What a build without CUDA answers, so that nobody outside this folder needs to know how it was built.
#include "codec/cuda/device_values.hpp"
#include "codec/cuda/gpu_decoder.hpp"
#include "codec/cuda/gpu_difference.hpp"
#include "codec/cuda/gpu_encoder.hpp"
#include "codec/cuda/gpu_low_rank.hpp"
#include "codec/cuda/gpu_reuse.hpp"
#include "codec/cuda/gpu_sketch.hpp"
#include "codec/cuda/ipc.hpp"
#include "codec/cuda/mirror_pool.hpp"
#include "codec/cuda/residual_norm.hpp"
#include "codec/cuda/shareable_memory.hpp"
#include "codec/cuda/shared_host_memory.hpp"

namespace gradsieve::codec::cuda {
namespace {

Status not_built() {
    return {StatusCode::kUnimplemented,
            "GPUs: this build has no CUDA; install a package built with it, or build with -DGRADSIEVE_CUDA=ON"};
}

}  // namespace

bool is_built() noexcept { return false; }
Result<std::vector<DeviceInfo>> list_devices() { return not_built(); }
std::string versions_text() { return "built without CUDA"; }

Result<DeviceMemory> DeviceMemory::make(int, ByteCount, std::string_view) { return not_built(); }
DeviceMemory::~DeviceMemory() = default;
Result<PinnedMemory> PinnedMemory::make(ByteCount, std::string_view) { return not_built(); }
PinnedMemory::~PinnedMemory() = default;
Result<Stream> Stream::make(int) { return not_built(); }
Stream::~Stream() = default;
Status Stream::make_current() const { return not_built(); }
Status Stream::synchronize() const { return not_built(); }

Result<std::unique_ptr<GpuEncoder>> GpuEncoder::make(std::span<const int>, const GpuEncoderLimits&) {
    return not_built();
}
Result<std::unique_ptr<GpuDecoder>> GpuDecoder::make(std::span<const int>, const GpuDecoderLimits&) {
    return not_built();
}

Status GpuLowRank::project(const Stream&, std::span<const ProjectWork>) { return not_built(); }
Status GpuLowRank::settle(const Stream&, std::span<const SettleWork>) { return not_built(); }
Status GpuLowRank::expand(const Stream&, std::span<const ExpandWork>) { return not_built(); }
Status GpuSketch::insert(const Stream&, std::span<const InsertWork>) { return not_built(); }
Status GpuSketch::choose(const Stream&, std::span<const ChooseWork>) { return not_built(); }
Status GpuSketch::filter(const Stream&, std::span<const FilterWork>) { return not_built(); }
Status GpuSketch::scatter(const Stream&, std::span<const ScatterWork>) { return not_built(); }

Status GpuReuse::encode(GpuEncoder&, GpuDecoder&, std::span<const GpuReuseRequest>, std::span<GpuReuseResult>) {
    return not_built();
}

struct MirrorPool::State {};
MirrorPool::MirrorPool() = default;
MirrorPool::~MirrorPool() = default;
Result<std::shared_ptr<HostMirror>> MirrorPool::take(ByteCount) { return not_built(); }
HostMirror::~HostMirror() = default;

Result<double> ResidualNorm::square_sum(std::span<const ResidualPart>) { return not_built(); }
struct ImportedMemory::Impl {};
ImportedMemory::ImportedMemory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ImportedMemory::ImportedMemory(ImportedMemory&&) noexcept = default;
ImportedMemory& ImportedMemory::operator=(ImportedMemory&&) noexcept = default;
ImportedMemory::~ImportedMemory() = default;
std::byte* ImportedMemory::data() const noexcept { return nullptr; }
std::byte* ImportedMemory::data_on(int) const noexcept { return nullptr; }
ByteCount ImportedMemory::size() const noexcept { return 0; }
Result<ImportedMemory> ImportedMemory::open(int, const IpcHandle&, ByteCount, ByteCount, std::span<const int>) {
    return not_built();
}
Result<ImportedMemory> ImportedMemory::open(int, std::span<const MemoryPiece>, std::span<const int>) {
    return not_built();
}
struct ShareableMemory::Impl {};
ShareableMemory::ShareableMemory(ShareableMemory&&) noexcept = default;
ShareableMemory& ShareableMemory::operator=(ShareableMemory&&) noexcept = default;
ShareableMemory::~ShareableMemory() = default;
std::byte* ShareableMemory::data() const noexcept { return nullptr; }
Result<ShareableMemory> ShareableMemory::make(int, ByteCount, std::string_view, UniqueFd&) { return not_built(); }
Result<ShareableMemory> ShareableMemory::open(int, int, ByteCount) { return not_built(); }
Status fill_bytes(const Stream&, void*, ByteCount, int) { return not_built(); }
Status read_values(const Stream&, const void*, ElementType, std::span<float>) { return not_built(); }
Status write_values(const Stream&, std::span<const float>, void*, ElementType) { return not_built(); }
Status keep_state(const Stream&, const Pipeline&, ElementCount, const StateView&, const StateView&) {
    return not_built();
}
Result<SharedHostMemory> SharedHostMemory::map(int, ByteCount) { return not_built(); }
SharedHostMemory::~SharedHostMemory() = default;
Status check_device(int) { return not_built(); }
Status release_context(int) { return not_built(); }

}  // namespace gradsieve::codec::cuda
