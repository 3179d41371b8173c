/* Compiled as C99 with -pedantic -Werror: the header and its macros are what is tested here, as much as the calls. */
#include "c_program.h"

#include "gradsieve/gradsieve.h"

#include <string.h>

#define EXPECT(condition)                  \
    do {                                   \
        if (!(condition)) return __LINE__; \
    } while (0)
#define EXPECT_OK(call) EXPECT((call) == GRADSIEVE_OK)

enum { PATIENT_MS = 30000 };

static int step_once(gradsieve_job* job, gradsieve_tensor* tensor, uint64_t step) {
    const uint32_t samples[2] = {8, 8};
    gradsieve_submit_options submit = GRADSIEVE_SUBMIT_OPTIONS_INIT;
    float* slices[2] = {NULL, NULL};
    const float* average = NULL;
    int32_t is_ready = -1;
    for (uint32_t slice = 0; slice < 2; ++slice) {
        EXPECT_OK(gradsieve_tensor_gradient(tensor, slice, &slices[slice]));
        for (int element = 0; element < 6; ++element) slices[slice][element] = (float)(step + 2 * slice);
    }
    submit.sample_count = 2;
    submit.samples = samples;
    submit.scale = 4.0;
    EXPECT_OK(gradsieve_tensor_submit(tensor, step, &submit));
    EXPECT_OK(gradsieve_tensor_wait(tensor, PATIENT_MS, &average));
    for (int element = 0; element < 6; ++element) EXPECT(average[element] == (float)(step + 1));
    EXPECT_OK(gradsieve_tensor_is_ready(tensor, &is_ready));
    EXPECT(is_ready == 1);
    EXPECT_OK(gradsieve_job_finish(job, step, "g", PATIENT_MS));
    return 0;
}

static int run_job(gradsieve_job* job) {
    const uint64_t shape[2] = {2, 3};
    gradsieve_tensor_options options = GRADSIEVE_TENSOR_OPTIONS_INIT;
    gradsieve_tensor* tensor = NULL;
    float* moment = NULL;
    const float* value = NULL;
    const void* parameters[1] = {NULL};
    size_t byte_counts[1] = {0};
    const char* name = NULL;
    uint64_t first_step = 0;
    uint64_t elements = 0;
    uint32_t rank = 9;
    uint32_t world_size = 9;
    options.group = "g";
    options.samples_max = 2;
    options.has_second_moment = 1;
    EXPECT_OK(gradsieve_job_add_tensor(job, "w", shape, 2, &options, &tensor));
    EXPECT_OK(gradsieve_tensor_elements(tensor, &elements));
    EXPECT(elements == 6);
    EXPECT_OK(gradsieve_tensor_name(tensor, &name));
    EXPECT(strcmp(name, "w") == 0);
    EXPECT_OK(gradsieve_job_start(job, PATIENT_MS));
    EXPECT_OK(gradsieve_job_rank(job, &rank));
    EXPECT_OK(gradsieve_job_world_size(job, &world_size));
    EXPECT(rank == 0 && world_size == 1);
    EXPECT_OK(gradsieve_tensor_second_moment(tensor, &moment));
    EXPECT(moment != NULL);
    EXPECT_OK(gradsieve_job_broadcast(job, tensor, 0, PATIENT_MS, &value));
    EXPECT_OK(gradsieve_job_check_equal(job, gradsieve_digest_of(value, elements * sizeof(float)), PATIENT_MS));
    parameters[0] = value;
    byte_counts[0] = elements * sizeof(float);
    EXPECT_OK(gradsieve_job_check_parameters(job, 0, parameters, byte_counts, 1, PATIENT_MS));
    EXPECT_OK(gradsieve_job_first_step(job, "g", &first_step));
    EXPECT(first_step == 1);
    for (uint64_t step = first_step; step < first_step + 3; ++step) {
        const int line = step_once(job, tensor, step);
        if (line != 0) return line;
    }
    EXPECT_OK(gradsieve_job_detach(job, PATIENT_MS));
    return 0;
}

int run_c_program(const char* socket_path) {
    gradsieve_job_options options = GRADSIEVE_JOB_OPTIONS_INIT;
    gradsieve_job* job = NULL;
    int line = 0;
    options.name = "c program";
    options.run_id = "run";
    options.rank = 0;
    options.world_size = 1;
    options.codec = "all | f32";
    options.check_every = 100;
    options.socket_path = socket_path;
    EXPECT_OK(gradsieve_job_make(&options, &job));
    line = run_job(job);
    gradsieve_job_free(job);
    return line;
}
