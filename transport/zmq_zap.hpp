// Answers ZeroMQ's question, asked in each CURVE handshake on this node's port, whether a key may come in (ZAP, ZeroMQ
// RFC 27). Must be made before the listener and end after it: ZeroMQ lets anybody in while nobody answers. Network
// thread.
#pragma once

#include "transport/peer_keys.hpp"
#include "transport/zmq_socket.hpp"

namespace gradsieve::transport {

/// What is answered to one request. The user that it names is the node's position, as decimal text; a refusal that is
/// news is appended to `ret_notices`.
[[nodiscard]] std::vector<SharedView> zap_reply(std::span<const SharedView> request, PeerKeys& keys,
                                                std::vector<Notice>& ret_notices);
/// The node that a reply of ours named.
[[nodiscard]] std::optional<PeerIndex> node_of_user(const std::string& user);

class ZmqZap {
public:
    [[nodiscard]] static Result<ZmqZap> make(ZmqContext& context, PeerKeys keys);

    /// Answers what is there, as far as a turn goes.
    [[nodiscard]] Status answer(std::vector<Notice>& ret_notices);
    [[nodiscard]] const ZmqSocket& socket() const noexcept { return socket_; }
    [[nodiscard]] const PeerKeys& keys() const noexcept { return keys_; }

private:
    ZmqZap(ZmqSocket socket, PeerKeys keys) : socket_(std::move(socket)), keys_(std::move(keys)) {}

    ZmqSocket socket_;
    PeerKeys keys_;
    std::shared_ptr<ByteGauge> gauge_ = std::make_shared<ByteGauge>(0);
};

}  // namespace gradsieve::transport
