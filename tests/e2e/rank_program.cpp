// A training process for the end-to-end tests: deterministic gradients, every result checked against the average that
// it computes itself in double precision, one line of output per event. Not a test by itself.
#include "tests/e2e/rank_options.hpp"

#include <gradsieve/gradsieve.hpp>

#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using gradsieve::Job;
using gradsieve::Tensor;
using gradsieve::test::RankOptions;

struct Shape {
    const char* name;
    std::vector<std::uint64_t> shape;
    std::uint64_t elements;
};
std::vector<Shape> shapes(std::uint64_t scale) {
    return {{"fc1.weight", {scale, 130}, scale * 130},
            {"fc1.bias", {130}, 130},
            {"fc2.weight", {10, scale}, 10 * scale},
            {"fc2.bias", {10}, 10},
            {"empty", {0, 4}, 0}};
}

/// A small integer-valued gradient, so that float sums are exact and the expected average is too.
float gradient_value(std::uint64_t rank, std::uint64_t step, std::uint64_t sample, std::uint64_t tensor,
                     std::uint64_t element) {
    std::uint64_t hash = (rank * 1000003 + step) * 1000003 + sample * 7919 + tensor * 104729 + element;
    hash = (hash ^ (hash >> 29U)) * 0xBF58476D1CE4E5B9ULL;
    return static_cast<float>(static_cast<int>((hash >> 40U) % 257) - 128);
}

[[noreturn]] void fail(const std::string& what, const gradsieve::Status& status) {
    std::printf("error %s %s\n", what.c_str(), status.to_string().c_str());
    std::fflush(stdout);
    std::_Exit(10 + static_cast<int>(status.code()));
}

/// Steps that have one gradient: the step that it is counted by.
std::uint64_t moment(const RankOptions& options, std::uint64_t step) { return step / options.number("steady", 1); }

