// What the sections of gradsieve-gpu-check share: the options, and a report that counts what held. The program runs on
// a machine with a GPU and none of the project's libraries; it ends 0 only if every equality held. One thread.
#pragma once

#include "base/status.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradsieve::gpu_check {

struct Options {
    int device = 0;
    bool is_small = false;  ///< small sizes only, no timing
    bool is_few = false;    ///< fewer sizes, nodes, pipelines where several GPUs share, and steps: see --few
    bool has_timing = true;
    unsigned part = 1, parts = 1;   ///< of encode's pipelines: every parts-th one, from the part-th on
    unsigned repetitions = 25;      ///< of what is timed in encode-speed; 1 under a profiler
    std::uint64_t seed = 0;         ///< printed; fresh for every run unless given
    std::vector<std::string> only;  ///< sections by name; empty: all
};

class Report {
public:
    /// A heading and a new count.
    void begin_section(std::string_view name);
    /// One equality: held, or did not, with what was seen. Only failures are printed one by one.
    void expect(bool holds, const std::string& what);
    /// A call that has to succeed; false if it did not.
    bool expect_ok(const Status& status, const std::string& what);
    /// A line of the table of figures, printed as it stands.
    void figure(const std::string& line);
    /// A part that could not run here, with the reason.
    void skip(const std::string& what);
    /// Figures that could not be taken here: "not measured: REASON". Counts as skipped.
    void not_measured(const std::string& reason);
    [[nodiscard]] bool has_failed() const noexcept { return failed_ > 0; }
    /// "gpu-check: 812 equalities held, 0 failed, 1 skipped".
    [[nodiscard]] std::string summary() const;

private:
    std::uint64_t held_ = 0;
    std::uint64_t failed_ = 0;
    std::uint64_t skipped_ = 0;
};

// The sections, each in a file of its own.
void check_encode_equality(const Options& options, Report& report);
void check_encode_on_gpus(const Options& options, Report& report);
void check_scope(const Options& options, Report& report);
void check_low_rank(const Options& options, Report& report);
void check_delta(const Options& options, Report& report);
void check_sketch(const Options& options, Report& report);
void check_similarity(const Options& options, Report& report);
void measure_encode(const Options& options, Report& report);
void check_decode_equality(const Options& options, Report& report);
void check_decode_hostile(const Options& options, Report& report);
void check_decode_on_gpus(const Options& options, Report& report);
void measure_low_rank(const Options& options, Report& report);
void measure_sketch(const Options& options, Report& report);
void measure_scope(const Options& options, Report& report);
void measure_similarity(const Options& options, Report& report);
void measure_decode(const Options& options, Report& report);
void check_end_to_end(const Options& options, Report& report);
void check_gpus_end_to_end(const Options& options, Report& report);
void check_samples_end_to_end(const Options& options, Report& report);
void check_state_end_to_end(const Options& options, Report& report);
void measure_end_to_end(const Options& options, Report& report);
void measure_busy_trainer(const Options& options, Report& report);

}  // namespace gradsieve::gpu_check
