// Binding tensors to a device, against client/job_devices.cpp: a fake driver on one side, a fake daemon on the other.
#include "forked.hpp"
#include "job_device_fixture.hpp"

#include <thread>

namespace gradsieve::client::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Completions = shm::CompletionKind;

/// Says nothing to bind requests.
FakeDaemon::Script deaf_to_binds() {
    FakeDaemon::Script script;
    script.on_bind = [](FakeDaemon&, const shm::BindRequest&) {};
    return script;
}

shm::BindReply refusal_of(std::uint64_t number) {
    shm::BindReply refusal;
    refusal.number = number;
    refusal.status = Status(StatusCode::kResourceExhausted, "gpu_memory_limit is 1 GiB");
    return refusal;
}

TEST_F(JobDevices, Binding_tells_the_daemon_where_the_memory_is) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"a", "b"}, kOnDevice);
    ASSERT_TRUE(daemon.await_attach().tensors[1].on_device);
    const auto status = started.tensor(1).bind_device(good_, kPatient);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    const auto request = daemon.await_binds(1).front().request;
    EXPECT_EQ(request.number, 1U);
    ASSERT_EQ(request.bindings.size(), 1U);
    const auto& binding = request.bindings[0];
    EXPECT_EQ(binding.tensor_index, 1U);
    EXPECT_EQ(binding.gradient.kind, shm::MemoryKind::kIpcHandle);
    EXPECT_EQ(binding.gradient.offset_bytes, 64U);
}
TEST_F(JobDevices, Slabs_are_empty) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, {.samples_max = 2, .has_second_moment = true, .group = "", .on_device = true});
    EXPECT_TRUE(started.tensor().gradient(1).empty());
    EXPECT_TRUE(started.tensor().second_moment().empty());
    EXPECT_EQ(started.tensor().elements(), 4U);
}
TEST_F(JobDevices, Broadcast_needs_a_binding_and_waits_for_its_stream) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, kOnDevice);
    const auto unbound = started.job.broadcast(started.tensor(), 0, kPatient).status();
    EXPECT_EQ(unbound.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(unbound.text(), AllOf(HasSubstr("tensor 'w'"), HasSubstr("call bind_device first")));
    ASSERT_TRUE(started.tensor().bind_device(good_, kPatient).is_ok());
    FakeCuda::get().clear_log();
    const auto done = started.job.broadcast(started.tensor(), 0, kPatient);
    ASSERT_TRUE(done.is_ok()) << done.status().to_string();
    EXPECT_TRUE(done->empty()) << "the values are in the bound memory";
    EXPECT_EQ(FakeCuda::get().log_of("cuStreamSynchronize").size(), 1U);
    FakeCuda::get().fail("cuStreamSynchronize", 719);
    const auto failed = started.job.broadcast(started.tensor(), 0, kPatient).status();
    EXPECT_EQ(failed.code(), StatusCode::kUnavailable);
    EXPECT_THAT(failed.text(), HasSubstr("cuStreamSynchronize answered 719"));
}
TEST_F(JobDevices, Steps_need_a_binding_and_others_need_none) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, kOnDevice);
    const auto unbound = started.tensor().submit(1);
    EXPECT_EQ(unbound.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(unbound.text(), AllOf(HasSubstr("tensor 'w'"), HasSubstr("call bind_device first")));
    EXPECT_TRUE(started.tensor().unbind_device(kPatient).is_ok()) << "nothing to do";
    ASSERT_TRUE(started.tensor().bind_device(good_, kPatient).is_ok());
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    ASSERT_TRUE(started.tensor().wait(kPatient).is_ok());
    ASSERT_TRUE(started.tensor().unbind_device(kPatient).is_ok());
    EXPECT_TRUE(daemon.await_binds(2)[1].request.bindings[0].is_unbinding());
    EXPECT_EQ(started.tensor().submit(2).code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(daemon.await_submissions(1).size(), 1U);

    FakeDaemon other;
    StartedJob host(other);
    const auto status = host.tensor().bind_device(good_, kPatient);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("is in host memory"), HasSubstr("on_device")));
}
TEST_F(JobDevices, Binding_while_a_step_is_open_is_busy_and_works_after_it) {
    FakeDaemon daemon(silent());
    StartedJob started(daemon, {"w"}, kOnDevice);
    ASSERT_TRUE(started.tensor().bind_device(good_, kPatient).is_ok());
    ASSERT_TRUE(started.tensor().submit(1).is_ok());
    const auto submission = daemon.await_submissions(1).front();
    for (const auto& status :
         {started.tensor().bind_device(good_, kPatient), started.tensor().unbind_device(kPatient)}) {
        EXPECT_EQ(status.code(), StatusCode::kBusy);
        EXPECT_THAT(status.text(), HasSubstr("tensor 'w': step 1 is open"));
    }
    daemon.run([&](FakeDaemon& at) { at.serve(submission); });
    ASSERT_TRUE(started.job.finish(1, kPatient).is_ok());
    EXPECT_TRUE(started.tensor().bind_device(buffer_at(FakeMemory::kLegacy), kPatient).is_ok());
}
TEST_F(JobDevices, Late_answer_is_waited_for_by_the_same_call_again) {
    FakeDaemon daemon(deaf_to_binds());
    StartedJob started(daemon, {"w"}, kOnDevice);
    const auto late = started.tensor().bind_device(good_, kShort);
    EXPECT_EQ(late.code(), StatusCode::kTimeout);
    EXPECT_THAT(late.text(), HasSubstr("waited 20 ms for gradsieved's answer to the request to bind device memory"));
    EXPECT_EQ(started.tensor().submit(1).code(), StatusCode::kFailedPrecondition) << "counts as not bound";
    EXPECT_EQ(started.tensor().bind_device(good_, kShort).code(), StatusCode::kTimeout) << "again";
    const auto request = daemon.await_binds(1).front().request;
    daemon.run([&](FakeDaemon& at) { at.serve_bind(request); });
    const auto bound = started.tensor().bind_device(good_, kPatient);
    ASSERT_TRUE(bound.is_ok()) << bound.to_string();
    EXPECT_EQ(daemon.await_binds(1).size(), 1U) << "a daemon takes one request of a rank at a time";
    EXPECT_TRUE(started.tensor().submit(1).is_ok());
}
TEST_F(JobDevices, Late_refusal_is_the_answer_of_the_same_call_again) {
    FakeDaemon daemon(deaf_to_binds());
    StartedJob started(daemon, {"w"}, kOnDevice);
    EXPECT_EQ(started.tensor().bind_device(good_, kShort).code(), StatusCode::kTimeout);
    daemon.await_binds(1);
    daemon.run([&](FakeDaemon& at) { at.reply_bind(refusal_of(1)); });
    const auto refused = started.tensor().bind_device(good_, kPatient);
    EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.text(), HasSubstr("binding tensor 'w': gpu_memory_limit is 1 GiB"));
    EXPECT_EQ(started.tensor().bind_device(good_, kShort).code(), StatusCode::kTimeout);
    EXPECT_EQ(daemon.await_binds(2)[1].request.number, 2U) << "asked anew";
}
TEST_F(JobDevices, Other_binding_waits_for_a_late_answer_and_is_asked_behind_it) {
    FakeDaemon daemon(deaf_to_binds());
    StartedJob started(daemon, {"a", "b"}, kOnDevice);
    EXPECT_EQ(started.tensor(0).bind_device(good_, kShort).code(), StatusCode::kTimeout);
    const auto late = started.tensor(1).bind_device(good_, kShort);
    EXPECT_EQ(late.code(), StatusCode::kTimeout);
    EXPECT_THAT(late.text(), HasSubstr("memory of tensor 'a'")) << "what is waited for";
    EXPECT_EQ(started.tensor(0).bind_device(buffer_at(FakeMemory::kLegacy), kShort).code(), StatusCode::kTimeout);
    ASSERT_EQ(daemon.await_binds(1).size(), 1U);
    daemon.run([&](FakeDaemon& at) { at.reply_bind(refusal_of(1)); });
    Status unbound;
    std::thread binder([&] { unbound = started.tensor(0).unbind_device(kPatient); });
    const auto request = daemon.await_binds(2)[1].request;
    EXPECT_EQ(request.number, 2U);
    EXPECT_TRUE(request.bindings[0].is_unbinding());
    daemon.run([&](FakeDaemon& at) { at.serve_bind(request); });
    binder.join();
    EXPECT_TRUE(unbound.is_ok()) << "the refusal was another call's: " << unbound.to_string();
}
TEST_F(JobDevices, Calls_that_time_out_bind_many_messages_in_the_end) {
    FakeDaemon daemon(deaf_to_binds());
    std::vector<std::string> names(20);
    for (std::size_t index = 0; index < names.size(); ++index) names[index] = "t" + std::to_string(index);
    StartedJob started(daemon, names, kOnDevice);
    std::vector<DeviceBinding> bindings;
    for (std::size_t index = 0; index < names.size(); ++index)
        bindings.push_back({started.tensor(index), buffer_at(FakeMemory::kMapped + index % 10 * FakeMemory::kBytes)});
    // Eight descriptors go into a message; no call lives to see the answer to what it sent.
    std::size_t sent = 0;
    Status status;
    do {
        status = started.job.bind_devices(bindings, kShort);
        if (status.is_ok()) break;
        ASSERT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
        const auto request = daemon.await_binds(++sent).back().request;
        daemon.run([&](FakeDaemon& at) { at.serve_bind(request); });
    } while (sent < 10);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(sent, daemon.await_binds(1).size());
    std::size_t bound = 0;
    for (const auto& bind : daemon.await_binds(1)) bound += bind.request.bindings.size();
    EXPECT_EQ(bound, names.size()) << "each once";
    for (auto& tensor : started.tensors) EXPECT_TRUE(tensor.submit(1).is_ok());
}
TEST_F(JobDevices, Refusal_is_passed_on_and_the_former_binding_stays) {
    FakeDaemon::Script script;
    script.on_bind = [](FakeDaemon& at, const shm::BindRequest& request) {
        if (request.number == 1) return at.serve_bind(request);
        at.reply_bind(refusal_of(request.number));
    };
    FakeDaemon daemon(script);
    StartedJob started(daemon, {"w"}, kOnDevice);
    ASSERT_TRUE(started.tensor().bind_device(good_, kPatient).is_ok());
    const auto status = started.tensor().bind_device(buffer_at(FakeMemory::kLegacy), kPatient);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.text(), AllOf(HasSubstr("job 'job'"), HasSubstr("gpu_memory_limit is 1 GiB")));
    EXPECT_TRUE(started.tensor().submit(1).is_ok());
}
TEST_F(JobDevices, Answer_to_what_was_never_asked_is_named_and_binds_nothing) {
    FakeDaemon::Script script;
    script.on_bind = [](FakeDaemon& at, const shm::BindRequest&) {
        shm::BindReply reply;
        reply.number = 99;
        at.reply_bind(reply);
    };
    FakeDaemon daemon(script);
    StartedJob started(daemon, {"w"}, kOnDevice);
    const auto ahead = started.tensor().bind_device(good_, kPatient);
    EXPECT_EQ(ahead.code(), StatusCode::kCorrupt);
    EXPECT_THAT(ahead.text(), HasSubstr("answered bind request 99: allowed is up to 1"));
    EXPECT_EQ(started.tensor().submit(1).code(), StatusCode::kFailedPrecondition);
}
TEST_F(JobDevices, Daemon_that_goes_meanwhile_ends_the_wait) {
    FakeDaemon::Script script;
    script.on_bind = [](FakeDaemon& at, const shm::BindRequest&) { at.hang_up(); };
    FakeDaemon daemon(script);
    StartedJob started(daemon, {"w"}, kOnDevice);
    const auto status = started.tensor().bind_device(good_, kPatient);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(), HasSubstr("is gone"));
}
TEST_F(JobDevices, Job_that_ends_meanwhile_ends_the_wait) {
    FakeDaemon::Script script;
    script.on_bind = [](FakeDaemon& at, const shm::BindRequest&) {
        at.answer(Completions::kJobEnded, 0, 0, {StatusCode::kPeerFailed, "rank 3 died"});
    };
    FakeDaemon daemon(script);
    StartedJob started(daemon, {"w"}, kOnDevice);
    EXPECT_EQ(started.tensor().bind_device(good_, kPatient).text(), "rank 3 died");
}
TEST_F(JobDevices, Second_thread_is_busy_and_detach_does_not_take_the_socket_away) {
    FakeDaemon daemon(deaf_to_binds());
    StartedJob started(daemon, {"a", "b"}, kOnDevice);
    Status bound;
    std::thread binder([&] { bound = started.tensor(0).bind_device(good_, kPatient); });
    daemon.await_binds(1);
    const auto busy = started.tensor(1).bind_device(good_, kPatient);
    EXPECT_EQ(busy.code(), StatusCode::kBusy);
    EXPECT_THAT(busy.text(), HasSubstr("another thread binds"));
    EXPECT_EQ(started.tensor(0).submit(1).code(), StatusCode::kBusy) << "being bound";
    EXPECT_TRUE(started.job.detach(kPatient).is_ok());
    binder.join();
    EXPECT_EQ(bound.code(), StatusCode::kCancelled);
}
TEST_F(JobDevices, Many_tensors_take_one_round_trip) {
    FakeDaemon daemon;
    std::vector<std::string> names(160);
    for (std::size_t index = 0; index < names.size(); ++index) names[index] = "t" + std::to_string(index);
    StartedJob started(daemon, names, kOnDevice);
    std::vector<DeviceBinding> bindings;
    for (std::size_t index = 0; index < names.size(); ++index)
        bindings.push_back({started.tensor(index), buffer_at(FakeMemory::kLegacy + 16 * index)});
    ASSERT_TRUE(started.job.bind_devices(bindings, kPatient).is_ok());
    const auto binds = daemon.await_binds(1);
    ASSERT_EQ(binds.size(), 1U);
    EXPECT_EQ(binds[0].request.bindings.size(), 160U);
    EXPECT_EQ(binds[0].request.bindings[159].gradient.offset_bytes, 159U * 16);
    for (auto& tensor : started.tensors) ASSERT_TRUE(tensor.submit(1).is_ok());
    for (auto& tensor : started.tensors) ASSERT_TRUE(tensor.wait(kPatient).is_ok());
}
TEST_F(JobDevices, One_wrong_buffer_of_many_binds_none) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"a", "b"}, kOnDevice);
    const std::vector<DeviceBinding> wrong{{started.tensor(0), good_},
                                           {started.tensor(1), buffer_at(FakeMemory::kHost)}};
    EXPECT_THAT(started.job.bind_devices(wrong, kPatient).text(), HasSubstr("tensor 'b': its gradient"));
    const std::vector<DeviceBinding> twice{{started.tensor(0), good_}, {started.tensor(0), good_}};
    EXPECT_THAT(started.job.bind_devices(twice, kPatient).text(), HasSubstr("tensor 'a' is named twice"));
    FakeDaemon second;
    StartedJob other(second, {"theirs"}, kOnDevice);
    const std::vector<DeviceBinding> foreign{{other.tensor(), good_}};
    EXPECT_THAT(started.job.bind_devices(foreign, kPatient).text(), HasSubstr("'theirs' is not of this job"));
    EXPECT_TRUE(started.job.bind_devices({}, kPatient).is_ok()) << "nothing to do";
    ASSERT_TRUE(started.tensor(0).bind_device(good_, kPatient).is_ok());
    EXPECT_EQ(daemon.await_binds(1).size(), 1U) << "nothing was sent before";
}
TEST_F(JobDevices, Mapped_memory_goes_by_descriptors_in_as_many_messages_as_they_need) {
    FakeDaemon daemon;
    std::vector<std::string> names(10);
    for (std::size_t index = 0; index < names.size(); ++index) names[index] = "t" + std::to_string(index);
    StartedJob started(daemon, names, kOnDevice);
    std::vector<DeviceBinding> bindings;
    for (std::size_t index = 0; index < names.size(); ++index)
        bindings.push_back({started.tensor(index), buffer_at(FakeMemory::kMapped + index * FakeMemory::kBytes)});
    const auto status = started.job.bind_devices(bindings, kPatient);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    const auto binds = daemon.await_binds(2);
    ASSERT_EQ(binds.size(), 2U);
    ASSERT_EQ(binds[0].descriptor_words.size(), 8U);
    EXPECT_EQ(binds[0].descriptor_words[7], FakeMemory::kMapped + 7 * FakeMemory::kBytes);
    EXPECT_EQ(binds[1].descriptor_words.size(), 2U);
    EXPECT_EQ(binds[1].request.number, 2U);
    EXPECT_EQ(binds[1].request.bindings[1].gradient.pieces[0].descriptor, 1U);
    EXPECT_TRUE(started.tensor(9).submit(1).is_ok());
}
TEST_F(JobDevices, Memory_that_cannot_be_shared_names_the_remedy) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, kOnDevice);
    for (const auto address : {FakeMemory::kUnexported, FakeMemory::kPool}) {
        const auto status = started.tensor().bind_device(buffer_at(address), kPatient);
        EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
        EXPECT_THAT(status.text(), HasSubstr("expandable_segments:False"));
    }
}
TEST_F(JobDevices, Host_without_a_driver_says_so_and_host_tensors_need_none) {
    environment_.set("GRADSIEVE_CUDA_DRIVER", "/nowhere/libcuda.so.1");
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, kOnDevice);
    const auto status = started.tensor().bind_device(good_, kPatient);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.text(), HasSubstr("/nowhere/libcuda.so.1 cannot be loaded"));
    FakeDaemon other;
    StartedJob host(other);
    fill(host.tensor(), 2);
    ASSERT_TRUE(host.tensor().submit(1).is_ok());
    EXPECT_EQ(values_of(host.tensor().wait(kPatient)), four_of(2));
}
TEST_F(JobDevices, Tensor_without_elements_needs_no_memory) {
    FakeDaemon daemon;
    auto job = make_job(daemon);
    auto empty = job.add_tensor("empty", {0}, kOnDevice).value();
    ASSERT_TRUE(job.start(kPatient).is_ok());
    EXPECT_TRUE(empty.bind_device({}, kPatient).is_ok());
    EXPECT_TRUE(empty.submit(1).is_ok());
    EXPECT_TRUE(empty.wait(kPatient).is_ok());
    EXPECT_THAT(FakeCuda::get().log(), IsEmpty());
}
TEST_F(JobDevices, Forked_child_touches_no_driver) {
    FakeDaemon daemon;
    StartedJob started(daemon, {"w"}, kOnDevice);
    ASSERT_TRUE(started.tensor().bind_device(good_, kPatient).is_ok());
    const auto calls = FakeCuda::get().log().size();
    const auto code = exit_code_of_child([&] {
        auto& tensor = started.tensor();
        const DeviceBinding binding{tensor, good_};
        for (const auto& status :
             {tensor.bind_device(good_, kPatient), tensor.unbind_device(kPatient),
              started.job.bind_devices({&binding, 1}, kPatient), tensor.submit(1), tensor.wait(kPatient).status()})
            if (status.code() != StatusCode::kFailedPrecondition ||
                status.text().find("forked child") == std::string::npos)
                return 1;
        {
            const Job dropped = std::move(started.job);
            started.tensors.clear();
        }
        return FakeCuda::get().log().size() == calls ? 7 : 2;
    });
    EXPECT_EQ(code, 7);
    EXPECT_TRUE(started.tensor().submit(1).is_ok()) << "the parent goes on";
}

}  // namespace
}  // namespace gradsieve::client::test
