#include "client/options.hpp"

#include "shm/local_socket.hpp"
#include "shm/message.hpp"
#include "shm/message_check.hpp"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <span>
#include <utility>

namespace gradsieve::client {
namespace {

constexpr const char* kRunIdVariables[] = {"GRADSIEVE_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
constexpr const char* kRankVariables[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"};
constexpr const char* kWorldSizeVariables[] = {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"};
constexpr std::uint64_t kNumberLimit = shm::kWorldSizeLimit;

/// A set but empty variable counts as not set: launchers export empty ones.
std::optional<std::string> environment(const char* variable) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
}

std::string list_of(std::span<const char* const> variables) {
    std::string list;
    for (const char* variable : variables) list += (list.empty() ? "$" : ", $") + std::string(variable);
    return list;
}

struct Number {
    std::uint64_t value = 0;
    std::string origin;  ///< "JobOptions.rank" or "$RANK"
};

/// The option if it is not -1, else the first variable that is set.
Result<Number> find_number(std::int64_t option, const std::string& option_name,
                           std::span<const char* const> variables) {
    if (option != -1) {
        if (option >= 0 && static_cast<std::uint64_t>(option) <= kNumberLimit)
            return Number{static_cast<std::uint64_t>(option), option_name};
        return Status(StatusCode::kInvalidArgument, option_name + " is " + std::to_string(option) +
                                                        ": allowed is 0 .. " + std::to_string(kNumberLimit) +
                                                        ", or -1 to read " + list_of(variables));
    }
    for (const char* variable : variables) {
        const auto text = environment(variable);
        if (!text) continue;
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
        if (error == std::errc{} && end == text->data() + text->size() && value <= kNumberLimit)
            return Number{value, std::string("$") + variable};
        return Status(StatusCode::kInvalidArgument, std::string("$") + variable + " is '" + *text +
                                                        "': allowed is a number 0 .. " + std::to_string(kNumberLimit) +
                                                        "; correct it or set " + option_name);
    }
    return Status(StatusCode::kInvalidArgument,
                  option_name + " is not set: none of " + list_of(variables) +
                      " is there; set the option or start the program with a launcher that sets one");
}

std::string find_text(const std::string& option, std::span<const char* const> variables, const std::string& fallback) {
    if (!option.empty()) return option;
    for (const char* variable : variables)
        if (auto text = environment(variable)) return *std::move(text);
    return fallback;
}

Status check_ranks(const Number& rank, const Number& world_size) {
    if (world_size.value == 0)
        return {StatusCode::kInvalidArgument,
                world_size.origin + " is 0: allowed is the number of ranks of the job, 1 or more; set it"};
    if (rank.value >= world_size.value)
        return {StatusCode::kInvalidArgument, rank.origin + " is " + std::to_string(rank.value) + ": allowed is 0 .. " +
                                                  std::to_string(world_size.value - 1) + " (" + world_size.origin +
                                                  " is " + std::to_string(world_size.value) + "); correct one of them"};
    return {};
}

Result<bool> find_requirement(const std::string& option) {
    constexpr const char* kVariables[] = {"GRADSIEVE_REQUIRE"};
    const auto text = find_text(option, kVariables, "");
    if (text.empty()) return false;
    if (text == "cuda-ipc") return true;
    return Status(StatusCode::kInvalidArgument,
                  std::string(option.empty() ? "$GRADSIEVE_REQUIRE" : "JobOptions.require") + " is '" + text +
                      "': allowed is 'cuda-ipc' (memory on a GPU is never copied through host memory), or nothing; "
                      "correct it");
}

}  // namespace

Status check_name(std::string_view what, std::string_view name, std::size_t limit_bytes) {
    const auto subject = std::string(what);
    if (name.empty())
        return {StatusCode::kInvalidArgument,
                subject + " is empty: allowed is 1 .. " + std::to_string(limit_bytes) + " bytes; give it one"};
    if (name.size() > limit_bytes)
        return {StatusCode::kInvalidArgument, subject + " has " + std::to_string(name.size()) + " bytes ('" +
                                                  std::string(name.substr(0, 32)) + "...'): allowed is 1 .. " +
                                                  std::to_string(limit_bytes) + "; shorten it"};
    if (shm::is_printable_utf8(name)) return {};
    return {StatusCode::kInvalidArgument,
            subject + " has control characters or is not UTF-8: allowed is printable UTF-8; rename it"};
}

std::string ResolvedOptions::label() const {
    return "job '" + name + "' (run '" + run_id + "', rank " + std::to_string(rank) + " of " +
           std::to_string(world_size) + ")";
}

Result<ResolvedOptions> resolve_options(const JobOptions& options) {
    GRADSIEVE_TRY(check_name("JobOptions.name", options.name, shm::kNameLimitBytes));
    ResolvedOptions resolved;
    resolved.name = options.name;
    resolved.run_id = find_text(options.run_id, kRunIdVariables, "default");
    GRADSIEVE_TRY(check_name("the run id", resolved.run_id, shm::kNameLimitBytes));
    GRADSIEVE_ASSIGN(const auto rank, find_number(options.rank, "JobOptions.rank", kRankVariables));
    GRADSIEVE_ASSIGN(const auto world_size,
                     find_number(options.world_size, "JobOptions.world_size", kWorldSizeVariables));
    GRADSIEVE_TRY(check_ranks(rank, world_size));
    resolved.rank = static_cast<Rank>(rank.value);
    resolved.world_size = static_cast<std::uint32_t>(world_size.value);
    constexpr const char* kCodecVariables[] = {"GRADSIEVE_CODEC"};
    resolved.codec = find_text(options.codec, kCodecVariables, "");
    if (!resolved.codec.empty()) GRADSIEVE_TRY(check_name("the codec", resolved.codec, shm::kCodecLimitBytes));
    if (options.non_finite > NonFinite::kZero)
        return Status(StatusCode::kInvalidArgument, "JobOptions.non_finite is " +
                                                        std::to_string(static_cast<unsigned>(options.non_finite)) +
                                                        ": allowed is 0 (fail), 1 (skip-step) or 2 (zero); choose one");
    resolved.non_finite = options.non_finite;
    GRADSIEVE_ASSIGN(resolved.requires_cuda_ipc, find_requirement(options.require));
    constexpr const char* kDriverVariables[] = {"GRADSIEVE_CUDA_DRIVER"};
    resolved.cuda_driver = find_text("", kDriverVariables, "libcuda.so.1");
    resolved.socket_path = options.socket_path.empty() ? shm::default_socket_path() : options.socket_path;
    resolved.check_every = options.check_every;
    return resolved;
}

}  // namespace gradsieve::client
