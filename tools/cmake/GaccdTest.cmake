include(GoogleTest)

# gaccd_test(NAME LABEL TIMEOUT SOURCES file... [LIBS target...] [NOT_UNDER_TSAN])
# One GoogleTest binary, one CTest entry. LABEL is unit, ranks, numerics, cluster or faults.
# NOT_UNDER_TSAN: takes minutes under the thread sanitizer, where tests of the engine or of the
# training run the same code between more threads.
function(gaccd_test name)
  cmake_parse_arguments(arg "NOT_UNDER_TSAN" "LABEL;TIMEOUT" "SOURCES;LIBS" ${ARGN})
  if(arg_NOT_UNDER_TSAN AND "thread" IN_LIST GACCD_SANITIZE)
    return()
  endif()
  if(NOT arg_LABEL OR NOT arg_TIMEOUT OR NOT arg_SOURCES)
    message(FATAL_ERROR "gaccd_test(${name}): LABEL, TIMEOUT and SOURCES are needed")
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE gaccd_options ${arg_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  if(GACCD_SANITIZE)
    math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
endfunction()
