// A training process that outlives daemons: whenever the job ends under it, it makes it anew and goes on from the step
// that the daemons kept. Prints "averageGROUP STEP DIGEST" for what it gets; with --masses 1 also "givesGROUP STEP SUM"
// and "takesGROUP STEP SUM", of all elements. Keeps and takes up checkpoints if told so. Not a test by itself.
#include <gradsieve/gradsieve.hpp>

#include <poll.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace {

using gradsieve::Job;
using gradsieve::Status;
using gradsieve::Tensor;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(60);
constexpr int kBackOffMs = 20;
/// What a call may take beyond its deadline on a machine that does other work.
constexpr std::chrono::milliseconds kGrace{250};

std::map<std::string, std::string> options;
std::string text_option(const std::string& key, const std::string& otherwise) {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : found->second;
}
std::uint64_t option(const std::string& key, std::uint64_t otherwise) {
    const auto found = options.find(key);
    return found == options.end() ? otherwise : std::stoull(found->second);
}

struct Shape {
    const char* name;
    std::uint64_t elements;
    const char* group;
};
/// One large enough for the codec threads, the others for the conductor itself; two groups that step together.
const std::vector<Shape>& shapes() {
    static const std::vector<Shape> all{
        {"conv", 20'000, ""}, {"fc", 2'000, ""}, {"bias", 130, ""}, {"head", 1'500, "two"}};
    return all;
}

/// Mostly small, now and then large, so that residual and variance decide what travels.
float gradient_value(std::uint64_t rank, std::uint64_t step, std::uint64_t tensor, std::uint64_t element) {
    std::uint64_t hash = ((rank + 1) * 1000003 + step) * 1000003 + tensor * 104729 + element;
    hash = (hash ^ (hash >> 29U)) * 0xBF58476D1CE4E5B9ULL;
    hash = (hash ^ (hash >> 32U)) * 0x94D049BB133111EBULL;
    const auto unit = static_cast<float>(static_cast<double>(hash >> 40U) / (1U << 24U)) - 0.5F;
    return unit * unit * unit + (element % 7 == 0 ? 0.02F : 0.0F);
}

void say(const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
}

std::string file_of(const std::string& option_name, const std::string& group) {
    return text_option(option_name, "") + (group.empty() ? ".one" : "." + group);
}

/// Hands in the files of both groups, and names the step to go on from.
Status take_up_checkpoint(Job& job) {
    for (const std::string group : {"", "two"}) {
        if (!text_option("import", "").empty()) {
            std::ifstream file(file_of("import", group), std::ios::binary);
            const std::string bytes((std::istreambuf_iterator<char>(file)), {});
            const auto taken = job.import_snapshot(std::as_bytes(std::span(bytes)), std::chrono::seconds(20));
            if (!taken.is_ok()) return taken.status();
        }
        if (auto status = job.resume_from(option("resume", 0), group, option("digest", 0)); !status.is_ok())
            return status;
    }
    return {};
}

/// Says "saved GROUP STEP NODES DIGEST-OF-THE-FIRST", or what went wrong.
void keep_checkpoint(Job& job, std::uint64_t step) {
    for (const std::string group : {"", "two"}) {
        const auto kept = job.request_snapshot(step, std::chrono::seconds(20), group);
        if (!kept.is_ok()) {
            say("unsaved " + group + " " + kept.status().to_string());
            continue;
        }
        std::string nodes;
        for (const auto& part : kept->parts) nodes += part.node;
        say("saved " + group + " " + std::to_string(kept->step) + " " + nodes + " " +
            std::to_string(kept->parts.front().digest));
        if (text_option("export", "").empty()) continue;
        const auto bytes = job.export_snapshot(step, std::chrono::seconds(20), group);
        if (!bytes.is_ok()) {
            say("unsaved " + group + " " + bytes.status().to_string());
            continue;
        }
        std::ofstream(file_of("export", group), std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
    }
}

/// The deadline of each call; says "overdue CALL MS" of one that came back later.
std::chrono::milliseconds deadline(std::uint64_t otherwise_ms) {
    return std::chrono::milliseconds(option("deadline-ms", otherwise_ms));
}
template <typename Call>
auto timed(const char* name, std::chrono::milliseconds limit, Call call) {
    const auto begin = SteadyClock::now();
    auto result = call(limit);
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(SteadyClock::now() - begin);
    if (took > limit + kGrace) say(std::string("overdue ") + name + " " + std::to_string(took.count()));
    return result;
}

struct Life {
    std::optional<Job> job;
    std::vector<Tensor> tensors;
};

std::optional<Life> begin_life(Status& ret_status) {
    gradsieve::JobOptions job_options;
    job_options.name = text_option("job", "survivor");
    job_options.run_id = text_option("run", "one");
    job_options.rank = static_cast<std::int64_t>(option("rank", 0));
    job_options.world_size = static_cast<std::int64_t>(option("world", 1));
    job_options.codec = text_option("codec", "variance(alpha=1.5) | pow2(bits=4) | auto");
    job_options.socket_path = text_option("socket", "");
    Life life;
    auto job = Job::make(job_options);
    if (!job.is_ok()) {
        ret_status = job.status();
        return std::nullopt;
    }
    life.job.emplace(std::move(*job));
    for (const auto& shape : shapes()) {
        const std::vector<std::uint64_t> extent{shape.elements + option("wider", 0)};
        auto tensor = life.job->add_tensor(shape.name, std::span<const std::uint64_t>(extent), {.group = shape.group});
        if (!tensor.is_ok()) {
            ret_status = tensor.status();
            return std::nullopt;
        }
        life.tensors.push_back(std::move(*tensor));
    }
    if (option("resume", 0) > 0) {
        ret_status = take_up_checkpoint(*life.job);
        if (!ret_status.is_ok()) return std::nullopt;
    }
    ret_status = timed("start", deadline(20'000), [&](auto limit) { return life.job->start(limit); });
    if (!ret_status.is_ok()) return std::nullopt;
    return life;
}

/// Only with --masses 1.
void say_sum(const char* verb, const std::string& group, std::uint64_t step, double sum) {
    if (option("masses", 0) == 0) return;
    std::printf("%s%s %llu %.17g\n", verb, group.c_str(), static_cast<unsigned long long>(step), sum);
    std::fflush(stdout);
}

/// One step of every group that has not had it; says the digest of each group's averages.
Status one_step(Life& life, std::uint64_t step) {
    const auto takes_part = [&](std::size_t number) { return step >= life.job->first_step(shapes()[number].group); };
    const auto rank = option("rank", 0);
    const auto moment = step / option("steady", 1);  // of the gradient: some stay for several steps
    std::map<std::string, double> handed_in, taken_out;
    std::set<std::string> incomplete;  // groups of which an average is missing
    for (std::size_t number = 0; number < life.tensors.size(); ++number) {
        if (!takes_part(number)) continue;
        auto values = life.tensors[number].gradient();
        for (std::uint64_t element = 0; element < values.size(); ++element)
            values[element] = gradient_value(rank, moment, number, element);
        auto& sum = handed_in[shapes()[number].group];
        for (const float value : values) sum += static_cast<double>(value);
    }
    for (const auto& [group, sum] : handed_in) say_sum("gives", group, step, sum);
    for (std::size_t number = 0; number < life.tensors.size(); ++number) {
        if (!takes_part(number)) continue;
        if (auto status = life.tensors[number].submit(step); !status.is_ok()) return status;
    }
    std::map<std::string, std::uint64_t> digests;
    Status outcome;
    for (std::size_t number = 0; number < life.tensors.size(); ++number) {
        if (!takes_part(number)) continue;
        const std::string group = shapes()[number].group;
        // After an error nothing is waited for, but what was answered before it is there: another group's step, too.
        const auto limit = outcome.is_ok() ? deadline(30'000) : std::chrono::milliseconds(0);
        const auto average = timed("wait", limit, [&](auto time) { return life.tensors[number].wait(time); });
        if (!average.is_ok()) {
            if (outcome.is_ok()) outcome = average.status();
            incomplete.insert(group);
            continue;
        }
        auto& sum = taken_out[group];
        for (const float value : *average) sum += static_cast<double>(value);
        auto& digest = digests[group];
        digest = digest * 31 + gradsieve::digest_of(std::as_bytes(*average));
    }
    for (const auto& [group, digest] : digests) {
        if (incomplete.count(group) > 0) continue;
        say_sum("takes", group, step, taken_out[group]);
        std::printf("average%s %llu %016llx\n", group.c_str(), static_cast<unsigned long long>(step),
                    static_cast<unsigned long long>(digest));
        std::fflush(stdout);
    }
    return outcome;
}

}  // namespace

int main(int argc, char** argv) {
    for (int index = 1; index + 1 < argc; index += 2) options[argv[index] + 2] = argv[index + 1];
    const auto steps = option("steps", 100);
    auto give_up = SteadyClock::now() + kPatience;
    while (SteadyClock::now() < give_up) {
        Status status;
        auto life = begin_life(status);
        if (!life) {
            say("again " + status.to_string());
            if (option("once", 0) != 0) return 2;
            ::poll(nullptr, 0, kBackOffMs);
            continue;
        }
        give_up = SteadyClock::now() + kPatience;
        auto step = std::min(life->job->first_step(""), life->job->first_step("two"));
        say("started " + std::to_string(step));
        for (; step <= steps && status.is_ok(); ++step) {
            status = one_step(*life, step);
            if (step == option("save-at", 0) || step == option("save-again-at", 0)) keep_checkpoint(*life->job, step);
            ::poll(nullptr, 0, static_cast<int>(option("compute-ms", 0)));  // the rest of its training step
        }
        if (!status.is_ok()) {
            say("again " + status.to_string());
            give_up = SteadyClock::now() + kPatience;
            continue;
        }
        say("finished");
        char byte = 0;
        while (option("hold", 1) != 0 && ::read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') {}
        const auto left = timed("detach", deadline(20'000), [&](auto limit) { return life->job->detach(limit); });
        if (!left.is_ok()) {
            say("error detach " + left.to_string());
            return 3;
        }
        say("done");
        return 0;
    }
    say("error no life within the time");
    return 4;
}
