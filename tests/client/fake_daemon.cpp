#include "fake_daemon.hpp"

#include "shm/message_head.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <array>
#include <cstdlib>

namespace gradsieve::client::test {
namespace {

/// The fake is test code: a failure in it is the test's failure, and goes no further.
template <typename T>
T must(Result<T> result) {
    if (!result.is_ok()) {
        ADD_FAILURE() << result.error().to_string();
        std::abort();
    }
    return std::move(*result);
}
void must(const Status& status) {
    if (!status.is_ok()) ADD_FAILURE() << status.to_string();
}

std::filesystem::path make_folder() {
    auto name = (std::filesystem::temp_directory_path() / "gradsieve-client-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    return name;
}

void ring(const UniqueFd& event) {
    const std::uint64_t one = 1;
    if (::write(event.get(), &one, sizeof(one)) != sizeof(one)) std::abort();
}
void unring(const UniqueFd& event) {
    std::uint64_t count = 0;
    if (::read(event.get(), &count, sizeof(count)) < 0) return;  // not rung
}
UniqueFd make_event() { return UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

}  // namespace

FakeDaemon::FakeDaemon(Script script)
    : script_(std::move(script)),
      folder_(make_folder()),
      socket_path_((folder_ / "gradsieved.sock").string()),
      wake_up_(make_event()) {
    listener_.emplace(must(shm::LocalListener::make({.path = socket_path_, .mode = 0600, .group = ""})));
    thread_ = std::thread([this] { loop(); });
}

FakeDaemon::~FakeDaemon() {
    {
        const std::lock_guard lock(m_);
        is_stopping_ = true;
    }
    ring(wake_up_);
    thread_.join();
    listener_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void FakeDaemon::run(const std::function<void(FakeDaemon&)>& task) {
    std::packaged_task<void()> packaged([this, &task] { task(*this); });
    auto done = packaged.get_future();
    {
        const std::lock_guard lock(m_);
        tasks_.push_back(std::move(packaged));
    }
    ring(wake_up_);
    if (done.wait_for(kWatchdog) != std::future_status::ready) std::abort();  // `task` is about to leave scope
}

std::vector<shm::Submission> FakeDaemon::await_submissions(std::size_t count) {
    std::unique_lock lock(m_);
    EXPECT_TRUE(changed_.wait_for(lock, kWatchdog, [&] { return submissions_.size() >= count; }))
        << submissions_.size() << " of " << count;
    return submissions_;
}

std::vector<FakeDaemon::SeenBind> FakeDaemon::await_binds(std::size_t count) {
    std::unique_lock lock(m_);
    EXPECT_TRUE(changed_.wait_for(lock, kWatchdog, [&] { return binds_.size() >= count; }))
        << binds_.size() << " of " << count;
    return binds_;
}

shm::AttachRequest FakeDaemon::await_attach(std::size_t count) {
    std::unique_lock lock(m_);
    EXPECT_TRUE(changed_.wait_for(lock, kWatchdog, [&] { return attach_count_ >= count; }))
        << attach_count_ << " of " << count;
    return last_request_;
}

void FakeDaemon::loop() {
    for (;;) {
        take_tasks();
        {
            const std::lock_guard lock(m_);
            if (is_stopping_) break;
        }
        if (session_) {
            session_->announce_sleep(true);
            if (session_->has_submission()) {
                session_->announce_sleep(false);
                drain();
                continue;
            }
        }
        std::array<pollfd, 4> entries{{{wake_up_.get(), POLLIN, 0},
                                       {listener_->fd(), POLLIN, 0},
                                       {connection_ ? connection_->fd() : -1, POLLIN, 0},
                                       {session_ ? doorbell_.get() : -1, POLLIN, 0}}};
        ::poll(entries.data(), entries.size(), -1);
        unring(wake_up_);
        if (session_) {
            unring(doorbell_);
            session_->announce_sleep(false);
        }
        if (entries[1].revents != 0) take_connection();
        if (connection_ && entries[2].revents != 0) read_request();
        if (session_) drain();
    }
    hang_up();
}

void FakeDaemon::take_tasks() {
    for (;;) {
        std::packaged_task<void()> task;
        {
            const std::lock_guard lock(m_);
            if (tasks_.empty()) return;
            task = std::move(tasks_.front());
            tasks_.pop_front();
        }
        task();
    }
}

void FakeDaemon::take_connection() {
    auto accepted = listener_->accept();
    if (!accepted.is_ok()) return;
    hang_up();
    connection_.emplace(std::move(*accepted));
}

void FakeDaemon::read_request() {
    const auto message = connection_->receive(TimePoint{});
    if (!message.is_ok()) {
        if (message.error().code() != StatusCode::kTimeout) hang_up();  // the client left
        return;
    }
    if (shm::peek_message_type(message->bytes) == shm::MessageType::kBindRequest) return take_bind(*message);
    take_attach(*message);
}

void FakeDaemon::take_bind(const shm::LocalMessage& message) {
    SeenBind seen;
    seen.request = must(shm::parse_bind_request(message.bytes));
    must(shm::check_bind_request(seen.request, request_.tensors, message.descriptors.size()));
    for (const auto& descriptor : message.descriptors) {
        auto& word = seen.descriptor_words.emplace_back();
        if (::pread(descriptor.get(), &word, sizeof(word), 0) != sizeof(word)) word = 0;  // of a real device
    }
    bind_descriptors_ = message.descriptors;
    {
        const std::lock_guard lock(m_);
        binds_.push_back(seen);
    }
    if (script_.on_bind)
        script_.on_bind(*this, seen.request);
    else
        serve_bind(seen.request);
    bind_descriptors_ = {};
    changed_.notify_all();
}

void FakeDaemon::serve_bind(const shm::BindRequest& request) {
    shm::BindReply agreed;
    agreed.number = request.number;
    reply_bind(agreed);
}

void FakeDaemon::reply_bind(const shm::BindReply& reply) { must(connection_->send(shm::build_bind_reply(reply), {})); }

void FakeDaemon::take_attach(const shm::LocalMessage& message) {
    request_ = must(shm::parse_attach_request(message.bytes));
    {
        const std::lock_guard lock(m_);
        ++attach_count_;
        last_request_ = request_;
    }
    changed_.notify_all();
    if (script_.is_replying) reply();
}

std::uint32_t FakeDaemon::result_position(std::uint32_t index) const {
    return static_cast<std::uint32_t>(request_.tensors.size()) - 1 - index;
}

void FakeDaemon::reply() {
    shm::AttachReply answer;
    answer.status = script_.refusal;
    for (std::uint32_t index = 0; index < request_.tensors.size(); ++index)
        if (request_.tensors[index].on_device && script_.host_only.contains(request_.tensors[index].name))
            answer.host_only.push_back(index);
    if (!answer.host_only.empty()) answer.status = {StatusCode::kInvalidArgument, "a stage that works on the host"};
    if (!answer.status.is_ok()) return must(connection_->send(shm::build_attach_reply(answer), {}));
    const auto count = static_cast<std::uint32_t>(request_.tensors.size());
    std::vector<ElementCount> elements(count);
    for (std::uint32_t index = 0; index < count; ++index)
        elements[result_position(index)] = request_.tensors[index].on_device ? 0 : request_.tensors[index].elements();
    session_.emplace(must(shm::DaemonSession::make("fake", request_.tensors)));
    results_.emplace(must(shm::ResultArea::make("fake", elements)));
    doorbell_ = make_event();
    handed_in_.clear();
    answer.control_bytes = session_->control_bytes();
    answer.gradient_bytes = session_->gradient_bytes();
    answer.result_bytes = results_->size_bytes();
    for (std::uint32_t index = 0; index < count; ++index)
        answer.result_offsets.push_back(results_->offset_bytes(result_position(index)));
    const std::array<int, 4> descriptors{session_->control_fd(), session_->gradient_fd(), results_->fd(),
                                         doorbell_.get()};
    must(connection_->send(shm::build_attach_reply(answer), descriptors));
    if (script_.is_starting) start_groups();
}

void FakeDaemon::start_groups() {
    for (std::uint32_t index = 0; index < request_.tensors.size(); ++index)
        if (tensors_of_group(index).front() == index) answer(shm::CompletionKind::kStarted, index, script_.first_step);
}

std::vector<std::uint32_t> FakeDaemon::tensors_of_group(std::uint32_t tensor_index) const {
    std::vector<std::uint32_t> members;
    for (std::uint32_t index = 0; index < request_.tensors.size(); ++index)
        if (request_.tensors[index].group == request_.tensors[tensor_index].group) members.push_back(index);
    return members;
}

void FakeDaemon::drain() {
    shm::Submission submission;
    while (session_) {
        const auto popped = session_->try_pop(submission);
        if (!popped.is_ok()) return must(popped.error());
        if (!*popped) return;
        {
            const std::lock_guard lock(m_);
            submissions_.push_back(submission);
        }
        if (script_.on_submission)
            script_.on_submission(*this, submission);
        else
            serve(submission);
        changed_.notify_all();
    }
}

bool FakeDaemon::is_made(const shm::Submission& submission) const {
    if (!request_.tensors[submission.tensor_index].on_device) return true;
    return session_->ready_word(submission.tensor_index) == static_cast<std::uint32_t>(submission.step);
}

void FakeDaemon::copy_mean(const shm::Submission& submission) {
    if (request_.tensors[submission.tensor_index].on_device) {  // this daemon has no device
        if (submission.kind == shm::SubmissionKind::kAverage && !is_made(submission))
            ADD_FAILURE() << "step " << submission.step << " was announced before it was made";
        return;
    }
    float* out = result(submission.tensor_index);
    const auto slices = submission.kind == shm::SubmissionKind::kAverage ? submission.sample_count : 1;
    for (ElementCount element = 0; element < request_.tensors[submission.tensor_index].elements(); ++element) {
        double sum = 0;
        for (std::uint32_t slice = 0; slice < slices; ++slice)
            sum += session_->slice(submission.tensor_index, slice)[element];
        out[element] = static_cast<float>(sum / slices);
    }
}

void FakeDaemon::serve(const shm::Submission& submission) {
    switch (submission.kind) {
        case shm::SubmissionKind::kAverage: {
            copy_mean(submission);
            const auto members = tensors_of_group(submission.tensor_index);
            const bool is_last = ++handed_in_[{members.front(), submission.step}] == members.size();
            if (is_last) answer(shm::CompletionKind::kStepDone, members.front(), submission.step);
            return answer(shm::CompletionKind::kTensor, submission.tensor_index, submission.step);
        }
        case shm::SubmissionKind::kBroadcast:
            copy_mean(submission);
            return answer(shm::CompletionKind::kBroadcast, submission.tensor_index, submission.step);
        case shm::SubmissionKind::kCheckEqual: return answer(shm::CompletionKind::kCheckEqual, 0, submission.step);
        case shm::SubmissionKind::kDetach: return answer(shm::CompletionKind::kJobEnded, 0, 0);
    }
}

void FakeDaemon::answer(shm::CompletionKind kind, std::uint32_t index, Step step, const Status& status) {
    shm::Completion completion;
    completion.kind = kind;
    completion.code = status.code();
    completion.index = index;
    completion.step = step;
    completion.set_text(status.text());
    push(completion);
}

void FakeDaemon::push(const shm::Completion& completion) {
    must(session_->push(completion));
    session_->ring_client();
}

void FakeDaemon::hang_up() {
    connection_.reset();
    session_.reset();
    results_.reset();
}

}  // namespace gradsieve::client::test
