// Runs a fuzz target over its seeds, over every file of the folders named, and over mutations of both: a fixed number,
// from a fresh seed that is printed. `--write-seeds FOLDER` only leaves the seeds there, for libFuzzer to begin with.
//
// Usage: fuzz_TARGET_replay [--mutations N] [--seed S] [FOLDER...] | --write-seeds FOLDER | --run FILE
#include "tests/fuzz/fuzz_target.hpp"

#include "base/unique_fd.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

namespace {

namespace fs = std::filesystem;
using gradsieve::Bytes;
using gradsieve::ByteView;

/// A few of: a byte changed, a bit turned, a run removed, repeated or taken from another input, the end cut off.
Bytes mutated(const std::vector<Bytes>& inputs, std::mt19937_64& random) {
    const auto below = [&](std::size_t end) { return end == 0 ? 0 : random() % end; };
    Bytes bytes = inputs[below(inputs.size())];
    for (auto changes = 1 + below(4); changes > 0; --changes) {
        const auto at = below(bytes.size() + 1);
        const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
        const auto run = std::min(below(9), bytes.size() - at);
        const auto end = place + static_cast<std::ptrdiff_t>(run);
        switch (below(6)) {
            case 0:
                if (at < bytes.size()) bytes[at] = static_cast<std::byte>(random());
                break;
            case 1:
                if (at < bytes.size()) bytes[at] ^= std::byte{1} << below(8);
                break;
            case 2: bytes.erase(place, end); break;
            case 3: {
                const Bytes copy(place, end);
                bytes.insert(place, copy.begin(), copy.end());
                break;
            }
            case 4: {
                const Bytes& other = inputs[below(inputs.size())];
                const auto from = below(other.size() + 1);
                const auto length = std::min({below(65), other.size() - from});
                bytes.insert(place, other.begin() + static_cast<std::ptrdiff_t>(from),
                             other.begin() + static_cast<std::ptrdiff_t>(from + length));
                break;
            }
            default: bytes.resize(at); break;
        }
    }
    return bytes;
}

/// The input under test, in a mapped file: whatever ends the process, its bytes are there afterwards, and writing them
/// costs no system call. Eight bytes of length come first.
class LastInput {
public:
    explicit LastInput(const fs::path& path) : path_(path) {
        const gradsieve::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        gradsieve::fuzz::require(fd.is_open() && ::ftruncate(fd.get(), kBytes) == 0,
                                 "the temporary folder can be written");
        memory_ = static_cast<std::byte*>(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
        gradsieve::fuzz::require(memory_ != MAP_FAILED, "a file is mapped");
    }
    LastInput(const LastInput&) = delete;
    LastInput& operator=(const LastInput&) = delete;
    ~LastInput() {
        ::munmap(memory_, kBytes);
        fs::remove(path_);
    }
    void run(ByteView input) {
        const std::uint64_t size = std::min(input.size(), kBytes - sizeof(size));
        std::memcpy(memory_, &size, sizeof(size));
        std::copy_n(input.begin(), size, memory_ + sizeof(size));
        gradsieve::fuzz::run_one(input);
    }

private:
    static constexpr std::size_t kBytes = std::size_t{1} << 20U;
    fs::path path_;
    std::byte* memory_ = nullptr;
};

/// Runs what a LastInput holds; leaves the bytes alone beside it, to become part of the corpus.
int run_kept(const fs::path& path) {
    const auto kept = gradsieve::fuzz::read_file(path);
    gradsieve::ByteReader reader(kept);
    const auto input = reader.read_bytes(reader.read<std::uint64_t>());
    gradsieve::fuzz::require(reader.is_ok(), "the file holds an input");
    std::ofstream(path.string() + ".input", std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    gradsieve::fuzz::run_one(input);
    std::printf("no finding\n");
    return 0;
}

int write_seeds(const fs::path& folder) {
    fs::create_directories(folder);
    std::size_t number = 0;
    for (const auto& seed : gradsieve::fuzz::seeds())
        std::ofstream(folder / ("seed-" + std::to_string(number++)), std::ios::binary)
            .write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    unsigned long mutations = 10'000;
    std::uint64_t seed = std::random_device()();
    std::vector<fs::path> folders;
    for (int at = 1; at < argc; ++at) {
        const std::string argument = argv[at];
        const bool has_value = at + 1 < argc;
        if (argument == "--write-seeds" && has_value) return write_seeds(argv[at + 1]);
        if (argument == "--run" && has_value) return run_kept(argv[at + 1]);
        if (argument == "--mutations" && has_value) {
            mutations = std::stoul(argv[++at]);
        } else if (argument == "--seed" && has_value) {
            seed = std::stoull(argv[++at]);
        } else {
            folders.emplace_back(argument);
        }
    }
    const auto kept =
        fs::temp_directory_path() / (fs::path(argv[0]).filename().string() + "." + std::to_string(::getpid()));
    std::printf("seed %llu; if an input ends the process, it stays in %s: run that with --run\n",
                static_cast<unsigned long long>(seed), kept.c_str());
    std::fflush(stdout);
    auto inputs = gradsieve::fuzz::seeds();
    gradsieve::fuzz::require(!inputs.empty(), "a target has seeds");
    for (const auto& folder : folders)
        for (const auto& file : fs::directory_iterator(folder))
            inputs.push_back(gradsieve::fuzz::read_file(file.path()));
    LastInput last(kept);
    for (const auto& input : inputs) last.run(input);
    std::mt19937_64 random(seed);
    for (unsigned long done = 0; done < mutations; ++done) last.run(mutated(inputs, random));
    std::printf("%zu inputs and %lu mutations of them: no finding\n", inputs.size(), mutations);
    return 0;
}
