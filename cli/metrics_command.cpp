// gradsieve metrics: the status page as OpenMetrics text, to standard output or, whole or not at all, into a file for
// node_exporter's textfile collector. A dead daemon is something to tell, not a failure of this command.
#include "cli/commands.hpp"
#include "cli/open_metrics.hpp"
#include "cli/status_page_health.hpp"

#include "base/status.hpp"
#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ostream>

namespace gradsieve::cli {

namespace {

Status failed(const std::string& path, const char* what) {
    return {StatusCode::kUnavailable,
            fmt::format("--output {}: {}: {}: it must be a file in a folder that this user may "
                        "write to; create the folder, or run as its owner",
                        path, what, std::strerror(errno))};
}

/// Readers see the old text or the new one.
Status replace_file(const std::string& path, std::string_view text) {
    const auto fresh = fmt::format("{}.{}", path, ::getpid());
    ::unlink(fresh.c_str());  // of one that was killed under the same number
    UniqueFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd.is_open()) return failed(path, "open");
    const auto gone = [&](const char* what) {
        const auto status = failed(path, what);
        ::unlink(fresh.c_str());
        return status;
    };
    while (!text.empty()) {
        const auto count = ::write(fd.get(), text.data(), text.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return gone("write");
        text.remove_prefix(static_cast<std::size_t>(count));
    }
    // The collector is another user; the mask of the one who runs this must not keep it out.
    if (::fchmod(fd.get(), 0644) != 0) return gone("chmod");
    if (::rename(fresh.c_str(), path.c_str()) != 0) return gone("rename");
    return {};
}

}  // namespace

ExitCode run_metrics(const MetricsOptions& options, Console& console) {
    auto reading = read_page(options.socket);
    auto status = has_page(reading) ? parse_status_document(reading.document) : Result<StatusView>(StatusView());
    if (!status.is_ok()) {
        console.error << "gradsieve: " << status.error().text() << '\n';
        reading.health.state = "unreadable";
    }
    const auto text = open_metrics_text(status.is_ok() ? *status : StatusView(), reading.health);
    if (options.output.empty()) {
        console.out << text;
        return ExitCode::kOk;
    }
    if (const auto written = replace_file(options.output, text); !written.is_ok()) {
        console.error << "gradsieve: " << written.text() << '\n';
        return ExitCode::kFailed;
    }
    return ExitCode::kOk;
}

}  // namespace gradsieve::cli
