#include "raw_peer.hpp"

#include "base/unique_fd.hpp"
#include "transport/frame.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace gradsieve::transport::testing {

RawDealer::RawDealer(const PeerAddress& target, Bytes routing_id) {
    DialOptions options;
    options.endpoint = "tcp://" + target.host + ":" + std::to_string(target.port);
    options.routing_id = std::move(routing_id);
    context_ = std::move(*ZmqContext::make(kSocketsPerDialer));
    auto made = context_->make_dialer(options);
    if (made.is_ok()) socket_.emplace(std::move(*made));
}

void RawDealer::send(const std::vector<Bytes>& parts) {
    ASSERT_TRUE(socket_.has_value());
    std::vector<SharedView> views;
    for (const auto& part : parts) views.push_back(SharedView::take(part));
    const auto deadline = SteadyClock().now() + kWatchdog;
    for (;;) {
        const auto sent = socket_->try_send(views, gauge_);
        ASSERT_TRUE(sent.is_ok()) << sent.status().to_string();
        if (*sent == SendOutcome::kSent) return;
        ASSERT_LT(SteadyClock().now(), deadline) << "no connection";
        ZmqPoller poller;
        poller.add(*socket_);
        ASSERT_TRUE(poller.wait(std::chrono::milliseconds(5)).is_ok());
    }
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
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(target.port);
    ASSERT_EQ(inet_pton(AF_INET, target.host.c_str(), &address.sin_addr), 1);
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    // The listener may hang up before everything is written; that is an answer too.
    static_cast<void>(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

}  // namespace gradsieve::transport::testing
