#include "examples/fashion_mnist/dataset.hpp"

#include <zlib.h>
#include <memory>
#include <stdexcept>

namespace gradsieve::example {

namespace {

constexpr std::uint32_t kImagesMagic = 0x803;
constexpr std::uint32_t kLabelsMagic = 0x801;
constexpr std::uint32_t kImagesLimit = 1'000'000;
// mean and standard deviation of the training pixels, in 0..1
constexpr float kMean = 0.2860F;
constexpr float kDeviation = 0.3530F;

class IdxFile {
public:
    explicit IdxFile(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
        if (file_ == nullptr)
            throw std::runtime_error(
                path + " cannot be read: install the package dataset-fashion-mnist, or name its folder with --data");
    }
    ~IdxFile() { gzclose(file_); }
    IdxFile(const IdxFile&) = delete;
    IdxFile& operator=(const IdxFile&) = delete;

    std::uint32_t read_number() {
        unsigned char bytes[4];
        read(bytes, sizeof(bytes));
        return std::uint32_t{bytes[0]} << 24U | std::uint32_t{bytes[1]} << 16U | std::uint32_t{bytes[2]} << 8U |
               bytes[3];
    }
    void read(unsigned char* into, std::size_t count) {
        const int got = gzread(file_, into, static_cast<unsigned>(count));
        if (got < 0 || static_cast<std::size_t>(got) != count)
            throw std::runtime_error(path_ + " ends early: " + std::to_string(got) + " of " + std::to_string(count) +
                                     " bytes: install dataset-fashion-mnist again");
    }
    void expect(std::uint32_t value, std::uint32_t wanted, const char* what) const {
        if (value != wanted)
            throw std::runtime_error(path_ + ": " + what + " is " + std::to_string(value) + ", expected " +
                                     std::to_string(wanted));
    }

private:
    std::string path_;
    gzFile file_;
};

}  // namespace

Dataset load_dataset(const std::string& folder, const std::string& prefix) {
    Dataset dataset;
    IdxFile images(folder + "/" + prefix + "-images-idx3-ubyte.gz");
    images.expect(images.read_number(), kImagesMagic, "the magic number");
    const auto count = images.read_number();
    if (count > kImagesLimit) throw std::runtime_error("more than a million images: not Fashion-MNIST");
    images.expect(images.read_number(), 28, "the height");
    images.expect(images.read_number(), 28, "the width");
    std::vector<unsigned char> raw(std::size_t{count} * kImagePixels);
    images.read(raw.data(), raw.size());
    dataset.pixels.reserve(raw.size());
    for (const auto pixel : raw) dataset.pixels.push_back((static_cast<float>(pixel) / 255.0F - kMean) / kDeviation);

    IdxFile labels(folder + "/" + prefix + "-labels-idx1-ubyte.gz");
    labels.expect(labels.read_number(), kLabelsMagic, "the magic number");
    labels.expect(labels.read_number(), count, "the number of labels");
    dataset.labels.resize(count);
    labels.read(dataset.labels.data(), count);
    for (const auto label : dataset.labels)
        if (label >= kClasses) throw std::runtime_error("a label is " + std::to_string(label) + ": allowed is 0 to 9");
    return dataset;
}

}  // namespace gradsieve::example
