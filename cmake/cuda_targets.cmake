# gradsieve_cuda_runtime, what programs with kernels link: CUDA's runtime, or the emulated card.
# gradsieve_cuda_sources(FILES...): kernels are compiled by nvcc, or as C++ for the emulated card.
function(gradsieve_cuda_sources)
    if(GRADSIEVE_CUDA STREQUAL "EMULATED")
        set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-fno-strict-aliasing;-Wno-unknown-pragmas;-Wno-unused-function;-include;cuda_runtime.h")
    endif()
endfunction()
if(GRADSIEVE_CUDA STREQUAL "EMULATED")
    add_subdirectory(tests/emulated_cuda)
elseif(GRADSIEVE_HAS_CUDA)
    add_library(gradsieve_cuda_runtime INTERFACE)
    target_link_libraries(gradsieve_cuda_runtime INTERFACE CUDA::cudart_static)
endif()
