/* gradsieve for C99 and everything that can call C: hand in gradients, get back one average that is bit-identical on
 * every rank. The same library, rules and errors as gradsieve.hpp; docs/client.md explains both.
 *
 * Conventions
 *  1. Every function that can fail returns a gradsieve_status: GRADSIEVE_OK (0) or one of the codes below. Codes are
 *     numbered for ever; a later release only adds some. gradsieve_last_error() has the words.
 *  2. Outputs are named ret_*. They are written on success only and stay untouched on failure. Never NULL.
 *  3. Options structs begin with struct_size = sizeof of that struct; the _INIT macros set it and the defaults. NULL
 *     instead of options means all defaults. A newer struct handed to an older library works as long as the fields it
 *     does not know are zero.
 *  4. Ownership: gradsieve_job_make makes a job, gradsieve_job_free ends it. Tensors belong to their job, as does the
 *     memory that tensor functions point to; all of it is valid until gradsieve_job_free. Strings that come in are
 *     copied. Strings that go out are the library's: do not free them.
 *  5. Threads: a job and its tensors may be used from several threads at once. gradsieve_job_free needs that no other
 *     thread is inside a call on this job or its tensors. gradsieve_last_error() is of the calling thread.
 *  6. Timeouts are in milliseconds; 0 or less = do not wait. No call waits longer. A GRADSIEVE_TIMEOUT loses nothing:
 *     call again to go on waiting.
 *  7. Strings are UTF-8, NUL-terminated. A NULL string is an empty one.
 *  8. In a forked child every handle is dead: calls return GRADSIEVE_FAILED_PRECONDITION, gradsieve_job_free only frees
 *     the handle. Make a job in the child itself.
 *  9. No function throws, prints, sets signal handlers or ends the process.
 * 10. Elements are 32-bit IEEE floats, in the order in which the program lays out its tensor.
 */
#ifndef GRADSIEVE_GRADSIEVE_H
#define GRADSIEVE_GRADSIEVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the caller should do. */
typedef int32_t gradsieve_status;
enum {
    GRADSIEVE_OK = 0,
    GRADSIEVE_INVALID_ARGUMENT = 1,    /* fix the argument */
    GRADSIEVE_NOT_FOUND = 2,           /* name something that exists */
    GRADSIEVE_ALREADY_EXISTS = 3,      /* it is taken: choose another name, or end the other holder */
    GRADSIEVE_FAILED_PRECONDITION = 4, /* fix the stated condition first */
    GRADSIEVE_UNAVAILABLE = 5,         /* the daemon is not there: retry later */
    GRADSIEVE_TIMEOUT = 6,             /* the deadline passed and nothing is lost: call again */
    GRADSIEVE_STEP_FAILED = 7,         /* this step has no result on any rank; state is as before it */
    GRADSIEVE_RESOURCE_EXHAUSTED = 8,  /* raise the stated limit, or ask for less */
    GRADSIEVE_PERMISSION_DENIED = 9,   /* use a user or group that is allowed */
    GRADSIEVE_CORRUPT = 10,            /* bytes from outside do not parse: nothing was taken from them */
    GRADSIEVE_NON_FINITE = 11,         /* a NaN or infinity was handed in; state is untouched */
    GRADSIEVE_BUSY = 12,               /* an earlier call is still open; wait for it, then call again */
    GRADSIEVE_VERSION_MISMATCH = 13,   /* both versions are named: install matching ones */
    GRADSIEVE_UNIMPLEMENTED = 14,      /* not offered yet */
    GRADSIEVE_INTERNAL = 15,           /* a mistake of gradsieve: report it */
    GRADSIEVE_MISMATCH = 16,           /* ranks or nodes disagree; the first difference is named */
    GRADSIEVE_PEER_FAILED = 17,        /* another rank or node is gone; the job has ended */
    GRADSIEVE_CANCELLED = 18           /* ended on request */
};

/* What happens to a step in which some rank hands in a NaN or an infinity. */
enum {
    GRADSIEVE_NON_FINITE_FAIL = 0,      /* the step fails on every rank; the next one may follow */
    GRADSIEVE_NON_FINITE_SKIP_STEP = 1, /* the tensor comes back as NaN on every rank */
    GRADSIEVE_NON_FINITE_ZERO = 2       /* that node's contribution to that tensor counts as zero */
};

typedef struct gradsieve_job gradsieve_job;
typedef struct gradsieve_tensor gradsieve_tensor;
typedef struct gradsieve_snapshot gradsieve_snapshot;
typedef struct gradsieve_bytes gradsieve_bytes;

