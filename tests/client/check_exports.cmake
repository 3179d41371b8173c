# What libgradsieve.so exports and needs: the pinned C symbols and no others, C++ of namespace gradsieve's public classes
# alone, and nothing at run time but the C and C++ libraries.
# cmake -DLIBRARY=... -DLIST=... -DNM=... -DREADELF=... -P check_exports.cmake
execute_process(COMMAND ${NM} -D --defined-only --format=posix ${LIBRARY} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE " [^\n]*\n" ";" symbols "${output}")
list(FILTER symbols EXCLUDE REGEX "^$")
set(c_symbols ${symbols})
list(FILTER c_symbols EXCLUDE REGEX "^_Z")
list(SORT c_symbols)
file(STRINGS ${LIST} pinned)
if(NOT c_symbols STREQUAL pinned)
    message(FATAL_ERROR "exported C symbols differ from ${LIST}\nexported: ${c_symbols}\npinned: ${pinned}\n"
                        "A released symbol never goes; a new one is added to the list and to the header.")
endif()

set(cxx_symbols ${symbols})
list(FILTER cxx_symbols INCLUDE REGEX "^_Z")
if(NOT cxx_symbols)
    message(FATAL_ERROR "no C++ symbol is exported: gradsieve.hpp cannot be used")
endif()
foreach(symbol IN LISTS cxx_symbols)
    # Job, Tensor, Status and the free functions; no nested namespace (client, shm) and no standard library.
    if(NOT symbol MATCHES "^_ZNK?9gradsieve(3Job|6Tensor|6Status|9digest_of|7version|16status_code_name|12check_failed)")
        message(FATAL_ERROR "exported, but not part of the public API: ${symbol}")
    endif()
endforeach()

execute_process(COMMAND ${READELF} -d ${LIBRARY} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "NEEDED[^\n]*\\[[^]]*\\]" needed "${dynamic}")
foreach(entry IN LISTS needed)
    string(REGEX REPLACE ".*\\[(.*)\\]" "\\1" name "${entry}")
    if(NOT name MATCHES "^(libstdc\\+\\+|libgcc_s|libc|libm|libasan|libubsan|libtsan|ld-linux.*)\\.so")
        message(FATAL_ERROR "libgradsieve.so needs ${name}: a training program must load it without that")
    endif()
endforeach()
if(NOT dynamic MATCHES "SONAME[^\n]*\\[libgradsieve\\.so\\.0\\]")
    message(FATAL_ERROR "SONAME is not libgradsieve.so.0")
endif()
