#include "daemon/config_key_file.hpp"

#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace gradsieve::daemon {

namespace {

constexpr mode_t kOwnerOnly = 0600;
constexpr mode_t kGroupMayRead = 0040, kOthersAndGroup = 0077;

StatusCode code_of(int error) {
    switch (error) {
        case EACCES:
        case EPERM:
        case EROFS: return StatusCode::kPermissionDenied;
        case ENOENT:
        case ENOTDIR: return StatusCode::kNotFound;
        case EEXIST: return StatusCode::kAlreadyExists;
        default: return StatusCode::kUnavailable;
    }
}

/// The service manager lets the service's user in by an access list, and a list's mask shows as the group's bits.
bool is_credential(const std::string& path) {
    const char* folder = std::getenv("CREDENTIALS_DIRECTORY");  // NOLINT: nothing here sets the environment
    return folder != nullptr && *folder != '\0' && std::filesystem::path(path).parent_path() == folder;
}

Status check_key_facts(const std::string& path, const struct stat& facts) {
    if (!S_ISREG(facts.st_mode))
        return {StatusCode::kInvalidArgument,
                fmt::format("key file {}: not a regular file: allowed is a file with one key; make it with 'gradsieve "
                            "keygen', or correct key_file in [network]",
                            path)};
    if (facts.st_uid != ::geteuid() && facts.st_uid != 0)
        return {StatusCode::kPermissionDenied,
                fmt::format("key file {}: it belongs to user {}, who could read it: allowed are this user ({}) and "
                            "root; chown it",
                            path, facts.st_uid, ::geteuid())};
    const auto open_to = facts.st_mode & kOthersAndGroup & ~(is_credential(path) ? kGroupMayRead : mode_t{0});
    if (open_to != 0)
        return {StatusCode::kPermissionDenied,
                fmt::format("key file {}: mode {:04o} lets others than its owner in: allowed is 0600 or 0400; chmod "
                            "600 {}, and make a new key if somebody may have read it",
                            path, facts.st_mode & 07777U, path)};
    return {};
}

/// A buffer that is overwritten when it goes.
struct KeyText {
    std::array<char, transport::kKeyTextBytes + 8> bytes{};
    std::size_t length = 0;
    ~KeyText() { explicit_bzero(bytes.data(), bytes.size()); }
    [[nodiscard]] std::string_view text() const noexcept {
        std::string_view text(bytes.data(), length);
        while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
        return text;
    }
};

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const auto count = ::write(fd, text.data(), text.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

Status write_new_file(const std::string& path, const transport::SecretKey& secret) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kOwnerOnly));
    if (!fd.is_open()) {
        const int error = errno;
        return {code_of(error),
                fmt::format("key file {}: {}: it is written anew into a folder that this user may write to; {}", path,
                            std::strerror(error),
                            error == EEXIST   ? "give another name, or replace it with --force"
                            : error == ENOENT ? "make the folder first"
                                              : "give another folder, or become its owner")};
    }
    // fchmod: a umask may have taken even the owner's bits.
    const bool is_written = ::fchmod(fd.get(), kOwnerOnly) == 0 && write_all(fd.get(), secret.text()) &&
                            write_all(fd.get(), "\n") && ::fsync(fd.get()) == 0;
    if (is_written) return {};
    const int error = errno;
    ::unlink(path.c_str());
    return {StatusCode::kUnavailable,
            fmt::format("key file {}: {}: it could not be written whole and was removed; free some space and try again",
                        path, std::strerror(error))};
}

std::string owner_of_key(const Config& config, const std::string& key) {
    for (const auto& node : config.nodes)
        if (node.public_key == key) return fmt::format("that of node '{}'", node.name);
    return "no node's";
}

}  // namespace

Result<transport::SecretKey> read_key_file(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not hold us up
    if (!fd.is_open()) {
        const int error = errno;
        return Status(code_of(error),
                      fmt::format("key file {}: {}: needed is this node's secret key, readable by the daemon alone; {}",
                                  path, std::strerror(error),
                                  error == EACCES ? "chown it to the daemon's user"
                                                  : "make it with 'gradsieve keygen', or correct key_file in "
                                                    "[network]"));
    }
    struct stat facts {};
    if (::fstat(fd.get(), &facts) != 0)
        return Status(StatusCode::kUnavailable,
                      fmt::format("key file {}: {}: cannot be looked at; try again", path, std::strerror(errno)));
    GRADSIEVE_TRY(check_key_facts(path, facts));
    KeyText key;
    while (key.length < key.bytes.size()) {
        const auto count = ::read(fd.get(), key.bytes.data() + key.length, key.bytes.size() - key.length);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0)
            return Status(StatusCode::kUnavailable,
                          fmt::format("key file {}: {}: cannot be read; try again", path, std::strerror(errno)));
        if (count == 0) break;
        key.length += static_cast<std::size_t>(count);
    }
    if (!transport::is_key_text(key.text()))
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("key file {}: {} bytes that are no key: allowed is one line of {} characters of Z85; "
                                  "make it with 'gradsieve keygen'",
                                  path, facts.st_size, transport::kKeyTextBytes));
    return transport::SecretKey(key.text());
}

Status write_key_file(const std::string& path, const transport::SecretKey& secret, bool may_replace) {
    if (!may_replace) return write_new_file(path, secret);
    const auto fresh = path + ".new";
    ::unlink(fresh.c_str());  // left by an attempt that was interrupted
    GRADSIEVE_TRY(write_new_file(fresh, secret));
    if (::rename(fresh.c_str(), path.c_str()) == 0) return {};
    const int error = errno;
    ::unlink(fresh.c_str());
    return {code_of(error), fmt::format("key file {}: {}: it must be a file that may be replaced; give another name",
                                        path, std::strerror(error))};
}

bool is_encrypted(const Config& config) noexcept {
    return config.nodes.size() > 1 && config.security == kSecurityCurve;
}

Result<transport::SecretKey> load_node_key(const Config& config) {
    GRADSIEVE_ASSIGN(auto secret, read_key_file(config.key_file));
    GRADSIEVE_ASSIGN(const auto own, transport::public_key_of(secret));
    const auto& self = config.nodes[config.self];
    if (own == self.public_key) return secret;
    if (secret.text() == self.public_key)
        return Status(
            StatusCode::kMismatch,
            fmt::format("key file {}: it holds the same as public_key of node '{}': allowed is the secret key "
                        "here and the public one there; make a new pair with 'gradsieve keygen'",
                        config.key_file, self.name));
    return Status(
        StatusCode::kMismatch,
        fmt::format("key file {}: its public half is {}, {}: allowed is that of this node '{}', {}; enter the first as "
                    "public_key of its [[node]] on all nodes, or use the key file that belongs to it",
                    config.key_file, own, owner_of_key(config, own), self.name, self.public_key));
}

}  // namespace gradsieve::daemon
