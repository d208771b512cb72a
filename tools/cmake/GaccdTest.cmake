# Sources of tests are in folders, and are linked into few programs: a program is a link, and a link
# costs seconds. Each CTest entry runs the tests of its own sources, in a process of its own.

# Compiling takes half the time of -O3; what the tests run is compiled as it is shipped. All files of a program are
# compiled as one, in half the time of files of eight: a local name of one may hide a name of another.
set(GACCD_TEST_OPTIONS
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:RelWithDebInfo>>:-O0;-U_FORTIFY_SOURCE>")

# Properties of tests with deadlines: before those that compute, while tools/test builds with sanitizers on the
# time that they wait. Those of a cluster fill the machine: no other test at the same time. Of the others two run at
# once, with the four slots of tools/test.
set(GACCD_ALONE RUN_SERIAL ON COST 2000)
set(GACCD_WAITS PROCESSORS 2 COST 1000)

# gaccd_test_program(NAME [file...]): the program build/<preset>/tests/NAME, made at its first use.
function(gaccd_test_program name)
  if(NOT TARGET ${name})
    add_executable(${name} ${ARGN})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests" GACCD_TEST_CODE ON)
    target_link_libraries(${name} PRIVATE gaccd_options gaccd_testing)
    target_compile_options(${name} PRIVATE ${GACCD_TEST_OPTIONS})
  endif()
endfunction()

# gaccd_test_entry(NAME PROGRAM SOURCES file... [LIBS target...] [ARGUMENTS argument...]): adds the sources to the
# program, and a CTest entry that runs the tests of those which are named *_test.cc.
function(gaccd_test_entry name program)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS;ARGUMENTS" ${ARGN})
  target_sources(${program} PRIVATE ${arg_SOURCES})
  target_link_libraries(${program} PRIVATE ${arg_LIBS})
  list(FILTER arg_SOURCES INCLUDE REGEX "_test\\.cc$")
  set(tests "")
  foreach(source ${arg_SOURCES})
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/tests")
    list(APPEND tests ${source})
  endforeach()
  list(JOIN tests "," tests)
  add_test(NAME ${name} COMMAND ${program} --sources=${tests} ${arg_ARGUMENTS})
endfunction()

# gaccd_test(NAME PROGRAM program LABEL label TIMEOUT seconds SOURCES file... [LIBS target...]
#            [NOT_UNDER_TSAN] [NOT_SANITIZED] [SANITIZED_WITHOUT pattern...] [TSAN_WITHOUT pattern...])
# A CTest entry of a program of GoogleTest; tests/README.md lists the programs. LABEL is unit, ranks,
# numerics, cluster or faults.
# NOT_UNDER_TSAN: has one thread, or takes minutes under the thread sanitizer where tests of the engine or
# of the training run the same code between more threads. NOT_SANITIZED: under none. SANITIZED_WITHOUT: names of
# GoogleTest's tests that run the code of others of this entry again, in other combinations: for the numbers alone.
# TSAN_WITHOUT: those whose only threads are the ranks, as in others of this entry; not under the thread sanitizer.
# TIMEOUT: after which a test hangs, on a machine that has time. It ends nothing that works: a busy machine
# takes three times as long, and a sanitizer ten times.
function(gaccd_test name)
  cmake_parse_arguments(arg "NOT_UNDER_TSAN;NOT_SANITIZED" "PROGRAM;LABEL;TIMEOUT" "SOURCES;LIBS;SANITIZED_WITHOUT;TSAN_WITHOUT" ${ARGN})
  if((arg_NOT_UNDER_TSAN AND "thread" IN_LIST GACCD_SANITIZE) OR (arg_NOT_SANITIZED AND GACCD_SANITIZE))
    return()
  endif()
  if(NOT arg_PROGRAM OR NOT arg_LABEL OR NOT arg_TIMEOUT OR NOT arg_SOURCES)
    message(FATAL_ERROR "gaccd_test(${name}): PROGRAM, LABEL, TIMEOUT and SOURCES are needed")
  endif()
  gaccd_test_program(${arg_PROGRAM})
  set(slower 3)
  set(arguments "")
  if(GACCD_SANITIZE)
    set(slower 10)
    set(without ${arg_SANITIZED_WITHOUT})
    if(GACCD_SANITIZE_THREAD)
      list(APPEND without ${arg_TSAN_WITHOUT})
    endif()
    if(without)
      list(JOIN without ":" without)
      set(arguments "--gtest_filter=-${without}")
    endif()
  endif()
  gaccd_test_entry(${name} ${arg_PROGRAM} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS} ARGUMENTS ${arguments})
  math(EXPR arg_TIMEOUT "${slower} * ${arg_TIMEOUT}")
  # Those that may take long begin first, so that none is alone at the end.
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT})
endfunction()

# gaccd_program_test(NAME name LABEL label TIMEOUT seconds COMMAND command...): a CTest entry that starts
# gaccd itself and looks at what it prints and writes. Not under the thread sanitizer: what such a start does
# in threads the tests of these parts do there, too. Exit code 77: skipped.
function(gaccd_program_test)
  cmake_parse_arguments(arg "" "NAME;LABEL;TIMEOUT" "COMMAND" ${ARGN})
  if("thread" IN_LIST GACCD_SANITIZE)
    return()
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_COMMAND})
  math(EXPR arg_TIMEOUT "3 * ${arg_TIMEOUT}")  # as above
  set_tests_properties(${arg_NAME} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()
