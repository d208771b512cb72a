# What `cmake --install` and the Debian package hold: cpack -G DEB --config build/release/CPackConfig.cmake.
# gaccd makes the manual page and the completion itself, from the tables of its help.
include(GNUInstallDirs)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # no tests and benchmarks
set(doc "${CMAKE_INSTALL_DATADIR}/doc/gaccd")
set(share "${CMAKE_INSTALL_DATADIR}/gaccd")
set(made "${PROJECT_BINARY_DIR}/gaccd")  # .man and .bash are made when they are installed

install(TARGETS gaccd)
foreach(page man bash)
  install(CODE "execute_process(COMMAND \"$<TARGET_FILE:gaccd>\" help ${page}
    OUTPUT_FILE \"${made}.${page}\" COMMAND_ERROR_IS_FATAL ANY)")
endforeach()
install(FILES "${made}.man" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" RENAME gaccd.1)
install(FILES "${made}.bash" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME gaccd)
install(FILES README.md daemon/CHANGELOG.md slurm/OPERATORS.md slurm/COMING_FROM.md DESTINATION "${doc}")
install(PROGRAMS slurm/launch DESTINATION "${share}/slurm")
install(DIRECTORY slurm/examples DESTINATION "${share}/slurm")
install(DIRECTORY tools/dashboards DESTINATION "${share}")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "gaccd's engineers <gaccd@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains neural networks on a SLURM cluster with an exact effective batch")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "slurm-client, dataset-fashion-mnist, bash-completion")
include(CPack)
