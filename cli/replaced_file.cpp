#include "cli/replaced_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace gradsieve::cli {

namespace {

Status refusal(const std::string& path, const char* what) {
    return {StatusCode::kUnavailable, "--output " + path + ": " + what + ": " + std::strerror(errno) +
                                          ": it must be a file in a folder that this user may write to; create the "
                                          "folder, or run as its owner"};
}

}  // namespace

ReplacedFile::ReplacedFile(std::string path, std::string fresh, UniqueFd fd)
    : path_(std::move(path)), fresh_(std::move(fresh)), fd_(std::move(fd)) {}
ReplacedFile::ReplacedFile(ReplacedFile&& other) noexcept
    : path_(std::move(other.path_)), fresh_(std::exchange(other.fresh_, {})), fd_(std::move(other.fd_)) {}
ReplacedFile::~ReplacedFile() {
    if (!fresh_.empty()) ::unlink(fresh_.c_str());
}

Result<ReplacedFile> ReplacedFile::make(const std::string& path) {
    auto fresh = path + "." + std::to_string(::getpid());
    ::unlink(fresh.c_str());  // of one that was killed under the same number
    UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd.is_open()) return refusal(path, "open");
    return ReplacedFile(path, std::move(fresh), std::move(fd));
}

Status ReplacedFile::failed(const char* what) const { return refusal(path_, what); }

Status ReplacedFile::put(std::string_view text) {
    while (!text.empty()) {
        const auto count = ::write(fd_.get(), text.data(), text.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return failed("write");
        text.remove_prefix(static_cast<std::size_t>(count));
    }
    // Whoever reads it may be another user; the mask of the one who runs this must not keep it out.
    if (::fchmod(fd_.get(), 0644) != 0) return failed("chmod");
    if (::rename(fresh_.c_str(), path_.c_str()) != 0) return failed("rename");
    fresh_.clear();
    return {};
}

}  // namespace gradsieve::cli
