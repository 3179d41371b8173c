// Text that people write or other programs made: a configuration, a codec, a status document. One byte tells which.
#include "cli/open_metrics.hpp"
#include "cli/render_status.hpp"
#include "cli/status_view.hpp"
#include "codec/codec_rules.hpp"
#include "daemon/config_parse.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <sstream>
#include <string>

namespace gradsieve::fuzz {
namespace {

enum : std::uint8_t { kConfiguration = 0, kCodec = 1, kStatus = 2 };

Bytes source(const std::string& path) { return read_file(std::string(FUZZ_SOURCE_DIR) + path); }

/// Values alone: where each came from stands behind it.
std::string without_origins(std::string_view text) {
    std::string values;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) values += line.substr(0, line.find(" # ")) + '\n';
    return values;
}

void run_configuration(std::string_view text) {
    daemon::Config config;
    const auto status = daemon::parse_config_text(text, "fuzz.toml", config);
    if (!status.is_ok())
        return require(status.text().find("fuzz.toml") != std::string::npos, "a refusal names the file");
    // Places that depend on the host are found after the file was read.
    config.socket_path = "/run/gradsieve/gradsieved.sock";
    config.state_directory = "/var/lib/gradsieve";
    config.key_file = "/var/lib/gradsieve/node.key";
    daemon::Config again;
    const auto written = daemon::config_text(config);
    require(daemon::parse_config_text(written, "fuzz.toml", again).is_ok(), "effective values are a configuration");
    require(without_origins(daemon::config_text(again)) == without_origins(written), "and is written as the same");
}
void run_codec(std::string_view text) {
    const auto codec = codec::parse_codec(text);
    if (!codec.is_ok()) return;
    const auto written = codec::canonical_codec_text(*codec);
    const auto again = codec::parse_codec(written);
    require(again.is_ok() && *again == *codec, "a codec's canonical text means the same");
    require(codec::canonical_codec_text(*again) == written, "and is its own canonical text");
    static_cast<void>(codec::ruled_pipeline(*codec, "layer.0.weight", 4096));
}
void run_status(std::string_view text) {
    const auto view = cli::parse_status_document(text);
    if (!view.is_ok()) return;
    const cli::HealthView health{"live", 1, 0.1, false, "/run/gradsieve/status", "", ""};
    const auto screen = cli::render_status(*view, health, {80, 0, false, true}, 20);
    require(screen.find('\x1b') == std::string::npos, "names from outside do not drive the terminal");
    require(cli::open_metrics_text(*view, health).ends_with("# EOF\n"), "metrics are whole");
}

}  // namespace

std::vector<Bytes> seeds() {
    std::vector<Bytes> made;
    for (const char* path : {"/systemd/gradsieved.toml"}) made.push_back(tagged(kConfiguration, source(path)));
    made.push_back(tagged(kConfiguration, bytes_of("[network]\nsecurity = \"plain\"\nlanes = 2\nsilent_ms = 4000.5\n"
                                                   "[codec]\ndefault = \"topk(0.01); *.bias: all | f32\"\n"
                                                   "[[node]]\nname = \"a\"\naddress = \"10.0.0.1\"\nport = 7078\n"
                                                   "[[node]]\nname = \"b\"\naddress = \"[2001:db8::1]\"\n")));
    for (const char* text : {"topk(0.01, gate=1) | pow2(bits=4, scope=tensor) | rice",
                             "variance(alpha=3, mode=faithful) | dither(levels=7, norm=l2)",
                             "variance_hybrid(tau=0.5) | sign(scale=tau)",
                             "all | exponential_dither(levels=15, base=1.5, mode=biased, norm=l2)",
                             "block_topk(0.01, block=512) | pow2(bits=4) | rice",
                             "gaussian_k(0.01) | pow2 | elias_fano",
                             "sidco(0.01, stages=2) | sign",
                             "all | integer(scale=1e4, mode=unbiased, feedback=none)",
                             "randk(0.01, feedback=none) | natural",
                             "bernoulli(p=0.5, feedback=scaled) | sign",
                             "biased_random(first=0.9, last=0.001)",
                             "adaptive_random(ratio=0.01, block=64) | f16",
                             "lowrank(4); embed*: lowrank(rank=8, columns=512)",
                             "sketch(0.01); embed*: sketch(ratio=0.001, rows=3, columns=4096)",
                             "all | ternary(clip=2.5, feedback=none)",
                             "all | rounding(base=1.5, mode=biased)",
                             "all | minmax(bits=3, bucket=64, feedback=none)",
                             "accumulate(2) | rotate | all | sign(scale=drive)",
                             "momentum(0.9) | delta | rotate | all | dither",
                             "delta | topk(0.01) | pow2",
                             "momentum | warmup(steps=2000, from=0.5) | topk(0.001) | pow2",
                             "all | sign(scale=none)",
                             "topk(0.1) | sign(scale=two_mean)",
                             "all | f32; elements < 4096 & *.bias: all | bf16; a*: topk(0.5)"})
        made.push_back(tagged(kCodec, bytes_of(text)));
    for (const char* name : {"two_nodes", "trouble", "states", "hostile"})
        made.push_back(tagged(kStatus, source(std::string("/tests/cli/golden/") + name + ".json")));
    return made;
}

void run_one(ByteView input) {
    if (input.empty()) return;
    const auto text = text_of(input.subspan(1));
    switch (std::to_integer<std::uint8_t>(input[0]) % 3) {
        case kConfiguration: run_configuration(text); return;
        case kCodec: run_codec(text); return;
        default: run_status(text); return;
    }
}

}  // namespace gradsieve::fuzz
