#include "cli/demo_run.hpp"

#include "cli/commands.hpp"
#include "shm/local_socket.hpp"
#include "shm/status_page.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

namespace gradsieve::cli {

namespace {

constexpr std::size_t kNodes = 2;
constexpr std::size_t kRanks = 4;
constexpr auto kDaemonStartsWithin = std::chrono::seconds(10);
constexpr auto kRunEndsWithin = std::chrono::minutes(20);
constexpr auto kStatusWithin = std::chrono::seconds(5);
constexpr int kPollMilliseconds = 100;

std::string own_folder() {
    std::error_code error;
    return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

std::string first_existing(const std::vector<std::string>& candidates) {
    for (const auto& candidate : candidates)
        if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    return {};
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

DemoPrograms find_demo_programs() {
    const auto here = own_folder();
    return {first_existing({here + "/gradsieved", here + "/../daemon/gradsieved", here + "/../sbin/gradsieved",
                            "/usr/sbin/gradsieved"}),
            first_existing({here + "/../examples/fashion_mnist/gradsieve-demo-trainer",
                            here + "/../libexec/gradsieve/gradsieve-demo-trainer",
                            here + "/../lib/gradsieve/gradsieve-demo-trainer",
                            "/usr/libexec/gradsieve/gradsieve-demo-trainer"})};
}

DemoRun::DemoRun(const DemoOptions& options, const DemoPrograms& programs, const DemoLink& link, std::string folder,
                 Console& console)
    : options_(options), programs_(programs), link_(link), folder_(std::move(folder)), console_(console) {}

DemoRun::~DemoRun() {
    ranks_.clear();
    daemons_.clear();
}

std::string DemoRun::socket(std::size_t node) const {
    return fmt::format("{}/node-{}/gradsieved.sock", folder_, node == 0 ? "a" : "b");
}

bool DemoRun::start_daemons() {
    const auto config = folder_ + "/gradsieved.toml";
    std::ofstream file(config);
    file << "[network]\nsecurity = \"plain\"\n";  // both nodes are this machine
    for (std::size_t node = 0; node < kNodes; ++node) {
        file << fmt::format("[[node]]\nname = \"{}\"\naddress = \"{}\"\nport = {}\n", node == 0 ? "a" : "b",
                            link_.address(node), link_.port(node));
        std::filesystem::create_directories(std::filesystem::path(socket(node)).parent_path());
    }
    file.close();
    for (std::size_t node = 0; node < kNodes; ++node) {
        auto command = link_.prefix(node);
        const std::string name = node == 0 ? "a" : "b";
        for (const auto& part :
             {programs_.daemon, std::string("--config"), config, std::string("--node"), name, std::string("--socket"),
              socket(node), std::string("--state"), folder_ + "/node-" + name})
            command.push_back(part);
        daemons_.push_back(std::make_unique<DemoChild>(command, log("gradsieved-" + name)));
    }
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t node = 0; node < kNodes; ++node) {
        while (true) {
            const auto page = shm::read_status_page(shm::status_page_path(socket(node)));
            if (page.is_ok() && page->health == shm::DaemonHealth::kLive) break;
            if (daemons_[node]->exit_code() || std::chrono::steady_clock::now() - begin > kDaemonStartsWithin) {
                explain_failure(fmt::format("the daemon of node {} did not start", node == 0 ? "a" : "b"));
                return false;
            }
            ::poll(nullptr, 0, kPollMilliseconds);
        }
    }
    return true;
}

void DemoRun::start_ranks(const std::string& codec) {
    ranks_.clear();
    for (std::size_t rank = 0; rank < kRanks; ++rank)
        ranks_.push_back(std::make_unique<DemoChild>(std::vector<std::string>{programs_.trainer,
                                                                              "--rank",
                                                                              std::to_string(rank),
                                                                              "--world",
                                                                              std::to_string(kRanks),
                                                                              "--socket",
                                                                              socket(rank * kNodes / kRanks),
                                                                              "--job",
                                                                              job_,
                                                                              "--run",
                                                                              "demo",
                                                                              "--codec",
                                                                              codec,
                                                                              "--data",
                                                                              options_.data,
                                                                              "--epochs",
                                                                              std::to_string(options_.epochs),
                                                                              "--samples",
                                                                              std::to_string(options_.samples),
                                                                              "--seed",
                                                                              std::to_string(options_.seed),
                                                                              "--rate",
                                                                              fmt::format("{}", options_.learning_rate),
                                                                              "--place",
                                                                              options_.is_on_card ? "card" : "host"},
                                                     log(fmt::format("rank-{}-{}", rank, job_))));
}

void DemoRun::take_line(std::size_t rank, const std::string& line) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object()) return;
    const auto kind = event.value("event", "");
    if (kind == "error") has_failed_ = true;
    if (kind == "step") {
        if (step_ == 0) first_step_ = std::chrono::steady_clock::now();
        step_ = event.value("step", std::size_t{0});
        steps_ = event.value("steps", std::size_t{0});
        loss_ = event.value("loss", 0.0);
    }
    if (kind == "result") {
        hashes_[rank] = event.value("hash", "");
        if (rank == 0) outcome_.accuracy = event.value("accuracy", 0.0);
    }
}

void DemoRun::draw_progress(const std::string& title, bool is_last) {
    if (steps_ == 0) return;
    const auto percent = 100 * step_ / steps_;
    // On a terminal the line is redrawn; in a log one line per tenth is enough.
    if (!console_.is_terminal && !is_last && percent < drawn_percent_ + 10) return;
    if (!console_.is_terminal && is_last && percent == drawn_percent_) return;
    drawn_percent_ = percent;
    constexpr std::size_t kBarCells = 24;
    const auto full = kBarCells * step_ / steps_;
    std::string bar;
    for (std::size_t cell = 0; cell < kBarCells; ++cell)
        bar += cell < full ? (console_.look.has_unicode ? "█" : "#") : (console_.look.has_unicode ? "░" : ".");
    const double elapsed = seconds_since(first_step_);
    const double per_step = step_ > 1 ? elapsed / static_cast<double>(step_ - 1) : 0;
    const auto left = per_step * static_cast<double>(steps_ - step_);
    console_.out << (console_.is_terminal ? "\r" : "")
                 << fmt::format("  {:<13} {} {:3} %  step {:>4}/{}  loss {:5.3f}  {:5.1f} ms/step  {:>3.0f} s left ",
                                title, bar, percent, step_, steps_, loss_, per_step * 1000, left)
                 << (console_.is_terminal && !is_last ? "" : "\n");
    console_.out.flush();
}

void DemoRun::show_status() {
    has_shown_status_ = true;
    console_.out << (console_.is_terminal ? "\n" : "")
                 << "\n  $ gradsieve status      (node a, in the middle of this run)\n\n";
    StatusOptions status;
    status.socket = socket(0);
    static_cast<void>(run_status(status, console_));
    console_.out << "\n";
}

bool DemoRun::watch_ranks(const std::string& title, bool shows_status) {
    const auto deadline = std::chrono::steady_clock::now() + kRunEndsWithin;
    while (true) {
        std::vector<struct pollfd> entries;
        for (const auto& rank : ranks_) entries.push_back({rank->output_fd(), POLLIN, 0});
        ::poll(entries.data(), entries.size(), kPollMilliseconds);
        std::size_t ended = 0;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            for (const auto& line : ranks_[rank]->take_lines()) take_line(rank, line);
            const auto code = ranks_[rank]->exit_code();
            if (!code) continue;
            ++ended;
            for (const auto& line : ranks_[rank]->take_lines()) take_line(rank, line);
            if (*code != 0) has_failed_ = true;
        }
        draw_progress(title, ended == ranks_.size() || has_failed_);
        if (shows_status && !has_shown_status_ && steps_ > 0 && 2 * step_ > steps_) show_status();
        if (has_failed_ || std::chrono::steady_clock::now() > deadline) {
            explain_failure(has_failed_ ? "a training process failed" : "the run did not end within 20 minutes");
            return false;
        }
        if (ended == ranks_.size()) return true;
    }
}

