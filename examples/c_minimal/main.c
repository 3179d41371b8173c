/* The smallest program on gradsieve's C ABI: one tensor, three steps, every rank hands in its own number and all get
 * the mean. Start it once per rank, with RANK and WORLD_SIZE set, on hosts where gradsieved runs:
 *
 *     RANK=0 WORLD_SIZE=2 ./c_minimal & RANK=1 WORLD_SIZE=2 ./c_minimal
 *
 * Ends with 0, or with 1 and one line that says what went wrong and what to do. */
#include <gradsieve/gradsieve.h>

#include <stdio.h>

enum { ELEMENTS = 8, STEPS = 3, TIMEOUT_MS = 60000 };

static int failed(const char* what, gradsieve_status status) {
    fprintf(stderr, "c_minimal: %s: %s: %s\n", what, gradsieve_status_name(status), gradsieve_last_error());
    return 1;
}

static int run(gradsieve_job* job) {
    const uint64_t shape[1] = {ELEMENTS};
    gradsieve_tensor* tensor = NULL;
    gradsieve_status status = gradsieve_job_add_tensor(job, "numbers", shape, 1, NULL, &tensor);
    if (status != GRADSIEVE_OK) return failed("add_tensor", status);
    status = gradsieve_job_start(job, TIMEOUT_MS);
    if (status != GRADSIEVE_OK) return failed("start", status);

    uint64_t first_step = 0;
    uint32_t rank = 0;
    status = gradsieve_job_first_step(job, NULL, &first_step);
    if (status != GRADSIEVE_OK) return failed("first_step", status);
    status = gradsieve_job_rank(job, &rank);
    if (status != GRADSIEVE_OK) return failed("rank", status);

    for (uint64_t step = first_step; step < first_step + STEPS; ++step) {
        float* gradient = NULL;
        const float* average = NULL;
        status = gradsieve_tensor_gradient(tensor, 0, &gradient);
        if (status != GRADSIEVE_OK) return failed("gradient", status);
        for (int element = 0; element < ELEMENTS; ++element) gradient[element] = (float)rank;
        status = gradsieve_tensor_submit(tensor, step, NULL);
        if (status != GRADSIEVE_OK) return failed("submit", status);
        status = gradsieve_tensor_wait(tensor, TIMEOUT_MS, &average);
        if (status != GRADSIEVE_OK) return failed("wait", status);
        printf("rank %u, step %llu: mean %g\n", (unsigned)rank, (unsigned long long)step, average[0]);
    }
    status = gradsieve_job_detach(job, TIMEOUT_MS);
    return status == GRADSIEVE_OK ? 0 : failed("detach", status);
}

int main(void) {
    gradsieve_job_options options = GRADSIEVE_JOB_OPTIONS_INIT;
    gradsieve_job* job = NULL;
    options.name = "c_minimal";
    options.codec = "all | f32"; /* exact, so that the numbers are easy to check */
    const gradsieve_status status = gradsieve_job_make(&options, &job);
    if (status != GRADSIEVE_OK) return failed("make", status);
    const int result = run(job);
    gradsieve_job_free(job);
    return result;
}
