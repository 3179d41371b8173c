// The table of stages: what users read in `gradsieve codecs` and what the suites iterate.
#include "codec/pipeline.hpp"

#include <array>

namespace gradsieve::codec {
namespace {

constexpr std::string_view kTsuzuku =
    "Tsuzuku, Imachi, Akiba 2018, Variance-based Gradient Compression, arXiv:1802.06058";

constexpr std::string_view kStrom =
    "Strom 2015, Scalable Distributed DNN Training Using Commodity GPU Cloud Computing, Interspeech";

constexpr std::array kStages = {
    StageRow{
        "momentum", "front", "m=0.9, nesterov=no|yes, clip=none|NUMBER", "element", "u: 4 B per element and generation",
        "adds u = m u + gradient to r instead of the gradient (nesterov=yes: m u + gradient, u being the one of this "
        "step), so that what waits is delayed as momentum SGD would have applied it; where an element is sent, u is "
        "cleared, but for all; the optimizer applies no momentum of its own; clip: each node scales its mean gradient "
        "of a tensor down to an l2 norm of NUMBER times the square root of nodes, before u, so that independent ones "
        "average to a norm of NUMBER",
        "Lin, Han, Mao, Wang, Dally 2018, Deep Gradient Compression, arXiv:1712.01887, momentum correction, local "
        "gradient clipping and momentum factor masking",
        "gather"},
    StageRow{
        "similarity", "front", "skip=none|NUMBER, most=7", "tensor",
        "none; 16 KiB per tensor on the host, not kept; with skip, r, the last payload and 16 KiB per generation",
        "measures how alike this step's gradient and that of the last committed step are, for status: the cosine "
        "from sums of 1,024 buckets with random signs, and how many of their signs, SimHash bits, differ; stands "
        "before all others; skip=x sends, at most `most` times in a row, a record of 10 bytes in place of a payload "
        "where the node's last payload, added once more, takes at least the share x of the square of what is to be "
        "sent: before `all` and a quantizer that keeps its errors, which keeps the difference; without it nothing "
        "that is sent changes",
        "Charikar 2002, Similarity Estimation Techniques from Rounding Algorithms; Charikar, Chen, Farach-Colton "
        "2002, Finding Frequent Items in Data Streams",
        "gather"},
    StageRow{"compensate", "front", "beta=1, gamma=1, lowpass=1", "element", "-",
             "adds gamma times the gradient, or what momentum makes of it, to beta times the residual; below beta = 1 "
             "what is not sent fades; below lowpass = 1 the residual is a low-pass of errors: 1 - lowpass of the one "
             "before and lowpass of what this step did not send",
             "Xu et al. 2021, GRACE: A Compressed Communication Framework for Distributed Machine Learning, residual "
             "memory; Chen et al. 2020, ScaleCom: Scalable Sparsified Gradient Compression for "
             "Communication-Efficient Distributed Training, low-pass filtered memory"},
    StageRow{"accumulate", "front", "n", "tensor", "-",
             "sends at every n-th step alone, those whose number n divides; in the others gradients are added to the "
             "residual, and what comes back is zero",
             "Gradient accumulation over n steps, in the residual"},
    StageRow{
        "warmup", "front", "steps, from=0.25", "tensor", "-",
        "the selector's ratio begins at `from` and falls to a quarter again and again until it is its own, each for "
        "as many of the first `steps` steps, by the numbers of which a job that goes on does not begin anew; stands "
        "before a selector with a ratio below `from`",
        "Lin, Han, Mao, Wang, Dally 2018, Deep Gradient Compression, arXiv:1712.01887, warm-up training"},
    StageRow{"delta", "front", "", "tensor",
             "h in the place of r, and H: 8 B per element and generation; 8 B that tell states of two runs apart",
             "sends what the gradient, or what momentum makes of it, differs from h, the sum of all that the node has "
             "sent; H, the average of all nodes' h, is what comes back, every element of it; stands before codecs that "
             "keep what they do not send, all nodes begin and go on together, and gradients have one scale",
             "Richtarik, Sokolov, Fatkhullin 2021, EF21: A New, Simpler, Theoretically Better, and Practically Faster "
             "Error Feedback, arXiv:2106.05203"},
    StageRow{
        "rotate", "front", "", "tile", "-",
        "a randomized Hadamard transform of each tile before it is quantized, so that every element is spread over "
        "4,096 and one scale fits all; nodes rotate alike, and the sum of what they send is rotated back; stands "
        "before `all` and a quantizer that rounds",
        "Suresh, Yu, Kumar, McMahan 2017, Distributed Mean Estimation with Limited Communication; Vargaftik et al. "
        "2021, DRIVE: One-bit Distributed Mean Estimation"},
    StageRow{"all", "selector", "", "-", "none with f32 and feedback=none; r otherwise: 4 B per element and generation",
             "sends every element", "-"},
    StageRow{"variance", "selector", "alpha=1.5, zeta=0.999, mode=conserving|faithful", "element",
             "r, v: 8 B per element and generation",
             "sends an element once its accumulated gradient is unambiguous: r^2 > alpha v; v decays by zeta meanwhile",
             kTsuzuku},
    StageRow{
        "variance_hybrid", "selector", "tau, alpha=2, zeta=0.999", "element", "r, v: 8 B per element and generation",
        "as variance, and only where |r| > tau; sends +-tau, so its quantizer is sign(scale=tau)",
        "Tsuzuku et al. 2018, the hybrid; threshold of Strom 2015, Scalable Distributed DNN Training Using Commodity "
        "GPU Cloud Computing"},
    StageRow{"topk", "selector", "ratio, scope=tensor|model, gate=0", "tensor or model",
             "r: 4 B per element and generation; with a gate r, v: 8 B",
             "sends the ratio's share of largest magnitudes, with a gate only among those with r^2 > gate v; "
             "scope=model: of all tensors of a step that have this codec, which are handed in before one of them is "
             "waited for",
             "Beznosikov, Horvath, Richtarik, Safaryan 2020, On Biased Compression for Distributed Learning, "
             "arXiv:2002.12410, Top-k"},
    StageRow{"threshold", "selector", "tau", "element", "r: 4 B per element and generation",
             "sends where |r| > tau; without a quantizer +-tau, that is sign(scale=tau), and the rest stays in r",
             kStrom},
    StageRow{"block_topk", "selector", "ratio, block=4096", "block", "r: 4 B per element and generation",
             "sends the ratio's share of largest magnitudes of each block of so many elements, a power of two, and at "
             "least one; nothing has to be known of the rest of the tensor",
             "Top-k of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410, block by block"},
    StageRow{
        "gaussian_k", "selector", "ratio", "tensor", "r: 4 B per element and generation",
        "cheap top-k: a threshold at which a normal distribution of r's mean and variance keeps the ratio, at most "
        "three times halved or raised by half; at least one is sent, and at most 4/3 of k, the largest",
        "Shi, Chu, Cheung, See 2019, Understanding Top-k Sparsification in Distributed Deep Learning, "
        "arXiv:1911.08772"},
    StageRow{"sidco", "selector", "ratio, stages=3", "tensor", "r: 4 B per element and generation",
             "cheap top-k: a threshold at which an exponential distribution of |r| keeps the ratio, the first stage a "
             "quarter and each other one fitted to what is above the last; at least one is sent, and at most 4/3 of k",
             "Abdelmoniem, Elzanaty, Alouini, Canini 2021, An Efficient Statistical-based Gradient Compression "
             "Technique for Distributed Training Systems, arXiv:2101.10761, exponential fit"},
    StageRow{
        "randk", "selector", "ratio, feedback=scaled|none", "tensor",
        "none with feedback=none; r otherwise: 4 B per element and generation",
        "sends the ratio's share of elements, drawn at random, the same on every node, and of their positions only "
        "a key; none: values are sent over their probability, unbiased, and nothing is kept",
        "Rand-k of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410; subsets of Bentley, Floyd "
        "1987, A Sample of Brilliance"},
    StageRow{"bernoulli", "selector", "p, feedback=scaled|none", "element",
             "none with feedback=none; r otherwise: 4 B per element and generation",
             "sends each element with probability p, the same on every node, and of positions only a key; none: values "
             "are sent over p, unbiased, and nothing is kept",
             "Wangni, Wang, Liu, Zhang 2018, Gradient Sparsification for Communication-Efficient Distributed "
             "Optimization, arXiv:1710.09854, with one probability for all"},
    StageRow{"biased_random", "selector", "first, last", "element", "r: 4 B per element and generation",
             "sends each element with a probability that goes from `first` at the tensor's first tile to `last` at its "
             "last one, as it is, and of positions only a key",
             "Biased random sparsification of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410"},
    StageRow{"adaptive_random", "selector", "ratio, block=4096", "block", "r: 4 B per element and generation",
             "draws the ratio's share of each block of so many elements, a power of two, and at least one, with "
             "probabilities in proportion to magnitudes and with replacement; sends what was drawn as it is",
             "Adaptive random sparsification of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410"},
    StageRow{"f32", "quantizer", "", "element", "-", "sends the value itself, 32 bits", "-"},
    StageRow{"f16", "quantizer", "", "element", "-",
             "rounds to IEEE half precision, nearest even, 16 bits; beyond 65504 that is sent and the rest kept", "-"},
    StageRow{"bf16", "quantizer", "", "element", "-", "rounds to bfloat16, nearest even, 16 bits", "-"},
    StageRow{"pow2", "quantizer", "bits=4, scope=tile|tensor", "tile or tensor", "-",
             "sign and power of two, at most 2^(bits-1)-1 octaves below the tile's largest; smaller ones are not sent",
             "Tsuzuku et al. 2018, the 4-bit quantization (scale per tensor there: scope=tensor)"},
    StageRow{
        "sign", "quantizer", "scale=mean|two_mean|tau|NUMBER|drive|none", "tile", "-",
        "sign times the tile's mean magnitude, 1 bit; two_mean: the mean of the tile's negative elements, or of its "
        "others; tau: times the selector's tau; NUMBER: times that number; drive, after rotate: times the sum of "
        "squares over that of magnitudes, and nothing is kept; none: every node votes with its ranks' weight, +1 or "
        "-1 is the result, ties are +1, and nothing is kept",
        "Seide, Fu, Droppo, Li, Yu 2014, 1-Bit Stochastic Gradient Descent (two_mean); mean magnitude of Karimireddy "
        "et al. 2019, arXiv:1901.09847; drive: Vargaftik et al. 2021, DRIVE; vote of Bernstein, Zhao, "
        "Azizzadenesheli, Anandkumar 2018, arXiv:1810.05291",
        "gather; majority with none"},
    StageRow{"natural", "quantizer", "feedback=scaled|unscaled|none", "element", "-",
             "natural compression: rounded at random to a power of two without bias, 8 bits; 2^-108 to 2^18, smaller "
             "ones are zero; times 8/9 where the error is fed back (scaled); none: nothing is kept",
             "Horvath, Ho, Horvath, Sahu, Canini, Richtarik 2019, Natural Compression for Distributed Deep Learning, "
             "arXiv:1905.10988; 8-bit code of GRACE, Xu et al. 2021"},
    StageRow{
        "dither", "quantizer", "levels=7, norm=max|l2, feedback=scaled|unscaled|none", "tile", "-",
        "standard dithering: magnitudes over the tile's norm, rounded at random to 0 to `levels` steps without bias, 1 "
        "+ "
        "ceil(log2(levels + 1)) bits; times 1/z where the error is fed back (scaled); none: nothing is kept",
        "Alistarh, Grubic, Li, Tomioka, Vojnovic 2017, QSGD, arXiv:1610.02132; random numbers of Salmon, Moraes, Dror, "
        "Shaw 2011, Parallel Random Numbers: As Easy as 1, 2, 3 (Philox4x32-10)"},
    StageRow{"ternary", "quantizer", "clip=2.5|none, feedback=scaled|unscaled|none", "tile", "-",
             "dither(levels=1, norm=max) of magnitudes that are cut off at `clip` times the tile's root mean square, 2 "
             "bits: 0 or plus or minus that; unbiased of what is cut off, and the rest stays in r",
             "Wen, Xu, Yan, Wu, Wang, Chen, Li 2017, TernGrad, arXiv:1705.07878"},
    StageRow{"exponential_dither", "quantizer",
             "levels=7, base=2, mode=unbiased|biased, norm=max|l2, feedback=scaled|unscaled|none", "tile", "-",
             "magnitudes over the tile's norm, rounded to 1, 1/base, ..., base^(1-levels) or 0, at random without bias "
             "or to the nearer one, 1 + ceil(log2(levels + 1)) bits; base 2 is natural dithering; times 1/z where the "
             "error is fed back (scaled); none: nothing is kept",
             "Horvath, Ho, Horvath, Sahu, Canini, Richtarik 2019, Natural Compression for Distributed Deep Learning, "
             "arXiv:1905.10988"},
    StageRow{
        "rounding", "quantizer", "base=2, mode=unbiased|biased, feedback=scaled|unscaled|none", "element", "-",
        "rounded to a power of the base, at random without bias or to the nearer one, 1 + ceil(log2(levels + 1)) bits: "
        "up to 127 levels from the power at or above the tile's largest magnitude down, 0 below; times 1/z where the "
        "error is fed back (scaled); none: nothing is kept",
        "General rounding of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410"},
    StageRow{
        "minmax", "quantizer", "bits=4, bucket=512, feedback=scaled|unscaled|none", "bucket", "-",
        "rounded at random, without bias, to one of 2^bits levels between the least and the largest element of each "
        "bucket of so many, a power of two; behind all only; beyond 2^126 cut off; times 1/z where the error is "
        "fed back (scaled); none: nothing is kept",
        "Markov, Ramezanikebrya, Alistarh 2022, CGX, arXiv:2111.08617, max-min quantizer"},
    StageRow{
        "integer", "quantizer", "scale, mode=unbiased|biased, feedback=unscaled|none", "element", "-",
        "rounded to a whole number over `scale`, at random without bias or to the nearer one, so less than 1/scale "
        "away, or at most half of that; as many bits as the chunk's largest takes, 2 to 24; beyond 2^23 - 1 cut off; "
        "no finite z or delta bounds it, so it is in none of the classes and is not scaled; none: nothing is kept",
        "Scaled integer rounding of Beznosikov, Horvath, Richtarik, Safaryan 2020, arXiv:2002.12410"},
    StageRow{"lowrank", "whole codec", "rank=1, columns=auto|square|number", "tensor",
             "r: 4 B per element and generation; a factor: 4 B times rank times columns",
             "the tensor as a matrix of so many columns (auto: its extents behind the first, multiplied), sent as two "
             "factors of `rank` columns each, one after the other: M Q, made orthonormal of all nodes' mean, and the "
             "transposed M times that, which is the next step's Q; stands in place of selector, quantizer and index "
             "coder; vectors, and what factors would not halve, are sent as all | f32",
             "Vogels, Karimireddy, Jaggi 2019, PowerSGD: Practical Low-Rank Gradient Compression for Distributed "
             "Optimization, arXiv:1905.13727"},
    StageRow{"sketch", "whole codec", "ratio, rows=5, columns=auto|number", "tensor",
             "r: 4 B per element and generation",
             "every node sends a count sketch, `rows` rows of so many columns (auto: as many as the ratio's share of "
             "elements, at least 64), whose mean over nodes estimates every element of the mean; of the ratio's share "
             "with the largest estimates every node then sends exact values; those elements come back and are zero in "
             "the residual; stands in place of selector, quantizer and index coder; what it would not halve is sent as "
             "all | f32",
             "Charikar, Chen, Farach-Colton 2002, Finding Frequent Items in Data Streams; Ivkin, Rothchild, Ullah, "
             "Braverman, Stoica, Arora 2019, Communication-efficient Distributed SGD with Sketching, arXiv:1903.04488"},
    StageRow{"auto", "index coder", "", "chunk", "-", "the smallest of rice, bitmap and raw32, chunk by chunk", "-"},
    StageRow{"rice", "index coder", "", "chunk", "-",
             "gaps in Golomb-Rice code, quotients and remainders apart, parameter of the fewest bits",
             "Golomb 1966, Run-length Encodings; Rice and Plaunt 1971"},
    StageRow{"bitmap", "index coder", "", "chunk", "-", "one bit per element of the chunk", "-"},
    StageRow{"raw32", "index coder", "", "chunk", "-",
             "32 bits per index; with pow2(bits=4) index, sign and exponent share one word", kTsuzuku},
    StageRow{"elias_fano", "index coder", "", "chunk", "-",
             "the lower bits of each index, and its upper part in a bitmap: the position of the j-th one is that plus "
             "j; each index is read without those before it",
             "Elias 1974, Efficient Storage and Retrieval by Content and Address of Static Files; Fano 1971"},
    StageRow{"entropy", "entropy coder", "", "chunk", "-",
             "value codes of 2 to 8 bits in a Huffman code of the chunk's own, without loss, where that is shorter; "
             "after pow2, natural, dither, ternary, exponential_dither, rounding, minmax or integer",
             "Huffman 1952, A Method for the Construction of Minimum-Redundancy Codes; canonical codes of Schwartz, "
             "Kallick 1964",
             "gather", "CPU; with CUDA, by the host"},
};

}  // namespace

std::span<const StageRow> stage_table() noexcept { return kStages; }

}  // namespace gradsieve::codec
