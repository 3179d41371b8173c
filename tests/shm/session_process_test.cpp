// Sessions between real processes: attach over the socket, steps, sudden deaths on either side, forked children. What
// is looked for beside the right values is residue: /dev/shm, descriptors, files.
#include "shm/local_socket.hpp"
#include "shm/message.hpp"
#include "tests/shm/attached_session.hpp"

#include <sys/mman.h>

#include <memory>
#include <random>

namespace gradsieve::shm {
namespace {

/// The daemon's side of one attached client, made from its request.
struct Served {
    LocalConnection connection;
    UniqueFd process;
    Doorbell doorbell;
    DaemonSession session;
    ResultArea results;
};

Result<Served> serve_attach(LocalListener& listener) {
    if (!becomes_readable(listener.fd())) return Status(StatusCode::kTimeout, "nobody came");
    GRADSIEVE_ASSIGN(auto connection, listener.accept());
    GRADSIEVE_ASSIGN(auto credentials, connection.peer_credentials());
    GRADSIEVE_ASSIGN(auto process, open_process(credentials.pid));
    GRADSIEVE_ASSIGN(auto message, connection.receive(soon()));
    GRADSIEVE_ASSIGN(auto request, parse_attach_request(message.bytes));
    GRADSIEVE_ASSIGN(auto doorbell, Doorbell::make());
    GRADSIEVE_ASSIGN(auto session, DaemonSession::make(request.job_name, request.tensors));
    GRADSIEVE_ASSIGN(auto results, ResultArea::make(request.job_name, elements_of(request.tensors)));
    const auto reply = build_attach_reply(reply_for(session, results, request.tensors.size()));
    const std::array<int, 4> descriptors{session.control_fd(), session.gradient_fd(), results.fd(), doorbell.fd()};
    GRADSIEVE_TRY(connection.send(reply, descriptors));
    return Served{std::move(connection), std::move(process), std::move(doorbell), std::move(session),
                  std::move(results)};
}

/// Averages "over one rank": hands every slab back plus one. Returns the steps done, or stops when `process` dies.
Step answer_steps(Served& served, Step step_limit) {
    Submission submission;
    Step steps = 0;
    while (steps < step_limit) {
        served.session.announce_sleep(true);
        if (!served.session.has_submission()) {
            std::array<pollfd, 2> entries{pollfd{served.doorbell.fd(), POLLIN, 0},
                                          pollfd{served.process.get(), POLLIN, 0}};
            if (::poll(entries.data(), entries.size(), 20'000) <= 0) return steps;
            if (entries[1].revents != 0 && !served.session.has_submission()) return steps;
        }
        served.session.announce_sleep(false);
        served.doorbell.drain();
        while (steps < step_limit) {
            const auto popped = served.session.try_pop(submission);
            EXPECT_TRUE(popped.is_ok()) << popped.status().to_string();
            if (!popped.is_ok() || !*popped) break;
            EXPECT_EQ(submission.step, steps + 1);
            const auto* const slice = served.session.slice(submission.tensor_index, 0);
            for (int element = 0; element < 7; ++element) {
                served.results.tensor(submission.tensor_index)[element] = slice[element] + 1;
            }
            EXPECT_TRUE(served.session.push({.index = submission.tensor_index, .step = submission.step}).is_ok());
            ++steps;
        }
        served.session.ring_client();
    }
    return steps;
}

Result<ClientSession> attach(const std::string& path) {
    AttachRequest request;
    request.job_name = "test";
    request.tensors = two_tensors();
    GRADSIEVE_ASSIGN(auto connection, LocalConnection::connect(path, soon()));
    GRADSIEVE_TRY(connection.send(build_attach_request(request), {}));
    GRADSIEVE_ASSIGN(auto message, connection.receive(soon()));
    GRADSIEVE_ASSIGN(auto reply, parse_attach_reply(message.bytes));
    return ClientSession::adopt(request.tensors, reply, std::move(message.descriptors));
}

/// A client that does steps until it is done (0), something is wrong (other), or it is killed.
int run_client(const std::string& path, Step step_limit) {
    auto session = attach(path);
    if (!session.is_ok()) return 1;
    Completion completion;
    for (Step step = 1; step <= step_limit; ++step) {
        for (std::size_t element = 0; element < 7; ++element) {
            session->slice(1, 0)[element] = float(step) * 10 + float(element);
        }
        if (!session->push({.tensor_index = 1, .step = step}).is_ok()) return 2;
        if (!session->wait_for_completion(soon()) || !session->try_pop(completion)) return 3;
        if (completion.kind != CompletionKind::kTensor || completion.step != step) return 4;
        for (std::size_t element = 0; element < 7; ++element) {
            if (session->result(1)[element] != float(step) * 10 + float(element) + 1) return 5;
        }
    }
    return 0;
}

TEST(SessionProcess, Two_processes_attach_over_the_socket_and_step_through_both_doorbells) {
    constexpr Step kSteps = 1000;
    TempFolder folder;
    auto listener = LocalListener::make({.path = folder / "d.sock"}).value();
    Child client([&] { return run_client(folder / "d.sock", kSteps); });
    auto served = serve_attach(listener);
    ASSERT_TRUE(served.is_ok()) << served.status().to_string();
    EXPECT_EQ(answer_steps(*served, kSteps), kSteps);
    EXPECT_EQ(client.wait_exit(), 0);
}

TEST(SessionProcess, Fifty_clients_killed_anywhere_leave_a_consistent_daemon_and_no_residue) {
    const auto seed = std::random_device{}();
    std::mt19937 random(seed);
    TempFolder folder;
    const auto shm_before = dev_shm_entries();
    const auto descriptors_before = open_descriptors();
    {
        auto listener = LocalListener::make({.path = folder / "d.sock"}).value();
        for (int round = 0; round < 50; ++round) {
            Child client([&] { return run_client(folder / "d.sock", 1'000'000'000); });
            auto served = serve_attach(listener);
            ASSERT_TRUE(served.is_ok()) << served.status().to_string();
            const Step some = random() % 200;
            ASSERT_EQ(answer_steps(*served, some), some) << "seed " << seed;
            client.kill_now();
            // Whatever it had published is still whole; then its death shows.
            Submission submission;
            ASSERT_TRUE(becomes_readable(served->process.get()));
            for (Result<bool> popped = true; *popped;) {
                popped = served->session.try_pop(submission);
                ASSERT_TRUE(popped.is_ok()) << "seed " << seed << ": " << popped.status().to_string();
                ASSERT_TRUE(!*popped || submission.step == some + 1) << "seed " << seed;
            }
            EXPECT_EQ(client.wait_exit(), 128 + SIGKILL);
            EXPECT_TRUE(served->session.push({}).is_ok());
            served->session.ring_client();
        }
    }
    EXPECT_EQ(dev_shm_entries(), shm_before);
    EXPECT_EQ(open_descriptors(), descriptors_before);
    EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
}

TEST(SessionProcess, Client_of_a_killed_daemon_keeps_its_memory_and_its_wait_ends_at_the_deadline) {
    TempFolder folder;
    const auto path = folder / "d.sock";
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const UniqueFd heard(ends[0]);
    const UniqueFd said(ends[1]);
    Child daemon([&] {
        auto listener = LocalListener::make({.path = path});
        if (!listener.is_ok() || ::write(said.get(), "x", 1) != 1) return 1;
        auto served = serve_attach(*listener);
        if (served.is_ok()) served->results.tensor(1)[0] = 5.0F;
        return ::pause();
    });
    ASSERT_TRUE(becomes_readable(heard.get()));
    auto session = attach(path);
    ASSERT_TRUE(session.is_ok()) << session.status().to_string();
    daemon.kill_now();
    EXPECT_EQ(daemon.wait_exit(), 128 + SIGKILL);
    session->slice(1, 0)[6] = 1.0F;
    EXPECT_EQ(session->result(1).size(), 7U);
    EXPECT_TRUE(session->push({.tensor_index = 1, .step = 1}).is_ok()) << "nobody reads it: the wait's deadline tells";
    EXPECT_FALSE(session->wait_for_completion(std::chrono::steady_clock::now() + std::chrono::milliseconds(10)));
}

TEST(SessionProcess, Forked_child_sees_none_of_the_clients_memory) {
    AttachedSession session;
    const auto is_mapped = [](const void* address) {
        unsigned char page = 0;
        const auto page_start = reinterpret_cast<std::uintptr_t>(address) & ~std::uintptr_t{4095};
        return ::mincore(reinterpret_cast<void*>(page_start), 1, &page) == 0;
    };
    const void* const slab = session.client.slice(0, 0).data();
    const void* const result = session.client.result(0).data();
    ASSERT_TRUE(is_mapped(slab) && is_mapped(result));
    Child child([&] { return (is_mapped(slab) ? 1 : 0) + (is_mapped(result) ? 2 : 0); });
    EXPECT_EQ(child.wait_exit(), 0);
}

TEST(SessionProcess, Descriptors_do_not_survive_an_exec) {
    AttachedSession session;
    for (const int fd :
         {session.daemon.control_fd(), session.daemon.gradient_fd(), session.results.fd(), session.doorbell.fd()}) {
        EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    }
}

}  // namespace
}  // namespace gradsieve::shm