typedef struct gradsieve_job_options {
    size_t struct_size;
    const char* name;        /* required; job identity = name + run id */
    const char* run_id;      /* NULL: $GRADSIEVE_RUN_ID, $TORCHELASTIC_RUN_ID, $SLURM_JOB_ID, else "default" */
    int64_t rank;            /* -1: $RANK, $SLURM_PROCID, $OMPI_COMM_WORLD_RANK */
    int64_t world_size;      /* -1: $WORLD_SIZE, $SLURM_NTASKS, $OMPI_COMM_WORLD_SIZE */
    const char* codec;       /* NULL: $GRADSIEVE_CODEC, else what the daemon is configured for */
    const char* socket_path; /* NULL: $GRADSIEVE_SOCKET, else the usual places */
    int32_t non_finite;      /* GRADSIEVE_NON_FINITE_... */
    uint32_t check_every;    /* steps between comparisons of gradsieve_job_check_parameters; 0 = never */
    const char* require;     /* "cuda-ipc": start fails where GPU memory would be staged; NULL: $GRADSIEVE_REQUIRE */
} gradsieve_job_options;
#define GRADSIEVE_JOB_OPTIONS_INIT \
    { sizeof(gradsieve_job_options), NULL, NULL, -1, -1, NULL, NULL, GRADSIEVE_NON_FINITE_FAIL, 0, NULL }

typedef struct gradsieve_tensor_options {
    size_t struct_size;
    const char* group;         /* tensors that step together; NULL = the group "" */
    uint32_t samples_max;      /* micro-batches per step that the slab has room for, 1 .. 256 */
    int32_t has_second_moment; /* not 0: also hand in the sum of squared per-sample gradients */
    int32_t on_device;         /* not 0: the gradient lies in GPU memory, see gradsieve_tensor_bind_device */
    int32_t reserved;          /* 0 */
} gradsieve_tensor_options;
#define GRADSIEVE_TENSOR_OPTIONS_INIT \
    { sizeof(gradsieve_tensor_options), NULL, 1, 0, 0, 0 }

/* How the elements of a gradient lie in GPU memory. */
enum { GRADSIEVE_ELEMENT_F32 = 0, GRADSIEVE_ELEMENT_F16 = 1, GRADSIEVE_ELEMENT_BF16 = 2 };

/* GPU memory that a tensor's gradient is handed in from, and that its average is written to. The program's own: it
 * stays allocated until it is unbound or another buffer is bound. */
typedef struct gradsieve_device_buffer {
    size_t struct_size;
    void* pointer;     /* slice 0, on the device; aligned to its element. May lie inside a larger allocation */
    uint64_t elements; /* as the tensor was registered */
    void* stream;      /* CUstream / cudaStream_t on which the gradient is made; NULL: the legacy default stream */
    uint64_t sample_stride_elements; /* from slice to slice of samples_max; 0: elements */
    void* second_moment;             /* elements floats; exactly if registered with has_second_moment */
    int32_t element_type;            /* GRADSIEVE_ELEMENT_... */
    int32_t reserved;                /* 0 */
} gradsieve_device_buffer;
#define GRADSIEVE_DEVICE_BUFFER_INIT \
    { sizeof(gradsieve_device_buffer), NULL, 0, NULL, 0, NULL, GRADSIEVE_ELEMENT_F32, 0 }

typedef struct gradsieve_submit_options {
    size_t struct_size;
    const uint32_t* samples; /* training samples behind each slice, sample_count numbers; NULL = unknown */
    double scale;            /* loss scale / learning rate; finite, above 0 */
    uint32_t sample_count;   /* slices filled, 1 .. samples_max */
    uint32_t reserved;       /* 0 */
} gradsieve_submit_options;
#define GRADSIEVE_SUBMIT_OPTIONS_INIT \
    { sizeof(gradsieve_submit_options), NULL, 1.0, 1, 0 }

/* ---- the library ---- */

/* "0.1.0" */
const char* gradsieve_version(void);
/* "timeout" for GRADSIEVE_TIMEOUT; "unknown" for numbers that are none. */
const char* gradsieve_status_name(gradsieve_status status);
/* The words to the calling thread's last failed call: what, value seen, what is allowed, what to do. "" if none failed.
 * Valid until this thread's next failed call. */
const char* gradsieve_last_error(void);
/* A 64-bit hash that is equal on every machine, for gradsieve_job_check_equal. bytes may be NULL if byte_count is 0. */
uint64_t gradsieve_digest_of(const void* bytes, size_t byte_count);

/* ---- jobs ---- */

