// Sets environment variables for one test and puts the former values back. Tests that use it start no threads
// meanwhile.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradsieve::client::test {

class Environment {
public:
    Environment() = default;
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;
    ~Environment() {
        for (auto former = former_.rbegin(); former != former_.rend(); ++former) put(former->first, former->second);
    }

    void set(const std::string& variable, std::optional<std::string> value) {
        const char* former = std::getenv(variable.c_str());
        former_.emplace_back(variable, former != nullptr ? std::optional<std::string>(former) : std::nullopt);
        put(variable, value);
    }
    /// Nothing that names a job: neither the launchers' variables nor gradsieve's own.
    void clear_all() {
        for (const char* variable :
             {"GRADSIEVE_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK",
              "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "GRADSIEVE_CODEC", "GRADSIEVE_SOCKET",
              "GRADSIEVE_CUDA_DRIVER", "GRADSIEVE_REQUIRE"})
            set(variable, std::nullopt);
    }

private:
    static void put(const std::string& variable, const std::optional<std::string>& value) {
        if (value)
            ::setenv(variable.c_str(), value->c_str(), 1);
        else
            ::unsetenv(variable.c_str());
    }
    std::vector<std::pair<std::string, std::optional<std::string>>> former_;
};

}  // namespace gradsieve::client::test
