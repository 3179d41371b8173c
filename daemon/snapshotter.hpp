// The thread that moves snapshots between memory and disk, so that neither the conductor nor a step waits for the disk:
// a save first copies the values aside, and only until then is the generation held. The conductor gives and takes;
// owned by the daemon, outlives every job.
#pragma once

#include "base/unique_fd.hpp"
#include "daemon/pinned_snapshots.hpp"
#include "daemon/snapshot_file.hpp"
#include "daemon/wake.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace gradsieve::daemon {

class HostedJob;

struct SnapshotTask {
    enum class Kind : std::uint8_t {
        kSave,
        kLoad,
        kPin,     ///< the interval's snapshot of `head` is pinned
        kTrim,    ///< pinned ones older than `head`'s, which is complete everywhere, go
        kTakeIn,  ///< `file` is pinned as `head.table.owner`'s
    };
    Kind kind = Kind::kSave;
    HostedJob* job = nullptr;  ///< stays as long as the task is out; null: trim, take in
    std::string folder;        ///< save
    std::string path;          ///< load
    SnapshotHead head;
    /// save: read until `is_copied`; load: written. Empty where a copy of the task's own takes its place: what lies on
    /// GPUs comes from there before a save, and goes there after a load.
    SnapshotArrays arrays;
    std::vector<std::vector<float>> copies{};  ///< one for each of `arrays`
    std::vector<ElementCount> elements{};      ///< of each
    bool is_off_devices = false;               ///< conductor: what was on GPUs has been copied
    bool is_pinned = false;                    ///< save: under the pinned name
    bool is_of_interval = true;                ///< save: under the interval's name
    PinnedLimits limits{};                     ///< pin, save, trim, take in
    UniqueFd file{};                           ///< take in
    std::uint64_t session_id = 0;              ///< take in: who is to be answered
    std::uint64_t number = 0;                  ///< take in: its number
    std::atomic<bool> is_copied{false};
    Status status;

    /// Elements [first, first + count) of the array's copy, which grows to hold them. Errors: kResourceExhausted.
    [[nodiscard]] Result<std::span<float>> more_of(std::size_t array, ElementCount first, ElementCount count);
    [[nodiscard]] Status no_memory() const;
};

class Snapshotter {
public:
    explicit Snapshotter(WakeFlag& conductor_wake);
    ~Snapshotter();  ///< after what is under way
    Snapshotter(const Snapshotter&) = delete;
    Snapshotter& operator=(const Snapshotter&) = delete;

    /// Conductor thread. The task comes back through `take_done`; until then both sides hold it.
    void give(std::shared_ptr<SnapshotTask> task);
    [[nodiscard]] std::deque<std::shared_ptr<SnapshotTask>> take_done();
    /// Something was copied or done since the last look.
    [[nodiscard]] bool has_news() const noexcept { return has_news_.load(std::memory_order_acquire); }

private:
    void run();
    [[nodiscard]] static Result<SnapshotArrays> make_copies(SnapshotTask& task);
    [[nodiscard]] static Status load(SnapshotTask& task);
    [[nodiscard]] static Status save(SnapshotTask& task, const SnapshotArrays& copies);
    [[nodiscard]] static Status do_without_arrays(SnapshotTask& task);
    void carry_out(SnapshotTask& task);
    void tell() noexcept;

    WakeFlag& conductor_wake_;
    std::atomic<bool> has_news_{false};
    std::mutex m_;
    std::condition_variable given_;
    std::deque<std::shared_ptr<SnapshotTask>> todo_, done_;  // guarded by m_
    bool is_stopping_ = false;                               // guarded by m_
    std::thread thread_;
};

}  // namespace gradsieve::daemon