/* Checks the options and the environment; talks to nobody yet. */
gradsieve_status gradsieve_job_make(const gradsieve_job_options* options, gradsieve_job** ret_job);
/* Leaves the job in good order if that is not done yet (waits 2 s at most), then frees it and its tensors. */
void gradsieve_job_free(gradsieve_job* job); /* NULL is fine */
/* Registers a tensor; before start. shape has dimensions numbers, and may be NULL for dimensions = 0 (one element). */
gradsieve_status gradsieve_job_add_tensor(gradsieve_job* job, const char* name, const uint64_t* shape,
                                          size_t dimensions, const gradsieve_tensor_options* options,
                                          gradsieve_tensor** ret_tensor);
/* Attaches to the daemon and waits until all ranks are there and agree on tensors and codec. Then binds what was bound
 * to GPU memory before; if that fails the job runs all the same: call again, or bind these tensors anew. */
gradsieve_status gradsieve_job_start(gradsieve_job* job, int64_t timeout_ms);
/* The step number to hand in first for a group (NULL = ""). */
gradsieve_status gradsieve_job_first_step(const gradsieve_job* job, const char* group, uint64_t* ret_step);
/* gradsieve_tensor_bind_device for count tensors of this job in one round trip. */
gradsieve_status gradsieve_job_bind_devices(gradsieve_job* job, gradsieve_tensor* const* tensors,
                                            const gradsieve_device_buffer* const* buffers, size_t count,
                                            int64_t timeout_ms);
/* Waits until a group's step is committed: results of all its tensors are final. */
gradsieve_status gradsieve_job_finish(gradsieve_job* job, uint64_t step, const char* group, int64_t timeout_ms);
/* Copies rank root's slice 0 of the tensor, exactly, to every rank; all ranks call it, in the same order. *ret_values
 * is read-only and valid until this rank submits the tensor; null for a tensor on a device, whose memory is written. */
gradsieve_status gradsieve_job_broadcast(gradsieve_job* job, gradsieve_tensor* tensor, uint32_t root,
                                         int64_t timeout_ms, const float** ret_values);
/* Compares a digest between all ranks; all ranks call it. */
gradsieve_status gradsieve_job_check_equal(gradsieve_job* job, uint64_t digest, int64_t timeout_ms);
/* Called by every rank after each step with all its parameters: count pointers and as many sizes in bytes. Compares
 * them between all ranks at the job's first call and whenever check_every divides step; else returns at once without
 * reading them. GRADSIEVE_MISMATCH on every rank names the step and the ranks that differ. */
gradsieve_status gradsieve_job_check_parameters(gradsieve_job* job, uint64_t step, const void* const* parameters,
                                                const size_t* byte_counts, size_t count, int64_t timeout_ms);
/* Asks every node to keep what it has of a group (NULL = "") at a committed step (0: the last one), for a checkpoint,
 * and waits until all have it on disk. One rank may ask, or all. It stays, also when all ranks have left, until newer
 * ones are complete everywhere or it is released. A node has the last committed step and the one before. Free
 * *ret_snapshot with gradsieve_snapshot_free. */
gradsieve_status gradsieve_job_request_snapshot(gradsieve_job* job, uint64_t step, const char* group,
                                                int64_t timeout_ms, gradsieve_snapshot** ret_snapshot);
/* Before start: the group goes on from step, which every node must have, else start fails with GRADSIEVE_NOT_FOUND
 * naming the node and what it has. All ranks name the same. digest: of the part of this rank's node; 0: any. step 0
 * takes it back. */
gradsieve_status gradsieve_job_resume_from(gradsieve_job* job, uint64_t step, const char* group, uint64_t digest);
/* This node's part of a requested snapshot as bytes, to be kept elsewhere. Free *ret_bytes with
 * gradsieve_bytes_free. */
gradsieve_status gradsieve_job_export_snapshot(gradsieve_job* job, uint64_t step, const char* group, int64_t timeout_ms,
                                               gradsieve_bytes** ret_bytes);
/* Hands such bytes to this node, before start. They must be of this job's name and run id. *ret_snapshot has one
 * part. */
gradsieve_status gradsieve_job_import_snapshot(gradsieve_job* job, const void* bytes, size_t byte_count,
                                               int64_t timeout_ms, gradsieve_snapshot** ret_snapshot);
/* This node lets go of its requested snapshots of step (0: of all steps). */
gradsieve_status gradsieve_job_release_snapshots(gradsieve_job* job, uint64_t step, const char* group,
                                                 int64_t timeout_ms);
