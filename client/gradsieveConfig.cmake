# find_package(gradsieve): target gradsieve::gradsieve, for C99 and C++20. C++ programs also need tl/expected.hpp
# (Debian: libexpected-dev), which gradsieve/status.hpp includes; C programs need nothing else.
include(${CMAKE_CURRENT_LIST_DIR}/gradsieveTargets.cmake)
