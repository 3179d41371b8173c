#include "transport/zmq_zap.hpp"

#include "transport/curve_key.hpp"

#include <charconv>

namespace gradsieve::transport {
namespace {

constexpr std::size_t kAnswersPerTurn = 64;
constexpr std::size_t kRequestParts = 7, kRequestBytesMax = 4096;
// Places in a request.
constexpr std::size_t kVersion = 0, kRequestId = 1, kAddress = 3, kMechanism = 5, kCredentials = 6;

std::string_view text_of(const SharedView& part) {
    return {reinterpret_cast<const char*>(part.bytes().data()), part.bytes().size()};
}
SharedView part_of(std::string_view text) {
    const auto bytes = as_bytes(text);
    return SharedView::take(Bytes(bytes.begin(), bytes.end()));
}

}  // namespace

std::vector<SharedView> zap_reply(std::span<const SharedView> request, PeerKeys& keys,
                                  std::vector<Notice>& ret_notices) {
    const auto answer = [&](std::string_view code, std::string_view text, std::string_view user) {
        const auto id = request.size() > kRequestId ? request[kRequestId] : SharedView();
        return std::vector<SharedView>{part_of("1.0"), id, part_of(code), part_of(text), part_of(user), part_of("")};
    };
    if (request.size() != kRequestParts || text_of(request[kVersion]) != "1.0" ||
        text_of(request[kMechanism]) != "CURVE")
        return answer("500", "not a CURVE request", "");
    const auto key = key_text_of(request[kCredentials].bytes());
    if (key.empty()) return answer("500", "not a CURVE key", "");
    auto verdict = keys.judge(key, std::string(text_of(request[kAddress])));
    if (!verdict.notice.empty()) ret_notices.push_back({"", std::move(verdict.notice)});
    if (!verdict.node) return answer("400", "unknown key", "");
    return answer("200", "OK", std::to_string(*verdict.node));
}

std::optional<PeerIndex> node_of_user(const std::string& user) {
    PeerIndex node = 0;
    const auto [end, error] = std::from_chars(user.data(), user.data() + user.size(), node);
    if (error != std::errc() || user.empty() || end != user.data() + user.size()) return std::nullopt;
    return node;
}

Result<ZmqZap> ZmqZap::make(ZmqContext& context, PeerKeys keys) {
    GRADSIEVE_ASSIGN(auto socket, context.make_zap_handler());
    return ZmqZap(std::move(socket), std::move(keys));
}

Status ZmqZap::answer(std::vector<Notice>& ret_notices) {
    std::vector<SharedView> request;
    bool is_cut = false;
    for (std::size_t count = 0; count < kAnswersPerTurn; ++count) {
        GRADSIEVE_ASSIGN(const bool is_there,
                         socket_.try_receive(kRequestParts + 1, kRequestBytesMax, request, is_cut));
        if (!is_there) return {};
        // Who asked may have hung up meanwhile; ZeroMQ then drops the answer.
        GRADSIEVE_TRY(socket_.try_send(zap_reply(request, keys_, ret_notices), gauge_).status());
    }
    return {};
}

}  // namespace gradsieve::transport
