# What a Python wheel carries, below its package (muster/) unless it says otherwise. It has no symbolic links, so that the
# library is one file, by the name that programs ask for. No man page and no completions: pip would leave their empty folders
# behind, and `muster --print-man` and `--print-completion` have them.
set_property(TARGET muster_worker PROPERTY VERSION)
install(TARGETS muster musterctl RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT wheel)
install(TARGETS muster_worker LIBRARY DESTINATION lib COMPONENT wheel NAMELINK_SKIP)
install(DIRECTORY worker_lib/include/muster DESTINATION include COMPONENT wheel)
