// What a client and its daemon say over the Unix socket, and the cells of their rings. Field by field in
// docs/shared-memory.md; parse functions read untrusted bytes. Plain values; any thread.
#pragma once

#include "base/bytes.hpp"
#include "base/id.hpp"
#include "base/status.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::shm {

/// Changes with any layout or message below; both sides name theirs on a mismatch.
inline constexpr std::uint32_t kAbiVersion = 4;

inline constexpr std::uint32_t kTensorLimit = 65'536;
inline constexpr std::uint32_t kSamplesLimit = 256;
inline constexpr std::size_t kNameLimitBytes = 512;
inline constexpr std::size_t kCodecLimitBytes = 4096;
inline constexpr std::size_t kDimensionLimit = 32;
inline constexpr std::uint32_t kWorldSizeLimit = 65'535;
/// A longer status text is cut when a reply is built.
inline constexpr std::size_t kReplyTextLimitBytes = std::size_t{1} << 20U;

struct TensorEntry {
    std::string name = {};                  ///< unique in the job
    std::string group = {};                 ///< tensors that step together; "" is a group too
    std::vector<std::uint64_t> shape = {};  ///< product = elements, which may be 0
    std::uint32_t samples_max = 1;          ///< slices in the slab, 1 .. kSamplesLimit
    bool has_second_moment = false;
    bool on_device = false;  ///< gradient and second moment lie on a device (device_message.hpp): none in the slab
    /// The client copies between the slab and a device on its own: told for the status alone. Excludes on_device.
    bool staged = false;
    [[nodiscard]] ElementCount elements() const noexcept;  ///< checked when parsed
};

enum class NonFinitePolicy : std::uint8_t { kFail = 0, kSkipStep = 1, kZero = 2 };

struct AttachRequest {
    std::uint32_t abi_version = kAbiVersion;
    std::string job_name;
    std::string run_id;
    Rank rank = 0;
    std::uint32_t world_size = 1;
    std::string codec;  ///< opaque here; empty = what the daemon is configured for
    NonFinitePolicy non_finite = NonFinitePolicy::kFail;
    std::vector<TensorEntry> tensors;  ///< order is this session's tensor index
};
/// What parsing checks of the values, for the client to ask before it sends. Errors: kInvalidArgument (names: 1 to
/// kNameLimitBytes bytes of printable UTF-8, group and run id may be empty; tensor names unique, at least one tensor;
/// ranks, samples and sizes in range; the value is named).
[[nodiscard]] Status check_attach_request(const AttachRequest& request);
[[nodiscard]] Bytes build_attach_request(const AttachRequest& request);
/// Errors: kVersionMismatch (before anything else is read), kCorrupt, kInvalidArgument (a value out of range; named).
[[nodiscard]] Result<AttachRequest> parse_attach_request(ByteView bytes);

/// The daemon's answer: a Status, and on success the sizes of the three segments whose descriptors come along
/// (control, gradient, result; then the daemon's doorbell eventfd).
struct AttachReply {
    std::uint32_t abi_version = kAbiVersion;
    Status status;
    ByteCount control_bytes = 0;
    ByteCount gradient_bytes = 0;
    ByteCount result_bytes = 0;
    /// Offset of each tensor in the result area, in request order (other ranks may have registered another order).
    std::vector<std::uint64_t> result_offsets;
    /// Of a refusal: tensors on a device whose codec works on the host alone, by index in the request, ascending. The
    /// same request with them staged is not refused for that.
    std::vector<std::uint32_t> host_only;
};
[[nodiscard]] Bytes build_attach_reply(const AttachReply& reply);
[[nodiscard]] Result<AttachReply> parse_attach_reply(ByteView bytes);

enum class SubmissionKind : std::uint8_t {
    kAverage = 1,     ///< one tensor of one step
    kBroadcast = 2,   ///< one tensor's exact value from rank `root` to all (its slice 0)
    kCheckEqual = 3,  ///< all ranks' `digest` must be equal
    kDetach = 4,      ///< the rank leaves in good order after its open steps
};
/// One cell of the ring client -> daemon. The daemon copies it out once and checks every field.
struct Submission {
    SubmissionKind kind = SubmissionKind::kAverage;
    std::uint32_t tensor_index = 0;
    Step step = 0;  ///< kAverage: the group's step; else the rank's own running number of that kind, from 1
    std::uint32_t sample_count = 1;   ///< slices filled, 1 .. samples_max
    std::uint64_t batch_samples = 0;  ///< B on this rank; 0 = unknown
    double scale = 1.0;               ///< loss scale / learning rate; finite, > 0
    Rank root = 0;
    std::uint64_t digest = 0;
};

enum class CompletionKind : std::uint8_t {
    kStarted = 1,     ///< the job runs; `value` = epoch; one per group, `index` = group's first tensor, `step` = first
                      ///< step to hand in
    kTensor = 2,      ///< `index` tensor, `step`: result is there, or `code` says why not
    kStepDone = 3,    ///< `index` = first tensor of the group: the step is committed, or failed with `code`. Pushed
                      ///< before the step's last kTensor
    kBroadcast = 4,   ///< `index` tensor, `step` running number
    kCheckEqual = 5,  ///< `step` running number
    kJobEnded = 6,    ///< nothing more will come; `code` and text say why
};
/// One cell of the ring daemon -> client.
struct Completion {
    static constexpr std::size_t kTextBytes = 472;
    CompletionKind kind = CompletionKind::kTensor;
    StatusCode code = StatusCode::kOk;
    std::uint32_t index = 0;
    Step step = 0;
    std::uint64_t value = 0;
    std::array<char, kTextBytes> text{};  ///< NUL-terminated, cut if longer
    void set_text(std::string_view full) noexcept;
};

}  // namespace gradsieve::shm