class Trainer {
public:
    explicit Trainer(const RankOptions& options) : options_(options), timeout_(options.number("timeout-ms", 20'000)) {
        gradsieve::JobOptions job_options;
        job_options.name = options.text("job", "e2e");
        job_options.run_id = options.text("run", "one");
        job_options.rank = static_cast<std::int64_t>(options.number("rank", 0));
        job_options.world_size = static_cast<std::int64_t>(options.number("world", 1));
        job_options.codec = options.text("codec");
        job_options.socket_path = options.text("socket");
        job_options.check_every = static_cast<std::uint32_t>(options.number("check-every", 0));
        job_options.non_finite = static_cast<gradsieve::NonFinite>(options.number("non-finite", 0));
        auto job = Job::make(job_options);
        if (!job.is_ok()) fail("make", job.status());
        job_.emplace(std::move(*job));
        auto table = shapes(options.number("scale", 20));
        if (options.number("reverse", 0) != 0) std::reverse(table.begin(), table.end());
        samples_ = static_cast<std::uint32_t>(options.number("samples", 1));
        for (const auto& shape : table) {
            auto tensor =
                job_->add_tensor(shape.name, std::span<const std::uint64_t>(shape.shape),
                                 {.samples_max = samples_, .has_second_moment = false, .group = options.text("group")});
            if (!tensor.is_ok()) fail("add", tensor.status());
            tensors_.push_back(std::move(*tensor));
        }
    }

    void run() {
        if (const auto status = job_->start(gradsieve::Timeout(options_.number("start-ms", 20'000))); !status.is_ok())
            fail("start", status);
        say("started");
        if (options_.number("fork-child", 0) != 0) fork_child();
        if (options_.number("broadcast", 0) != 0) broadcast();
        const auto steps = options_.number("steps", 5);
        const auto first = job_->first_step(options_.text("group"));
        parameters_.assign(130, 0.25F);
        check_parameters(first - 1);
        for (std::uint64_t step = first; step <= steps; ++step) {
            one_step(step);
            check_parameters(step);
        }
        if (options_.number("check", 1) != 0)
            if (const auto status = job_->check_equal(digest_, timeout_); !status.is_ok()) fail("check", status);
        std::printf("digest %016llx\n", static_cast<unsigned long long>(digest_));
        if (options_.number("times", 0) != 0) print_times();
        std::fflush(stdout);
        if (options_.number("hold", 0) != 0) hold();
        if (const auto status = job_->detach(timeout_); !status.is_ok()) fail("detach", status);
        say("done");
    }

private:
    static void say(const char* text) {
        std::puts(text);
        std::fflush(stdout);
    }
    /// Until the test writes a line or closes our standard input.
    static void hold() {
        say("holding");
        char byte = 0;
        while (::read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n') {}
    }

    /// A data loader: a child that inherits every descriptor and outlives us, until its own standard input is closed.
    void fork_child() {
        int said[2];
        if (::pipe(said) != 0) std::_Exit(7);
        if (::fork() != 0) {  // goes on only when the child has said its line
            ::close(said[1]);
            char byte = 0;
            while (::read(said[0], &byte, 1) == 1) {}
            ::close(said[0]);
            return;
        }
        const auto status = tensors_.front().submit(1);
        std::printf("child %s\n", status.to_string().c_str());
        std::fflush(stdout);
        ::close(said[1]);
        ::signal(SIGALRM, SIG_DFL);
        ::alarm(60);
        char byte = 0;
        while (::read(STDIN_FILENO, &byte, 1) == 1) {}
        std::_Exit(0);
    }

    void broadcast() {
        const auto root = static_cast<std::uint32_t>(options_.number("broadcast-root", 0));
        auto& tensor = tensors_.front();
        for (std::uint64_t element = 0; element < tensor.elements(); ++element)
            tensor.gradient()[element] = static_cast<float>(job_->rank() * 1000.5 + static_cast<double>(element));
        const auto value = job_->broadcast(tensor, root, timeout_);
        if (!value.is_ok()) fail("broadcast", value.status());
        for (std::uint64_t element = 0; element < tensor.elements(); ++element)
            if ((*value)[element] != static_cast<float>(root * 1000.5 + static_cast<double>(element))) {
                say("error broadcast wrong value");
                std::_Exit(9);
            }
        say("broadcast ok");
    }

    /// Of the steps, from the first hand-in to the last result.
    void print_times() {
        std::sort(step_us_.begin(), step_us_.end());
        if (step_us_.empty()) return;
        std::printf("median-us %.1f\nlongest-us %.1f\n", step_us_[step_us_.size() / 2], step_us_.back());
    }

    void one_step(std::uint64_t step) {
        if (step == options_.number("hold-at", 0)) hold();
        const auto at = moment(options_, step);
        std::optional<std::chrono::steady_clock::time_point> begin;
        for (std::uint64_t index = 0; index < tensors_.size(); ++index) {
            auto& tensor = tensors_[index];
            const auto name_hash = static_cast<std::uint64_t>(tensor.name()[2]);
            for (std::uint32_t sample = 0; sample < samples_; ++sample) {
                auto slab = tensor.gradient(sample);
                for (std::uint64_t element = 0; element < slab.size(); ++element)
                    slab[element] = gradient_value(job_->rank(), at, sample, name_hash, element);
                const auto nan_every = options_.number("nan-every", 0);
                if ((step == options_.number("nan-at", 0) || (nan_every > 0 && step % nan_every == 0)) &&
                    tensor.name() == "fc2.weight")
                    slab[7] = std::numeric_limits<float>::quiet_NaN();
            }
            if (step == options_.number("kill-at", 0) && index == 2) ::raise(SIGKILL);
            if (!begin) begin = std::chrono::steady_clock::now();
            if (const auto status = tensor.submit(step, {.sample_count = samples_}); !status.is_ok())
                fail("submit", status);
            if (options_.number("one-by-one", 0) == step) wait_for(tensor, step);
        }
        for (auto& tensor : tensors_)
            if (options_.number("one-by-one", 0) != step) wait_for(tensor, step);
        if (begin)
            step_us_.push_back(
                std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - *begin).count());
        take_averages(step);
    }

    /// Of a step that may fail none counts before all do: some rank may have had one of its averages, and others not.
    void take_averages(std::uint64_t step) {
        const auto averages = std::exchange(averages_, {});
        if (options_.number("go-on", 0) != 0 && !job_->finish(step, timeout_, options_.text("group")).is_ok()) return;
        for (const auto& [name, average] : averages) {
            if (name == "fc1.bias")
                for (std::size_t element = 0; element < parameters_.size(); ++element)
                    parameters_[element] -= 0.125F * average[element];
            // a sum, since the digest must not depend on this rank's own order of tensors
            const auto of_name = gradsieve::digest_of(std::as_bytes(std::span(name)));
            digest_ += gradsieve::digest_of(std::as_bytes(average)) * (2 * step + 1) * (of_name | 1U);
        }
    }

    /// `drift-at`: from that step on this rank's parameters are wrong by the last bit of one of them.
    void check_parameters(std::uint64_t step) {
        if (step > 0 && step == options_.number("drift-at", 0))
            parameters_[77] = std::nextafter(parameters_[77], 1000.0F);
        const auto status = job_->check_parameters(step, parameters_, timeout_);
        if (!status.is_ok()) fail("check-parameters", status);
    }

    void wait_for(Tensor& tensor, std::uint64_t step) {
        const auto begin = std::chrono::steady_clock::now();
        auto result = tensor.wait(timeout_);
        while (!result.is_ok() && result.status().code() == gradsieve::StatusCode::kTimeout &&
               options_.number("patient", 0) != 0) {
            std::printf("timeout %s\n", result.status().text().c_str());
            std::fflush(stdout);
            result = tensor.wait(timeout_);
        }
        if (!result.is_ok()) {
            const auto waited =
                std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count();
            std::printf("waited %lld ms\n", static_cast<long long>(waited));
            if (options_.number("go-on", 0) == 0) fail("wait", result.status());
            std::printf("failed step %llu %s\n", static_cast<unsigned long long>(step),
                        result.status().to_string().c_str());
            std::fflush(stdout);
            return;
        }
        if (options_.number("exact", 0) != 0) check_exact(tensor, step, *result);
        for (const float value : *result)
            if (!std::isfinite(value)) ++non_finite_;
        if (non_finite_ > 0 && tensor.name() == "fc2.weight")
            std::printf("non-finite %llu in step %llu\n",
                        static_cast<unsigned long long>(std::exchange(non_finite_, 0)),
                        static_cast<unsigned long long>(step));
        averages_.emplace_back(tensor.name(), *result);
    }

    void check_exact(const Tensor& tensor, std::uint64_t step, std::span<const float> result) {
        const auto world = job_->world_size();
        for (std::uint64_t element = 0; element < result.size(); ++element) {
            double sum = 0;
            for (std::uint32_t rank = 0; rank < world; ++rank)
                for (std::uint32_t sample = 0; sample < samples_; ++sample)
                    sum += static_cast<double>(
                        gradient_value(rank, step, sample, static_cast<std::uint64_t>(tensor.name()[2]), element));
            const double expected = sum / (world * samples_);
            if (std::abs(static_cast<double>(result[element]) - expected) > 1e-4) {
                std::printf("error step %llu tensor %s element %llu: got %.9g, expected %.9g\n",
                            static_cast<unsigned long long>(step), tensor.name().c_str(),
                            static_cast<unsigned long long>(element), static_cast<double>(result[element]), expected);
                std::fflush(stdout);
                std::_Exit(8);
            }
        }
    }

    const RankOptions& options_;
    gradsieve::Timeout timeout_;
    std::optional<Job> job_;
    std::vector<Tensor> tensors_;
    std::uint32_t samples_ = 1;
    std::uint64_t digest_ = 1;
    std::uint64_t non_finite_ = 0;
    std::vector<double> step_us_;
    std::vector<std::pair<std::string, std::span<const float>>> averages_;  ///< of the step that is under way
    std::vector<float> parameters_;  ///< a model of one layer, trained on fc1.bias
};

}  // namespace

int main(int argc, char** argv) {
    const RankOptions options(argc, argv);
    Trainer(options).run();
    return 0;
}
