// `./dev survive`: injects faults into real daemons and training processes, and writes what was promised and what was
// seen. survive [--kills N] [--freezes N] [--rounds N] [--seed S] [--quick] [--only GROUP]... [--commit TEXT] --output
// FOLDER Ends with 1 if a promise was broken, with 2 if it does not understand its options.
#include "tests/survive/faults.hpp"
#include "tests/survive/interruption.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

namespace {

using namespace gradsieve::survive;

struct Group {
    const char* name;
    std::vector<FaultRow> (*inject)(const Amount&, Progress&);
};
constexpr Group kGroups[] = {
    {"kills", kills}, {"freezes", freezes}, {"blackhole", blackholes}, {"saturated", saturated}, {"rounds", rounds}};

constexpr std::uint64_t kMost = 1'000'000'000;

struct Options {
    Amount amount;
    std::vector<std::string> only;
    std::string output;
};

[[noreturn]] void refuse(const std::string& text) {
    std::fprintf(stderr, "survive: %s\n", text.c_str());
    std::exit(2);
}

std::uint64_t number(const char* option, const char* text) {
    std::uint64_t value = 0;
    const auto end = text + std::strlen(text);
    const auto parsed = std::from_chars(text, end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end || value < 1 || value > kMost)
        refuse(std::string(option) + " is '" + text + "': allowed is a whole number from 1 to " +
               std::to_string(kMost));
    return value;
}

Options parse(int argc, char** argv) {
    Options options;
    for (int place = 1; place < argc; ++place)
        if (std::strcmp(argv[place], "--quick") == 0)
            options.amount.kills = 6, options.amount.freezes = 2, options.amount.rounds = 60;
    for (int place = 1; place < argc; ++place) {
        const std::string option = argv[place];
        if (option == "--quick") continue;
        if (place + 1 == argc)
            refuse("unknown option '" + option +
                   "', or it lacks its value; allowed are --kills, --freezes, --rounds, --seed, --quick, --only, "
                   "--output");
        const char* value = argv[++place];
        if (option == "--kills")
            options.amount.kills = number("--kills", value);
        else if (option == "--freezes")
            options.amount.freezes = number("--freezes", value);
        else if (option == "--rounds")
            options.amount.rounds = number("--rounds", value);
        else if (option == "--seed")
            options.amount.seed = number("--seed", value);
        else if (option == "--output")
            options.output = value;
        else if (option == "--commit")
            options.amount.commit = value;
        else if (option == "--only")
            options.only.emplace_back(value);
        else
            refuse("unknown option '" + option +
                   "'; allowed are --kills, --freezes, --rounds, --seed, --quick, --only, --commit, --output");
    }
    if (options.output.empty()) refuse("--output FOLDER is needed: where the results go");
    for (const auto& name : options.only) {
        bool is_known = false;
        for (const auto& group : kGroups) is_known = is_known || name == group.name;
        if (!is_known) refuse("--only is '" + name + "': allowed are kills, freezes, blackhole, saturated, rounds");
    }
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const auto options = parse(argc, argv);
    std::filesystem::create_directories(options.output);
    note_interruptions();
    bool is_broken = false;
    for (const auto& group : kGroups) {
        if (!options.only.empty() &&
            std::find(options.only.begin(), options.only.end(), group.name) == options.only.end())
            continue;
        const auto begin = std::chrono::steady_clock::now();
        try {
            std::vector<FaultRow> rows;
            {
                Progress progress;
                rows = group.inject(options.amount, progress);
            }
            const auto minutes = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 60;
            write_rows(options.output, group.name, rows, minutes, options.amount);
            for (const auto& row : rows) {
                print_row(row);
                is_broken = is_broken || !row.breaches.empty();
            }
        } catch (const Interrupted& interrupted) {
            std::fprintf(stderr, "survive: interrupted; the rows of what was done before lie in %s\n",
                         options.output.c_str());
            return 128 + interrupted.number;
        } catch (const std::exception& error) {
            std::fprintf(stderr, "survive: %s: %s\n", group.name, error.what());
            return 1;
        }
    }
    return is_broken ? 1 : 0;
}
