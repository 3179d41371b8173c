// Keys of CURVE, ZeroMQ's encryption over curve25519, as text: made, checked, and a secret's public half. All
// arithmetic is ZeroMQ's. A secret is overwritten when it goes, and nothing here prints it. Any thread.
#pragma once

#include "base/bytes.hpp"
#include "base/status.hpp"

#include <array>
#include <string>
#include <string_view>

namespace gradsieve::transport {

/// A key as text has this many characters of Z85 (ZeroMQ RFC 32); as bytes it has 32.
inline constexpr std::size_t kKeyTextBytes = 40;

/// Whether `text` has the shape of a key, public or secret.
[[nodiscard]] bool is_key_text(std::string_view text) noexcept;

/// The half of a key pair that never leaves its node. Each copy overwrites itself at its end.
class SecretKey {
public:
    /// `text` has the shape of a key.
    explicit SecretKey(std::string_view text);
    SecretKey(const SecretKey&) = default;
    SecretKey& operator=(const SecretKey&) = default;
    ~SecretKey();
    /// Valid as long as this object; for ZeroMQ and the key file only. A zero byte follows it.
    [[nodiscard]] std::string_view text() const noexcept { return {text_.data(), kKeyTextBytes}; }

private:
    std::array<char, kKeyTextBytes + 1> text_{};
};
struct KeyPair {
    std::string public_key;
    SecretKey secret_key;
};

/// A fresh pair from the system's randomness. Errors: kUnimplemented (this ZeroMQ was built without CURVE).
[[nodiscard]] Result<KeyPair> make_key_pair();
/// Errors: kUnimplemented, as above.
[[nodiscard]] Result<std::string> public_key_of(const SecretKey& secret);
/// The text of a key that came as bytes; "" unless there are 32.
[[nodiscard]] std::string key_text_of(ByteView bytes);

}  // namespace gradsieve::transport
