#include "operator_theory.hpp"

#include "operator_exponential.hpp"
#include "operator_integer.hpp"
#include "operator_selections.hpp"

#include <algorithm>
#include <cmath>

namespace gradsieve::codec {
namespace {

// ---- constants ----

/// Rounding to the nearest of levels whose neighbors are at most `low` and `high` apart (general biased rounding).
Classes nearest_rounding(double low, double high) {
    const double middle = (low + high) / 2;
    return {std::pow(low / middle, 2), high / middle, low / middle, middle * middle / (low * high), 0};
}
/// pow2: all but the largest element may be too small to be sent, and the top octave is cut down to its lower end.
/// Where what is not sent weighs more than that cut, the largest had better be a power of two.
Classes nearest_power_classes(std::size_t count, int octaves) {
    const double unsent = std::pow(std::ldexp(0.75, -octaves), 2) * static_cast<double>(count - 1);
    return {1 / (4 + unsent), 4.0 / 3, std::min(2 / (4 + unsent), 1 / (1 + unsent)),
            std::max(1 + unsent, (4 + unsent) / 3), 0};
}
/// An unbiased operator of second moment z, by itself.
Classes unbiased_classes(double z) { return {1, z, 1, z < 2 ? 1 / (2 - z) : INFINITY, z}; }
/// And times 1/z.
Classes scaled_classes(double z) { return {1 / (z * z), 1, 1 / z, z, 0}; }
/// Behind Top-k.
Classes behind_top_k(Classes classes, double share) {
    return {classes.a * share, classes.b, classes.g * share, classes.delta / share, 0};
}
/// Behind Top-k an unbiased operator of z < 2 stays a contraction: error is all but share * (2 - z).
Classes unbiased_behind_top_k(double z, double share) { return {share, z, share, 1 / (share * (2 - z)), 0}; }

MakeVector constant(double value) {
    return [value](std::size_t count) { return constant_vector(count, static_cast<float>(value)); };
}
/// (first, rest, ..., rest)
MakeVector first_and_rest(double first, double rest) {
    return [first, rest](std::size_t count) {
        std::vector<float> values = constant_vector(count, static_cast<float>(rest));
        values[0] = static_cast<float>(first);
        return values;
    };
}
/// Where dithering by the max norm errs most.
MakeVector worst_of_max_norm(int levels) {
    return [levels](std::size_t count) {
        const double z = dither_second_moment({levels, true}, static_cast<double>(count));
        return first_and_rest(1, 1 / (2 * z * levels))(count);
    };
}

void add_deterministic(std::vector<OperatorTheory>& rows) {
    const float below_two = std::nextafter(2.0F, 0.0F);
    rows.push_back({"all | f32", false, exactly, [](std::size_t) { return Classes{}; }, {}});
    const auto above_half = [](double middle) { return constant(std::nextafter(static_cast<float>(middle), 2.0F)); };
    const struct {
        const char* text;
        int bits;
        int least_exponent;
    } floats[] = {{"all | f16", 10, -14}, {"all | bf16", 7, -126}};
    for (const auto& [text, bits, least] : floats) {
        const double step = std::ldexp(1.0, -bits);
        const double middle = 1 + step / 2;
        rows.push_back({text,
                        false,
                        [bits, least](Values values) { return nearest_float(values, bits, least); },
                        [step](std::size_t) { return nearest_rounding(1, 1 + step); },
                        {constant(middle), above_half(middle), constant(middle), constant(middle)}});
    }
    for (const int bits : {3, 4, 8}) {
        const int octaves = (1 << (bits - 1)) - 1;
        const float unsent = std::nextafter(std::ldexp(0.75F, -octaves), 0.0F);
        const auto cut = first_and_rest(below_two, unsent);
        const auto whole = bits < 4 ? first_and_rest(1, unsent) : cut;
        rows.push_back({"all | pow2(bits=" + std::to_string(bits) + ")",
                        false,
                        [octaves](Values values) { return nearest_power(values, octaves); },
                        [octaves](std::size_t count) { return nearest_power_classes(count, octaves); },
                        {cut, first_and_rest(4, 3), whole, whole, 1e-3}});
    }
    rows.push_back({"all | sign",
                    false,
                    scaled_signs,
                    [](std::size_t count) {
                        const double share = 1 / static_cast<double>(count);
                        return Classes{share, 1, share, 1 / share, 0};
                    },
                    {one_hot_vector, one_hot_vector, one_hot_vector, one_hot_vector}});
    rows.push_back({"all | sign(scale=two_mean)",
                    false,
                    two_means,
                    [](std::size_t count) {
                        const double share = 1 / static_cast<double>(count);
                        return Classes{share, 1, share, 1 / share, 0};
                    },
                    {one_hot_vector, one_hot_vector, one_hot_vector, one_hot_vector}});
    rows.push_back({"all | sign(scale=none)", false, [](Values values) { return signs_times(values, 1); }, {}, {}});
    rows.push_back({"all | sign(scale=0.5)", false, [](Values values) { return signs_times(values, 0.5); }, {}, {}});
    rows.push_back(
        {"threshold(0.5) | f32", false, [](Values values) { return above_then(values, 0.5, exactly); }, {}, {}});
    rows.push_back(
        {"threshold(0.5)",
         false,
         [](Values values) { return above_then(values, 0.5, [](Values list) { return signs_times(list, 0.5); }); },
         {},
         {}});
}

/// One that sends largest magnitudes.
struct SelectorTheory {
    std::string text;
    std::function<Moments(Values, const Quantize&)> select;
    std::function<double(std::size_t)> share;  ///< the least of the energy that it keeps
    std::function<MakeVector(double)> worst;   ///< no more is kept, whatever the magnitude of what is not zero
};
SelectorTheory top_k(double ratio) {
    return {
        "topk(" + std::to_string(ratio) + ")",
        [ratio](Values values, const Quantize& quantize) { return largest_then(values, ratio, quantize); },
        [ratio](std::size_t count) { return static_cast<double>(kept_of(ratio, count)) / static_cast<double>(count); },
        constant};
}
/// Whose worst vectors have nothing but in the block that keeps least.
SelectorTheory block_top_k(double ratio, std::size_t block) {
    const auto worst = [ratio, block](double value) -> MakeVector {
        return [ratio, block, value](std::size_t count) {
            const Block at = worst_block(ratio, block, count);
            std::vector<float> values(count, 0.0F);
            std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(at.first), at.count, static_cast<float>(value));
            return values;
        };
    };
    return {"block_topk(" + std::to_string(ratio) + ", block=" + std::to_string(block) + ")",
            [ratio, block](Values values, const Quantize& quantize) {
                return largest_of_blocks_then(values, ratio, block, quantize);
            },
            [ratio, block](std::size_t count) { return worst_block(ratio, block, count).share; }, worst};
}

void add_selector(std::vector<OperatorTheory>& rows, const SelectorTheory& selector) {
    const auto& share = selector.share;
    const auto& worst = selector.worst;
    const auto add = [&](const std::string& quantizer, bool is_random, const Quantize& quantize,
                         std::function<Classes(std::size_t)> classes, const Extremal& extremal) {
        rows.push_back({selector.text + " | " + quantizer, is_random,
                        [select = selector.select, quantize](Values values) { return select(values, quantize); },
                        std::move(classes), extremal});
    };
    add("f32", false, exactly, [share](std::size_t count) { return behind_top_k({}, share(count)); },
        {worst(2.5), worst(2.5), worst(2.5), worst(2.5)});
    const MakeVector middle = worst(257 / 256.0);
    add(
        "bf16", false, [](Values list) { return nearest_float(list, 7); },
        [share](std::size_t count) { return behind_top_k(nearest_rounding(128, 129), share(count)); },
        {middle, worst(std::nextafter(257 / 256.0F, 2.0F)), middle, middle});
    add("sign", false, scaled_signs_of_list, {}, {});
    add("sign(scale=two_mean)", false, two_means_of_list, {}, {});
    add(
        "natural", true, [](Values list) { return natural_rounding(list, 8.0 / 9); },
        [share](std::size_t count) { return behind_top_k(scaled_classes(9.0 / 8), share(count)); },
        {worst(9.0 / 8), worst(1.5), worst(1.5), worst(1.5)});
    add(
        "natural(feedback=unscaled)", true, [](Values list) { return natural_rounding(list, 1); },
        [share](std::size_t count) { return unbiased_behind_top_k(9.0 / 8, share(count)); },
        {worst(1), worst(4.0 / 3), worst(1), worst(4.0 / 3)});
}

void add_dithered_top_k(std::vector<OperatorTheory>& rows) {
    constexpr int kLevels = 7;
    for (const double ratio : {0.01, 0.1, 1.0})
        for (const bool is_scaled : {true, false}) {
            const auto classes = [ratio, is_scaled](std::size_t count) {
                const auto kept = static_cast<double>(kept_of(ratio, count));
                const double share = kept / static_cast<double>(count);
                const double z = list_dither_second_moment(kLevels, kept);
                if (is_scaled) return behind_top_k(scaled_classes(z), share);
                return z < 2 ? unbiased_behind_top_k(z, share) : Classes{share, z, share, INFINITY, 0};
            };
            rows.push_back({"topk(" + std::to_string(ratio) +
                                ") | dither(levels=7, feedback=" + (is_scaled ? "scaled)" : "unscaled)"),
                            true,
                            [ratio, is_scaled](Values values) {
                                return largest_then(values, ratio, [is_scaled](Values list) {
                                    return dithering_of_list(list, kLevels, is_scaled);
                                });
                            },
                            classes,
                            {}});
        }
}

void add_random(std::vector<OperatorTheory>& rows) {
    rows.push_back({"all | natural(feedback=none)",
                    true,
                    [](Values values) { return natural_rounding(values, 1); },
                    [](std::size_t) { return unbiased_classes(9.0 / 8); },
                    {constant(1), constant(4.0 / 3), constant(1), constant(4.0 / 3)}});
    rows.push_back({"all | natural",
                    true,
                    [](Values values) { return natural_rounding(values, 8.0 / 9); },
                    [](std::size_t) { return scaled_classes(9.0 / 8); },
                    {constant(9.0 / 8), constant(1.5), constant(1.5), constant(1.5)}});
    for (const bool is_scaled : {false, true}) {
        const auto classes = [is_scaled](std::size_t count) {
            const double z = dither_second_moment({1, true}, static_cast<double>(count));
            return is_scaled ? scaled_classes(z) : unbiased_classes(z);
        };
        rows.push_back({std::string("all | ternary(clip=none, feedback=") + (is_scaled ? "scaled)" : "none)"),
                        true,
                        [is_scaled](Values values) {
                            return dithering(values, {1, true, is_scaled});
                        },
                        classes,
                        {one_hot_vector, worst_of_max_norm(1), worst_of_max_norm(1), worst_of_max_norm(1)}});
    }
    for (const int levels : {1, 7, 127})
        for (const bool is_max_norm : {true, false})
            for (const bool is_scaled : {false, true}) {
                const DitherTheory rule{levels, is_max_norm, is_scaled};
                // By the l2 norm the bound is reached only where all levels are below a half.
                const bool is_reached = is_max_norm || levels < 16;
                const MakeVector worst = is_max_norm ? worst_of_max_norm(levels) : constant(1);
                const auto classes = [rule](std::size_t count) {
                    const double z = dither_second_moment(rule, static_cast<double>(count));
                    return rule.is_scaled ? scaled_classes(z) : unbiased_classes(z);
                };
                rows.push_back({"all | dither(levels=" + std::to_string(levels) + ", norm=" +
                                    (is_max_norm ? "max" : "l2") + ", feedback=" + (is_scaled ? "scaled)" : "none)"),
                                true, [rule](Values values) { return dithering(values, rule); }, classes,
                                is_reached ? Extremal{one_hot_vector, worst, worst, worst} : Extremal{}});
            }
}

/// n, of which as many as there can be lie by the l2 norm at the harmonic mean of two powers of two, the rest at 0.
std::vector<float> harmonic_of_l2(std::size_t count) {
    std::size_t nonzero = 9;  // 1/3 is the harmonic mean of 1/2 and 1/4
    while (4 * nonzero <= count) nonzero *= 4;
    std::vector<float> values = constant_vector(count, 1.0F);
    if (count > nonzero) std::fill(values.begin() + static_cast<std::ptrdiff_t>(nonzero), values.end(), 0.0F);
    return values;
}
OperatorTheory row_of(std::string text, const ExponentialTheory& rule, std::function<Classes(std::size_t)> classes,
                      const Extremal& extremal) {
    return {std::move(text), !rule.is_biased, [rule](Values values) { return exponential_rounding(values, rule); },
            std::move(classes), extremal};
}
std::function<Classes(std::size_t)> unbiased_exponential_classes(const ExponentialTheory& rule) {
    return [rule](std::size_t count) {
        const double z = exponential_second_moment(rule, static_cast<double>(count));
        return rule.is_scaled ? scaled_classes(z) : unbiased_classes(z);
    };
}
std::string text_of(const ExponentialTheory& rule) {
    return "exponential_dither(levels=" + std::to_string(rule.levels) + ", base=" + std::to_string(rule.base) +
           ", norm=" + (rule.is_max_norm ? "max" : "l2") + (rule.is_biased ? ", mode=biased" : ", feedback=");
}
/// All but one beside the middle of two levels, where theory finds a constant.
MakeVector beside_middle(const ExponentialTheory& rule, MidwayRounding NearestLevelWorst::*constant) {
    return [rule, constant](std::size_t count) {
        const MidwayRounding at = nearest_level_worst(rule, count).*constant;
        return first_and_rest(1, at.size * (at.level > at.size ? 1 + 1e-6 : 1 - 1e-6))(count);
    };
}

void add_exponential_dither(std::vector<OperatorTheory>& rows) {
    for (const auto& [base, levels] : {std::pair(2.0, 7), std::pair(4.0, 3), std::pair(2.0, 31)})
        for (const bool is_max_norm : {true, false})
            for (const std::string feedback : {"none)", "unscaled)", "scaled)"}) {
                const ExponentialTheory rule{base, levels, is_max_norm, false, feedback == "scaled)"};
                // Where few levels leave much below the lowest, the two parts of z are reached at different vectors.
                const MakeVector worst = is_max_norm ? first_and_rest(1, 2.0 / 3) : harmonic_of_l2;
                const Extremal extremal =
                    levels < 16 ? Extremal{} : Extremal{one_hot_vector, worst, worst, worst, 1e-3};
                rows.push_back(
                    row_of("all | " + text_of(rule) + feedback, rule, unbiased_exponential_classes(rule), extremal));
            }
    for (const auto& [base, levels] : {std::pair(2.0, 7), std::pair(4.0, 3), std::pair(2.0, 1)}) {
        const ExponentialTheory rule{base, levels, true, true};
        using Worst = NearestLevelWorst;
        rows.push_back(row_of("all | " + text_of(rule) + ")", rule,
                              [rule](std::size_t count) { return nearest_level_worst(rule, count).classes; },
                              {beside_middle(rule, &Worst::a), beside_middle(rule, &Worst::b),
                               beside_middle(rule, &Worst::g), beside_middle(rule, &Worst::delta)}));
    }
    // By the l2 norm all of a vector may be below half the lowest level, of which nothing is sent.
    const ExponentialTheory of_l2{4, 3, false, true};
    rows.push_back(row_of("all | " + text_of(of_l2) + ")", of_l2, {}, {}));
    for (const bool is_scaled : {true, false}) {
        const ExponentialTheory rule{2, 7, true, false, is_scaled, true};
        SelectorTheory selector = top_k(0.1);
        rows.push_back(
            {selector.text + " | " + text_of(rule) + (is_scaled ? "scaled)" : "unscaled)"),
             true,
             [rule, selector](Values values) {
                 return selector.select(values, [rule](Values list) { return exponential_rounding(list, rule); });
             },
             [rule, selector](std::size_t count) {
                 const double z = exponential_second_moment(rule, static_cast<double>(kept_of(0.1, count)));
                 const double share = selector.share(count);
                 return rule.is_scaled ? behind_top_k(scaled_classes(z), share) : unbiased_behind_top_k(z, share);
             },
             {}});
    }
}
void add_rounding(std::vector<OperatorTheory>& rows) {
    for (const double base : {1.5, 2.0, 4.0}) {
        const std::string text = "all | rounding(base=" + std::to_string(base);
        const MakeVector worst = constant(2 * base / (base + 1));  // the harmonic mean of 1 and the base
        for (const std::string feedback : {", feedback=none)", ", feedback=unscaled)", ", feedback=scaled)"}) {
            const ExponentialTheory rule{base, 0, true, false, feedback == ", feedback=scaled)"};
            rows.push_back(
                row_of(text + feedback, rule, unbiased_exponential_classes(rule), {constant(1), worst, worst, worst}));
        }
        const MakeVector down = constant((1 + base) / 2 * (1 - 1e-6));
        const MakeVector up = constant((1 + base) / 2 * (1 + 1e-6));
        rows.push_back(row_of(text + ", mode=biased)", {base, 0, true, true},
                              [base](std::size_t) { return nearest_rounding(1, base); }, {down, up, down, down}));
    }
}

/// The ends far from zero, and all else there: halfway between two levels, whose number is even.
std::vector<float> opposite_ends(std::size_t count) {
    std::vector<float> values(count, 0.0F);
    values.front() = 4.0F;
    if (count > 1) values.back() = -4.0F;
    return values;
}
void add_minmax(std::vector<OperatorTheory>& rows) {
    for (const int bits : {2, 4, 8})
        for (const std::string feedback : {"none", "unscaled", "scaled"}) {
            const MinMaxTheory rule{bits, feedback == "scaled"};
            const auto classes = [rule](std::size_t count) {
                const double z = minmax_second_moment(rule, count);
                return rule.is_scaled ? scaled_classes(z) : unbiased_classes(z);
            };
            // The bound that scales values is the vector's own: where it is largest, so is what is sent.
            const Extremal extremal =
                rule.is_scaled ? Extremal{} : Extremal{one_hot_vector, opposite_ends, opposite_ends, opposite_ends};
            rows.push_back({"all | minmax(bits=" + std::to_string(bits) + ", bucket=4096, feedback=" + feedback + ")",
                            true, [rule](Values values) { return between_ends(values, rule); }, classes, extremal});
        }
}

std::vector<OperatorTheory> make_rows() {
    std::vector<OperatorTheory> rows;
    add_deterministic(rows);
    for (const double ratio : {0.01, 0.1, 1.0}) add_selector(rows, top_k(ratio));
    add_selector(rows, block_top_k(0.11, 64));  // of 1000 elements the last block, of 40, keeps the least share
    add_selector(rows, block_top_k(0.1, 1024));
    add_dithered_top_k(rows);
    add_random(rows);
    add_exponential_dither(rows);
    add_rounding(rows);
    add_minmax(rows);
    add_integer(rows);
    add_random_selectors(rows);
    return rows;
}

}  // namespace

Pipeline OperatorTheory::pipeline() const { return *parse_pipeline(text); }

const std::vector<OperatorTheory>& operator_theories() {
    static const std::vector<OperatorTheory> rows = make_rows();
    return rows;
}

std::vector<std::size_t> rows_with(bool (*predicate)(const OperatorTheory&)) {
    std::vector<std::size_t> rows;
    for (std::size_t row = 0; row < operator_theories().size(); ++row)
        if (predicate(operator_theories()[row])) rows.push_back(row);
    return rows;
}
bool is_any(const OperatorTheory& /*row*/) { return true; }
bool has_classes(const OperatorTheory& row) { return static_cast<bool>(row.classes); }
bool has_extremes(const OperatorTheory& row) { return has_classes(row) && row.extremal.a; }
bool has_contraction(const OperatorTheory& row) {
    return has_classes(row) && has_residual(row.pipeline()) && std::isfinite(row.classes(kTileElements).delta);
}
std::string name_of(const OperatorTheory& row) {
    std::string name;
    for (const char letter : row.text)
        if (std::isalnum(static_cast<unsigned char>(letter)) != 0) name += letter;
    return name;
}

}  // namespace gradsieve::codec
