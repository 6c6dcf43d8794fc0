# Tests of the worker library that need no launcher. With objects, not libmuster.so: the tests look inside.
set(WORKER muster_worker_objects muster_worker_services)
muster_test(worker_group_front_tests unit
  SOURCES
    unit/worker_lib/group/group_bytes_test.cc unit/worker_lib/group/group_checks_test.cc
    unit/worker_lib/group/group_create_test.cc
    unit/worker_lib/group/group_failure_test.cc unit/worker_lib/group/group_mix_test.cc
    unit/worker_lib/group/group_order_test.cc unit/worker_lib/group/group_p2p_test.cc
    unit/worker_lib/group/group_plan_test.cc unit/worker_lib/group/group_queue_test.cc
    unit/worker_lib/group/group_shutdown_test.cc unit/worker_lib/group/leaving_test.cc
    unit/worker_lib/group/monitored_barrier_test.cc unit/worker_lib/group/process_group_test.cc
    unit/worker_lib/group/shared_time_test.cc unit/worker_lib/group/work_test.cc unit/worker_lib/purpose_test.cc
    unit/worker_lib/stragglers/rank_progress_test.cc unit/worker_lib/stragglers/straggler_report_test.cc
  LIBRARIES ${WORKER})
muster_test(worker_cpu_tests unit
  SOURCES
    unit/worker_lib/backends/backend_test.cc unit/worker_lib/backends/cpu/awaited_peers_test.cc
    unit/worker_lib/backends/cpu/cpu_backend_failure_test.cc unit/worker_lib/backends/cpu/cpu_backend_test.cc
    unit/worker_lib/backends/cpu/exchange_test.cc unit/worker_lib/backends/cpu/flat_ring_test.cc
    unit/worker_lib/backends/cpu/flat_test.cc unit/worker_lib/backends/cpu/hierarchy_layout_test.cc
    unit/worker_lib/backends/cpu/memory_file_test.cc unit/worker_lib/backends/cpu/p2p_engine_test.cc
    unit/worker_lib/backends/cpu/p2p_matching_test.cc unit/worker_lib/backends/cpu/p2p_test.cc
    unit/worker_lib/backends/cpu/segment_meeting_test.cc unit/worker_lib/backends/cpu/segment_test.cc
    unit/worker_lib/backends/cpu/shm_copy_test.cc unit/worker_lib/backends/cpu/shm_failure_test.cc
    unit/worker_lib/backends/cpu/shm_memory_test.cc unit/worker_lib/backends/cpu/shm_random_test.cc
    unit/worker_lib/backends/cpu/shm_regions_test.cc unit/worker_lib/backends/cpu/shm_routes_test.cc
    unit/worker_lib/backends/cpu/shm_test.cc unit/worker_lib/backends/cpu/side_copies_test.cc
    unit/worker_lib/backends/cpu/tcp_listeners_test.cc
    unit/worker_lib/backends/cpu/tcp_test.cc
    unit/worker_lib/backends/cpu/waiting_test.cc unit/worker_lib/backends/late_transfer_test.cc
    unit/worker_lib/backends/module_backend_test.cc unit/worker_lib/backends/opened_library_test.cc unit/worker_lib/backends/store_exchange_test.cc
    unit/worker_lib/quiet_thread_test.cc unit/worker_lib/stream_socket_test.cc unit/worker_lib/work_state_test.cc
  LIBRARIES ${WORKER} WAITING Groups/CollectiveFailures Groups/SocketFailures)
# A backend's library of C, and copies of it that libmuster.so refuses.
enable_language(C)
foreach(name plug_in plug_in_version plug_in_size plug_in_without_entry)
  string(TOUPPER ${name} variant)
  add_library(${name} MODULE fakes/plug_in.c)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/worker_lib/include)
  target_compile_options(${name} PRIVATE -std=c99 -Wall -Wextra -Wpedantic -Werror)
  target_compile_definitions(${name} PRIVATE ${variant})
  set_target_properties(${name} PROPERTIES PREFIX "" C_VISIBILITY_PRESET hidden)
  add_dependencies(worker_cpu_tests ${name})
