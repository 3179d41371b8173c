#include "codec/random_rounds.hpp"

namespace gradsieve::codec {

RandomRounds random_rounds(const RandomStream& stream) noexcept {
    RandomRounds rounds;
    rounds.stream = stream;
    PhiloxKey key = stream.key;
    for (auto& round : rounds.keys) {
        round[0] = key.low;
        round[1] = key.high;
        key.low += kPhiloxIncrement0;
        key.high += kPhiloxIncrement1;
    }
    return rounds;
}

}  // namespace gradsieve::codec
