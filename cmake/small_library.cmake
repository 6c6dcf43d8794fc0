# What writes rings, is loaded into programs of any kind, and travels in the launcher: it brings what it needs of libstdc++,
# shows no names but those marked so, and is small.
set(SMALL_LIBRARY MUSTER_OPTIMIZE -Os POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

# The part that they share, compiled once. {fmt} is without locales, which would be three quarters of a library.
add_library(muster_small_objects OBJECT EXCLUDE_FROM_ALL cmake/fmt.cc cmake/terminate.cc)
foreach(source base/process_stat ring/call_rules ring/fork_mark ring/memory_file ring/record_fd ring/ring_clock
        ring/ring_notes ring/ring_owner ring/ring_writer)
  target_sources(muster_small_objects PRIVATE rendezvous/${source}.cc)
endforeach()
target_link_libraries(muster_small_objects PUBLIC muster_flags tl::expected)
target_compile_definitions(muster_small_objects PUBLIC FMT_STATIC_THOUSANDS_SEPARATOR=',')
set_target_properties(muster_small_objects PROPERTIES ${SMALL_LIBRARY})

# muster_small_library(NAME EXPORTS SOURCES...): it exports names that match EXPORTS, and nothing of the libraries in it.
function(muster_small_library name exports)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE muster_small_objects)
  set(map ${CMAKE_CURRENT_BINARY_DIR}/${name}.map)
  file(CONFIGURE OUTPUT ${map} CONTENT "{ global: ${exports}; local: *; };\n")
  target_link_options(${name} PRIVATE ${MUSTER_STATIC_FLAGS} $<$<NOT:$<CONFIG:Debug>>:-s> -Wl,--version-script=${map}
                      $<$<CXX_COMPILER_ID:GNU>:-Wl,-z,noseparate-code>)
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${map})
  set_target_properties(${name} PROPERTIES ${SMALL_LIBRARY} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
endfunction()