bool DemoRun::read_ended_job() {
    outcome_.wire_ratio = 0;
    for (std::size_t node = 0; node < kNodes; ++node) {
        const auto begin = std::chrono::steady_clock::now();
        bool has_found = false;
        while (!has_found && std::chrono::steady_clock::now() - begin < kStatusWithin) {
            const auto page = shm::read_status_page(shm::status_page_path(socket(node)));
            const auto document =
                page.is_ok() ? nlohmann::json::parse(page->document, nullptr, false) : nlohmann::json();
            if (document.is_object())
                for (const auto& job : document.value("ended_jobs", nlohmann::json::array())) {
                    if (job.value("name", "") != job_ || !job.value("wire_ratio", nlohmann::json()).is_number())
                        continue;
                    has_found = true;
                    const double ratio = job.at("wire_ratio").get<double>();
                    if (outcome_.wire_ratio != 0 && ratio >= outcome_.wire_ratio) continue;
                    outcome_.wire_ratio = ratio;
                    outcome_.bytes_sent = job.value("bytes_sent", std::uint64_t{0});
                    outcome_.steps = job.value("steps_committed", std::uint64_t{0});
                }
            if (!has_found) ::poll(nullptr, 0, kPollMilliseconds);
        }
        if (!has_found) {
            explain_failure("the daemon's status page does not list the ended job");
            return false;
        }
    }
    return true;
}

void DemoRun::explain_failure(const std::string& what) {
    console_.error << "\ngradsieve demo: " << what << ". Last lines of the logs in " << folder_ << ":\n";
    std::vector<std::filesystem::path> logs;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
        if (entry.path().extension() == ".log") logs.push_back(entry.path());
    std::sort(logs.begin(), logs.end());
    for (const auto& path : logs) {
        std::ifstream file(path);
        std::vector<std::string> lines;
        for (std::string line; std::getline(file, line);) lines.push_back(line);
        for (std::size_t index = lines.size() > 4 ? lines.size() - 4 : 0; index < lines.size(); ++index)
            console_.error << "  " << path.filename().string() << ": " << lines[index] << "\n";
    }
}

std::optional<DemoOutcome> DemoRun::train(const std::string& title, const std::string& codec, bool shows_status) {
    if (daemons_.empty() && !start_daemons()) return std::nullopt;
    job_ = "fashion-mnist-" + title;
    step_ = steps_ = drawn_percent_ = 0;
    hashes_.assign(kRanks, "");
    has_failed_ = has_shown_status_ = false;
    outcome_ = {};
    begin_ = std::chrono::steady_clock::now();
    start_ranks(codec);
    if (!watch_ranks(title, shows_status) || !read_ended_job()) return std::nullopt;
    outcome_.seconds = seconds_since(begin_);
    outcome_.step_ms = outcome_.steps > 0 ? 1000 * seconds_since(first_step_) / static_cast<double>(outcome_.steps) : 0;
    outcome_.is_identical = !hashes_[0].empty() && std::all_of(hashes_.begin(), hashes_.end(),
                                                               [&](const auto& hash) { return hash == hashes_[0]; });
    return outcome_;
}

}  // namespace gradsieve::cli