endforeach()
target_compile_definitions(worker_cpu_tests PRIVATE MUSTER_PLUG_INS="${CMAKE_CURRENT_BINARY_DIR}")
muster_test(worker_watch_tests unit
  SOURCES
    sim/agreement_sim.cc unit/worker_lib/watch/agreements_test.cc
    unit/worker_lib/watch/lifeline_test.cc unit/worker_lib/watch/process_life_test.cc unit/worker_lib/watch/stop_signal_test.cc
    unit/worker_lib/watch/watch_board_test.cc unit/worker_lib/watch/watch_loop_test.cc
    unit/worker_lib/watch/watch_stop_test.cc unit/worker_lib/watch/watch_test.cc
    unit/worker_lib/watch/watch_tree_test.cc unit/worker_lib/watch/watch_wire_test.cc
  LIBRARIES ${WORKER} WAITING StopSignalTest)
muster_test(worker_training_tests unit
  SOURCES
    unit/worker_lib/training/buckets_test.cc unit/worker_lib/training/checkpoint_test.cc
    unit/worker_lib/training/helper_error_test.cc unit/worker_lib/training/training_test.cc
  LIBRARIES ${WORKER})
muster_test(worker_recorder_tests unit
  SOURCES
    unit/worker_lib/recorder/process_recorder_test.cc unit/worker_lib/recorder/recorded_calls_test.cc
    unit/worker_lib/recorder/recorded_groups_test.cc
  LIBRARIES ${WORKER})
if(MUSTER_SANITIZE STREQUAL "thread")
  return()
endif()
# The same ranks around copies of the machines with bugs planted on purpose.
set(WATCH_MACHINES members.cc watch/agreements.cc watch/end_reasons.cc watch/watch_tree.cc watch/watch_wire.cc)
list(TRANSFORM WATCH_MACHINES PREPEND ${CMAKE_SOURCE_DIR}/worker_lib/)
muster_test(watch_planted_tests sim SOURCES sim/agreement_planted_test.cc sim/agreement_sim.cc ${WATCH_MACHINES}
            LIBRARIES muster_flags muster_rendezvous)
target_compile_definitions(watch_planted_tests PRIVATE MUSTER_PLANTED_BUGS)
target_include_directories(watch_planted_tests PRIVATE ${CMAKE_SOURCE_DIR}/worker_lib/include)

muster_test(worker_unit_tests unit
  SOURCES
    matrix/block.cc matrix/case.cc matrix/layout.cc matrix/layout_test.cc matrix/pairwise.cc matrix/pairwise_test.cc
    matrix/values.cc unit/worker_lib/c_abi/c_abi_join_test.cc unit/worker_lib/c_abi/c_abi_test.cc unit/worker_lib/call_signature_test.cc
    unit/worker_lib/call_word_test.cc unit/worker_lib/camps_test.cc unit/worker_lib/failure_reports_test.cc
    unit/worker_lib/failure_test.cc unit/worker_lib/fields_test.cc unit/worker_lib/fork_guard_test.cc
    unit/worker_lib/group_labels_test.cc unit/worker_lib/joining/env_test.cc
    unit/worker_lib/joining/failure_notice_test.cc unit/worker_lib/joining/file_meeting_point_test.cc
    unit/worker_lib/joining/foreign_launcher_test.cc unit/worker_lib/joining/gpu_count_test.cc
    unit/worker_lib/joining/identity_test.cc unit/worker_lib/joining/job_secret_test.cc unit/worker_lib/joining/init_test.cc
    unit/worker_lib/joining/meeting_text_test.cc unit/worker_lib/joining/own_address_test.cc
    unit/worker_lib/joining/rank_record_test.cc unit/worker_lib/members_test.cc unit/worker_lib/rank_runs_test.cc
    unit/worker_lib/reduction/reduce_kernels_test.cc unit/worker_lib/reduction/reduce_loops_test.cc
    unit/worker_lib/spawn/spawn_test.cc unit/worker_lib/time_text_test.cc unit/worker_lib/training/atomic_file_test.cc
    unit/worker_lib/training/bucket_plan_test.cc unit/worker_lib/training/sampler_test.cc unit/worker_lib/types_test.cc
  LIBRARIES ${WORKER} WAITING WorkerMeeting)
