// gradsieve for C++ training programs: hand in gradients, get back one average that is bit-identical on every rank.
//
//     auto job = gradsieve::Job::make({.name = "resnet", .rank = rank, .world_size = 4});
//     auto weights = job->add_tensor("layer1.weight", {128, 784});
//     job->start(30s);
//     for (Step step = job->first_step(); ...; ++step) {
//         fill(weights->gradient());
//         weights->submit(step);
//         auto average = weights->wait(60s);       // std::span<const float>
//     }
//
// A Job and its Tensors may be used from several threads. In a forked child every handle is dead and says so.
// No call blocks longer than its timeout; a timeout loses nothing: call again.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradsieve/status.hpp"

namespace gradsieve {

using Timeout = std::chrono::milliseconds;

/// What happens to a step in which some rank hands in a NaN or an infinity.
enum class NonFinite : std::uint8_t {
    kFail = 0,  ///< the step fails on every rank, naming tensor and rank; state untouched; the next step may follow
    kSkipStep =
        1,      ///< the tensor comes back as NaN on every rank, so that loss scalers back off together; state untouched
    kZero = 2,  ///< that node's contribution to that tensor counts as zero
};

struct JobOptions {
    std::string name{};            ///< required; job identity = name + run id
    std::string run_id{};          ///< empty: $GRADSIEVE_RUN_ID, $TORCHELASTIC_RUN_ID, $SLURM_JOB_ID, else "default"
    std::int64_t rank = -1;        ///< -1: $RANK, $SLURM_PROCID, $OMPI_COMM_WORLD_RANK
    std::int64_t world_size = -1;  ///< -1: $WORLD_SIZE, $SLURM_NTASKS, $OMPI_COMM_WORLD_SIZE
    std::string codec{};           ///< empty: $GRADSIEVE_CODEC, else what the daemon is configured for
    NonFinite non_finite = NonFinite::kFail;
    std::string socket_path{};  ///< empty: $GRADSIEVE_SOCKET, else the usual places
    std::uint32_t check_every =
        0;  ///< steps between two comparisons of `check_parameters`; 0 = never; equal on all ranks
    /// What must not fall back: "cuda-ipc" makes `start` fail where GPU memory would be staged through host memory
    /// (Tensor::bind_device). Empty: $GRADSIEVE_REQUIRE, else nothing.
    std::string require{};
};
struct TensorOptions {
    std::uint32_t samples_max = 1;   ///< micro-batches per step that the slab has room for, 1..256
    bool has_second_moment = false;  ///< also hand in the sum of squared per-sample gradients
    std::string group{};             ///< tensors that step together (one model); groups step on their own
    bool on_device = false;          ///< the gradient lies in GPU memory of the program's, see Tensor::bind_device
};

/// How the elements of a gradient lie in GPU memory.
enum class ElementType : std::uint8_t { kF32 = 0, kF16 = 1, kBf16 = 2 };

/// GPU memory that a tensor's gradient is handed in from, and that its average is written to. The program's own: it
/// stays allocated until it is unbound or another buffer is bound.
struct DeviceBuffer {
    void* pointer = nullptr;     ///< slice 0, on the device; aligned to its element. May lie inside a larger allocation
    std::uint64_t elements = 0;  ///< as the tensor was registered
    ElementType type = ElementType::kF32;
    void* stream = nullptr;  ///< CUstream / cudaStream_t on which the gradient is made; null: the legacy default stream
    std::uint64_t sample_stride_elements = 0;  ///< from slice to slice of samples_max; 0: `elements`
    void* second_moment = nullptr;             ///< `elements` floats; exactly if registered with has_second_moment
};
struct SubmitOptions {
    std::uint32_t sample_count = 1;            ///< slices filled, 1..samples_max
    std::span<const std::uint32_t> samples{};  ///< training samples behind each slice; empty = unknown
    double scale = 1.0;                        ///< loss scale / learning rate; when it changes, kept state is rescaled
};

class Tensor {
public:
    /// The slab to write before `submit`: `elements` floats of slice `sample_index` < samples_max. The same memory for
    /// the whole job, valid until its last handle goes. Empty before `start` succeeded and in a forked child.
    [[nodiscard]] std::span<float> gradient(std::uint32_t sample_index = 0);
    /// Sum of squared per-sample gradients; empty unless registered with has_second_moment.
    [[nodiscard]] std::span<float> second_moment();
    /// Binds a tensor that was registered with `on_device` to GPU memory: before `start` or after it, before its first
    /// `submit`, and again whenever the buffer changes. The tensor must have no open step. Opens the memory for the
    /// daemon (CUDA IPC handle, or descriptors for memory of cuMemMap); nothing is copied, and the caller's current
    /// context stays. The context of the job's first binding outlives the job.
    /// Before `start` the buffer is checked and remembered, and `start` binds it. If its memory cannot be shared, the
    /// tensor is *staged*: `submit` and `wait` copy it through host memory, from then on whatever it is bound to.
    /// Errors: kInvalidArgument (what of the buffer is wrong), kFailedPrecondition (after `start`: memory that cannot
    /// be shared; a GPU that cannot write to host memory: what to do), kUnavailable (no CUDA driver, or its error),
    /// kBusy (an open step, or another thread binds), kTimeout (the same call again goes on with it, and until then it
    /// counts as not bound; any other binding first waits for this one's answer), and what the daemon says.
    [[nodiscard]] Status bind_device(const DeviceBuffer& buffer, Timeout timeout);
    /// The daemon lets go of the memory: free it or use it otherwise afterwards. Before `start`: forgets the buffer.
    /// Errors: as bind_device.
    [[nodiscard]] Status unbind_device(Timeout timeout);
    /// The tensor lies on a device whose memory cannot be shared, and costs two copies a step between device and host.
    /// Known from `bind_device` before `start` on; false in a forked child.
    [[nodiscard]] bool is_staged() const;
    /// Hands in step `step` (first_step(), then one more each time; any order of tensors). Does not wait for anybody;
    /// what is on a device is handed in as soon as the bound stream has come this far; one that is staged is copied
    /// first, which waits for the bound stream.
    /// Errors: kBusy (this tensor's last step is not committed: wait for it), kInvalidArgument (wrong step; which is
    /// next), kPeerFailed / kUnavailable (the job has ended).
    [[nodiscard]] Status submit(std::uint64_t step, const SubmitOptions& options = {});
    /// The average over all ranks of the step handed in last; read-only, valid until this rank submits the tensor
    /// again. On a device the span is empty and the average is in slice 0 of the bound memory, final for every stream;
    /// after any answer but kTimeout nobody touches that memory any more. A staged tensor's average is copied there by
    /// this call, on the bound stream, after which it waits for that stream beyond its timeout. Errors: kTimeout (who
    /// is late; call again), kStepFailed, kNonFinite, kPeerFailed, kUnavailable (daemon gone). An outcome that arrived
    /// before the job ended stays.
    [[nodiscard]] Result<std::span<const float>> wait(Timeout timeout);
    /// `wait` would not sleep: a result or an error is there. Copies the average of a staged tensor first.
    [[nodiscard]] bool is_ready();
    [[nodiscard]] const std::string& name() const noexcept;
    [[nodiscard]] std::uint64_t elements() const noexcept;

private:
    friend class Job;
    struct Impl;
    explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
    std::shared_ptr<Impl> impl_;
};

/// For Job::bind_devices.
struct DeviceBinding {
    Tensor tensor;
    DeviceBuffer buffer;
};

/// What one node keeps for a group at a step: its part of a checkpoint.
struct SnapshotPart {
    std::string node{};                  ///< as the configuration names it
    std::vector<std::uint32_t> ranks{};  ///< of the job, on that node; ascending
    std::uint64_t digest = 0;            ///< of the values: equal for equal values, on every machine
    std::uint64_t bytes = 0;             ///< of the values
};
struct Snapshot {
    std::string group{};
    std::uint64_t step = 0;
    std::vector<SnapshotPart> parts{};  ///< of every node, in the order of their lowest ranks
};

class Job {
public:
    /// Checks the options and the environment; talks to nobody yet.
    [[nodiscard]] static Result<Job> make(const JobOptions& options);
    /// Registers a tensor; before `start`. Shape may be empty (one element) or contain 0.
    [[nodiscard]] Result<Tensor> add_tensor(std::string_view name, std::span<const std::uint64_t> shape,
                                            const TensorOptions& options = {});
    [[nodiscard]] Result<Tensor> add_tensor(std::string_view name, std::initializer_list<std::uint64_t> shape,
                                            const TensorOptions& options = {});
    /// Attaches to the daemon and waits until all ranks of the job are there and agree on tensors and codec.
    /// Binds then what was bound before it, in one round trip; if that fails the job runs all the same: call `start`
    /// again, or bind these tensors anew.
    /// Errors: kUnavailable (which socket, what to do), kAlreadyExists (rank taken, second live run of the name),
    /// kMismatch (first difference between ranks), kTimeout (who is missing; call again), kVersionMismatch,
    /// kFailedPrecondition (a tensor would be staged, which JobOptions::require forbids), and those of bind_device.
    [[nodiscard]] Status start(Timeout timeout);
    /// The step number to hand in first for a group: 1 for a fresh job, the next one where the daemon kept state.
    [[nodiscard]] std::uint64_t first_step(std::string_view group = "") const;
    /// Tensor::bind_device for many tensors in one round trip (per 4,096 tensors; fewer of memory mapped with cuMemMap,
    /// which takes descriptors). What is wrong with a buffer is found before anything is sent; what is sent together is
    /// bound together.
    [[nodiscard]] Status bind_devices(std::span<const DeviceBinding> bindings, Timeout timeout);
    /// Waits until a group's step is committed everywhere that matters: results of all its tensors are final.
    [[nodiscard]] Status finish(std::uint64_t step, Timeout timeout, std::string_view group = "");
    /// Copies rank `root`'s slice 0 of the tensor, exactly, to every rank; all ranks call it. The tensor must have no
    /// open step. A tensor on a device is waited for (its stream) and written in place, and the span is empty.
    [[nodiscard]] Result<std::span<const float>> broadcast(Tensor& tensor, std::uint32_t root, Timeout timeout);
    /// Compares a digest of the caller's choice (say, of all parameters) between all ranks; all ranks call it.
    /// Errors: kMismatch naming the ranks that differ from the others.
    [[nodiscard]] Status check_equal(std::uint64_t digest, Timeout timeout);
    /// Called by every rank after each step with the parameters it has then: compares them between all ranks when that
    /// is due, else returns at once without reading them. Due is the first call of the job, whatever its step
    /// (parameters at the start), and every step that `JobOptions::check_every` divides; never if that is 0. Only the
    /// bytes in their order count, not how they are cut into spans. A due call reads them once and waits for all ranks.
    /// Errors: kMismatch on every rank, naming the step and the ranks that differ; kTimeout (call again with the same).
    [[nodiscard]] Status check_parameters(std::uint64_t step, std::span<const std::span<const std::byte>> parameters,
                                          Timeout timeout);
    [[nodiscard]] Status check_parameters(std::uint64_t step, std::span<const std::span<const float>> parameters,
                                          Timeout timeout);
    [[nodiscard]] Status check_parameters(std::uint64_t step, std::span<const float> parameters, Timeout timeout);
    /// Asks every node of the job to keep what it has of a group at a committed step (0: the last one), for a
    /// checkpoint, and waits until all of them have it on disk. One rank may ask, or all. It stays, also when all ranks
    /// have left, until newer ones are complete everywhere (state.pinned_snapshots) or it is released. Training may go
    /// on meanwhile; a step that would overwrite what is not copied yet waits. A node has the last committed step and
    /// the one before: ask between `finish` and the next step's `submit`. Errors: kTimeout (call again), kNotFound (no
    /// such group), kFailedPrecondition (the step is over, on which node; nothing committed yet), kResourceExhausted
    /// (disk or budget, on which node), and what the job ended with.
    [[nodiscard]] Result<Snapshot> request_snapshot(std::uint64_t step, Timeout timeout, std::string_view group = "");
    /// Before `start`: the group goes on from `step`, of which every node must have a snapshot (or its state in
    /// memory), with the bits of the run that made it; else `start` fails with kNotFound naming the node and what it
    /// has. All ranks name the same. `digest`: of the part of this rank's node; 0: any. 0 as `step` takes it back.
    [[nodiscard]] Status resume_from(std::uint64_t step, std::string_view group = "", std::uint64_t digest = 0);
    /// This node's part of a snapshot that was requested, as a file's bytes, to be kept elsewhere; started or not.
    /// Errors: kNotFound (what is there), kPermissionDenied, kUnavailable, kResourceExhausted (memory).
    [[nodiscard]] Result<std::vector<std::byte>> export_snapshot(std::uint64_t step, Timeout timeout,
                                                                 std::string_view group = "");
    /// Hands such bytes to this node, in place of a part of the same step; before `start`. They must be of this job's
    /// name and run id; they become this user's. Errors: kInvalidArgument, kCorrupt, kVersionMismatch,
    /// kResourceExhausted.
    [[nodiscard]] Result<Snapshot> import_snapshot(std::span<const std::byte> bytes, Timeout timeout);
    /// This node lets go of its snapshots of `step` (0: of all steps) that were requested. Errors: kNotFound.
    [[nodiscard]] Status release_snapshots(std::uint64_t step, Timeout timeout, std::string_view group = "");
    /// Leaves in good order; also done by the destructor. Open steps of other ranks fail after it, so call it on all.
    Status detach(Timeout timeout);
    [[nodiscard]] std::uint32_t rank() const noexcept;
    [[nodiscard]] std::uint32_t world_size() const noexcept;

    Job(Job&&) noexcept;
    Job& operator=(Job&&) noexcept;
    ~Job();

private:
    struct Impl;
    explicit Job(std::shared_ptr<Impl> impl);
    std::shared_ptr<Impl> impl_;
};

/// A 64-bit hash of `bytes` that is equal on every machine, for check_equal.
[[nodiscard]] std::uint64_t digest_of(std::span<const std::byte> bytes) noexcept;

/// "0.1.0"
[[nodiscard]] std::string_view version() noexcept;

}  // namespace gradsieve
