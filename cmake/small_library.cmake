# muster_small_library(NAME SOURCES...): one that writes rings, is loaded into programs of any kind, and travels in the
# launcher: it brings what it needs of libstdc++, shows no names but those marked so, and is small.
function(muster_small_library name)
  add_library(${name} MODULE ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/fmt.cc ${CMAKE_SOURCE_DIR}/cmake/terminate.cc)
  foreach(source base/process_stat ring/call_rules ring/fork_mark ring/memory_file ring/record_fd ring/ring_clock
          ring/ring_notes ring/ring_owner ring/ring_writer)
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/rendezvous/${source}.cc)
  endforeach()
  target_link_libraries(${name} PRIVATE muster_flags tl::expected)
  # {fmt} without locales, which would be three quarters of the library.
  target_compile_definitions(${name} PRIVATE FMT_STATIC_THOUSANDS_SEPARATOR=',')
  target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc $<$<NOT:$<CONFIG:Debug>>:-s>
                      -Wl,--exclude-libs,ALL -Wl,-z,noseparate-code)
  set_target_properties(${name} PROPERTIES MUSTER_OPTIMIZE -Os CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
endfunction()