add_test(NAME ${PREFIX}.unit.refused.worker_spawn
         COMMAND refuse_calls 38 $<TARGET_FILE:worker_unit_tests> --gtest_filter=*Spawn*)
set_tests_properties(${PREFIX}.unit.refused.worker_spawn PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77
                     RESOURCE_GROUPS computing:1)

# A program that has the gloo backend in itself, where it is found before the library is looked for.
function(muster_with_gloo program)
  if(TARGET muster_gloo_objects)
    target_link_libraries(${program} PRIVATE muster_gloo_objects)
    target_link_options(${program} PRIVATE -Wl,-u,muster_gloo_module -Wl,--export-dynamic-symbol=muster_gloo_module)
  endif()
endfunction()
muster_test(worker_gloo_tests unit
  SOURCES unit/worker_lib/backends/gloo/gloo_leaks.cc unit/worker_lib/backends/gloo/gloo_test.cc
  LIBRARIES ${WORKER})
muster_with_gloo(worker_gloo_tests)

# A driver and an NCCL that compute in host memory (no GPU is needed anywhere here).
add_library(fake_gpu SHARED fakes/fake_cuda.cc fakes/fake_nccl.cc)
target_link_libraries(fake_gpu PRIVATE ${WORKER})
# Else it keeps all of the rendezvous, whose thread-local buffers are too large for a library that is opened late.
target_link_options(fake_gpu PRIVATE -Wl,--exclude-libs,ALL)
muster_test(worker_nccl_tests unit EACH_TEST SOURCES
    unit/worker_lib/backends/nccl/nccl_backend_test.cc unit/worker_lib/backends/nccl/nccl_core_test.cc
    unit/worker_lib/backends/nccl/nccl_library_test.cc
  LIBRARIES ${WORKER})
target_compile_definitions(worker_nccl_tests PRIVATE MUSTER_FAKE_GPU="$<TARGET_FILE:fake_gpu>")
add_dependencies(worker_nccl_tests fake_gpu)

# The matrix and the scenes of groups: programs linked to the shared library as a user's are, under the sanitizers to the
# objects.
set(MATRIX_SOURCES matrix/worker_matrix.cc matrix/block.cc matrix/case.cc matrix/cuda_block.cc matrix/layout.cc
    matrix/pairwise.cc matrix/perform.cc matrix/values.cc)
if(MUSTER_SANITIZE)
  add_executable(worker_matrix ${MATRIX_SOURCES} unit/worker_lib/backends/gloo/gloo_leaks.cc)
  add_executable(worker_scenes matrix/worker_scenes.cc)
  target_link_libraries(worker_matrix PRIVATE ${WORKER} ${CMAKE_DL_LIBS})
  muster_with_gloo(worker_matrix)
  target_link_libraries(worker_scenes PRIVATE ${WORKER})
  # unit.Groups/CpuBackendShapes and unit.GlooBackend have every operation on every type as well.
  add_test(NAME ${PREFIX}.live.worker.matrix
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/live/worker_matrix_test.py Groups)
  add_test(NAME ${PREFIX}.live.worker.matrix.all
           COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/live/worker_matrix_test.py OneNode Gloo)
  set(MATRIX_ENVIRONMENT "MUSTER=$<TARGET_FILE:muster>" "MUSTER_WORKER_MATRIX=$<TARGET_FILE:worker_matrix>"
      "MUSTER_WORKER_SCENES=$<TARGET_FILE:worker_scenes>" OVERLAPPING_ROUNDS=50)
  set_tests_properties(${PREFIX}.live.worker.matrix ${PREFIX}.live.worker.matrix.all PROPERTIES LABELS live TIMEOUT 900 SKIP_RETURN_CODE 77
                       RESOURCE_GROUPS computing:1 COST 20 ENVIRONMENT "${MATRIX_ENVIRONMENT}")
  set_tests_properties(${PREFIX}.live.worker.matrix.all PROPERTIES LABELS long)
endif()

# The worker library's benchmark: its ranks on the shared library, as a user's program.
if(NOT MUSTER_SANITIZE)
  add_executable(worker_bench bench/worker_bench.cc bench/worker_bench_rank.cc)
  target_link_libraries(worker_bench PRIVATE muster_flags muster::muster)
endif()
