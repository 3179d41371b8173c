// Writes the data of the figures in docs/codecs.md as CSV files, from runs of the real codecs; plot_figures.py draws
// it.
// `./dev figures` calls both.
#include "figure_data.hpp"

#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>

namespace gradsieve::codec {
namespace {

constexpr int kVectors = 3;
constexpr std::uint64_t kTensorElements = std::uint64_t{1} << 22U;
constexpr std::uint64_t kScaleElements = std::uint64_t{1} << 24U;

class CsvFile {
public:
    CsvFile(const std::filesystem::path& path, std::string_view columns) : path_(path), file_(path) {
        file_ << columns << '\n';
    }
    template <typename First, typename... Rest>
    void row(const First& first, const Rest&... rest) {
        file_ << first;
        ((file_ << ',' << rest), ...);
        file_ << '\n';
    }
    void finish() {
        file_.flush();
        if (!file_) throw std::runtime_error("cannot write " + path_.string());
        std::cout << path_.string() << '\n';
    }

private:
    std::filesystem::path path_;
    std::ofstream file_;
};
/// Codecs hold commas.
std::string quoted(const std::string& text) { return '"' + text + '"'; }

void write_operators(const std::filesystem::path& path, const std::vector<OperatorPoint>& points) {
    CsvFile file(path, "panel,curve,codec,knob,bits_per_element,bits_with_ideal_positions,normalized_error,delta");
    for (const OperatorPoint& point : points)
        file.row(quoted(point.panel), quoted(point.curve), quoted(point.codec), point.knob, point.bits,
                 point.ideal_bits, point.error, point.delta);
    file.finish();
}
void write_all(const std::filesystem::path& folder, const std::string& dataset_folder) {
    std::filesystem::create_directories(folder);
    write_operators(folder / "topk_randk.csv", sparsifier_points(kVectors));
    write_operators(folder / "delta.csv", operator_points(1));
    CsvFile indices(folder / "index_bits.csv", "coder,density,bits_per_kept,entropy");
    for (const IndexPoint& point : index_points(kTensorElements))
        indices.row(point.coder, point.density, point.bits, point.entropy);
    indices.finish();
    CsvFile scales(folder / "tile_scales.csv", "quantizer,density,bits_per_kept");
    for (const ScalePoint& point : scale_points(kScaleElements))
        scales.row(quoted(point.quantizer), point.density, point.bits);
    scales.finish();
    CsvFile energy(folder / "energy.csv", "problem,step,top5,rand5");
    for (const EnergyPoint& point : energy_points(dataset_folder))
        energy.row(quoted(point.problem), point.step, point.top, point.rand);
    energy.finish();
}

}  // namespace
}  // namespace gradsieve::codec

int main(int count, char** arguments) {
    if (count != 3) {
        std::cerr << "usage: codec_figures FOLDER FASHION_MNIST_FOLDER\n";
        return 2;
    }
    try {
        gradsieve::codec::write_all(arguments[1], arguments[2]);
    } catch (const std::exception& error) {
        std::cerr << "codec_figures: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
