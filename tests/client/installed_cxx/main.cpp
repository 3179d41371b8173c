// Calls everything that gradsieve.hpp declares, so that a symbol missing from the library fails the link. Without a
// daemon `start` fails, which is what the test expects: exit code 1 and the error's words.
#include <gradsieve/gradsieve.hpp>

#include <cstdio>

namespace {

using namespace std::chrono_literals;

void use_all(gradsieve::Job& job, gradsieve::Tensor& tensor) {
    static_cast<void>(tensor.gradient());
    static_cast<void>(tensor.second_moment());
    static_cast<void>(tensor.submit(1, {.scale = 2.0}));
    static_cast<void>(tensor.wait(0ms));
    static_cast<void>(tensor.is_ready());
    static_cast<void>(job.finish(job.first_step(), 0ms));
    static_cast<void>(job.broadcast(tensor, 0, 0ms));
    static_cast<void>(job.check_equal(gradsieve::digest_of({}), 0ms));
    static_cast<void>(job.check_parameters(1, std::span<const float>(), 0ms));
    static_cast<void>(job.check_parameters(1, std::span<const std::span<const float>>(), 0ms));
    static_cast<void>(job.check_parameters(1, std::span<const std::span<const std::byte>>(), 0ms));
    std::printf("%s %u of %u, %s has %llu elements\n", std::string(gradsieve::version()).c_str(), job.rank(),
                job.world_size(), tensor.name().c_str(), static_cast<unsigned long long>(tensor.elements()));
}

}  // namespace

int main() {
    auto made = gradsieve::Job::make({.name = "installed", .rank = 0, .world_size = 1});
    if (!made.is_ok()) return 2;
    gradsieve::Job job = std::move(*made);
    auto tensor = job.add_tensor("w", {2, 3}, {.group = ""});
    if (!tensor.is_ok()) return 2;
    const gradsieve::Status status = job.start(1s);
    use_all(job, *tensor);
    if (!job.detach(0ms).is_ok()) return 2;
    if (status.is_ok()) return 0;
    std::printf("%s\n", status.with_context("start").to_string().c_str());
    GRADSIEVE_CHECK(gradsieve::status_code_name(status.code()) != "ok");
    return 1;
}
