/* A training program in C99, driven by c_abi_test.cpp against the fake daemon. */
#ifndef GRADSIEVE_TESTS_C_PROGRAM_H
#define GRADSIEVE_TESTS_C_PROGRAM_H

#ifdef __cplusplus
extern "C" {
#endif

/* 0, or the source line of the first expectation that did not hold. */
int run_c_program(const char* socket_path);

#ifdef __cplusplus
}
#endif

#endif
