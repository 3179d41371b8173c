// One training run of the demo: two daemons, four training processes, a progress bar, and what came of it. One thread.
#pragma once

#include "cli/console.hpp"
#include "cli/demo_child.hpp"
#include "cli/demo_link.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gradsieve::cli {

struct DemoOptions {
    std::string codec;
    std::string data = "/usr/share/datasets/fashion-mnist";
    std::size_t epochs = 4;
    std::size_t samples = 60000;  ///< training images used
    std::size_t rate_mbit = 100;  ///< of the link between the nodes; as root only
    std::size_t seed = 1;
    double learning_rate = 0.1;
    bool is_on_card = false;         ///< gradients in GPU memory, handed over by CUDA IPC
    bool is_keeping = false;         ///< leave the temporary folder with logs and configuration
    bool is_plain_loopback = false;  ///< no namespaces even as root
};

/// The other programs of the demo: in the build tree, or where the package puts them.
struct DemoPrograms {
    std::string daemon;
    std::string trainer;
};
/// Empty strings for what was not found.
[[nodiscard]] DemoPrograms find_demo_programs();

struct DemoOutcome {
    double accuracy = 0;
    bool is_identical = false;     ///< one parameter hash on all four ranks
    double wire_ratio = 0;         ///< over the whole run, warm-up included; the smaller of the two nodes'
    std::uint64_t bytes_sent = 0;  ///< of that node
    std::uint64_t steps = 0;
    double step_ms = 0;  ///< wall-clock time per step, training included
    double seconds = 0;
};

class DemoRun {
public:
    /// `folder` gets configuration, sockets and logs.
    DemoRun(const DemoOptions& options, const DemoPrograms& programs, const DemoLink& link, std::string folder,
            Console& console);
    ~DemoRun();
    /// Trains once. `codec` goes to the ranks as it is; `title` stands before the progress bar. `shows_status`: print
    /// `gradsieve status` from the middle of the run. Nothing on failure; the reason has been printed.
    [[nodiscard]] std::optional<DemoOutcome> train(const std::string& title, const std::string& codec,
                                                   bool shows_status);

private:
    [[nodiscard]] bool start_daemons();
    [[nodiscard]] std::string socket(std::size_t node) const;
    [[nodiscard]] std::string log(const std::string& name) const { return folder_ + "/" + name + ".log"; }
    void start_ranks(const std::string& codec);
    [[nodiscard]] bool watch_ranks(const std::string& title, bool shows_status);
    void take_line(std::size_t rank, const std::string& line);
    void draw_progress(const std::string& title, bool is_last);
    void show_status();
    [[nodiscard]] bool read_ended_job();
    void explain_failure(const std::string& what);

    const DemoOptions& options_;
    const DemoPrograms& programs_;
    const DemoLink& link_;
    std::string folder_;
    Console& console_;
    std::vector<std::unique_ptr<DemoChild>> daemons_;
    std::vector<std::unique_ptr<DemoChild>> ranks_;
    // of the run in progress
    std::string job_;
    std::chrono::steady_clock::time_point begin_{}, first_step_{};
    std::size_t step_ = 0, steps_ = 0, drawn_percent_ = 0;
    double loss_ = 0;
    std::vector<std::string> hashes_;
    bool has_shown_status_ = false, has_failed_ = false;
    DemoOutcome outcome_;
};

}  // namespace gradsieve::cli
