# What `cmake --install` and the Debian package hold: cpack -G DEB --config build/release/CPackConfig.cmake.
# gaccd makes the manual page and the completion itself, from the tables of its help.
include(GNUInstallDirs)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # no tests and benchmarks
set(doc "${CMAKE_INSTALL_DATADIR}/doc/gaccd")
set(share "${CMAKE_INSTALL_DATADIR}/gaccd")
set(made "${PROJECT_BINARY_DIR}/gaccd")  # .man and .bash are made when they are installed
set(maintainer "gaccd's engineers <gaccd@packages.invalid>")

install(TARGETS gaccd)
if(GACCD_CUDA_FOUND AND NOT GACCD_OPTIMISE_KERNELS)
  install(CODE "message(WARNING \"kernels for tests without a GPU (${CMAKE_CUDA_ARCHITECTURES}, not optimised) are \"
    \"installed: configure with -DGACCD_OPTIMISE_KERNELS=ON and build first\")")
endif()
foreach(page man bash)
  install(CODE "execute_process(COMMAND \"$<TARGET_FILE:gaccd>\" help ${page}
    OUTPUT_FILE \"${made}.${page}\" COMMAND_ERROR_IS_FATAL ANY)")
endforeach()
# Debian wants both compressed, without a time.
find_program(GACCD_GZIP gzip REQUIRED)
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH, where it is set
file(WRITE "${made}.changelog" "gaccd (${PROJECT_VERSION}) unstable; urgency=medium

  * What is new: daemon/CHANGELOG.md below this folder.

 -- ${maintainer}  ${now}
")
install(CODE "execute_process(COMMAND \"${GACCD_GZIP}\" -9nfk \"${made}.man\" \"${made}.changelog\"
  COMMAND_ERROR_IS_FATAL ANY)")
install(FILES "${made}.man.gz" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" RENAME gaccd.1.gz)
install(FILES "${made}.changelog.gz" DESTINATION "${doc}" RENAME changelog.gz)
install(FILES "${CMAKE_CURRENT_LIST_DIR}/copyright" DESTINATION "${doc}")
install(FILES "${made}.bash" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME gaccd)
# The pages keep their folders, so that links between them resolve.
install(FILES README.md DESTINATION "${doc}")
install(FILES daemon/CHANGELOG.md daemon/GLOSSARY.md DESTINATION "${doc}/daemon")
install(FILES slurm/OPERATORS.md slurm/COMING_FROM.md DESTINATION "${doc}/slurm")
install(FILES tools/python/README.md DESTINATION "${doc}/tools/python")
install(FILES tools/bench/README.md DESTINATION "${doc}/tools/bench")
install(FILES tools/dashboards/README.md DESTINATION "${doc}/tools/dashboards")
install(DIRECTORY daemon/docs DESTINATION "${doc}/daemon")
install(FILES daemon/inspect/report/report.png DESTINATION "${doc}/daemon/inspect/report")
install(PROGRAMS slurm/launch DESTINATION "${share}/slurm")
install(DIRECTORY slurm/examples DESTINATION "${share}/slurm")
install(DIRECTORY tools/dashboards DESTINATION "${share}" PATTERN dcgm-job-mapping EXCLUDE)
install(PROGRAMS tools/dashboards/dcgm-job-mapping DESTINATION "${share}/dashboards")
install(PROGRAMS tools/prepare DESTINATION "${share}/tools")
install(FILES tools/own_python.py DESTINATION "${share}/tools")
install(DIRECTORY tools/python/gaccd DESTINATION lib/python3/dist-packages
  FILES_MATCHING PATTERN "*.py" PATTERN py.typed PATTERN __pycache__ EXCLUDE)
# With a umask of 077 only who installs could enter gaccd's own folders, also those of a package.
install(CODE "foreach(own ${share} ${doc} lib/python3/dist-packages/gaccd)
  file(CHMOD_RECURSE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/\${own}\" DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endforeach()")

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "${maintainer}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains neural networks on a SLURM cluster with an exact effective batch")
set(CPACK_PACKAGE_DESCRIPTION "Runs by srun or mpirun, one process for a GPU or a core. Every update has
exactly the batch that was asked for, on any number of ranks.
/usr/share/gaccd/tools/prepare makes token arrays of text, the Python module
gaccd submits trainings and follows them, gaccd.torch makes updates of PyTorch exact.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "python3:any")  # of tools/prepare and the module
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin, python3-venv")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "slurm-client, dataset-fashion-mnist, bash-completion, python3-torch")
include(CPack)
