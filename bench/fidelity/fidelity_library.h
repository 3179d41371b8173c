/* What the study's Python side calls, by ctypes: a job of several nodes in this process, whose average of each step
 * comes back with the bytes that it cost. One thread a job. The library owns what it returns; callers own what they
 * pass. */
#ifndef GRADSIEVE_BENCH_FIDELITY_LIBRARY_H
#define GRADSIEVE_BENCH_FIDELITY_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fidelity_job fidelity_job;

/** A tensor's name and shape: `dimensions` extents. */
typedef struct fidelity_tensor {
    const char* name;
    const uint64_t* shape;
    uint32_t dimensions;
} fidelity_tensor;

typedef struct fidelity_options {
    const char* codec;      /**< with rules, as in the configuration; "" is the daemon's default for these samples */
    const char* job;        /**< a name: seeds what codecs draw at random */
    uint32_t nodes;         /**< 2..64 */
    uint32_t ranks;         /**< of each node, 1..64 */
    uint32_t samples;       /**< gradients that each rank hands in a step, 1..64 */
    uint64_t batch_samples; /**< training samples of a node and step; 0: not known */
} fidelity_options;

/** Sums over nodes and steps. */
typedef struct fidelity_counters {
    uint64_t wire_bytes;    /**< that the transport sent, frames and the job's formation included */
    uint64_t payload_bytes; /**< that encoders made, once for each node */
    uint64_t kept_elements; /**< sent */
} fidelity_counters;

/** A formed job, or NULL with the reason in `ret_error` (at most `error_bytes` with the final zero). Tensors get the
 * pipelines that the daemon gives them: rules, exact small tensors, shapes. */
fidelity_job* fidelity_make(const fidelity_options* options, const fidelity_tensor* tensors, uint32_t tensor_count,
                            char* ret_error, size_t error_bytes);

/** One step. `samples`: by node, then rank, then sample, all tensors one behind the other in the order given;
 * `second_moments`: by node, then rank, likewise, or NULL; `rescale`: by what the gradients' unit changed.
 * `ret_average`: all tensors. Returns 0, or 1 for a reason that fidelity_error tells; the job has ended then. */
int fidelity_step(fidelity_job* job, const float* samples, const float* second_moments, float rescale,
                  float* ret_average);
/** Why the last step failed; "" if it did not. Valid until the next step. */
const char* fidelity_error(const fidelity_job* job);

void fidelity_read_counters(const fidelity_job* job, fidelity_counters* ret_counters);

/** Canonical codec of one tensor, in the order given; valid as long as the job. NULL beyond the last one. */
const char* fidelity_codec(const fidelity_job* job, uint32_t tensor);
/** Where its variances of the last step came from, e.g. "groups"; a constant. NULL beyond the last one. */
const char* fidelity_variance_source(const fidelity_job* job, uint32_t tensor);

void fidelity_free(fidelity_job* job);

#ifdef __cplusplus
}
#endif
#endif
