# Installs the library's two components into an empty prefix and builds programs outside the tree against it: the C99
# example with find_package and with pkg-config, and a C++20 one. Each is run without a daemon and must say so clearly.
# cmake -DBUILD=... -DSOURCE=... -DWORK=... -DLIBDIR=... -DCC=... -DCXX=... -DSANITIZE=... -P install_test.cmake
if(SANITIZE)
    message("skipped: programs outside the tree are built without -fsanitize=${SANITIZE}")
    return()
endif()
find_program(PKG_CONFIG NAMES pkg-config)
if(NOT PKG_CONFIG)
    message("skipped: pkg-config is not installed (apt install pkg-config)")
    return()
endif()

file(REMOVE_RECURSE ${WORK})
set(prefix ${WORK}/prefix)
foreach(component runtime-lib dev)
    execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} --component ${component}
        OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
# The prefix moves once: nothing installed may remember where it was.
file(RENAME ${prefix} ${WORK}/moved)
set(prefix ${WORK}/moved)

function(expect_no_daemon_error program)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env GRADSIEVE_SOCKET=${WORK}/no-daemon.sock RANK=0 WORLD_SIZE=1
            LD_LIBRARY_PATH=${prefix}/${LIBDIR} ${program}
        RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output TIMEOUT 60)
    if(NOT code EQUAL 1 OR NOT output MATCHES "unavailable: " OR NOT output MATCHES "connecting to ${WORK}/no-daemon.sock"
       OR NOT output MATCHES "systemctl start gradsieved")
        message(FATAL_ERROR "${program}: exit code ${code}, expected 1 and the words about the missing daemon; it said:\n${output}")
    endif()
endfunction()

foreach(project examples/c_minimal tests/client/installed_cxx)
    get_filename_component(name ${project} NAME)
    execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE}/${project} -B ${WORK}/${name} -DCMAKE_PREFIX_PATH=${prefix}
            -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX}
        OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/${name} COMMAND_ERROR_IS_FATAL ANY)
    expect_no_daemon_error(${WORK}/${name}/${name})
endforeach()

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs gradsieve OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags)
execute_process(COMMAND ${CC} -std=c99 -pedantic -Wall -Wextra -Werror ${SOURCE}/examples/c_minimal/main.c ${flags}
        -o ${WORK}/with_pkg_config COMMAND_ERROR_IS_FATAL ANY)
expect_no_daemon_error(${WORK}/with_pkg_config)
