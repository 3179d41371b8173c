// What else than payloads a result takes: values that somebody else has computed, exact ones, none.
#include "codec/decoder_impl.hpp"
#include "codec/digest.hpp"
#include "codec/payload_kernels.hpp"

#include <cstring>
#include <limits>

namespace gradsieve::codec {

void ResultTensor::fill_not_a_number() noexcept {
    std::fill_n(impl_->memory, impl_->elements, std::numeric_limits<float>::quiet_NaN());
    impl_->forget();
}

DecodeResult ResultTensor::copy_exact(Step step, std::span<const float> values) noexcept {
    GRADSIEVE_CHECK(values.size() == impl_->elements);
    return write_all(step, [&](ElementCount first, std::span<float> ret_values) {
        std::memcpy(ret_values.data(), values.data() + first, ret_values.size_bytes());
    });
}

DecodeResult ResultTensor::write_all(
    Step step, const std::function<void(ElementCount first, std::span<float> inout_values)>& write) {
    Impl& impl = *impl_;
    DecodeResult result;
    for (std::size_t chunk = 0; chunk < impl.chunks.size(); ++chunk) {
        const std::uint64_t key = digest_key(impl.tensor, step, static_cast<std::uint32_t>(chunk));
        const auto count = static_cast<std::uint32_t>(impl.chunk_elements(chunk));
        for (std::uint32_t first = 0; first < count; first += kTileElements) {
            const std::uint32_t run = std::min(static_cast<std::uint32_t>(kTileElements), count - first);
            float* out = impl.chunk_memory(chunk) + first;
            write(chunk * kChunkElements + first, {out, run});
            result.digest += payload_kernels().digest_run(out, first, run, key);
        }
    }
    result.touched_elements = impl.elements;
    impl.forget();
    return result;
}

DecodeResult ResultTensor::write_list(Step step, std::span<const ElementCount> elements,
                                      std::span<const float> values) {
    constexpr std::size_t kRun = 1024, kPrefetchCells = 24;
    Impl& impl = *impl_;
    DecodeResult result;
    std::size_t next = 0;
    for (std::size_t chunk = 0; chunk < impl.chunks.size(); ++chunk) {
        impl.clear_chunk(chunk);
        Touched& touched = impl.chunks[chunk];
        float* out = impl.chunk_memory(chunk);
        const std::uint64_t key = digest_key(impl.tensor, step, static_cast<std::uint32_t>(chunk));
        const ElementCount begin = chunk * kChunkElements;
        const std::size_t first = next;
        while (next < elements.size() && elements[next] < begin + impl.chunk_elements(chunk)) ++next;
        touched.count = static_cast<std::uint32_t>(next - first);
        if (touched.indices.size() < touched.count + kIndexSlack) touched.indices.resize(touched.count + kIndexSlack);
        std::uint32_t* indices = touched.indices.data();
        for (std::size_t i = 0; i < touched.count; ++i)
            indices[i] = static_cast<std::uint32_t>(elements[first + i] - begin);
        for (std::size_t run = 0; run < touched.count; run += kRun) {
            const std::size_t end = std::min<std::size_t>(run + kRun, touched.count);
            for (std::size_t i = run; i < end; ++i) {
                __builtin_prefetch(out + indices[std::min<std::size_t>(i + kPrefetchCells, touched.count - 1)], 1);
                out[indices[i]] = values[first + i];
            }
            result.digest +=
                payload_kernels().digest_list(out, indices + run, 0, static_cast<std::uint32_t>(end - run), key);
        }
    }
    result.touched_elements = next;
    return result;
}

}  // namespace gradsieve::codec
