#include "raw_peer.hpp"

#include "transport/frame.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>

namespace gradsieve::transport::testing {
namespace {

sockaddr_in socket_address(const PeerAddress& node) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(node.port);
    EXPECT_EQ(inet_pton(AF_INET, node.host.c_str(), &address.sin_addr), 1);
    return address;
}

UniqueFd connect_to(const PeerAddress& target) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = socket_address(target);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
}

}  // namespace

RawDealer::RawDealer(const PeerAddress& target, Bytes routing_id, std::optional<DialKeys> keys) {
    DialOptions options;
    options.endpoint = "tcp://" + target.host + ":" + std::to_string(target.port);
    options.routing_id = std::move(routing_id);
    options.keys = std::move(keys);
    context_ = std::move(*ZmqContext::make(kSocketsPerDialer));
    auto made = context_->make_dialer(options);
    if (made.is_ok()) socket_.emplace(std::move(*made));
}

void RawDealer::send(const std::vector<Bytes>& parts) {
    ASSERT_TRUE(socket_.has_value());
    const auto deadline = SteadyClock().now() + kWatchdog;
    while (!try_send(parts)) {
        ASSERT_LT(SteadyClock().now(), deadline) << "no connection";
        ZmqPoller poller;
        poller.add(*socket_);
        ASSERT_TRUE(poller.wait(std::chrono::milliseconds(5)).is_ok());
    }
}

bool RawDealer::try_send(const std::vector<Bytes>& parts) {
    std::vector<SharedView> views;
    for (const auto& part : parts) views.push_back(SharedView::take(part));
    const auto sent = socket_->try_send(views, gauge_);
    EXPECT_TRUE(sent.is_ok()) << sent.status().to_string();
    return sent.is_ok() && *sent == SendOutcome::kSent;
}

std::string RawDealer::next_refusal() {
    std::vector<SharedView> parts;
    bool is_cut = false;
    const auto received = socket_->try_receive(10, 100000, parts, is_cut);
    if (!received.is_ok() || !*received || parts.empty()) return "";
    const auto bytes = parts.front().bytes();
    if (bytes.size() < kFrameHeaderBytes) return "";
    const auto header = parse_frame(bytes, bytes.subspan(kFrameHeaderBytes), bytes.size());
    if (!header.is_ok() || header->type != kRefusalType) return "not a refusal";
    return parse_refusal(bytes.subspan(kFrameHeaderBytes)).value_or("");
}

Bytes frame_bytes(const FrameHeader& header, const Bytes& body) {
    const auto part = SharedView::take(body);
    const auto head = build_frame_header(header, {&part, 1});
    Bytes bytes;
    ByteWriter writer(bytes);
    writer.write_bytes(head);
    writer.write_bytes(body);
    return bytes;
}

Hello hello_of(const std::vector<PeerAddress>& nodes, PeerIndex from, PeerIndex to) {
    Hello hello;
    hello.from = from;
    hello.to = to;
    hello.instance = 77;
    hello.list = digest_of(nodes);
    hello.name = nodes[from].name;
    return hello;
}

void send_raw_tcp(const PeerAddress& target, ByteView bytes) {
    const auto fd = connect_to(target);
    // The listener may hang up before everything is written; that is an answer too.
    static_cast<void>(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

TcpRelay::TcpRelay(const PeerAddress& target)
    : address_{"relay", "127.0.0.1", find_free_port()}, listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto address = socket_address(address_);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    thread_ = std::thread([this, target] { run(target); });
}

TcpRelay::~TcpRelay() {
    is_stopping_ = true;
    thread_.join();
}

std::string TcpRelay::overheard() const {
    const std::lock_guard lock(mutex_);
    return overheard_;
}

void TcpRelay::run(const PeerAddress& target) {
    UniqueFd caller, callee;
    while (!is_stopping_) {
        std::array<pollfd, 3> entries{
            {{listener_.get(), POLLIN, 0}, {caller.get(), POLLIN, 0}, {callee.get(), POLLIN, 0}}};
        if (poll(entries.data(), entries.size(), 5) <= 0) continue;
        if (entries[0].revents != 0 && !caller.is_open()) {
            caller.reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            callee = connect_to(target);
        }
        for (const bool is_from_caller : {true, false}) {
            if (entries[is_from_caller ? 1 : 2].revents == 0) continue;
            std::array<char, 65536> bytes{};
            const auto count = recv((is_from_caller ? caller : callee).get(), bytes.data(), bytes.size(), 0);
            if (count <= 0) return;
            const std::string_view view(bytes.data(), static_cast<std::size_t>(count));
            if (is_from_caller) {
                const std::lock_guard lock(mutex_);
                overheard_ += view;
            }
            if (::send((is_from_caller ? callee : caller).get(), view.data(), view.size(), MSG_NOSIGNAL) < 0) return;
        }
    }
}

}  // namespace gradsieve::transport::testing
