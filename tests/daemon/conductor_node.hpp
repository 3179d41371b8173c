// A conductor turned by hand, with what it uses of a daemon around it: clients over its real Unix socket, peers over an
// in-process network, time as the test wants it. Tests only.
#pragma once

#include "daemon/conductor.hpp"
#include "tests/daemon/daemon_testing.hpp"
#include "tests/daemon/pipe_network.hpp"

#include <nlohmann/json.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::daemon::test {

/// A training process that is on the socket.
struct Caller {
    shm::LocalConnection connection;
    std::optional<ClientEnd> client;
    Status refusal;
};

class Node {
public:
    explicit Node(PipeNetwork* network = nullptr, PeerIndex self = 0)
        : listener_(shm::LocalListener::make({.path = socket()}).value()),
          doorbell_(shm::Doorbell::make().value()),
          wake_(doorbell_.fd()),
          pool_(1, wake_),
          page_(shm::StatusPageWriter::make(folder_ / "status", "").value()) {
        Config config;
        config.socket_path = socket();
        config.memory_limit_bytes = ByteCount{64} << 20U;
        std::unique_ptr<NetworkThread> thread;
        if (network != nullptr) {
            config.nodes = {{"a", "192.0.2.1"}, {"b", "192.0.2.2"}};
            config.self = self;
            thread = std::make_unique<NetworkThread>(network->make_endpoint(self), wake_, log.log());
        }
        conductor.emplace(config, listener_, doorbell_, wake_, pool_, gpus_, std::move(thread), page_, log.log());
    }
    [[nodiscard]] std::string socket() const { return folder_ / "gradsieved.sock"; }
    [[nodiscard]] TimePoint now() const { return SteadyClock().now() + ahead; }
    /// Turns until nothing is at hand any more.
    void turn() {
        do conductor->wait(Duration{});
        while (conductor->run_once(now()));
    }
    /// Turns until `condition`; false if the watchdog bites first.
    bool turn_until(const std::function<bool()>& condition) {
        return wait_until([&] {
            turn();
            return condition();
        });
    }
    /// Sends any bytes as a request to attach and takes in the answer.
    Caller call(ByteView bytes, const std::vector<shm::TensorEntry>& tensors) {
        Caller caller{shm::LocalConnection::connect(socket(), shm::soon()).value(), std::nullopt, {}};
        EXPECT_TRUE(caller.connection.send(bytes, {}).is_ok());
        Result<shm::LocalMessage> message = Status(StatusCode::kTimeout, "");
        EXPECT_TRUE(turn_until([&] {
            message = caller.connection.receive(shm::past());
            return message.is_ok() || message.error().code() != StatusCode::kTimeout;
        }));
        const auto reply = shm::parse_attach_reply(message.value().bytes).value();
        caller.refusal = reply.status;
        shm::AttachRequest request;
        request.tensors = tensors;
        if (reply.status.is_ok()) caller.client.emplace(request, reply, std::move(message->descriptors));
        return caller;
    }
    Caller attach(const shm::AttachRequest& request) {
        return call(shm::build_attach_request(request), request.tensors);
    }
    /// What `gradsieve status` would read now; `turn` publishes it where it is due.
    [[nodiscard]] nlohmann::json status() {
        ahead += std::chrono::seconds(1);
        turn();
        return page();
    }
    [[nodiscard]] nlohmann::json page() const {
        return nlohmann::json::parse(shm::read_status_page(folder_ / "status", std::chrono::hours(1)).value().document);
    }

    Duration ahead{};  ///< how far the test's clock is ahead of the real one
    LogLines log;

private:
    shm::TempFolder folder_;
    shm::LocalListener listener_;
    shm::Doorbell doorbell_;
    WakeFlag wake_;
    CodecPool pool_;
    GpuPool gpus_{wake_};
    shm::StatusPageWriter page_;

public:
    std::optional<Conductor> conductor;
};

inline std::vector<shm::TensorEntry> one_tensor() { return {{.name = "w", .shape = {4}}}; }

}  // namespace gradsieve::daemon::test
