// Real processes for the end-to-end tests: daemons with a shared configuration on loopback ports, and training
// processes whose output is read line by line. Everything lies in one temporary folder and dies with the object.
#pragma once

#include <sys/types.h>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::e2e {

using Milliseconds = std::chrono::milliseconds;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsInstrumented = true;  ///< a sanitizer slows everything down
#else
inline constexpr bool kIsInstrumented = false;
#endif
/// How long what has to happen is waited for.
inline constexpr Milliseconds kPatience(kIsInstrumented ? 120'000 : 30'000);

/// What becomes of a child process whose maker is killed, or ends without destructors: it is killed too, or lives to
/// see the end of its input, and ends by itself.
enum class Orphan : bool { kKilled, kLives };

/// A child process with its standard input and its merged output in our hands; killed on destruction. Made by a thread
/// that stays, which is its maker.
class Process {
public:
    Process(std::vector<std::string> arguments, std::vector<std::string> environment = {},
            Orphan orphan = Orphan::kKilled);
    /// The same with descriptors handed over as a service manager does: `handed` become 3, 4, ... of the child, and
    /// LISTEN_PID is its own.
    Process(std::vector<std::string> arguments, std::vector<std::string> environment, const std::vector<int>& handed,
            Orphan orphan = Orphan::kKilled);
    ~Process();
    Process(Process&&) noexcept;
    Process& operator=(Process&&) = delete;

    /// Reads output until a line that starts with `prefix`; the rest of it, or nothing at the deadline or end of
    /// output.
    std::optional<std::string> wait_for_line(const std::string& prefix, Milliseconds timeout = kPatience);
    /// Exit code, or 128 + signal; nothing if it is still running at the deadline.
    std::optional<int> wait_for_exit(Milliseconds timeout = kPatience);
    void send_signal(int number) const;
    void say(const std::string& line) const;
    [[nodiscard]] const std::string& output() const noexcept { return output_; }
    [[nodiscard]] pid_t pid() const noexcept { return pid_; }

private:
    bool read_more(Milliseconds timeout);

    pid_t pid_ = -1;
    int input_ = -1;
    int output_pipe_ = -1;
    std::string output_;
    std::size_t scanned_ = 0;
    std::optional<int> exit_code_;
};

/// A command line's beginning that runs the rest under another user id, without groups; needs root.
std::vector<std::string> as_user(unsigned user);

/// "live", "hung", "dead" or "stopped" from `gradsieve status --json`; empty if it said nothing.
std::string health(const nlohmann::json& status);

/// Plays the service manager of one daemon: hears what it says, keeps the descriptors that it parks, and hands them to
/// the next process. What it heard is taken in whenever it is asked for something.
class ServiceManager {
public:
    ServiceManager();
    ~ServiceManager();
    ServiceManager(const ServiceManager&) = delete;
    ServiceManager& operator=(const ServiceManager&) = delete;

    [[nodiscard]] Process start(std::vector<std::string> arguments);
    /// Names of what is parked now, in the order in which it came.
    [[nodiscard]] std::vector<std::string> parked();
    /// The first descriptor of that name; it stays the manager's.
    [[nodiscard]] int descriptor(const std::string& name);
    /// Parks something that no daemon sent, in place of what had that name.
    void replace(const std::string& name, int fd);
    /// Loses what has that name.
    void lose(const std::string& name);
    /// Forgets everything, as a stop of the service does.
    void forget();

private:
    void listen();
    void remove(const std::string& name);

    int socket_ = -1;
    std::string address_;
    std::vector<std::pair<std::string, int>> parked_;
};

/// Where a node's daemon runs, if not beside the others: its address, and a command line's beginning that goes there.
struct Place {
    std::string address;
    std::vector<std::string> prefix;
};

/// Of the traffic between a cluster's nodes. With CURVE each gets a key pair of its own from `gradsieve keygen`.
enum class Security { kPlain, kCurve };

class Cluster {
public:
    /// `nodes` daemons named a, b, c ... at `address`; `extra` is put before them into the configuration file. `user`:
    /// not 0: the daemons run under this user id, which needs root. `places`: one for each node, or none; `address` is
    /// not used then.
    explicit Cluster(std::size_t nodes, const std::string& extra = "", const std::string& address = "127.0.0.1",
                     bool has_managers = false, Security security = Security::kPlain, unsigned user = 0,
                     std::vector<Place> places = {});
    ~Cluster();

    /// One training process on `node`; `options` are rank_program's.
    [[nodiscard]] Process rank(std::size_t node, std::vector<std::string> options) const;
    /// ranks 0 .. world-1, dealt to the nodes in equal runs, with common options.
    [[nodiscard]] std::vector<Process> ranks(std::size_t world, const std::vector<std::string>& options) const;
    [[nodiscard]] Process& daemon(std::size_t node) { return *daemons_[node]; }
    void restart_daemon(std::size_t node);
    /// SIGTERM, and waits until all have ended; false if one has not.
    [[nodiscard]] bool stop_daemons();
    /// SIGKILL, and waits until it is gone.
    void kill_daemon(std::size_t node);
    /// Only of a cluster that has_managers.
    [[nodiscard]] ServiceManager& manager(std::size_t node) { return *managers_[node]; }
    /// `gradsieve status --json` of a node, parsed.
    [[nodiscard]] nlohmann::json status(std::size_t node) const;
    /// Looks at the status again and again until `condition` holds; false at the deadline.
    template <typename Condition>
    [[nodiscard]] bool wait_for_status(std::size_t node, Condition condition,
                                       Milliseconds timeout = Milliseconds(20'000)) const {
        const auto deadline = std::chrono::steady_clock::now() + timeout;
        while (std::chrono::steady_clock::now() < deadline)
            if (condition(status(node))) return true;
        return false;
    }
    [[nodiscard]] std::string socket(std::size_t node) const;
    [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
    [[nodiscard]] std::string config_file() const { return folder_ + "/gradsieved.toml"; }
    [[nodiscard]] std::uint16_t port(std::size_t node) const { return ports_[node]; }
    [[nodiscard]] Process make_daemon(std::size_t node) const;
    /// State directory of a node; its secret key lies there too.
    [[nodiscard]] std::string state_folder(std::size_t node) const {
        return folder_ + "/" + static_cast<char>('a' + node);
    }
    /// The public half of its key pair, as it stood in the first configuration; empty in plain text.
    [[nodiscard]] const std::string& public_key(std::size_t node) const { return public_keys_[node]; }

private:
    void write_config(const std::string& extra, const std::string& address, Security security);

    std::string folder_;
    unsigned user_ = 0;
    std::vector<Place> places_;
    std::vector<std::uint16_t> ports_;
    std::vector<std::string> public_keys_;
    std::vector<std::unique_ptr<ServiceManager>> managers_;  ///< empty: daemons are started by hand
    std::vector<std::unique_ptr<Process>> daemons_;
};

/// Runs a program to its end and returns its output and exit code.
struct Ran {
    int code = -1;
    std::string output;
};
Ran run(std::vector<std::string> arguments, Milliseconds timeout = kPatience);

/// Whether this machine has the address ::1.
bool has_ipv6_loopback();

/// Makes a key pair whose secret half lies in `folder`, in place of an older one, and gives back the public one.
std::string make_key(const std::string& folder);

/// `extra` with the line in its [network] that asks for plain text.
std::string with_plain_text(const std::string& extra);

/// Path of the training process that outlives daemons.
std::string resuming_rank_program();

/// A TCP port on loopback that nobody holds right now.
std::uint16_t free_port();

}  // namespace gradsieve::e2e
