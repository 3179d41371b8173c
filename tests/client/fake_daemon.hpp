// The daemon's end of the attach protocol in a thread of the test, without network or codec: averages over its one rank
// by copying, and can be told to refuse, stall, fail, lie or die. Tests talk to it through `run`, which executes on its
// thread; members under "daemon thread" are for such code and for scripts only.
#pragma once

#include "base/id.hpp"
#include "base/status.hpp"
#include "shm/device_message.hpp"
#include "shm/local_socket.hpp"
#include "shm/message.hpp"
#include "shm/session_memory.hpp"

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gradsieve::client::test {

/// No wait in these tests may last longer: what it guards is broken then.
inline constexpr std::chrono::seconds kWatchdog{30};

class FakeDaemon {
public:
    struct Script {
        bool is_replying = true;            ///< false: takes the connection and says nothing until `reply`
        Status refusal{};                   ///< not ok: the reply
        std::set<std::string> host_only{};  ///< tensors that are refused on a device, to be staged
        bool is_starting = true;            ///< false: no kStarted until `start_groups`
        Step first_step = 1;
        /// What to do with each submission; empty = `serve`.
        std::function<void(FakeDaemon&, const shm::Submission&)> on_submission{};
        /// What to do with each bind request; empty = `serve_bind`.
        std::function<void(FakeDaemon&, const shm::BindRequest&)> on_bind{};
    };
    struct SeenBind {
        shm::BindRequest request;
        std::vector<std::uint64_t> descriptor_words;  ///< the first 8 bytes of each that came along
    };
    explicit FakeDaemon(Script script);
    FakeDaemon() : FakeDaemon(Script{}) {}
    FakeDaemon(const FakeDaemon&) = delete;
    FakeDaemon& operator=(const FakeDaemon&) = delete;
    ~FakeDaemon();

    // test thread
    [[nodiscard]] const std::string& socket_path() const noexcept { return socket_path_; }
    /// Executes `task` on the daemon's thread and returns when it is done.
    void run(const std::function<void(FakeDaemon&)>& task);
    /// Waits until `count` submissions have arrived since the start, and returns all of them.
    std::vector<shm::Submission> await_submissions(std::size_t count);
    /// Waits until `count` requests to attach have arrived since the start, and returns the last.
    shm::AttachRequest await_attach(std::size_t count = 1);

    /// Waits until `count` bind requests have arrived since the start, and returns all of them.
    std::vector<SeenBind> await_binds(std::size_t count);

    // daemon thread
    void set_refusal(Status refusal) { script_.refusal = std::move(refusal); }
    void reply();
    /// Agrees.
    void serve_bind(const shm::BindRequest& request);
    void reply_bind(const shm::BindReply& reply);
    /// Those of the request that `on_bind` is called with.
    [[nodiscard]] std::span<const UniqueFd> bind_descriptors() const { return bind_descriptors_; }
    void start_groups();
    /// Is the gradient made that this hands in? Always true of a tensor in host memory or without elements.
    [[nodiscard]] bool is_made(const shm::Submission& submission) const;
    /// Copies the mean over the slices to the result, answers, and settles the step after its last tensor. Broadcast:
    /// copies slice 0. check_equal: equal. Detach: says goodbye.
    void serve(const shm::Submission& submission);
    void push(const shm::Completion& completion);
    void answer(shm::CompletionKind kind, std::uint32_t index, Step step, const Status& status = {});
    void hang_up();
    [[nodiscard]] std::vector<std::uint32_t> tensors_of_group(std::uint32_t tensor_index) const;
    [[nodiscard]] const shm::AttachRequest& request() const { return request_; }
    [[nodiscard]] shm::DaemonSession& session() { return *session_; }
    [[nodiscard]] float* result(std::uint32_t index) { return results_->tensor(result_position(index)); }

private:
    void loop();
    void take_connection();
    void read_request();
    void take_attach(const shm::LocalMessage& message);
    void take_bind(const shm::LocalMessage& message);
    void drain();
    void take_tasks();
    void copy_mean(const shm::Submission& submission);
    /// The result area lists tensors in reverse: other ranks may have registered them in another order.
    [[nodiscard]] std::uint32_t result_position(std::uint32_t index) const;

    // constant after construction, but for the refusal, which the daemon's thread may change
    Script script_;
    std::filesystem::path folder_;
    std::string socket_path_;

    // owned by the daemon's thread
    std::optional<shm::LocalListener> listener_;
    std::optional<shm::LocalConnection> connection_;
    std::optional<shm::DaemonSession> session_;
    std::optional<shm::ResultArea> results_;
    UniqueFd doorbell_;
    std::span<const UniqueFd> bind_descriptors_;
    shm::AttachRequest request_;
    std::map<std::pair<std::uint32_t, Step>, std::size_t> handed_in_;  ///< by first tensor of the group and step

    // guarded by m_
    std::mutex m_;
    std::condition_variable changed_;
    std::deque<std::packaged_task<void()>> tasks_;
    std::vector<shm::Submission> submissions_;
    std::vector<SeenBind> binds_;
    std::size_t attach_count_ = 0;
    shm::AttachRequest last_request_;
    bool is_stopping_ = false;

    UniqueFd wake_up_;
    std::thread thread_;
};

}  // namespace gradsieve::client::test
