#include "transport/curve_key.hpp"

#include <zmq.h>
#include <algorithm>
#include <cstring>

namespace gradsieve::transport {
namespace {

constexpr std::string_view kDigits =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
constexpr std::size_t kDigitsPerGroup = 5, kBytesPerGroup = 4;
constexpr std::size_t kKeyBytes = kKeyTextBytes / kDigitsPerGroup * kBytesPerGroup;

Status no_curve() {
    return {StatusCode::kUnimplemented,
            "ZeroMQ " + std::to_string(ZMQ_VERSION_MAJOR) + "." + std::to_string(ZMQ_VERSION_MINOR) +
                " on this host was built without CURVE: encryption needs it; install Debian's libzmq5"};
}

}  // namespace

bool is_key_text(std::string_view text) noexcept {
    if (text.size() != kKeyTextBytes) return false;
    std::uint64_t group = 0;
    for (std::size_t place = 0; place < text.size(); ++place) {
        const auto digit = kDigits.find(text[place]);
        if (digit == std::string_view::npos) return false;
        group = (place % kDigitsPerGroup == 0 ? 0 : group * kDigits.size()) + digit;
        if (group > UINT32_MAX) return false;  // five digits can say more than four bytes hold
    }
    return true;
}

SecretKey::SecretKey(std::string_view text) {
    GRADSIEVE_CHECK(is_key_text(text));
    std::ranges::copy(text, text_.begin());
}

SecretKey::~SecretKey() { explicit_bzero(text_.data(), text_.size()); }

Result<KeyPair> make_key_pair() {
    std::array<char, kKeyTextBytes + 1> public_key{}, secret_key{};
    if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) return no_curve();
    KeyPair pair{public_key.data(), SecretKey({secret_key.data(), kKeyTextBytes})};
    explicit_bzero(secret_key.data(), secret_key.size());
    return pair;
}

Result<std::string> public_key_of(const SecretKey& secret) {
    std::array<char, kKeyTextBytes + 1> public_key{};
    if (zmq_curve_public(public_key.data(), secret.text().data()) != 0) return no_curve();
    return std::string(public_key.data());
}

std::string key_text_of(ByteView bytes) {
    std::array<char, kKeyTextBytes + 1> text{};
    if (bytes.size() != kKeyBytes) return "";
    if (zmq_z85_encode(text.data(), reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()) == nullptr)
        return "";
    return text.data();
}

}  // namespace gradsieve::transport
