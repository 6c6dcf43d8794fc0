# Writes version.cc with the project's version and the commit, and touches it only when they change.
# Called at build time: cmake -DSOURCE=... -DVERSION=... -DCOMMIT=... -DOUTPUT=... -P version.cmake
set(HASH "${COMMIT}")
if(NOT HASH AND EXISTS ${SOURCE}/.git)  # Not that of a project around it.
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE HASH OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT HASH)
  set(HASH "no git")
endif()
set(CONTENT "#include \"launcher/version.h\"\n\nnamespace muster {\n\nstd::string_view version_line() { return \"muster ${VERSION} (${HASH})\"; }\n\n}  // namespace muster\n")
set(OLD "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} OLD)
endif()
if(NOT OLD STREQUAL CONTENT)
  file(WRITE ${OUTPUT} "${CONTENT}")
endif()