/* Leaves in good order; the last call on a job. Open steps of other ranks fail after it, so call it on all. */
gradsieve_status gradsieve_job_detach(gradsieve_job* job, int64_t timeout_ms);
gradsieve_status gradsieve_job_rank(const gradsieve_job* job, uint32_t* ret_rank);
gradsieve_status gradsieve_job_world_size(const gradsieve_job* job, uint32_t* ret_world_size);

/* ---- snapshots ---- */

/* What one node keeps. node and ranks are the snapshot's, valid until it is freed. */
typedef struct gradsieve_snapshot_part_info {
    size_t struct_size;    /* set it before the call */
    const char* node;      /* as the configuration names it */
    const uint32_t* ranks; /* of the job, on that node; ascending */
    size_t rank_count;
    uint64_t digest; /* of the values: equal for equal values, on every machine */
    uint64_t bytes;  /* of the values */
} gradsieve_snapshot_part_info;

void gradsieve_snapshot_free(gradsieve_snapshot* snapshot); /* NULL is fine */
uint64_t gradsieve_snapshot_step(const gradsieve_snapshot* snapshot);
size_t gradsieve_snapshot_part_count(const gradsieve_snapshot* snapshot);
/* index is below the count; parts stand in the order of their lowest ranks. */
gradsieve_status gradsieve_snapshot_part(const gradsieve_snapshot* snapshot, size_t index,
                                         gradsieve_snapshot_part_info* ret_part);

void gradsieve_bytes_free(gradsieve_bytes* bytes); /* NULL is fine */
const void* gradsieve_bytes_data(const gradsieve_bytes* bytes);
size_t gradsieve_bytes_count(const gradsieve_bytes* bytes);

/* ---- tensors ---- */

/* The slab to write before submit: gradsieve_tensor_elements floats of slice sample_index. After start. */
gradsieve_status gradsieve_tensor_gradient(gradsieve_tensor* tensor, uint32_t sample_index, float** ret_values);
/* Room for the sum of squared per-sample gradients, if the tensor was registered with has_second_moment. After start.
 */
gradsieve_status gradsieve_tensor_second_moment(gradsieve_tensor* tensor, float** ret_values);
/* Binds a tensor that was registered with on_device to GPU memory: before start or after it, before its first submit,
 * and again whenever the buffer changes. The tensor must have no open step. Nothing is copied, unless memory given
 * before start cannot be shared: the tensor is staged then, and submit and wait copy it through host memory. The CUDA
 * context of the job's first binding outlives the job. After GRADSIEVE_TIMEOUT the same call again goes on; until then
 * the tensor counts as not bound, and any other binding first waits for this one's answer. */
gradsieve_status gradsieve_tensor_bind_device(gradsieve_tensor* tensor, const gradsieve_device_buffer* buffer,
                                              int64_t timeout_ms);
/* The daemon lets go of the memory: free it or use it otherwise afterwards. Before start: forgets the buffer. */
gradsieve_status gradsieve_tensor_unbind_device(gradsieve_tensor* tensor, int64_t timeout_ms);
/* *ret_is_staged = 1 if the tensor's GPU memory cannot be shared, so that each step copies it twice, else 0. Known from
 * gradsieve_tensor_bind_device before start on. */
gradsieve_status gradsieve_tensor_is_staged(const gradsieve_tensor* tensor, int32_t* ret_is_staged);
/* Hands in step `step`. Does not wait for anybody; a staged tensor's stream is waited for. */
gradsieve_status gradsieve_tensor_submit(gradsieve_tensor* tensor, uint64_t step,
                                         const gradsieve_submit_options* options);
/* The average over all ranks of the step handed in last; read-only, valid until this rank submits the tensor again. On
 * a device *ret_values is NULL, and the average is in slice 0 of the bound memory, final for every stream; after any
 * answer but GRADSIEVE_TIMEOUT nobody touches that memory any more. A staged tensor's average is copied there by this
 * call, which then waits for the bound stream beyond its timeout. */
gradsieve_status gradsieve_tensor_wait(gradsieve_tensor* tensor, int64_t timeout_ms, const float** ret_values);
/* *ret_is_ready = 1 if wait would not sleep, else 0. */
gradsieve_status gradsieve_tensor_is_ready(gradsieve_tensor* tensor, int32_t* ret_is_ready);
gradsieve_status gradsieve_tensor_elements(const gradsieve_tensor* tensor, uint64_t* ret_elements);
/* *ret_name is the tensor's own copy. */
gradsieve_status gradsieve_tensor_name(const gradsieve_tensor* tensor, const char** ret_name);

#ifdef __cplusplus
}
#endif

#endif /* GRADSIEVE_GRADSIEVE_H */
