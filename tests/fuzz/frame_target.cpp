// The first bytes that a stranger's connection sends: frames, and what the transport's own frames say. One byte tells
// which.
#include "tests/fuzz/fuzz_target.hpp"
#include "transport/frame.hpp"
#include "transport/handshake.hpp"

#include <algorithm>

namespace gradsieve::fuzz {
namespace {

enum : std::uint8_t { kFrame = 0, kHello = 1, kHeartbeat = 2, kRefusal = 3 };
constexpr ByteCount kLimitBytes = 1U << 20U;

void run_frame(ByteView input) {
    const auto header = input.first(std::min(input.size(), transport::kFrameHeaderBytes));
    const auto body = input.subspan(header.size());
    const auto frame = transport::parse_frame(header, body, kLimitBytes);
    if (!frame.is_ok()) return;
    const SharedView parts[] = {SharedView({}, body)};
    const auto built = transport::build_frame_header(*frame, parts);
    const auto again = transport::parse_frame(built, body, kLimitBytes);
    require(again.is_ok(), "a frame that was taken can be sent on");
}

}  // namespace

std::vector<Bytes> seeds() {
    transport::Hello hello;
    hello.name = "a";
    hello.list = {2, 0x0123456789ABCDEF};
    hello.kind = transport::ConnectionKind::kData;
    const auto body = transport::build_hello(hello);
    const SharedView parts[] = {SharedView({}, body)};
    transport::FrameHeader header;
    header.type = transport::kHelloType;
    const auto built = transport::build_frame_header(header, parts);
    Bytes frame(built.begin(), built.end());
    frame.insert(frame.end(), body.begin(), body.end());
    return {tagged(kFrame, frame), tagged(kHello, body), tagged(kHeartbeat, transport::build_heartbeat(41)),
            tagged(kRefusal, transport::build_refusal("the node list differs"))};
}

void run_one(ByteView input) {
    if (input.empty()) return;
    const auto rest = input.subspan(1);
    switch (std::to_integer<std::uint8_t>(input[0]) % 4) {
        case kFrame: run_frame(rest); return;
        case kHello:
            if (const auto hello = transport::parse_hello(rest); hello.is_ok()) {
                const auto again = transport::parse_hello(transport::build_hello(*hello));
                require(again.is_ok() && again->name == hello->name && again->lanes == hello->lanes,
                        "a hello that was taken is built as the same");
                static_cast<void>(transport::build_routing_id(*hello));
            }
            return;
        case kHeartbeat: static_cast<void>(transport::parse_heartbeat(rest)); return;
        default:
            if (const auto text = transport::parse_refusal(rest))
                require(text->size() <= transport::kRefusalTextBytesMax, "a refusal's text is bounded");
            return;
    }
}

}  // namespace gradsieve::fuzz
