#include "tests/e2e/cluster.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <utility>

namespace gradsieve::e2e {

namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

int milliseconds_until(SteadyTime deadline) {
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    return left < 0 ? 0 : static_cast<int>(left);
}

}  // namespace

Process::Process(std::vector<std::string> arguments, std::vector<std::string> environment, Orphan orphan)
    : Process(std::move(arguments), std::move(environment), {}, orphan) {}

Process::Process(std::vector<std::string> arguments, std::vector<std::string> environment,
                 const std::vector<int>& handed, Orphan orphan) {
    int in[2];
    int out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
        if (orphan == Orphan::kKilled) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::dup2(in[0], STDIN_FILENO);
        ::dup2(out[1], STDOUT_FILENO);
        ::dup2(out[1], STDERR_FILENO);
        std::vector<int> spare;  // out of the way of the numbers that they are to get
        for (const int fd : handed) spare.push_back(::fcntl(fd, F_DUPFD_CLOEXEC, 200));
        for (std::size_t index = 0; index < spare.size(); ++index) ::dup2(spare[index], 3 + static_cast<int>(index));
        if (!handed.empty()) ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
        for (const auto& entry : environment) ::putenv(const_cast<char*>(entry.c_str()));
        ::execvp(argv[0], argv.data());
        std::_Exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    input_ = in[1];
    output_pipe_ = out[0];
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_pipe_(std::exchange(other.output_pipe_, -1)),
      output_(std::move(other.output_)),
      scanned_(other.scanned_),
      exit_code_(other.exit_code_) {}

Process::~Process() {
    if (pid_ > 0 && !exit_code_) {
        ::kill(pid_, SIGCONT);
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    if (input_ >= 0) ::close(input_);
    if (output_pipe_ >= 0) ::close(output_pipe_);
}

bool Process::read_more(Milliseconds timeout) {
    struct pollfd entry {
        output_pipe_, POLLIN, 0
    };
    if (::poll(&entry, 1, static_cast<int>(timeout.count())) != 1) return false;
    char buffer[4096];
    const auto count = ::read(output_pipe_, buffer, sizeof(buffer));
    if (count <= 0) return false;
    output_.append(buffer, static_cast<std::size_t>(count));
    return true;
}

std::optional<std::string> Process::wait_for_line(const std::string& prefix, Milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (true) {
        for (auto end = output_.find('\n', scanned_); end != std::string::npos; end = output_.find('\n', scanned_)) {
            const auto line = output_.substr(scanned_, end - scanned_);
            scanned_ = end + 1;
            if (line.rfind(prefix, 0) == 0) return line.substr(prefix.size());
        }
        if (!read_more(Milliseconds(milliseconds_until(deadline)))) return std::nullopt;
    }
}

std::optional<int> Process::wait_for_exit(Milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!exit_code_) {
        int status = 0;
        if (::waitpid(pid_, &status, WNOHANG) == pid_) {
            while (read_more(Milliseconds(0))) {}
            exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            break;
        }
        if (milliseconds_until(deadline) == 0) return std::nullopt;
        // End of output comes with the exit; until then this waits in poll.
        if (!read_more(Milliseconds(std::min(milliseconds_until(deadline), 20)))) ::poll(nullptr, 0, 2);
    }
    return exit_code_;
}

void Process::send_signal(int number) const { ::kill(pid_, number); }

void Process::say(const std::string& line) const {
    const auto text = line + "\n";
    [[maybe_unused]] const auto written = ::write(input_, text.data(), text.size());
}

Ran run(std::vector<std::string> arguments, Milliseconds timeout) {
    Process process(std::move(arguments));
    const auto code = process.wait_for_exit(timeout);
    return {code.value_or(-1), process.output()};
}

std::vector<std::string> as_user(unsigned user) {
    const auto number = std::to_string(user);
    return {"setpriv", "--reuid=" + number, "--regid=" + number, "--clear-groups"};
}

std::string health(const nlohmann::json& status) {
    return status.value("health", nlohmann::json::object()).value("state", "");
}

std::string resuming_rank_program() { return E2E_RESUMING_RANK; }

bool has_ipv6_loopback() {
    const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    struct sockaddr_in6 address {};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    const bool is_bound = ::bind(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) == 0;
    ::close(fd);
    return is_bound;
}

namespace {

bool can_bind(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool is_free = ::bind(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof(address)) == 0;
    ::close(fd);
    return is_free;
}

}  // namespace

// Tests run side by side, and the kernel would hand a port that was asked for and let go to the next who asks: so ports
// come from below its own range, and a lock file for each says that it is taken, until this process ends.
std::uint16_t free_port() {
    constexpr unsigned kFirst = 20'000;
    constexpr unsigned kCount = 10'000;
    const auto folder = std::filesystem::temp_directory_path() / "gradsieve-test-ports";
    std::filesystem::create_directories(folder);
    std::random_device random;
    for (unsigned look = 0; look < 1'000; ++look) {
        const auto port = static_cast<std::uint16_t>(kFirst + random() % kCount);
        const int fd = ::open((folder / std::to_string(port)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0) continue;
        if (::flock(fd, LOCK_EX | LOCK_NB) == 0 && can_bind(port)) return port;  // the lock stays with the process
        ::close(fd);
    }
    throw std::runtime_error("no free port");
}

std::string make_key(const std::string& folder) {
    const auto made = run({E2E_TOOL, "keygen", "--force", "--out", folder});
    const auto shown = run({E2E_TOOL, "keygen", "--show", "--out", folder});  // nothing but the key
    if (made.code != 0 || shown.code != 0) throw std::runtime_error("keygen: " + made.output + shown.output);
    return shown.output.substr(0, shown.output.find('\n'));
}

std::string with_plain_text(const std::string& extra) {
    const std::string section = "[network]\n";
    const auto place = extra.find(section);
    if (place == std::string::npos) return extra + "\n" + section + "security = \"plain\"\n";
    return extra.substr(0, place + section.size()) + "security = \"plain\"\n" + extra.substr(place + section.size());
}

Cluster::Cluster(std::size_t nodes, const std::string& extra, const std::string& address, bool has_managers,
                 Security security, unsigned user, std::vector<Place> places)
    : user_(user), places_(std::move(places)) {
    for (std::size_t node = 0; has_managers && node < nodes; ++node)
        managers_.push_back(std::make_unique<ServiceManager>());
    char pattern[] = "/tmp/gradsieve-e2e-XXXXXX";
    if (::mkdtemp(pattern) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = pattern;
    for (std::size_t node = 0; node < nodes; ++node) {
        ports_.push_back(free_port());
        std::filesystem::create_directories(state_folder(node));
        public_keys_.push_back(security == Security::kCurve ? make_key(state_folder(node)) : "");
    }
    write_config(extra, address, security);
    if (user != 0) {
        std::vector<std::string> paths{folder_};
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) paths.push_back(entry.path());
        for (const auto& path : paths)
            if (::chown(path.c_str(), user, user) != 0) throw std::runtime_error("chown");
    }
    for (std::size_t node = 0; node < nodes; ++node) {
        daemons_.push_back(std::make_unique<Process>(make_daemon(node)));
        if (!daemons_[node]->wait_for_line("", Milliseconds(10'000)) ||
            !wait_for_status(node, [](const auto& json) { return health(json) == "live"; }))
            throw std::runtime_error("daemon did not start: " + daemons_[node]->output());
    }
}

void Cluster::write_config(const std::string& extra, const std::string& address, Security security) {
    std::ofstream config(config_file());
    config << (security == Security::kPlain ? with_plain_text(extra) : extra) << "\n";
    for (std::size_t node = 0; ports_.size() > 1 && node < ports_.size(); ++node) {
        config << "[[node]]\nname = \"" << static_cast<char>('a' + node) << "\"\naddress = \""
               << (places_.empty() ? address : places_[node].address) << "\"\nport = " << ports_[node] << "\n";
        if (security == Security::kCurve) config << "public_key = \"" << public_keys_[node] << "\"\n";
    }
}

Cluster::~Cluster() {
    daemons_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

Process Cluster::make_daemon(std::size_t node) const {
    std::vector<std::string> arguments;
    if (!places_.empty()) arguments = places_[node].prefix;
    if (user_ != 0) arguments = as_user(user_);
    arguments.insert(arguments.end(),
                     {E2E_DAEMON, "--config", config_file(), "--socket", socket(node), "--state", state_folder(node)});
    if (ports_.size() > 1) arguments.insert(arguments.end(), {"--node", std::string(1, static_cast<char>('a' + node))});
    return managers_.empty() ? Process(arguments) : managers_[node]->start(arguments);
}

bool Cluster::stop_daemons() {
    for (const auto& daemon : daemons_) daemon->send_signal(SIGTERM);
    return std::ranges::all_of(daemons_, [](const auto& daemon) { return daemon->wait_for_exit().has_value(); });
}

void Cluster::kill_daemon(std::size_t node) {
    daemons_[node]->send_signal(SIGKILL);
    if (!daemons_[node]->wait_for_exit()) throw std::runtime_error("daemon did not die");
}

void Cluster::restart_daemon(std::size_t node) {
    daemons_[node] = std::make_unique<Process>(make_daemon(node));
    if (!wait_for_status(node, [](const auto& json) { return health(json) == "live"; }))
        throw std::runtime_error("daemon did not start again: " + daemons_[node]->output());
}

std::string Cluster::socket(std::size_t node) const {
    return folder_ + "/" + static_cast<char>('a' + node) + "/gradsieved.sock";
}

Process Cluster::rank(std::size_t node, std::vector<std::string> options) const {
    std::vector<std::string> arguments{E2E_RANK, "--socket", socket(node)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return Process(arguments);
}

std::vector<Process> Cluster::ranks(std::size_t world, const std::vector<std::string>& options) const {
    std::vector<Process> started;
    for (std::size_t rank = 0; rank < world; ++rank) {
        auto all = options;
        all.insert(all.begin(), {"--rank", std::to_string(rank), "--world", std::to_string(world)});
        started.push_back(this->rank(rank * ports_.size() / world, all));
    }
    return started;
}

nlohmann::json Cluster::status(std::size_t node) const {
    const auto ran = run({E2E_TOOL, "status", "--json", "--socket", socket(node)});
    auto parsed = nlohmann::json::parse(ran.output, nullptr, false);
    return parsed.is_object() ? parsed : nlohmann::json::object();
}

}  // namespace gradsieve::e2e
